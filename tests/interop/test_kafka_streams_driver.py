"""The driver itself: what it is told to write is what Kafka Streams has, and what a run restored is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_streams import EVERY_KIND, Command, KafkaStreams, Row, Store, StorePartition
from rocksdict import AccessType, Options, Rdict

from demo.processes import ServiceError
from statestore.formats import offsets, position
from statestore.model import StoreFormat, TopicPartition

TIMESTAMPED = StoreFormat.TIMESTAMPED
STORES = EVERY_KIND
COMMANDS = [
    Command("plain-kv", b"a", b"1", 10),
    Command("plain-kv", b"b", b"2", 11),
    Command("plain-kv", b"a", b"3", 12),
    Command("plain-kv", b"a", b"4", 13, op="put_if_absent"),
    Command("plain-kv", b"\x00", b"", 14),
    Command("plain-kv", b"b", timestamp=15, op="delete"),
    Command("ts-kv", b"a", b"1", 16),
    Command("ts-kv", b"b", b"2", 17, value_timestamp=5),
    Command("ts-kv", b"c", b"3", 18),
    Command("ts-kv", b"c", None, 19),
    Command("window", b"a", b"1", 20, start=60_000),
    Command("window", b"a", b"2", 21, start=120_000),
    Command("window", b"a", b"gone", 22, start=180_000),
    Command("window", b"a", None, 23, start=180_000),
    Command("ts-window", b"a", b"1", 24, start=60_000),
    Command("ts-window", b"a", b"2", 25, start=3_000_000, value_timestamp=6),  # in another segment
    Command("twice", b"a", b"1", 26, start=60_000),
    Command("twice", b"a", b"2", 27, start=60_000),
    Command("session", b"a", b"1", 28, start=100, end=200),
    Command("session", b"a", b"gone", 29, start=300, end=300),
    Command("session", b"a", timestamp=30, start=300, end=300, op="delete"),
    Command("ts-kv", b"other", b"1", 31, partition=1),
]
ROWS = {
    "plain-kv": [Row(b"\x00", b""), Row(b"a", b"3")],
    "ts-kv": [Row(b"a", b"1", 16), Row(b"b", b"2", 5)],
    "window": [Row(b"a", b"1", None, 60_000, 120_000), Row(b"a", b"2", None, 120_000, 180_000)],
    "ts-window": [Row(b"a", b"1", 24, 60_000, 120_000), Row(b"a", b"2", 6, 3_000_000, 3_060_000)],
    "twice": [Row(b"a", b"1", None, 60_000, 120_000), Row(b"a", b"2", None, 60_000, 120_000)],
    "session": [Row(b"a", b"1", None, 100, 200)],
}
CHANGELOG_RECORDS = {"plain-kv": 5, "ts-kv": 4, "window": 4, "ts-window": 2, "twice": 2, "session": 3}


@pytest.mark.long
def test_what_was_written_is_read_back_with_nothing_to_restore_or_all_of_it_elsewhere(
    kafka_streams: Callable[..., KafkaStreams], tmp_path: Path
) -> None:
    application = kafka_streams(partitions=2)
    written = application.write(tmp_path / "state", STORES, COMMANDS)
    parts = {StorePartition(store.name, partition) for store in STORES for partition in range(2)}
    assert written.restored == dict.fromkeys(parts, 0)

    own = application.read(tmp_path / "state", STORES)
    # Kafka Streams takes a store without an offset, even an empty one, for a sign of an unclean end, and rebuilds its
    # task: here task 0_1, where one store alone was written.
    assert own.restored == {**dict.fromkeys(parts, 0), StorePartition("ts-kv", 1): 1}
    other_rows = {"ts-kv": [Row(b"other", b"1", 31)]}
    assert own.rows == {part: (other_rows if part.partition else ROWS).get(part.store, []) for part in parts}
    # Each store's last change; Kafka Streams does not count the removal of a session, but does count a deletion by put.
    last = {
        command.store: offset
        for offset, command in enumerate(COMMANDS[:-1])
        if command.end is None or command.op == "put"
    }
    for store, offset in last.items():
        assert own.positions[store, 0] == {TopicPartition(application.input_topic, 0): offset}

    elsewhere = application.read(tmp_path / "other", STORES)
    assert {part.store: count for part, count in elsewhere.restored.items() if not part.partition} == CHANGELOG_RECORDS
    assert elsewhere.rows == own.rows


@pytest.mark.long
def test_a_crash_loses_what_was_not_flushed_and_the_next_run_restores_it(
    kafka_streams: Callable[..., KafkaStreams], tmp_path: Path
) -> None:
    application = kafka_streams()
    stores = [Store("counts", format=TIMESTAMPED)]
    application.write(tmp_path, stores, [Command("counts", b"a", b"1", 10)])
    directory = tmp_path / application.application_id / "0_0" / "rocksdb" / "counts"
    changelog = TopicPartition(f"{application.application_id}-counts-changelog", 0)
    closed = offsets_of(directory)
    assert offsets.decode_int64(closed[offsets.STATUS_KEY], "status") == offsets.STATUS_CLOSED
    assert offsets.decode_offset(closed[offsets.offset_key(changelog)], "offset") == 0
    assert position.decode(closed[offsets.POSITION_KEY]) == {TopicPartition(application.input_topic, 0): 0}

    application.write(tmp_path, stores, [Command("counts", b"b", b"2", 11)], crash=True)
    # What was not flushed is lost as a whole: the row, its offset, and that the store had been opened.
    assert offsets_of(directory) == closed
    after = application.read(tmp_path, stores)
    assert after.restored["counts", 0] == 1
    assert after.rows["counts", 0] == [Row(b"a", b"1", 10), Row(b"b", b"2", 11)]


@pytest.mark.long
def test_a_run_that_fails_says_why(kafka_streams: Callable[..., KafkaStreams], tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="no such store in this topology"):
        kafka_streams().write(tmp_path, [Store("counts")], [Command("other", b"a")])


def offsets_of(directory: Path) -> dict[bytes, bytes]:
    """Read the `offsets` column family of a closed database, with nothing of ours but the names."""
    families = Rdict.list_cf(str(directory))
    options = {family: Options(raw_mode=True) for family in families}
    database = Rdict(
        str(directory), Options(raw_mode=True), column_families=options, access_type=AccessType.read_only()
    )
    try:
        iterator = database.get_column_family(offsets.COLUMN_FAMILY).iter()
        iterator.seek_to_first()
        found = {}
        while iterator.valid():
            found[bytes(iterator.key())] = bytes(iterator.value())
            iterator.next()
        return found
    finally:
        database.close()
