"""The real Kafka Streams from 3.9 to 4.2: its stores are judged as they are, and it starts on what we restore.

Each version fills stores of every kind exactly once, and stops; it has its offsets in the task's `.checkpoint`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka_streams import (
    EVERY_KIND,
    OLDER_VERSIONS,
    Command,
    Contents,
    Driver,
    KafkaStreams,
    StorePartition,
    other_driver,
)
from shared_state import described, random_commands, recent

from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.selection import Chosen, PartitionSelection, Where, choose
from statestore.cli.verification import verify_all
from statestore.kafka.topics import Topics
from statestore.reports import Status
from statestore.verification.options import Depth, VerifyOptions
from tests.integration.broker import T0
from tests.integration.restored import restored_here

pytestmark = pytest.mark.long

STORES = EVERY_KIND
PARTS = [StorePartition(store.name) for store in STORES]
#: Much more than the memtables hold.
UNCOMMITTED = [Command("plain-kv", b"uncommitted %d" % number, b"x" * 10_000, T0) for number in range(100)]


@dataclass(frozen=True)
class Older:
    """A stopped application of an older version, and what its interactive queries returned."""

    version: str
    app: KafkaStreams
    state_dir: Path
    contents: Contents

    def chosen(self, state_dir: Path, stores: Sequence[str] = ()) -> Chosen:
        where = Where(self.app.cluster, state_dir)
        return choose(PartitionSelection(where, applications=[self.app.application_id], stores=stores), self.topics)

    def restored(self, state_dir: Path, *stores: str, version: str | None = None) -> dict[str, str]:
        asked = stores_to_restore(self.chosen(state_dir, stores), self.topics, kafka_streams=version)
        rows = restored_here(asked)
        assert [row.failure for row in rows] == [None] * len(rows)
        return {row.store: row.outcome for row in rows}

    def statuses(self, state_dir: Path, depth: Depth = "deep") -> dict[str, Status]:
        rows = verify_all(self.chosen(state_dir).specs, VerifyOptions(depth))
        return {row.store: row.status for row in rows}

    @property
    def topics(self) -> Topics:
        return self.app.cluster.topics

    def starts_on(self, state_dir: Path) -> None:
        contents = self.app.read(state_dir, STORES)
        assert contents.restored == dict.fromkeys(PARTS, 0)
        for part in PARTS:
            assert contents.rows[part] == self.contents.rows[part], part


@pytest.fixture(scope="module", params=OLDER_VERSIONS)
def older(
    request: pytest.FixtureRequest, driver: Driver, bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Older:
    directory = tmp_path_factory.mktemp(f"older-{request.param}")
    app = KafkaStreams(other_driver(driver, request.param, directory), bootstrap_servers, changelog_config={})
    # Nulls of a store that retains duplicates: see test_kafka_streams_restored.py.
    commands = recent(list(random_commands(STORES, count=1_000, seed=1)))
    commands = [one for one in commands if not (one.store == "twice" and one.op == "delete")]
    app.write(directory / "state", STORES, commands)
    contents = app.read(directory / "state", STORES)
    assert contents.restored == dict.fromkeys(PARTS, 0)
    return Older(request.param, app, directory / "state", contents)


WHOLE = {store.name: Status.OK for store in STORES}


def test_it_starts_on_what_we_restored_of_nothing(older: Older, tmp_path: Path) -> None:
    assert older.statuses(older.state_dir) == WHOLE
    older.restored(tmp_path, *described(STORES), version=older.version)
    assert older.statuses(tmp_path) == WHOLE
    older.starts_on(tmp_path)
    assert older.statuses(tmp_path) == WHOLE


def test_it_starts_on_stores_of_ours_beside_its_own(older: Older, tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    shutil.copytree(older.state_dir, state_dir)
    task = state_dir / older.app.application_id / "0_0"
    sst = max((task / "rocksdb" / "ts-kv").glob("*.sst"), key=lambda path: path.stat().st_size)
    sst.write_bytes(sst.read_bytes()[: sst.stat().st_size // 2])
    segment = max((task / "window").iterdir())
    (segment / "CURRENT").unlink()
    outcomes = older.restored(state_dir, "ts-kv:format=timestamped", "window", "session")
    assert outcomes == {"ts-kv": "restored", "window": "restored", "session": "skipped"}
    assert older.statuses(state_dir) == WHOLE
    older.starts_on(state_dir)


def test_one_that_was_killed_is_unclean_at_every_depth(older: Older, tmp_path: Path) -> None:
    # Behind the tests that compare with what was there: the input grows.
    state_dir = tmp_path / "state"
    shutil.copytree(older.state_dir, state_dir)
    older.app.die(state_dir, STORES, UNCOMMITTED)
    checkpoint = state_dir / older.app.application_id / "0_0" / ".checkpoint"
    for depth in ("offsets", "scan", "deep"):
        status = older.statuses(state_dir, depth)["plain-kv"]
        # A version that leaves no offsets behind has all of it built anew.
        assert status is (Status.UNCLEAN if checkpoint.exists() else Status.LAGGING), depth
