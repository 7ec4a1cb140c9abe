"""A file with shapes of stores: what is taken from it, and what is refused with what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statestore.discovery.known_store import KnownStore
from statestore.discovery.shapes_file import read_shapes, shape_rows
from statestore.errors import InputError

WINDOW = {
    "application": "app",
    "store": "w",
    "kind": "window",
    "format": "timestamped",
    "retention_ms": 3_600_000,
    "segment_interval_ms": 1_800_000,
    "retain_duplicates": True,
    "subtopology": 1,
    "changelog": "app-w-changelog",
    "topic_id": "id",
}


class NoBroker:
    """Topics that nobody asks for: a row with a topic's id speaks of that topic. A broker would answer the same."""

    def describe(self, names: list[str]) -> dict[str, Any]:
        assert not names
        return {}


def read(path: Path, *rows: dict[str, Any], applications: tuple[str, ...] = ("app",)) -> dict[str, KnownStore]:
    path.write_text(json.dumps({"rows": [], "shapes": list(rows)}))
    return read_shapes(path, list(applications), NoBroker()).get("app", {})  # type: ignore[arg-type]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    table = {**WINDOW, "store": "g", "kind": "key-value", "retention_ms": None, "subtopology": None, "global": "table"}
    table |= {"segment_interval_ms": None, "retain_duplicates": False}
    found = read(tmp_path / "f", WINDOW, table, {**WINDOW, "store": "mem", "in_memory": True})
    assert found["w"].definition is not None
    assert (found["w"].definition.retain_duplicates, found["w"].segment_interval_ms) == (True, 1_800_000)
    assert (found["g"].is_global, found["g"].global_kind, found["g"].global_said) == (True, "table", True)
    again = read(tmp_path / "again", *shape_rows("app", found))
    assert again == found


def test_what_is_not_known_here_is_one_stores_trouble(tmp_path: Path) -> None:
    odd = {**WINDOW, "store": "odd", "segment_interval_ms": 60_000}
    found = read(tmp_path / "f", WINDOW, {**WINDOW, "store": "x", "kind": "spiral"}, odd)
    versioned = {**WINDOW, "store": "v", "kind": "versioned", "format": "plain", "retain_duplicates": False}
    assert "kind=versioned" in read(tmp_path / "v", WINDOW, versioned)["v"].unknown, "no other store waits for it"
    assert found["x"].unknown == "f has kind=spiral, format=timestamped"
    assert "segments of 60000 ms" in found["odd"].unknown
    assert found["w"].definition is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"retention_ms": None}, "store w is a window store; say its retention_ms"),
        ({"subtopology": None}, "store w has no subtopology; say it, or global"),
        ({"retention_ms": -1}, "retention_ms: Input should be greater"),
        ({"retention_ms": "long"}, "retention_ms: Input should be a valid integer"),
        ({"kind": None}, "kind: Input should be a valid string"),
        ({"global": "other"}, "global: Input should be 'table', 'processor' or 'unknown'"),
        ({"global": "table"}, "store w is a global table, expected kind=key-value, found window"),
        ({"store": "../w"}, r"\.\./w"),
        ({"application": "other"}, "has no store of app; it has stores of other"),
    ],
)
def test_a_row_that_cannot_be_so_is_refused_by_name(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path / "f", {**WINDOW, **change})


def test_a_row_that_names_no_application_is_of_the_one_that_is_asked_for(tmp_path: Path) -> None:
    row = {**WINDOW, "application": None}
    assert read(tmp_path / "f", row) == read(tmp_path / "f", WINDOW)
    with pytest.raises(InputError, match="does not say whose store w is"):
        read(tmp_path / "f", row, applications=("app", "other"))


def test_two_rows_of_one_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="says two things of store w"):
        read(tmp_path / "f", WINDOW, WINDOW)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"rows": []}', b'{"shapes": 1}', b"\xff\xfe"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is no file with shapes of stores"):
        read_shapes(path, ["app"], NoBroker())  # type: ignore[arg-type]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing cannot be read: No such file"):
        read_shapes(tmp_path / "missing", ["app"], NoBroker())  # type: ignore[arg-type]
