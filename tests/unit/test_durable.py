"""A small file is replaced as a whole, and a writer that fails or meets another one leaves nothing beside it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from statestore.durable import write_all_durably, write_atomically, write_durably, write_new

WRITERS = [write_durably, partial(write_durably, several_writers=True), write_atomically]


@pytest.mark.parametrize("write", WRITERS)
def test_text_and_bytes_replace_what_was_there(tmp_path, write):
    path = tmp_path / "new" / "file"
    for content in ("ä\n", b"\xff\x00", ""):
        write(path, content)
        assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("write", WRITERS)
def test_a_writer_that_fails_leaves_what_was_there_and_nothing_else(tmp_path, write):
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write(tmp_path / "file", "new")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize("write", WRITERS[1:])
def test_of_several_writers_one_wins(tmp_path, write):
    path, contents = tmp_path / "file", [str(number) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(len(contents)) as pool:
        for _ in pool.map(lambda content: write(path, content), contents):
            assert path.read_text() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_is_written_over(tmp_path):
    (tmp_path / ".file.partial").write_text("a longer content than the new one")
    write_durably(tmp_path / "file", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "new"}


def test_a_private_file_is_never_readable_by_others(tmp_path):
    write_atomically(tmp_path / "file", "secret", mode=0o600)
    assert os.stat(tmp_path / "file").st_mode & 0o777 == 0o600


def test_files_of_one_directory_are_each_forced_to_the_disk_and_their_directory_once(tmp_path, monkeypatch):
    forced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: forced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
    write_all_durably({tmp_path / "a": "1", tmp_path / "b": b"2"})
    assert forced == [tmp_path / ".a.partial", tmp_path / ".b.partial", tmp_path]
    assert [(path.name, path.read_text()) for path in sorted(tmp_path.iterdir())] == [("a", "1"), ("b", "2")]
    forced.clear()
    write_new(tmp_path / "c", b"3")
    write_new(tmp_path / "empty", b"")
    assert forced == [tmp_path / "c"]
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "c", b"4")
    assert (tmp_path / "c").read_bytes() == b"3"
