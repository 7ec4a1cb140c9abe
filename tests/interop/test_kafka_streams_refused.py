"""Stores of a real Kafka Streams application that we do not know are left alone, whatever anybody says of them.

The application has stores with headers, beside some that we know. Stores with their times first
(EmitStrategy.onWindowClose) are known where their rows can be read in this way alone. Keys have 8 bytes, as times have,
and there is one live segment: what tells least.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kafka_streams import Command, KafkaStreams, Store
from rocksdict import Options, Rdict
from shared_state import contents_of
from stopped import Stopped

from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.verification import exit_code, verify_all
from statestore.errors import InputError, UnknownFormatError
from statestore.formats import checkpoint_file, offsets
from statestore.model import TaskId, TopicPartition, changelog_topic
from statestore.reports import Action, Status
from statestore.statedir.paths import TaskPaths
from statestore.stores.rocksdb import RocksDB, column_families
from statestore.verification.options import Depth, VerifyOptions
from tests.integration.broker import T0
from tests.integration.restored import restored_here

pytestmark = pytest.mark.long  # Kafka Streams is started several times

KNOWN = [
    Store("closed-sessions", "session", layout="time-ordered"),
    Store("closed-sliding", "window", layout="sliding"),
    Store("closed-windows", "window", layout="time-ordered"),
    Store("plain-kv"),
    Store("sessions", "session"),
]
#: By store: what its directory gives away. Its keys are times, so that its rows can be read as ordinary ones, too.
TIME_FIRST = {Store("times", "window", layout="time-ordered"): "onWindowClose"}
UNKNOWN = {**TIME_FIRST}
SEGMENT_MS = 1_800_000
START = T0 - T0 % SEGMENT_MS
ROWS = 60


def commands() -> list[Command]:
    found = []
    for number in range(ROWS):
        start = START + number * 1_000
        for store in [*KNOWN, *UNKNOWN]:
            key = start + 7 if store.name == "times" else 1_000 + number % 20
            found.append(
                Command(
                    store.name,
                    struct.pack(">q", key),
                    b"%d" % number,
                    T0 + number,
                    start=start,
                    end=start + 500,
                )
            )
    return found


def kind_of(store: Store) -> str:
    """What somebody takes the store for: one that is known for what it is, another for what it is most like."""
    if store in KNOWN and store.layout is not None:
        return f"indexed-time-ordered-{store.kind}" if store.layout == "sliding" else f"time-ordered-{store.kind}"
    return "key-value" if store.kind == "kv" else store.kind


def described(store: Store) -> str:
    """What somebody says of the store who takes it for one that we know."""
    of_format = ",format=timestamped" if store.layout == "headers" else ",format=plain"
    if store in KNOWN and store.layout is not None:
        of_format = ""
    retention = "" if store.kind == "kv" else f",retention_ms={store.retention_ms}"
    return f"{store.name}:kind={kind_of(store)}{of_format},subtopology=0{retention}"


class Refused(Stopped):
    """A stopped application of which not every store is known."""

    def rebuilt(self, *stores: str) -> list[tuple[str, str]]:
        chosen = stores_to_restore(self.chosen(*stores), self.topics, kafka_streams="4.3.1")
        rows = restored_here(chosen, mode="full", force=True)
        assert [row.failure for row in rows] == [None] * len(rows)
        return [(row.store, row.outcome) for row in rows]

    def changelog(self, store: str) -> TopicPartition:
        return TopicPartition(changelog_topic(self.app.application_id, store), 0)


@pytest.fixture(scope="module")
def stopped(kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory) -> Refused:
    app = kafka_streams(changelog_config={})
    state_dir = tmp_path_factory.mktemp("refused") / "state"
    app.write(state_dir, [*KNOWN, *UNKNOWN], commands())
    return Refused(app, state_dir)


def names(stores: Sequence[Store] | dict[Store, str]) -> list[str]:
    return [store.name for store in stores]


# -- by the directory -------------------------------------------------------------------------------------------------


@pytest.mark.short_for("deep")
@pytest.mark.behaviour("M2")
@pytest.mark.parametrize("depth", ["offsets", "deep"])
def test_what_we_do_not_know_is_told_with_the_reason_and_is_no_damage(stopped: Refused, depth: Depth) -> None:
    rows = stopped.verified(depth=depth)
    assert {name: (rows[name].status, rows[name].detail) for name in names(KNOWN)} == dict.fromkeys(
        names(KNOWN), (Status.OK, "")
    )
    for store, reason in UNKNOWN.items():
        row = rows[store.name]
        assert (row.status, row.action, row.task) == (Status.UNKNOWN_FORMAT, Action.BY_HAND, "0_0")
        assert reason in row.detail
    assert exit_code(list(rows.values())) == 6
    assert exit_code([rows[name] for name in names(KNOWN)]) == 0


@pytest.mark.behaviour("M2")
@pytest.mark.parametrize("store", UNKNOWN, ids=lambda store: store.name)
def test_what_we_do_not_know_is_left_alone_however_it_is_described(
    stopped: Refused, tmp_path: Path, store: Store
) -> None:
    state = stopped.copy(tmp_path / "state")
    before = contents_of(state.directory)
    row = state.verified(described(store), depth="deep")[store.name]
    assert row.status is Status.UNKNOWN_FORMAT
    assert UNKNOWN[store] in row.detail
    assert f"described as kind={kind_of(store)}" in row.detail
    with pytest.raises(UnknownFormatError, match=f"(?s){store.name}.*{UNKNOWN[store]}"):
        stores_to_restore(state.chosen(described(store)), state.topics)
    assert contents_of(state.directory) == before


def test_what_we_know_is_restored_beside_what_we_do_not(stopped: Refused, tmp_path: Path) -> None:
    state = stopped.copy(tmp_path / "state")
    assert state.rebuilt() == [(name, "restored") for name in names(KNOWN)]
    name = names(UNKNOWN)[0]
    with pytest.raises(UnknownFormatError, match=name):
        state.rebuilt("plain-kv", name)


def test_a_store_that_has_no_key_of_its_log_is_left_to_a_person(stopped: Refused, tmp_path: Path) -> None:
    state = stopped.copy(tmp_path / "state")
    database = RocksDB(state.directory / "0_0" / "rocksdb" / "plain-kv", ["default"])
    rows = dict(database.scan("default"))
    database.write({"default": {**dict.fromkeys(rows), **{b"other" + key: value for key, value in rows.items()}}}, {})
    database.sync()
    database.close()
    row = state.verified("plain-kv", depth="deep")["plain-kv"]
    assert (row.status, row.action) == (Status.DIVERGED, Action.BY_HAND)
    assert "it has no key in common with its changelog" in row.detail


# -- by what Kafka has, where the directory is gone -------------------------------------------------------------------


def test_a_store_that_only_somebody_describes_is_verified_as_described(stopped: Refused, tmp_path: Path) -> None:
    state = Refused(stopped.app, tmp_path / "state")
    state.state_dir.mkdir()
    said = [described(store) for store in KNOWN]
    assert state.rebuilt(*said) == [(name, "restored") for name in names(KNOWN)]
    for store, row in state.verified(*said, depth="deep").items():
        assert row.status is Status.OK, store
        assert "as you described it: kind=" in row.detail
    assert {row.detail for row in state.verified(*said, depth="scan").values()} == {""}


# -- from before 4.3 --------------------------------------------------------------------------------------------------


def as_before_4_3(state: Refused, *, closed: bool = True) -> None:
    """Make of a task what versions before 4.3 leave: no family `offsets` (KIP-1035), and, closed, a `.checkpoint`.

    Kafka Streams 4.2.0 was seen to leave just that, with either guarantee.
    """
    paths = TaskPaths(state.state_dir, state.app.application_id, TaskId(0, 0))
    applied: dict[TopicPartition, int | None] = {}
    for name in names(UNKNOWN):
        shutil.rmtree(paths.store(name), ignore_errors=True)
        shutil.rmtree(paths.task_dir / name, ignore_errors=True)
    for current in sorted(paths.task_dir.rglob("CURRENT")):
        store = next(name for name in names(KNOWN) if name in current.parts)
        database = RocksDB(current.parent, ["default"], read_only=True)
        applied[state.changelog(store)] = database.committed_offset(state.changelog(store))
        database.close()
        families = column_families(current.parent)
        opened = Rdict(str(current.parent), Options(raw_mode=True), {name: Options(raw_mode=True) for name in families})
        opened.drop_column_family(offsets.COLUMN_FAMILY)
        opened.close()
        (current.parent / "rocksdict-config.json").unlink()
        assert column_families(current.parent) == ["default"]
    assert set(applied) == {state.changelog(name) for name in names(KNOWN)}
    if closed:
        paths.checkpoint.write_text(checkpoint_file.write(applied))


@pytest.mark.long
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_the_stores_of_an_application_from_before_4_3_are_restored_as_it_has_them(
    stopped: Refused, tmp_path: Path, closed: bool
) -> None:
    state = stopped.copy(tmp_path / "state")
    as_before_4_3(state, closed=closed)
    rows = state.verified(*names(KNOWN), depth="deep")
    if closed:
        assert {name: (row.status, row.detail) for name, row in rows.items()} == dict.fromkeys(rows, (Status.OK, ""))
    stores = stores_to_restore(state.chosen(*names(KNOWN)), state.topics)
    assert all(spec.offsets_beside for spec in stores)
    restored = restored_here(stores, mode="full", force=True)
    assert {(row.store, row.outcome, row.failure) for row in restored} == {
        (name, "restored", None) for name in names(KNOWN)
    }
    task = state.directory / "0_0"
    assert {tuple(column_families(current.parent)) for current in task.rglob("CURRENT")} == {("default",)}
    assert checkpoint_file.read(task / ".checkpoint") == {
        spec.partition: row.committed for spec, row in zip(stores, restored, strict=True)
    }
    for depth in ("offsets", "scan", "deep"):
        rows = state.verified(*names(KNOWN), depth=depth)
        assert {name: (row.status, row.detail) for name, row in rows.items()} == dict.fromkeys(rows, (Status.OK, ""))


def test_a_restore_beside_a_killed_store_does_not_make_that_one_look_whole(stopped: Refused, tmp_path: Path) -> None:
    state = stopped.copy(tmp_path / "state")
    as_before_4_3(state)
    write_uncommitted(state)
    restored_here(stores_to_restore(state.chosen("sessions"), state.topics), mode="full", force=True)
    rows = state.verified(*names(KNOWN))
    assert (rows["plain-kv"].status, rows["sessions"].status) == (Status.UNCLEAN, Status.OK)


def write_uncommitted(state: Refused) -> None:
    """Write to a store behind its offsets, as Kafka Streams 4.2.0 was seen to do before it was killed."""
    database = state.directory / "0_0" / "rocksdb" / "plain-kv"
    opened = Rdict(str(database), Options(raw_mode=True), {"default": Options(raw_mode=True)})
    opened[b"uncommitted"] = b"x"
    opened.flush()
    opened.close()
    (database / "rocksdict-config.json").unlink()


def test_what_was_written_after_the_offsets_of_such_an_application_makes_its_store_unclean(
    stopped: Refused, tmp_path: Path
) -> None:
    state = stopped.copy(tmp_path / "state")
    as_before_4_3(state)
    write_uncommitted(state)
    for depth in ("offsets", "scan", "deep"):
        rows = state.verified(*names(KNOWN), depth=depth)
        assert (rows["plain-kv"].status, rows["sessions"].status) == (Status.UNCLEAN, Status.OK)
        assert ".sst is newer than" in rows["plain-kv"].detail
    chosen = state.chosen("plain-kv", guarantee="at_least_once")
    assert [row.status for row in verify_all(chosen.specs, VerifyOptions("scan"))] == [Status.OK]


SESSIONS = "sessions:kind=session,subtopology=0,retention_ms=3600000"


def test_one_store_that_is_left_tells_that_the_application_is_from_before_4_3(stopped: Refused, tmp_path: Path) -> None:
    state = stopped.copy(tmp_path / "state")
    as_before_4_3(state, closed=False)
    shutil.rmtree(state.directory / "0_0" / "sessions")
    [spec] = stores_to_restore(state.chosen(SESSIONS), state.topics)
    assert spec.offsets_beside
    [spec] = stores_to_restore(state.chosen(SESSIONS), state.topics, kafka_streams="4.3.1")  # it takes the others over
    assert not spec.offsets_beside


def test_where_no_store_is_left_or_two_contradict_each_other_the_version_is_asked_for(
    stopped: Refused, tmp_path: Path
) -> None:
    state = stopped.copy(tmp_path / "state")
    as_before_4_3(state)
    for path in (state.directory / "0_0").iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    with pytest.raises(InputError, match=r"0_0/\.checkpoint is there.*Add --kafka-streams VERSION"):
        stores_to_restore(state.chosen(SESSIONS), state.topics)
    for version, beside in (("4.2.0", True), ("4.3.1", False)):
        [spec] = stores_to_restore(state.chosen(SESSIONS), state.topics, kafka_streams=version)
        assert spec.offsets_beside is beside
    shutil.copytree(
        stopped.directory / "0_0" / "rocksdb" / "plain-kv", state.directory / "0_0" / "rocksdb" / "plain-kv"
    )
    with pytest.raises(InputError, match=r"4\.2\.0 cannot start .*plain-kv has the column family offsets"):
        stores_to_restore(state.chosen(SESSIONS), state.topics, kafka_streams="4.2.0")
