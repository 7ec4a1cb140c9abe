"""Directories in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import memory
from tests.faults.memory import in_memory


def test_a_directory_in_memory_is_there_until_the_end(tmp_path_factory: pytest.TempPathFactory) -> None:
    otherwise = tmp_path_factory.mktemp("otherwise")
    with in_memory(otherwise) as first, in_memory(otherwise) as second:
        assert first == second == otherwise or first != second
        (first / "file").write_text("content")
    assert first == otherwise or not first.exists()
    assert otherwise.exists()


def test_without_room_in_memory_the_other_directory_is_taken(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    otherwise = tmp_path_factory.mktemp("otherwise")
    for name, value in (("_ROOM_BYTES", 1 << 62), ("_MEMORY", Path("/no/such/place"))):
        with monkeypatch.context() as patch:
            patch.setattr(memory, name, value)
            with in_memory(otherwise) as directory:
                assert directory == otherwise
    assert otherwise.exists()
