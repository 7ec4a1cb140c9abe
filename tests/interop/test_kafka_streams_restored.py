"""Kafka Streams loses its state directory, our restore rebuilds it from the changelogs, and Kafka Streams goes on.

It fills stores of every kind exactly once, deletes, overwrites and lets windows expire, and stops. Three directories
are then held against each other: its own, opened again; one that Kafka Streams restored itself; and ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka_streams import EVERY_KIND, Command, Contents, KafkaStreams, Row, StorePartition
from shared_state import described, random_commands, recent

from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.selection import Chosen, PartitionSelection, Where, choose
from statestore.cli.verification import rows_without_work, verify_all
from statestore.errors import InputError
from statestore.kafka.topics import Topics
from statestore.reports import RestoreRow, Status
from statestore.verification.options import Depth, VerifyOptions
from tests.integration.broker import T0
from tests.integration.restored import planned_here, restored_here

pytestmark = pytest.mark.long  # test_kafka_streams_compatibility.py is what every change passes

STORES = EVERY_KIND
PARTITIONS = 2
PARTS = [StorePartition(store.name, partition) for store in STORES for partition in range(PARTITIONS)]


@dataclass(frozen=True)
class Wiped:
    """An application whose directory is gone, and what was in it when Kafka Streams opened it for the last time."""

    app: KafkaStreams
    contents: Contents
    directory: Path

    def chosen(self, state_dir: Path, stores: Sequence[str] = tuple(described(STORES))) -> Chosen:
        where = Where(self.app.cluster, state_dir)
        return choose(PartitionSelection(where, applications=[self.app.application_id], stores=stores), self.topics)

    def restored(self, state_dir: Path, **how: Any) -> dict[str, RestoreRow]:
        stores = stores_to_restore(self.chosen(state_dir), self.topics, kafka_streams="4.3.1")
        rows = restored_here(stores, **{"mode": "full", **how})
        assert [row.failure for row in rows] == [None] * len(rows)
        return {f"{row.store}/{row.task}": row for row in rows}

    def statuses(self, state_dir: Path, depth: Depth = "deep") -> dict[str, tuple[Status, str]]:
        rows = verify_all(self.chosen(state_dir, []).specs, VerifyOptions(depth))
        return {f"{row.store}/{row.task}": (row.status, row.detail) for row in rows}

    @property
    def topics(self) -> Topics:
        return self.app.cluster.topics


WHOLE = {f"{part.store}/0_{part.partition}": (Status.OK, "") for part in PARTS}


@pytest.fixture(scope="module")
def wiped(kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory) -> Wiped:
    app = kafka_streams(partitions=PARTITIONS, changelog_config={})
    directory = tmp_path_factory.mktemp("wiped")
    state_dir = directory / "state"
    commands = [
        command._replace(partition=partition)
        for partition in range(PARTITIONS)
        for command in recent(list(random_commands(STORES, count=1_500, seed=partition + 1)))
        # Kafka Streams numbers what it logs apart from what it stores: a null, which is no row, uses up a number in the
        # log alone. Its own restore is then other keys of the same rows, and no comparison by keys can tell.
        if not (command.store == "twice" and command.op == "delete")
    ]
    app.write(state_dir, STORES, commands)
    contents = app.read(state_dir, STORES)
    assert contents.restored == dict.fromkeys(PARTS, 0)
    wiped = Wiped(app, contents, directory)
    assert wiped.statuses(state_dir) == WHOLE, "before"
    state_dir.rename(directory / "gone")
    return wiped


@pytest.fixture(scope="module")
def by_us(wiped: Wiped) -> Path:
    """A state directory that our full restore built."""
    state_dir = wiped.directory / "ours"
    wiped.restored(state_dir)
    return state_dir


@pytest.fixture(scope="module")
def by_kafka_streams(wiped: Wiped) -> Contents:
    """Contents of what Kafka Streams restored, opened again."""
    state_dir = wiped.directory / "theirs"
    restored = wiped.app.read(state_dir, STORES).restored
    assert min(restored.values()) > 0
    return wiped.app.read(state_dir, STORES)


def test_the_sample_is_worth_restoring(wiped: Wiped) -> None:
    for part in PARTS:
        assert len(wiped.contents.rows[part]) > 15, part


def test_a_wiped_directory_is_missing_and_its_restore_is_planned_before_anything_is_made(
    wiped: Wiped, tmp_path: Path
) -> None:
    chosen = wiped.chosen(tmp_path, [])
    assert {row.status for row in rows_without_work(chosen, wiped.topics)} == {Status.MISSING}
    with pytest.raises(InputError, match="6 stores need a description"):
        stores_to_restore(chosen, wiped.topics)
    with pytest.raises(InputError, match=r"neither a store nor a \.checkpoint is left.*--kafka-streams VERSION"):
        stores_to_restore(wiped.chosen(tmp_path), wiped.topics)
    stores = stores_to_restore(wiped.chosen(tmp_path), wiped.topics, kafka_streams="4.3.1")
    plans = planned_here(stores, mode="full")
    assert {(plan.status, plan.mode, plan.failure) for plan in plans} == {(Status.MISSING, "full", None)}
    assert all(plan.offsets > 0 and plan.disk_needed <= plan.disk_free for plan in plans)
    assert not list((tmp_path / wiped.app.application_id).glob("*_*"))


def test_kafka_streams_has_nothing_to_restore_after_us_and_finds_what_it_and_its_own_restore_left(
    wiped: Wiped, by_us: Path, by_kafka_streams: Contents
) -> None:
    assert wiped.statuses(by_us) == WHOLE, "before Kafka Streams"
    contents = wiped.app.read(by_us, STORES)
    assert contents.restored == dict.fromkeys(PARTS, 0)
    for part in PARTS:
        assert contents.rows[part] == wiped.contents.rows[part], part
        assert contents.rows[part] == by_kafka_streams.rows[part], part
    assert wiped.statuses(by_us) == WHOLE, "after Kafka Streams"


@pytest.mark.long
def test_kafka_streams_goes_on_with_what_we_restored(wiped: Wiped, tmp_path: Path) -> None:
    # Behind the tests that compare with what was there: the changelogs grow.
    wiped.restored(tmp_path)
    went_on = wiped.app.write(tmp_path, STORES, [Command("plain-kv", b"new", b"value", T0)])
    assert went_on.restored == dict.fromkeys(PARTS, 0)
    contents = wiped.app.read(tmp_path, STORES)
    assert contents.restored == dict.fromkeys(PARTS, 0)
    assert Row(b"new", b"value") in contents.rows[StorePartition("plain-kv")]
    assert wiped.statuses(tmp_path) == WHOLE


@pytest.mark.long
def test_one_piece_several_ranges_small_runs_and_twice_give_equal_digests(wiped: Wiped, tmp_path: Path) -> None:
    ways: dict[str, dict[str, Any]] = {
        "one piece": {},
        "ranges": {"ranges": 5},
        "small runs": {"run_bytes": 1 << 13},
        "ranges and small runs": {"ranges": 3, "run_bytes": 1 << 13},
    }
    ways["again"] = {"force": True}
    digests = {}
    for name, how in ways.items():
        rows = wiped.restored(tmp_path / ("one piece" if how.get("force") else name), **how)
        digests[name] = {label: (row.digest, row.keys, row.committed) for label, row in rows.items()}
    for one, other in itertools.pairwise(digests):
        assert digests[one] == digests[other], (one, other)
    assert all(digest for digest, _, _ in digests["one piece"].values())


@pytest.mark.long
def test_a_store_that_is_damaged_afterwards_is_rebuilt_alone_and_kafka_streams_takes_it(
    wiped: Wiped, tmp_path: Path
) -> None:
    state_dir = tmp_path / "state"
    wiped.restored(state_dir)
    damaged = state_dir / wiped.app.application_id / "0_0" / "rocksdb" / "ts-kv"
    sst = max(damaged.glob("*.sst"), key=lambda path: path.stat().st_size)
    sst.write_bytes(sst.read_bytes()[: sst.stat().st_size // 2])
    assert wiped.statuses(state_dir)["ts-kv/0_0"][0] is Status.CORRUPT
    rows = restored_here(stores_to_restore(wiped.chosen(state_dir, []), wiped.topics), "later")
    assert {f"{row.store}/{row.task}": row.outcome for row in rows if row.outcome != "skipped"} == {
        "ts-kv/0_0": "restored"
    }
    assert wiped.app.read(state_dir, STORES).restored == dict.fromkeys(PARTS, 0)
