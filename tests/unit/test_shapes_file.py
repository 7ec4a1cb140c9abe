"""A file with shapes of stores: what is taken from it, and what is refused with what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statestore.definitions.store import StoreDefinition
from statestore.discovery.known_store import KnownStore
from statestore.discovery.shapes_file import read_shapes, shape_rows, with_shapes
from statestore.errors import InputError
from statestore.kafka.topics import Topic

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


class OneTopic:
    """Topics that all have the id `id`, which a broker would have drawn."""

    def describe(self, names: list[str]) -> dict[str, Topic]:
        return {name: Topic(name, "id", 1) for name in names}


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


def test_a_versioned_store_is_read_with_its_retention_and_the_length_of_its_segments(tmp_path: Path) -> None:
    fields = {"name": "v", "kind": "versioned", "engine": "rocksDB", "retention_ms": 600_000}
    definition = StoreDefinition.model_validate({**fields, "segment_interval_ms": 7_000})
    known = KnownStore(definition=definition, subtopology=0, changelog="app-v-changelog", topic_id="id")
    assert read(tmp_path / "f", *shape_rows("app", {"v": known})) == {"v": known}


@pytest.mark.parametrize(
    ("left_out", "shown"),
    [((), True), (("described",), False), (("topic_id",), False)],
    ids=["printed", "word", "topology"],
)
def test_only_what_was_printed_of_a_directory_passes_for_what_one_has_shown(
    tmp_path: Path, left_out: tuple[str, ...], shown: bool
) -> None:
    row = {**WINDOW, "described": ""}
    path = tmp_path / "f"
    path.write_text(json.dumps({"shapes": [{name: row[name] for name in row if name not in left_out}]}))
    found = read_shapes(path, ["app"], OneTopic())["app"]["w"]  # type: ignore[arg-type]
    assert found.shown is shown
    assert shown or found.described == "kind=window, format=timestamped in f"


KV = StoreDefinition.model_validate({"name": "g", "kind": "key-value", "format": "timestamped", "engine": "rocksDB"})
TABLE = KnownStore(
    definition=KV, changelog="t", topic_id="id", is_global=True, global_kind="table", described="a guess"
)
PROCESSOR = TABLE.model_copy(update={"global_kind": "processor", "global_said": True, "described": "in f"})


def test_what_a_file_says_of_a_global_store_goes_before_a_guess_and_never_before_a_word() -> None:
    path, topics = Path("f"), OneTopic()
    [found] = with_shapes({"g": TABLE}, {"g": PROCESSOR}, path, topics).values()  # type: ignore[arg-type]
    assert (found.global_kind, found.global_said) == ("processor", True)
    said = TABLE.model_copy(update={"global_said": True})
    with pytest.raises(InputError, match="has global=processor, and is known here with table"):
        with_shapes({"g": said}, {"g": PROCESSOR}, path, topics)  # type: ignore[arg-type]
    of_tasks = PROCESSOR.model_copy(update={"is_global": False, "global_kind": None, "subtopology": 0})
    with pytest.raises(InputError, match="is a store of tasks, and is known here as a global store"):
        with_shapes({"g": said}, {"g": of_tasks}, path, topics)  # type: ignore[arg-type]


def test_a_file_does_not_make_a_store_known_that_its_directory_has_shown_to_be_another() -> None:
    odd = KnownStore(unknown="it has the column family xyz", changelog="t", topic_id="id")
    [found] = with_shapes({"g": odd}, {"g": PROCESSOR}, Path("f"), OneTopic()).values()  # type: ignore[arg-type]
    assert found == odd
    said = odd.model_copy(update={"described": "in an earlier file"})
    [found] = with_shapes({"g": said}, {"g": PROCESSOR}, Path("f"), OneTopic()).values()  # type: ignore[arg-type]
    assert found == PROCESSOR


def test_what_is_not_known_here_is_one_stores_trouble(tmp_path: Path) -> None:
    odd = {**WINDOW, "store": "odd", "segment_interval_ms": 60_000}
    found = read(tmp_path / "f", WINDOW, {**WINDOW, "store": "x", "kind": "spiral"}, odd)
    closed = {**WINDOW, "store": "c", "kind": "time-ordered-window", "format": "headers", "retain_duplicates": False}
    assert "has the format timestamped-in-default" in read(tmp_path / "c", WINDOW, closed)["c"].unknown, (
        "no other store waits for it"
    )
    assert found["x"].unknown == "f has kind=spiral, format=timestamped"
    assert "segments of 60000 ms" in found["odd"].unknown
    assert found["w"].definition is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"retention_ms": None}, "store w is a window store; add its retention_ms"),
        ({"subtopology": None}, "store w has no subtopology; add it, or global"),
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
    with pytest.raises(InputError, match="does not name the application of store w"):
        read(tmp_path / "f", row, applications=("app", "other"))


def test_two_rows_of_one_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="describes store w"):
        read(tmp_path / "f", WINDOW, WINDOW)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"rows": []}', b'{"shapes": 1}', b"\xff\xfe"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not a shapes file"):
        read_shapes(path, ["app"], NoBroker())  # type: ignore[arg-type]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing cannot be read: No such file"):
        read_shapes(tmp_path / "missing", ["app"], NoBroker())  # type: ignore[arg-type]
