"""Kafka Streams and our stores change the same directories in turn, each going on where the other one stopped.

Task 0 is handed over cleanly. In task 1 one store is left open by us with a row that was never committed, so that Kafka
Streams rebuilds the task from the changelogs. In the end both tasks have the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka_streams import Command, Contents, KafkaStreams, Row, Store, StorePartition
from shared_state import T0, SharedState

from statestore.formats import checkpoint_file
from statestore.formats.offsets import STATUS_OPEN
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import StoreFormat, TopicPartition
from statestore.statedir.legacy import forget_legacy_offset, legacy_offsets
from statestore.stores.api import KeyValueBytesStore, StoreContext, Windowed
from statestore.stores.builders import key_value_store_builder
from statestore.stores.serdes import BYTES
from statestore.stores.suppliers import BuiltIn
from statestore.stores.table import Row as BytesRow

TIMESTAMPED = StoreFormat.TIMESTAMPED
STORES = [
    Store("plain-kv"),
    Store("ts-kv", format=TIMESTAMPED),
    Store("window", "window"),
    Store("ts-window", "window", TIMESTAMPED),
    Store("twice", "window", duplicates=True),
    Store("expiring", "window"),
    Store("session", "session"),
]
PARTS = [StorePartition(store.name, partition) for store in STORES for partition in range(2)]
#: Every segment before this time has expired once a window starts here.
LATER = 7_320_000

FIRST = [
    *(Command("plain-kv", key, b"1", T0) for key in (b"a", b"b", b"c", b"d")),
    *(Command("ts-kv", key, b"1", T0, value_timestamp=5) for key in (b"a", b"b", b"c", b"d")),
    Command("window", b"a", b"1", T0, start=60_000),
    Command("window", b"a", b"2", T0, start=120_000),
    Command("window", b"b", b"3", T0, start=60_000),
    Command("ts-window", b"a", b"1", T0, start=60_000, value_timestamp=5),
    Command("ts-window", b"a", b"2", T0, start=2_400_000, value_timestamp=5),
    Command("ts-window", b"b", b"3", T0, start=60_000, value_timestamp=5),
    Command("twice", b"a", b"1", T0, start=60_000),
    Command("twice", b"a", b"2", T0, start=60_000),
    Command("expiring", b"a", b"1", T0, start=60_000),
    Command("session", b"a", b"1", T0, start=100, end=200),
    Command("session", b"a", b"2", T0, start=300, end=400),
    Command("session", b"b", b"3", T0, start=100, end=100),
]


def ours(store: Any) -> None:
    """Change each store by each of its operations."""
    match store.name:
        case "plain-kv":
            store.put(b"b", b"B")
            store.delete(b"c")
            store.put_if_absent(b"a", b"too late")
            store.put_if_absent(b"", b"absent")
            store.put_all([(b"d", None), (b"e", b""), (b"g", b"g"), (b"h", b"h")])
            store.delete_range(b"g", b"h")
        case "ts-kv":
            store.put(b"b", ValueAndTimestamp(b"B", 7))
            store.delete(b"c")
            store.put_all([(b"d", None), (b"e", ValueAndTimestamp(b"", 8))])
        case "window":
            store.put(b"a", b"A", 60_000)
            store.put(b"a", None, 120_000)
            store.put(b"c", b"", 1_920_000)  # in a new segment
        case "ts-window":
            store.put(b"a", ValueAndTimestamp(b"A", 7), 60_000)
            store.put(b"a", None, 2_400_000)
            store.put(b"c", ValueAndTimestamp(b"", 8), 3_600_000)  # in a new segment
        case "twice":
            store.put(b"a", b"3", 60_000)
            store.put(b"a", None, 60_000)
            store.put(b"a", b"4", 60_000)
        case "expiring":
            store.put(b"a", b"2", LATER)
        case "session":
            store.remove(Windowed(b"a", 100, 200))
            store.remove(Windowed(b"a", 300, 400))
            store.put(Windowed(b"a", 100, 400), b"12")


THEN = [
    Command("plain-kv", b"b", b"BB", T0 + 2),
    Command("plain-kv", b"c", b"again", T0 + 2),
    Command("plain-kv", b"e", None, T0 + 2, op="delete"),
    Command("ts-kv", b"b", b"BB", T0 + 2, value_timestamp=9),
    Command("ts-kv", b"e", None, T0 + 2, op="delete"),
    Command("window", b"a", b"AA", T0 + 2, start=120_000),
    Command("window", b"b", None, T0 + 2, start=60_000),
    Command("ts-window", b"a", b"AA", T0 + 2, start=2_400_000, value_timestamp=9),
    Command("ts-window", b"b", None, T0 + 2, start=60_000),
    Command("expiring", b"b", b"3", T0 + 2, start=LATER),
    Command("session", b"a", b"123", T0 + 2, start=100, end=400),
    Command("session", b"b", None, T0 + 2, start=100, end=100, op="delete"),
]
ROWS = {
    "plain-kv": [Row(b"", b"absent"), Row(b"a", b"1"), Row(b"b", b"BB"), Row(b"c", b"again")],
    "ts-kv": [Row(b"a", b"1", 5), Row(b"b", b"BB", 9)],
    "window": [
        Row(b"a", b"A", None, 60_000, 120_000),
        Row(b"a", b"AA", None, 120_000, 180_000),
        Row(b"c", b"", None, 1_920_000, 1_980_000),
    ],
    "ts-window": [
        Row(b"a", b"A", 7, 60_000, 120_000),
        Row(b"a", b"AA", 9, 2_400_000, 2_460_000),
        Row(b"c", b"", 8, 3_600_000, 3_660_000),
    ],
    "twice": [Row(b"a", value, None, 60_000, 120_000) for value in (b"1", b"2", b"3", b"4")],
    "expiring": [Row(key, value, None, LATER, LATER + 60_000) for key, value in ((b"a", b"2"), (b"b", b"3"))],
    "session": [Row(b"a", b"123", None, 100, 400)],
}


class Notes(KeyValueBytesStore):
    """A store of a user's own, in one JSON file: it manages no offsets."""

    persistent = True
    is_open = False

    def __init__(self) -> None:
        self.name = "notes"

    def init(self, context: StoreContext) -> None:
        self.path = context.task_directory / "notes.json"
        self.rows: dict[str, str] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.is_open = True

    def close(self, *, clean: bool = True) -> None:
        self.path.write_text(json.dumps(self.rows))
        self.is_open = False

    def get(self, key: bytes) -> bytes | None:
        return bytes.fromhex(self.rows[key.hex()]) if key.hex() in self.rows else None

    def put(self, key: bytes, value: bytes | None) -> None:
        self.rows.pop(key.hex(), None)
        if value is not None:
            self.rows[key.hex()] = value.hex()

    def flush(self) -> None:
        pass

    def scan(self, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> Iterator[BytesRow]:
        raise NotImplementedError


@dataclass(frozen=True)
class Turns:
    """What was seen on the way, and the state directory in the end.

    Attributes
    ----------
    checkpoints
        By task: offsets in the `.checkpoint` file that Kafka Streams wrote when it was told that a downgrade may come,
        and those of the last records logged by then.
    logged
        Records in each changelog when Kafka Streams took over.
    taken_over
        What it restored then.
    """

    state: SharedState
    checkpoints: list[tuple[dict[TopicPartition, int | None], dict[TopicPartition, int]]]
    logged: dict[StorePartition, int]
    taken_over: Contents
    contents: Contents


@pytest.fixture(scope="module")
def turns(kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory) -> Turns:
    state = SharedState(kafka_streams(partitions=2), tmp_path_factory.mktemp("turns") / "state", STORES)
    state.app.write(state.state_dir, STORES, in_both_tasks(FIRST), config={"upgrade.from": "4.2"})

    checkpoints = [(legacy_offsets(state.paths(partition)), last_logged(state, partition)) for partition in range(2)]
    add_what_older_versions_and_users_stores_leave(state)
    for part in PARTS:
        forget_legacy_offset(state.paths(part.partition), part.store)
        state.change(part, ours, T0 + 1, position=40)
    logged = {part: state.records(part) for part in PARTS}
    leave_open_with_an_uncommitted_row(state, StorePartition("plain-kv", 1))

    taken_over = state.app.write(state.state_dir, STORES, in_both_tasks(THEN))
    return Turns(state, checkpoints, logged, taken_over, state.app.read(state.state_dir, STORES))


def in_both_tasks(commands: list[Command]) -> list[Command]:
    return [command._replace(partition=partition) for command in commands for partition in range(2)]


def last_logged(state: SharedState, partition: int) -> dict[TopicPartition, int]:
    parts = [StorePartition(store.name, partition) for store in STORES]
    return {state.changelog(part): state.last_logged(part) for part in parts}


def add_what_older_versions_and_users_stores_leave(state: SharedState) -> None:
    ahead = checkpoint_file.write({state.input(0): 1_000, TopicPartition("another", 7): 9})
    for store in ("ts-kv", "window"):
        (state.paths(0).task_dir / f"{store}.position").write_text(ahead)
    notes = key_value_store_builder(BuiltIn("notes", Notes), BYTES, BYTES).build()
    notes.init(state.context(0))
    notes.put(b"a", b"1")
    notes.commit({state.changelog(StorePartition("notes")): 3})
    notes.close()
    assert (state.paths(0).task_dir / ".checkpoint_notes").exists()


def leave_open_with_an_uncommitted_row(state: SharedState, part: StorePartition) -> None:
    store: Any = state.build(part, transactional=False)
    store.init(state.context(part.partition))
    store.put(b"uncommitted", b"row")
    store.sync()
    store.close(clean=False)
    assert state.statuses(part) == [STATUS_OPEN]
    assert b"uncommitted" in state.raw_keys(part, "default")


def test_kafka_streams_has_nothing_to_restore_after_our_changes(turns: Turns) -> None:
    restored = {part: turns.taken_over.restored[part] for part in PARTS if part.partition == 0}
    assert restored == dict.fromkeys(restored, 0)


def test_a_task_with_a_store_that_we_left_open_is_rebuilt_by_kafka_streams_from_what_we_logged(turns: Turns) -> None:
    restored = {part: turns.taken_over.restored[part] for part in PARTS if part.partition == 1}
    assert restored == {part: turns.logged[part] for part in restored}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.store}-{part.partition}")
def test_each_sees_all_changes_of_the_other(turns: Turns, part: StorePartition) -> None:
    assert turns.contents.restored[part] == 0
    assert turns.contents.rows[part] == ROWS[part.store]
    assert turns.state.rows(part) == ROWS[part.store]


def test_what_both_logged_is_what_both_stored(turns: Turns, tmp_path: Path) -> None:
    restored = turns.state.elsewhere(tmp_path / "state")
    for part in PARTS:
        restored.restore(part)
        assert restored.rows(part) == ROWS[part.store], part


def test_kafka_streams_goes_on_from_our_positions_old_position_files_included(turns: Turns) -> None:
    for store in STORES:
        part = StorePartition(store.name)
        with turns.state.opened(part, read_only=True) as opened:
            assert opened.position() == turns.contents.positions[part], part
    ahead = {turns.state.input(0): 1_000, TopicPartition("another", 7): 9}
    assert turns.contents.positions["ts-kv", 0] == turns.contents.positions["window", 0] == ahead
    assert turns.contents.positions["twice", 0] == {turns.state.input(0): 40}
    for store in ("ts-kv", "window"):
        assert not (turns.state.paths(0).task_dir / f"{store}.position").exists()


def test_a_checkpoint_file_of_kafka_streams_says_what_is_in_its_stores(turns: Turns) -> None:
    for found, expected in turns.checkpoints:
        assert found == expected


def test_the_checkpoint_file_of_a_users_store_is_left_to_it(turns: Turns) -> None:
    notes = key_value_store_builder(BuiltIn("notes", Notes), BYTES, BYTES).build()
    notes.init(turns.state.context(0))
    assert notes.committed_offset(turns.state.changelog(StorePartition("notes"))) == 3
    assert notes.get(b"a") == b"1"
    notes.close(clean=False)
