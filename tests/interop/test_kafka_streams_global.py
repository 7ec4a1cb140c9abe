"""Global stores of a real Kafka Streams application: tables are verified and restored, others are left to it.

The topics have three partitions, keys that two of them have, records without a key, and deletes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kafka_streams import (
    KEPT,
    OLDER_VERSIONS,
    Command,
    Contents,
    Driver,
    KafkaStreams,
    Row,
    Store,
    StorePartition,
    other_driver,
)

from demo.processes import ServiceError
from statestore import clock
from statestore.cli import known_stores
from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.selection import Chosen, PartitionSelection, Where, choose
from statestore.cli.verification import exit_code, verify_all
from statestore.errors import InputError, UnknownStoreError
from statestore.formats.timestamped_value import encode
from statestore.formats.value_format import TIMESTAMPED_COLUMN_FAMILY
from statestore.kafka.topics import Topics
from statestore.model import TopicPartition
from statestore.reports import Action, Loss, RestoreRow, Status, VerifyRow
from statestore.stores.rocksdb import RocksDB, column_families
from statestore.verification.options import Depth, VerifyOptions
from tests.integration.broker import T0, create_topic, produce
from tests.integration.restored import planned_here, restored_here

pytestmark = pytest.mark.long  # Kafka Streams is started many times

STORES = [Store("plain-kv")]
TABLE, PICKY, BY_ID = "rates", "picky", "by-id"
ROWS = 300


@dataclass(frozen=True)
class Stopped:
    """A stopped application, its state directory, and what its global stores had."""

    app: KafkaStreams
    state_dir: Path
    topics_of: Mapping[str, str]
    contents: Contents
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def topics(self) -> Topics:
        return self.app.cluster.topics

    @property
    def directory(self) -> Path:
        return self.state_dir / self.app.application_id / "global" / "rocksdb"

    def chosen(self, *stores: str, **changes: Any) -> Chosen:
        where = Where(self.app.cluster, self.state_dir)
        names = [self.app.application_id]
        asked = PartitionSelection(where, applications=names, stores=stores, **{**self.options, **changes})
        return choose(asked, self.topics)

    def verified(self, *stores: str, depth: Depth = "deep", keep: bool = False, **changes: Any) -> VerifyRow:
        chosen = self.chosen(*stores, **changes)
        [row] = verify_all(chosen.specs, VerifyOptions(depth))
        if keep:
            known_stores.keep(chosen, self.state_dir, [row])
        return row

    def restored(self, *stores: str, **how: Any) -> RestoreRow:
        chosen = self.chosen(*stores)
        stores = stores_to_restore(chosen, self.topics, kafka_streams="4.3.1")
        [row] = restored_here(stores, f"r{clock.now_ms()}", **how)
        known_stores.keep(chosen, self.state_dir, [row])
        return row

    def copy(self, directory: Path) -> Stopped:
        shutil.copytree(self.state_dir, directory)
        return replace(self, state_dir=directory)

    def emptied(self, directory: Path) -> Stopped:
        directory.mkdir()
        return replace(self, state_dir=directory)

    def rows(self, store: str) -> list[Row]:
        return self.contents.rows[StorePartition(store)]

    def write(self, key: bytes, value: bytes | None, store: str = TABLE) -> None:
        """Write a row into a closed store, or delete it, behind its application's back."""
        with self.written(store) as database:
            database.write({TIMESTAMPED_COLUMN_FAMILY: {key: None if value is None else encode(value, T0)}})

    @contextmanager
    def written(self, store: str) -> Iterator[RocksDB]:
        """Open the database of a closed store to write to it."""
        path = self.directory / store
        database = RocksDB(path, column_families(path))
        yield database
        database.sync()
        database.close()


def _fill(servers: str, topic: str) -> None:
    for partition in range(3):
        rows: list[tuple[bytes | None, bytes | None]] = [
            (b"%d-%d" % (partition, number), b"!v%d" % number if number % 3 == 1 else b"v") for number in range(ROWS)
        ]
        rows += [(None, b"no key"), (b"shared", b"of %d" % partition), (b"%d-0" % partition, None)]
        rows += [(b"%d-5" % partition, b"-left out")]
        produce(servers, topic, rows, partition=partition, timestamp=T0 + partition)
    produce(servers, topic, [(b"0-1", b"of another partition"), (None, None)], partition=2, timestamp=T0)


@pytest.fixture(scope="module")
def stopped(
    kafka_streams: Callable[..., KafkaStreams], bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Stopped:
    topics = {
        store: create_topic(bootstrap_servers, f"{store}-{uuid4().hex[:8]}", 3, KEPT) for store in (TABLE, PICKY, BY_ID)
    }
    for topic in topics.values():
        _fill(bootstrap_servers, topic)
    app = kafka_streams(
        changelog_config={},
        tables={BY_ID: topics[BY_ID]},
        global_tables={TABLE: topics[TABLE]},
        global_processors={PICKY: topics[PICKY]},
    )
    state_dir = tmp_path_factory.mktemp("global") / "state"
    app.write(state_dir, STORES, [Command("plain-kv", b"key", b"value", T0)])
    return Stopped(app, state_dir, topics, app.read(state_dir, STORES))


def test_a_table_that_kafka_streams_filled_is_what_its_topic_gives_and_is_remembered(
    stopped: Stopped, tmp_path: Path
) -> None:
    state = stopped.copy(tmp_path / "state")
    row = state.verified(TABLE, keep=True)
    assert (row.status, row.detail, row.global_kind) == (Status.OK, "", "table"), row.contents
    assert row.contents is not None
    assert row.contents.equal + row.contents.not_judged == row.keys == len(stopped.rows(TABLE))
    [spec] = state.chosen(TABLE).specs
    assert (spec.global_kind, spec.global_said) == ("table", False)


def test_a_store_that_a_processor_fills_is_never_diverged_and_never_rebuilt(stopped: Stopped, tmp_path: Path) -> None:
    state = stopped.copy(tmp_path / "state")
    row = state.verified(PICKY, keep=True)
    assert (row.status, row.action, row.global_kind) == (Status.UNKNOWN_FORMAT, Action.BY_HAND, None)
    assert row.contents is not None
    assert f"{row.contents.equal} of its {row.contents.store_rows} rows match its topic" in row.detail
    assert "--store picky:global=table" in row.detail
    assert exit_code([row]) == 0
    with pytest.raises(InputError, match=r"it is unknown whether it is a global table.*picky:global=processor"):
        state.restored(PICKY)
    row = state.verified("picky:global=processor", keep=True)
    assert (row.status, row.global_kind) == (Status.OK, "processor")
    assert state.verified(PICKY).detail == row.detail, "it is remembered"
    with pytest.raises(InputError, match="a processor of the application fills it"):
        state.restored(PICKY, mode="full", force=True)
    shutil.rmtree(state.directory / PICKY)
    with pytest.raises(InputError, match="a processor of the application fills it"):
        state.restored(PICKY)


def test_a_table_with_wrong_rows_is_told_and_rebuilt_once_somebody_says_that_it_is_one(
    stopped: Stopped, tmp_path: Path
) -> None:
    state = stopped.copy(tmp_path / "state")
    state.write(b"1-7", b"wrong")
    state.write(b"unheard of", b"wrong")
    row = state.verified(TABLE)
    assert (row.status, row.action) == (Status.UNKNOWN_FORMAT, Action.BY_HAND)
    assert "1 have another value, 1 are only in the store" in row.detail
    row = state.verified("rates:global=table")
    assert (row.status, row.action) == (Status.DIVERGED, Action.FULL)
    assert row.contents is not None
    assert [bytes.fromhex(found.key or "") for found in row.contents.first] == [b"1-7", b"unheard of"]
    done = state.restored("rates:global=table", mode="full", force=True)
    assert (done.outcome, done.before, done.keys) == ("restored", Status.OK, len(stopped.rows(TABLE)))
    assert done.failure is None
    assert state.verified(TABLE).status is Status.OK


def test_a_table_that_was_whole_once_and_has_other_rows_now_is_for_a_person(stopped: Stopped, tmp_path: Path) -> None:
    state = stopped.copy(tmp_path / "state")
    state.verified(TABLE, keep=True)
    state.write(b"1-7", None)
    row = state.verified(TABLE)
    assert (row.status, row.action) == (Status.DIVERGED, Action.BY_HAND)
    assert "its rows once matched its topic" in row.detail
    assert "1 only in the topic" in row.detail
    failure = state.restored(TABLE, mode="full", force=True).failure
    assert failure is not None
    assert "needs a manual decision" in failure.message
    row = state.verified("rates:global=table")
    assert (row.status, row.action) == (Status.DIVERGED, Action.BY_HAND), "its records may have been skipped"
    assert "has skipped their records" in row.detail


def test_kafka_streams_starts_on_a_table_that_was_restored_into_nothing_without_reading_its_topic(
    stopped: Stopped, tmp_path: Path
) -> None:
    lost = stopped.emptied(tmp_path / "state")
    with pytest.raises(UnknownStoreError, match="no store 'rates'"):
        lost.chosen("rates:global=table")
    lost = replace(lost, options={"changelogs": [f"rates={stopped.topics_of[TABLE]}"]})
    said = "rates:global=table,format=timestamped"
    row = lost.verified(said)
    assert (row.status, row.action, exit_code([row])) == (Status.MISSING, Action.NONE, 0)
    stores = stores_to_restore(lost.chosen(said), lost.topics, kafka_streams="4.3.1")
    [plan] = planned_here(stores)
    assert (plan.mode, plan.failure) == (None, None)
    [plan] = planned_here(stores, mode="full")
    assert (plan.mode, plan.failure) == ("full", None)
    done = lost.restored(said, mode="full", check="deep")
    assert (done.outcome, done.failure) == ("restored", None)
    assert done.skipped == 4
    assert replace(lost, options={}).verified(TABLE).status is Status.OK, "what was said is remembered"
    again = lost.app.read(lost.state_dir, STORES)
    assert again.restored[StorePartition(TABLE)] == 0
    assert again.restored[StorePartition(PICKY)] > 0, "Kafka Streams fills the other one"
    assert _without_shared(again.rows[StorePartition(TABLE)]) == _without_shared(stopped.rows(TABLE))
    assert again.rows[StorePartition(PICKY)]


def test_records_without_a_key_are_in_no_row_of_a_table_whose_changelog_is_its_source(
    stopped: Stopped, tmp_path: Path
) -> None:
    state = stopped.copy(tmp_path / "state")
    chosen = state.chosen(BY_ID)
    rows = verify_all(chosen.specs, VerifyOptions("deep"))
    assert [(row.status, row.detail, row.contents and row.contents.differing) for row in rows] == [
        (Status.OK, "", 0)
    ] * 3
    shutil.rmtree(state.state_dir / state.app.application_id / "0_2" / "rocksdb" / BY_ID)
    done = restored_here(stores_to_restore(state.chosen(BY_ID), state.topics), mode="full", force=True)
    assert [(row.outcome, row.failure, row.skipped) for row in done] == [
        ("restored", None, 1),
        ("restored", None, 1),
        ("restored", None, 2),
    ]
    assert {row.status for row in verify_all(chosen.specs, VerifyOptions("deep"))} == {Status.OK}


def test_a_table_that_is_lost_damaged_or_behind_is_rebuilt_by_what_is_known_of_it(
    stopped: Stopped, tmp_path: Path
) -> None:
    state = stopped.copy(tmp_path / "state")
    state.verified(TABLE, keep=True)
    assert state.restored(TABLE).outcome == "skipped"
    with state.written(TABLE) as database:
        database.write({}, {TopicPartition(stopped.topics_of[TABLE], 1): 1_000_000})
    row = state.verified(TABLE)
    assert (row.status, row.action, row.loss) == (Status.AHEAD, Action.BY_HAND, Loss.LIKELY)
    failure = state.restored(TABLE).failure
    assert failure is not None
    assert "--accept-loss" in failure.message
    done = state.restored(TABLE, accept_loss=True)
    assert (done.before, done.outcome, done.failure) == (Status.AHEAD, "restored", None)
    assert done.quarantine is not None
    (state.directory / TABLE / "CURRENT").unlink()
    row = state.verified(TABLE)
    assert (row.status, row.action) == (Status.CORRUPT, Action.FULL)
    done = state.restored(TABLE)
    assert (done.before, done.outcome, done.failure) == (Status.CORRUPT, "restored", None)
    shutil.rmtree(state.directory / TABLE)
    assert state.verified(TABLE).status is Status.MISSING
    done = state.restored(TABLE)
    assert (done.before, done.outcome, done.failure) == (Status.MISSING, "skipped", None)
    done = state.restored(TABLE, mode="full")
    assert (done.before, done.outcome, done.failure) == (Status.MISSING, "restored", None)
    assert state.verified(TABLE).status is Status.OK


@pytest.mark.long
@pytest.mark.parametrize(
    "point",
    [
        "restore, range read",
        "restore, databases written",
        "restore, built, not swapped",
        "swap, journal written",
        "swap, old store in quarantine",
        "swap, before the last rename",
        "restore, swapped, not sealed",
        "restore, sealed, runs still there",
    ],
)
def test_a_restore_of_a_table_that_is_killed_anywhere_is_gone_on_with(
    stopped: Stopped, tmp_path: Path, point: str
) -> None:
    state = stopped.copy(tmp_path / "state")
    state.verified("rates:global=table", keep=True)
    state.write(b"unheard of", b"wrong")
    where = ["--state-dir", str(state.state_dir), "--bootstrap-servers", state.app.bootstrap_servers]
    argv = [sys.executable, "-m", "statestore.cli", "restore", "--parallel", "1", "--mode", "full", "--force", *where]
    argv += ["--application", state.app.application_id, "--store", TABLE]
    mark = tmp_path / "mark"
    killed = {**os.environ, "STATESTORE_KILL_AT": point, "STATESTORE_KILL_MARK": str(mark)}
    subprocess.run(argv, env=killed, capture_output=True, timeout=120, check=False)
    assert mark.exists(), "it was killed there"
    row = state.verified(TABLE)
    assert row.status in (Status.OK, Status.DIVERGED), "one of the two is live, and whole"
    assert subprocess.run(argv, capture_output=True, timeout=120, check=False).returncode == 0
    assert state.verified(TABLE).status is Status.OK
    assert _without_shared(state.app.read(state.state_dir, STORES).rows[StorePartition(TABLE)]) == _without_shared(
        stopped.rows(TABLE)
    )


@pytest.mark.long
def test_a_table_that_its_killed_application_left_open_is_rebuilt_before_kafka_streams_removes_it(
    kafka_streams: Callable[..., KafkaStreams], bootstrap_servers: str, tmp_path: Path
) -> None:
    topic = create_topic(bootstrap_servers, f"rates-{uuid4().hex[:8]}", 3, KEPT)
    _fill(bootstrap_servers, topic)
    # More than the memtables hold: what RocksDB has written to disk says that the store is open.
    produce(bootstrap_servers, topic, [(b"%d" % n, b"x" * 50_000) for n in range(500)], partition=0, timestamp=T0)
    app = kafka_streams(changelog_config={}, global_tables={TABLE: topic})
    state_dir = tmp_path / "state"
    app.write(state_dir, STORES, [Command("plain-kv", b"key", b"value", T0)], crash=True)
    options = {"changelogs": [f"rates={topic}"]}  # its offsets may have been in memory alone
    state = Stopped(app, state_dir, {TABLE: topic}, Contents({}, {}, {}), options)
    row = state.verified("rates:global=table")
    assert (row.status, row.action) == (Status.UNCLEAN, Action.FULL)
    with pytest.raises(ServiceError, match="Invalid state during store open"):
        app.read(state.copy(tmp_path / "not restored").state_dir, STORES)
    produce(bootstrap_servers, topic, [(b"later", b"1")], partition=1, timestamp=T0)
    done = state.restored("rates:global=table")
    assert (done.before, done.outcome, done.failure) == (Status.UNCLEAN, "restored", None)
    shutil.rmtree(state_dir / app.application_id / "0_0", ignore_errors=True)
    contents = app.read(state_dir, STORES)
    assert contents.restored[StorePartition(TABLE)] == 0
    assert b"later" in {row.key for row in contents.rows[StorePartition(TABLE)]}
    produce(bootstrap_servers, topic, [(b"latest", b"1")], partition=1, timestamp=T0)
    done = state.restored(TABLE, mode="full")
    assert (done.before, done.outcome, done.failure) == (Status.LAGGING, "restored", None)
    contents = app.read(state_dir, STORES)
    assert contents.restored[StorePartition(TABLE)] == 0
    assert b"latest" in {row.key for row in contents.rows[StorePartition(TABLE)]}


@pytest.mark.long
@pytest.mark.parametrize("version", OLDER_VERSIONS)
def test_versions_before_4_3_start_on_a_table_that_was_restored_with_its_offsets_beside_it(
    driver: Driver, bootstrap_servers: str, tmp_path: Path, version: str
) -> None:
    topic = create_topic(bootstrap_servers, f"rates-{uuid4().hex[:8]}", 3, KEPT)
    _fill(bootstrap_servers, topic)
    older = other_driver(driver, version, tmp_path)
    app = KafkaStreams(older, bootstrap_servers, changelog_config={}, global_tables={TABLE: topic})
    app.write(tmp_path / "before", STORES, [Command("plain-kv", b"key", b"value", T0)])
    before = Stopped(app, tmp_path / "before", {TABLE: topic}, app.read(tmp_path / "before", STORES))
    said = "rates:global=table,format=timestamped"
    before = replace(before, options={"changelogs": [f"rates={topic}"]})
    # 3.9 and 4.0 keep no offset of records that they have read when they started.
    assert before.verified(said).status in (Status.OK, Status.LAGGING)
    lost = before.emptied(tmp_path / "state")
    chosen = lost.chosen(said)
    [done] = restored_here(stores_to_restore(chosen, lost.topics, kafka_streams=version), mode="full")
    assert (done.outcome, done.failure) == ("restored", None)
    row = lost.verified(said)
    assert (row.status, row.detail) == (Status.OK, "")
    after = app.read(lost.state_dir, STORES)
    assert after.restored[StorePartition(TABLE)] == 0
    assert _without_shared(after.rows[StorePartition(TABLE)]) == _without_shared(before.rows(TABLE))


def _without_shared(rows: list[Row]) -> list[Row]:
    """Rows of keys that one partition has; of the others each start may have another partition's."""
    return [row for row in rows if row.key not in (b"shared", b"0-1")]
