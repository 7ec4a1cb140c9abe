"""Stores that keep headers (KIP-1271), in the hands of Kafka Streams and in ours, byte for byte.

Kafka Streams' queries do not tell headers, so rows are compared as they lie in the databases.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from kafka_streams import Command, KafkaStreams, Store, StorePartition
from shared_state import NOTES, SharedState, recent

from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.selection import Chosen, PartitionSelection, Where, choose
from statestore.cli.verification import verify_all
from statestore.formats.headers_value import AggregationWithHeaders, ValueTimestampHeaders, decode, encode
from statestore.kafka.topics import Topics
from statestore.model import StoreFormat
from statestore.reports import Action, Status, VerifyRow
from statestore.stores.api import Windowed
from statestore.stores.rocksdb import RocksDB, column_families
from statestore.verification.options import Depth, VerifyOptions
from tests.integration.broker import T0
from tests.integration.restored import restored_here

pytestmark = pytest.mark.long  # Kafka Streams is started several times

HEADERS = StoreFormat.HEADERS
STORES = [
    Store("noted", format=HEADERS),
    Store("noted-windows", "window", HEADERS),
    Store("noted-twice", "window", HEADERS, duplicates=True),
    Store("noted-sessions", "session", HEADERS),
]
KINDS = {"kv": "key-value", "window": "window", "session": "session"}
SEGMENT_MS = 1_800_000
START = T0 - T0 % SEGMENT_MS
KEYS = [b"", b"\0", b"k" * 300, *(b"key-%d" % number for number in range(15))]
#: Has Kafka Streams add positions to what it logs.
POSITIONS = {"__iq.consistency.offset.vector.enabled__": "true"}


def commands(stores: Sequence[Store], count: int, seed: int) -> Iterator[Command]:
    """Puts, deletes and reads, with headers of all sorts; times go back and forth, and some rows have expired."""
    chance = random.Random(seed)
    for number in range(count):
        store = chance.choice(stores)
        time = START + number * 4 * SEGMENT_MS // count - chance.choice([0, 0, 60_000, 3 * SEGMENT_MS])
        command = Command(
            store.name,
            chance.choice(KEYS),
            chance.choice([b"", b"\0" * 9, b"%d" % number]),
            T0 + number,
            chance.choice([None, T0 - 5, 0]),
            headers=chance.choice(NOTES),
        )
        if store.kind != "kv":
            command = command._replace(start=time - time % 60_000, end=time - time % 60_000 + 500)
        ops = ["put"] * 6 + ["delete"] + ["get"] * (store.kind == "kv")
        op = chance.choice(ops)
        yield command._replace(op=op, value=None if op == "delete" else command.value)


@dataclass(frozen=True)
class Stopped:
    """A stopped application, and its state directory."""

    state: SharedState

    @property
    def app(self) -> KafkaStreams:
        return self.state.app

    @property
    def topics(self) -> Topics:
        return self.app.cluster.topics

    @property
    def parts(self) -> list[StorePartition]:
        return [StorePartition(store.name) for store in self.state.stores]

    def copy(self, directory: Path) -> Stopped:
        return Stopped(self.state.copy(directory))

    def chosen(self, *stores: str, **changes: Any) -> Chosen:
        where = Where(self.app.cluster, self.state.state_dir)
        return choose(
            PartitionSelection(where, applications=[self.app.application_id], stores=stores, **changes), self.topics
        )

    def verified(self, *stores: str, depth: Depth = "deep") -> dict[str, VerifyRow]:
        chosen = self.chosen(*stores)
        chosen.require_known()
        return {row.store: row for row in verify_all(chosen.specs, VerifyOptions(depth))}

    def restored(self, *stores: str, mode: Any = "full") -> dict[str, Any]:
        chosen = stores_to_restore(self.chosen(*stores), self.topics, kafka_streams="4.3.1")
        return {row.store: row for row in restored_here(chosen, mode=mode, force=True)}

    def started(self, stores: Sequence[Store] | None = None, commands: Sequence[Command] = (), **changes: Any) -> Any:
        """Let Kafka Streams start, do commands, and stop; return how many records it had to restore."""
        return self.app.write(self.state.state_dir, stores or self.state.stores, commands, **changes).restored

    def remove(self) -> None:
        for part in self.parts:
            directories = self.state.databases(part)
            for directory in directories:
                shutil.rmtree(directory)
            if self.state.store(part.store).kind != "kv":
                directories[0].parent.rmdir()

    def dump(self) -> dict[str, dict[str, dict[bytes, bytes]]]:
        """Rows by store, database and column family, without families that have none."""
        return {part.store: self.rows(part) for part in self.parts}

    def rows(self, part: StorePartition) -> dict[str, dict[bytes, bytes]]:
        found = {}
        for directory in self.state.databases(part):
            families = [family for family in column_families(directory) if family != "offsets"]
            database = RocksDB(directory, families, read_only=True)
            for family in families:
                if rows := dict(database.scan(family)):
                    found[f"{directory.name} {family}"] = rows
            database.close()
        return found


def described(stores: Sequence[Store]) -> list[str]:
    times = {store.name: "" if store.kind == "kv" else f",retention_ms={store.retention_ms}" for store in stores}
    return [
        f"{store.name}:kind={KINDS[store.kind]},format=headers,subtopology=0{times[store.name]}"
        for store in stores
        if not store.duplicates  # nothing that is said tells of those
    ]


@pytest.fixture(scope="module", params=[pytest.param({}, marks=pytest.mark.share), POSITIONS], ids=["", "positions"])
def written(
    request: pytest.FixtureRequest, kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Stopped, dict[str, str]]:
    config: dict[str, str] = request.param
    state = SharedState(kafka_streams(changelog_config={}), tmp_path_factory.mktemp("headers") / "state", STORES)
    state.app.write(state.state_dir, STORES, recent(list(commands(STORES, 1_200, seed=7))), config=config)
    return Stopped(state), config


@pytest.mark.behaviour("H1", "H6", "H7")
def test_what_kafka_streams_wrote_is_told_by_its_families_and_is_what_its_log_gives(
    written: tuple[Stopped, dict[str, str]],
) -> None:
    stopped, _ = written
    dump = stopped.dump()
    for store in STORES:
        family = "sessionKeyValueWithHeaders" if store.kind == "session" else "keyValueWithTimestampAndHeaders"
        assert {name.split()[1] for name in dump[store.name]} == {family}
        rows = [row for found in dump[store.name].values() for row in found.values()]
        assert len({row.split(b"trace")[0] for row in rows}) > 4
        assert store.kind == "kv" or len(dump[store.name]) >= 2, "segments"
    found = {store.name: store.definition for store in stopped.chosen().discovered}
    assert {name: (made.kind, made.format) for name, made in found.items() if made} == {
        store.name: (KINDS[store.kind], HEADERS) for store in STORES
    }
    before = stopped.dump()
    for depth in ("offsets", "scan", "deep"):
        rows = stopped.verified(depth=depth)  # type: ignore[arg-type]
        assert {name: row.status for name, row in rows.items()} == dict.fromkeys(found, Status.OK), rows
    assert stopped.dump() == before


@pytest.mark.behaviour("H5", "H8")
def test_what_is_restored_is_byte_for_byte_what_kafka_streams_restores(
    written: tuple[Stopped, dict[str, str]], tmp_path: Path
) -> None:
    stopped, config = written
    theirs, ours = stopped.copy(tmp_path / "theirs"), stopped.copy(tmp_path / "ours")
    theirs.remove()
    assert all(count > 0 for count in theirs.started(config=config).values())
    for row in ours.restored().values():
        assert (row.outcome, row.failure) == ("restored", None)
    expected = theirs.dump()
    for part in ours.parts:
        if not stopped.state.store(part.store).duplicates:  # which a replay numbers otherwise
            same = expected[part.store] == stopped.rows(part)
            assert same is not bool(config), "positions are among the headers of what was restored"
    assert ours.dump() == expected
    assert ours.started(config=config) == dict.fromkeys(ours.parts, 0)
    assert ours.dump() == expected
    rows = ours.verified()
    assert {row.status for row in rows.values()} == {Status.OK}, rows


@pytest.mark.long
@pytest.mark.behaviour("H5", "H7")
def test_lost_stores_are_restored_as_they_were_described(
    written: tuple[Stopped, dict[str, str]], tmp_path: Path
) -> None:
    stopped, config = written
    lost = stopped.copy(tmp_path / "lost")
    lost.remove()
    wrong = {
        store.name: store for store in lost.chosen("noted:kind=key-value,format=timestamped,subtopology=0").discovered
    }
    assert wrong["noted"].trouble == "unknown"
    assert "add --store noted:format=headers" in wrong["noted"].problem
    said = described(STORES)
    assert {row.outcome for row in lost.restored(*said).values()} == {"restored"}
    theirs = stopped.copy(tmp_path / "theirs")
    theirs.remove()
    theirs.started(config=config)
    for store in STORES:
        if not store.duplicates:
            part = StorePartition(store.name)
            assert lost.rows(part) == theirs.rows(part)


@pytest.mark.short_for("-another header", "-cut off")
@pytest.mark.behaviour("H6")
@pytest.mark.parametrize("change", ["another header", "no headers", "no timestamp", "cut off"])
def test_a_row_whose_headers_are_not_its_logs_is_found(
    written: tuple[Stopped, dict[str, str]], tmp_path: Path, change: str
) -> None:
    stopped, _ = written
    broken = stopped.copy(tmp_path / "broken")
    directory = broken.state.databases(StorePartition("noted"))[0]
    database = RocksDB(directory, column_families(directory))
    family = "keyValueWithTimestampAndHeaders"
    key, value, timestamp, headers = next(
        (key, *decode(row)) for key, row in database.scan(family) if row[0] and b"trace" in row
    )
    changed = {
        "another header": encode(value, timestamp, [("trace", b"2")]),
        "no headers": encode(value, timestamp, ()),
        "no timestamp": encode(value, -1, [("trace", b"2")]),
        "cut off": encode(value, timestamp, headers)[:3],
    }
    database.put(family, key, changed[change])
    database.sync()
    database.close()
    row = broken.verified("noted")["noted"]
    assert row.status in ((Status.DIVERGED, Status.CORRUPT) if change == "cut off" else (Status.DIVERGED,)), row
    assert row.action is Action.FULL
    assert broken.restored("noted")["noted"].outcome == "restored"
    assert broken.verified("noted")["noted"].status is Status.OK


# -- taking turns -----------------------------------------------------------------------------------------------------

OLDER = [
    Store("noted", format=StoreFormat.TIMESTAMPED),
    Store("once-plain"),
    Store("noted-windows", "window", StoreFormat.TIMESTAMPED),
    Store("noted-sessions", "session"),
]
NEWER = [replace(store, format=HEADERS) for store in OLDER]
NOTED = (("trace", b"ours"), ("null", None))


def touched(store: Store, key: bytes, op: str) -> Command:
    end = START + 500
    return Command(store.name, key, b"theirs", T0 + 10, op=op, start=START, end=end, headers=(("trace", b"theirs"),))  # type: ignore[arg-type]


def write_ours(store: Any) -> None:
    """Migrate one row by reading it, write one with headers, and delete one."""
    if store.name == "noted-sessions":
        assert store.fetch_session(b"read", START, START + 500) == AggregationWithHeaders(b"old")
        store.put(Windowed(b"put", START, START + 500), AggregationWithHeaders(b"ours", NOTED))
        store.remove(Windowed(b"deleted", START, START + 500))
        return
    value = ValueTimestampHeaders(b"ours", T0 + 5, NOTED)
    where = (START,) if store.name == "noted-windows" else ()
    found = store.fetch(b"read", START) if where else store.get(b"read")
    assert found == ValueTimestampHeaders(b"old", -1 if store.name == "once-plain" else T0)
    store.put(b"put", value, *where)
    store.put(b"deleted", None, *where)


@pytest.mark.long
@pytest.mark.behaviour("H3", "H8")
def test_a_migration_that_we_began_is_carried_on_by_kafka_streams_and_by_us(
    kafka_streams: Callable[..., KafkaStreams], tmp_path: Path
) -> None:
    keys = [b"deleted", b"left", b"put", b"read", b"theirs", b"they-read"]
    older = SharedState(kafka_streams(changelog_config={}), tmp_path / "state", OLDER)
    written = [Command(store.name, key, b"old", T0, start=START, end=START + 500) for store in OLDER for key in keys]
    older.app.write(older.state_dir, OLDER, written)
    ours = Stopped(replace(older, stores=NEWER))
    for part in ours.parts:
        ours.state.change(part, write_ours, T0 + 5, len(written) - 1)
    assert "keyValueWithTimestamp" not in column_families(ours.state.databases(StorePartition("once-plain"))[0])
    assert {row.status for row in ours.verified().values()} == {Status.OLD_FORMAT}
    theirs = [touched(store, b"theirs", "put") for store in NEWER]
    theirs += [touched(store, b"they-read", "get") for store in NEWER if store.kind != "session"]
    assert ours.started(NEWER, theirs) == dict.fromkeys(ours.parts, 0)
    for store in NEWER:
        found = ours.rows(StorePartition(store.name))
        [own] = [rows for name, rows in found.items() if name.endswith("WithHeaders") or name.endswith("AndHeaders")]
        [left] = [rows for name, rows in found.items() if rows is not own]
        unread = [b"they-read"] if store.kind == "session" else []
        assert [key for row in left for key in keys if row.startswith(key)] == [b"left", *unread]
        assert {key for row in own for key in keys if row.startswith(key)} == {*keys} - {b"deleted", b"left", *unread}
    assert {row.status for row in ours.verified().values()} == {Status.OLD_FORMAT}
    read = {part.store: dict(_entries(ours.state, part)) for part in ours.parts}
    for row in ours.restored().values():
        assert (row.outcome, row.failure) == ("restored", None)
    assert {part.store: dict(_entries(ours.state, part)) for part in ours.parts}.keys() == read.keys()
    assert {row.status for row in ours.verified().values()} == {Status.OK}
    before = ours.dump()
    assert ours.started(NEWER) == dict.fromkeys(ours.parts, 0)
    assert ours.dump() == before
    for part in ours.parts:
        for key, value in _entries(ours.state, part):
            assert value[0] == read[part.store][key][0]
            assert value.headers == read[part.store][key].headers


def _entries(state: SharedState, part: StorePartition) -> list[tuple[Any, Any]]:
    with state.opened(part, read_only=True) as store:
        return list(store.all())
