"""Plain stores become timestamped ones, row by row, in our hands and in those of Kafka Streams (KIP-258).

Kafka Streams writes plain stores in two tasks. Then it opens them as timestamped: task 0 after we have changed some of
its rows, task 1 as it was; and changes the same rows of task 1 itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from kafka_streams import Command, Contents, KafkaStreams, Row, Store, StorePartition
from shared_state import T0, SharedState, rows_of

from statestore.formats import session_key, window_key
from statestore.formats.timestamped_value import UNKNOWN_TIMESTAMP, ValueAndTimestamp
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY, TIMESTAMPED_COLUMN_FAMILY
from statestore.model import StoreFormat
from statestore.stores.api import Windowed

pytestmark = pytest.mark.long  # Kafka Streams is started several times

PLAIN = [Store("counts"), Store("windows", "window"), Store("twice", "window", duplicates=True)]
TIMESTAMPED = [replace(store, format=StoreFormat.TIMESTAMPED) for store in PLAIN]
#: Kafka Streams has no timestamped session store, so this one is upgraded by us alone.
SESSIONS = Store("sessions", "session")
PARTS = [StorePartition(store.name, partition) for store in PLAIN for partition in range(2)]

#: What is done to the row of that key; `left` is not touched.
KEYS = [b"deleted", b"left", b"put", b"read"]
#: Window starts, or session ends, in two segments that are written as plain, and in a third that comes later.
OLD, NEWER, NEW = 60_000, 1_860_000, 3_660_000
UNKNOWN = UNKNOWN_TIMESTAMP
WRITTEN = [
    *(Command("counts", key, b"old", T0) for key in KEYS),
    *(Command("windows", key, b"old", T0, start=start) for key in KEYS for start in (OLD, NEWER)),
    *(Command("twice", b"left", value, T0, start=OLD) for value in (b"1", b"2")),
    *(Command("sessions", key, b"old", T0, start=end - 10, end=end) for key in KEYS for end in (OLD, NEWER)),
]
UPGRADE = [
    Command("counts", b"read", op="get"),
    Command("counts", b"put", b"new", value_timestamp=7),
    Command("counts", b"deleted", op="delete"),
    Command("counts", b"added", b"new", value_timestamp=8),
    *(Command("windows", b"read", start=start, op="get") for start in (OLD, NEWER)),
    *(Command("windows", b"put", b"new", start=start, value_timestamp=7) for start in (OLD, NEWER)),
    *(Command("windows", b"deleted", start=start, op="delete") for start in (OLD, NEWER)),
    *(Command("windows", b"added", b"new", start=start, value_timestamp=8) for start in (OLD, NEW)),
    Command("twice", b"added", b"3", start=OLD, value_timestamp=9),
]


def window(key: bytes, value: bytes, timestamp: int, start: int) -> Row:
    return Row(key, value, timestamp, start, start + 60_000)


BEFORE = {
    "counts": [Row(key, b"old", UNKNOWN) for key in KEYS],
    "windows": [window(key, b"old", UNKNOWN, start) for start in (OLD, NEWER) for key in KEYS],
    "twice": [window(b"left", value, UNKNOWN, OLD) for value in (b"1", b"2")],
}
AFTER = {
    "counts": [
        Row(b"added", b"new", 8),
        Row(b"left", b"old", UNKNOWN),
        Row(b"put", b"new", 7),
        Row(b"read", b"old", UNKNOWN),
    ],
    "windows": [
        window(b"added", b"new", 8, OLD),
        *(
            row
            for start in (OLD, NEWER)
            for row in (
                window(b"left", b"old", UNKNOWN, start),
                window(b"put", b"new", 7, start),
                window(b"read", b"old", UNKNOWN, start),
            )
        ),
        window(b"added", b"new", 8, NEW),
    ],
    "twice": [window(b"added", b"3", 9, OLD), *BEFORE["twice"]],
}
#: Rows that are still plain after all that, as keys of the database.
STILL_PLAIN = {
    "counts": [b"left"],
    "windows": [window_key.encode(b"left", start, 0) for start in (OLD, NEWER)],
    "twice": [window_key.encode(b"left", OLD, number) for number in (1, 2)],
}


def upgrade(store: Any) -> None:
    """What `UPGRADE` says, through our stores."""
    for name, key, value, _, timestamp, start, _, op, *_ in UPGRADE:
        if name != store.name:
            continue
        where = () if start is None else (start,)
        new = None if value is None or timestamp is None else ValueAndTimestamp(value, timestamp)
        if op == "get":
            found = store.get(key) if start is None else store.fetch(key, start)
            assert found == ValueAndTimestamp(b"old", UNKNOWN)
        elif op == "delete" and start is None:
            assert store.delete(key) == ValueAndTimestamp(b"old", UNKNOWN)
        else:
            store.put(key, new, *where)


@dataclass(frozen=True)
class Upgraded:
    """Plain as Kafka Streams wrote it; as it saw it when task 0 was upgraded by us; and after it upgraded task 1."""

    plain: SharedState
    seen: Contents
    state: SharedState
    restored: Contents


@pytest.fixture(scope="module")
def upgraded(kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory) -> Upgraded:
    directory = tmp_path_factory.mktemp("upgrades")
    plain = SharedState(kafka_streams(partitions=2), directory / "plain", [*PLAIN, SESSIONS])
    commands = [command._replace(partition=partition) for command in WRITTEN for partition in range(2)]
    plain.app.write(plain.state_dir, plain.stores, commands)

    state = replace(plain.copy(directory / "state"), stores=TIMESTAMPED)
    for store in TIMESTAMPED:
        state.change(StorePartition(store.name, 0), upgrade, T0 + 1, position=100)
    seen = state.app.read(state.state_dir, TIMESTAMPED)
    in_task_1 = [command._replace(timestamp=T0 + 1, partition=1) for command in UPGRADE]
    return Upgraded(plain, seen, state, state.app.write(state.state_dir, TIMESTAMPED, in_task_1))


@pytest.mark.long
@pytest.mark.behaviour("F6")
def test_kafka_streams_reads_what_we_upgraded_and_what_nobody_has_upgraded_yet(upgraded: Upgraded) -> None:
    assert upgraded.seen.restored == dict.fromkeys(PARTS, 0)
    assert upgraded.seen.rows == {part: (BEFORE if part.partition else AFTER)[part.store] for part in PARTS}


@pytest.mark.behaviour("F6")
@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.store}-{part.partition}")
def test_we_read_what_kafka_streams_upgraded_and_both_leave_the_same_rows_plain(
    upgraded: Upgraded, part: StorePartition
) -> None:
    assert upgraded.restored.restored[part] == 0
    assert upgraded.state.rows(part) == AFTER[part.store]
    assert sorted(upgraded.state.raw_keys(part, DEFAULT_COLUMN_FAMILY)) == sorted(STILL_PLAIN[part.store])
    new = len(AFTER[part.store]) - len(STILL_PLAIN[part.store])
    assert len(upgraded.state.raw_keys(part, TIMESTAMPED_COLUMN_FAMILY)) == new


def test_we_read_plain_stores_as_timestamped_without_upgrading_them(upgraded: Upgraded, tmp_path: Path) -> None:
    state = replace(upgraded.plain.copy(tmp_path / "state"), stores=TIMESTAMPED)
    for part in PARTS:
        assert state.rows(part) == BEFORE[part.store]  # opened to be read only
        with state.opened(part) as store:
            assert rows_of(store) == BEFORE[part.store]
        assert state.raw_keys(part, TIMESTAMPED_COLUMN_FAMILY) == []


@pytest.mark.behaviour("F6")
def test_we_upgrade_the_segments_of_a_session_store_row_by_row(upgraded: Upgraded, tmp_path: Path) -> None:
    store_format = replace(SESSIONS, format=StoreFormat.TIMESTAMPED)
    state = replace(upgraded.plain.copy(tmp_path / "state"), stores=[store_format])
    part = StorePartition(SESSIONS.name)
    with state.opened(part) as store:
        for end in (OLD, NEWER):
            assert store.fetch_session(b"read", end - 10, end) == ValueAndTimestamp(b"old", UNKNOWN)
            store.put(Windowed(b"put", end - 10, end), ValueAndTimestamp(b"new", 7))
            store.remove(Windowed(b"deleted", end - 10, end))
        store.put(Windowed(b"added", NEW - 10, NEW), ValueAndTimestamp(b"new", 8))
        store.commit({})
    assert state.rows(part) == [
        *(
            Row(key, value, timestamp, end - 10, end)
            for end in (OLD, NEWER)
            for key, value, timestamp in ((b"left", b"old", UNKNOWN), (b"put", b"new", 7), (b"read", b"old", UNKNOWN))
        ),
        Row(b"added", b"new", 8, NEW - 10, NEW),
    ]
    left = [session_key.encode(b"left", end - 10, end) for end in (OLD, NEWER)]
    assert state.raw_keys(part, DEFAULT_COLUMN_FAMILY) == left
