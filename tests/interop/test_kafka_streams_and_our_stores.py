"""What Kafka Streams wrote, our stores read; what our stores restored, Kafka Streams takes as its own.

Kafka Streams' interactive queries on its own reopened directory are what both are held against.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kafka_streams import Command, Contents, KafkaStreams, Store, StorePartition
from shared_state import SharedState, contents_of, random_commands, rows_of

from statestore.errors import UnknownFormatError
from statestore.formats.offsets import STATUS_CLOSED, STATUS_OPEN
from statestore.model import StoreFormat

pytestmark = pytest.mark.long  # test_kafka_streams_compatibility.py is what every change passes

TIMESTAMPED = StoreFormat.TIMESTAMPED
STORES = [
    Store("plain-kv"),
    Store("ts-kv", format=TIMESTAMPED),
    Store("window", "window"),
    Store("ts-window", "window", TIMESTAMPED),
    Store("twice", "window", duplicates=True),
    Store("ts-twice", "window", TIMESTAMPED, duplicates=True),
    Store("session", "session"),
]
#: Nothing is ever written to it: its offset is unknown, which must not make its task look corrupted.
EMPTY = Store("empty")
ALL_STORES = [*STORES, EMPTY]
PARTS = [StorePartition(store.name) for store in STORES]
EMPTY_PART = StorePartition(EMPTY.name)


@dataclass(frozen=True)
class Written:
    """A closed state directory, and what Kafka Streams' queries returned when it was opened again."""

    state: SharedState
    contents: Contents


@pytest.fixture(scope="module")
def written(kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory) -> Written:
    state = SharedState(kafka_streams(), tmp_path_factory.mktemp("written") / "state", ALL_STORES)
    state.app.write(state.state_dir, ALL_STORES, random_commands(STORES, count=2_000, seed=1))
    contents = state.app.read(state.state_dir, ALL_STORES)
    assert contents.restored == dict.fromkeys([*PARTS, EMPTY_PART], 0)
    return Written(state, contents)


def test_the_sample_is_worth_comparing(written: Written) -> None:
    for part in PARTS:
        rows = written.contents.rows[part]
        assert len(rows) > 15, part
        assert written.state.last_logged(part) > len(rows), f"{part}: nothing was deleted, replaced or expired"
        if written.state.store(part.store).kind != "kv":
            assert 2 <= len(written.state.databases(part)) <= 4
    starts = [(row.key, row.start) for row in written.contents.rows["twice", 0]]
    assert len(set(starts)) < len(starts), "there are no duplicates"


def test_our_stores_read_every_entry_offset_and_position_of_kafka_streams(written: Written) -> None:
    state = written.state
    before = contents_of(state.paths(0).application_dir)
    for part in PARTS:
        with state.opened(part, read_only=True) as store:
            assert rows_of(store) == written.contents.rows[part], part
            assert store.committed_offset(state.changelog(part)) == state.last_logged(part), part
            assert store.position() == written.contents.positions[part], part
        assert set(state.statuses(part)) == {STATUS_CLOSED}, part
    with state.opened(EMPTY_PART, read_only=True) as store:
        assert store.is_empty
        assert store.committed_offset(state.changelog(EMPTY_PART)) is None
    assert contents_of(state.paths(0).application_dir) == before


@pytest.mark.parametrize("transactional", [True, False])
def test_our_stores_open_directories_of_kafka_streams_for_writing(
    written: Written, tmp_path: Path, transactional: bool
) -> None:
    state = written.state.copy(tmp_path / "state")
    for part in PARTS:
        with state.opened(part, transactional=transactional) as store:
            assert rows_of(store) == written.contents.rows[part], part
            assert store.committed_offset(state.changelog(part)) == state.last_logged(part), part
            assert store.position() == written.contents.positions[part], part
            assert set(state.statuses(part)) == {STATUS_OPEN}, part
        assert set(state.statuses(part)) == {STATUS_CLOSED}, part
        assert state.rows(part) == written.contents.rows[part], part


def test_kafka_streams_starts_on_stores_that_we_restored_with_nothing_left_to_restore(
    written: Written, tmp_path: Path
) -> None:
    ours = written.state.elsewhere(tmp_path / "ours")
    ours.restore(EMPTY_PART)
    for part in PARTS:
        ours.restore(part)
        assert ours.rows(part) == written.contents.rows[part], part
        names = [path.name for path in ours.databases(part)]
        assert names == [path.name for path in written.state.databases(part)], part
    found = ours.app.read(ours.state_dir, ALL_STORES)
    assert found.restored == dict.fromkeys([*PARTS, EMPTY_PART], 0)
    assert found.rows == written.contents.rows


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("name", ["ts-kv", "ts-window", "ts-twice"])
def test_a_timestamped_store_is_refused_as_a_plain_one_and_left_alone(
    written: Written, tmp_path: Path, name: str, read_only: bool
) -> None:
    state = written.state.copy(tmp_path / "state")
    before = contents_of(state.state_dir)
    plain = replace(state, stores=[replace(store, format=StoreFormat.PLAIN) for store in STORES])
    with (
        pytest.raises(UnknownFormatError, match="keyValueWithTimestamp"),
        plain.opened(StorePartition(name), read_only=read_only),
    ):
        pass
    assert contents_of(state.state_dir) == before


@pytest.mark.long
def test_kafka_streams_restores_nothing_beside_an_empty_windowed_store_of_ours(
    kafka_streams: Callable[..., KafkaStreams], tmp_path: Path
) -> None:
    # Without any segment it would take the whole task for corrupted, and rebuild the neighbour, too.
    stores = [Store("kv"), Store("no-window", "window"), Store("no-session", "session")]
    state = SharedState(kafka_streams(), tmp_path / "theirs", stores)
    state.app.write(state.state_dir, stores, [Command("kv", b"a", b"1", timestamp=1_700_000_000_000)])
    ours = state.elsewhere(tmp_path / "ours")
    for store in stores:
        ours.restore(StorePartition(store.name))
    found = ours.app.read(ours.state_dir, stores)
    assert found.restored == {StorePartition(store.name): 0 for store in stores}
    assert [row.value for row in found.rows[StorePartition("kv")]] == [b"1"]
