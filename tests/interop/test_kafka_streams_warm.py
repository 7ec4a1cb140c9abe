"""Kafka Streams starts on the directories that `statestore warm` has brought up, as its init container would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka_streams import EVERY_KIND, Command, Contents, KafkaStreams, Row, Store, StorePartition
from shared_state import described, random_commands, recent

from tests.integration.broker import T0

pytestmark = pytest.mark.long
PARTITIONS = 2
STORES = [*EVERY_KIND, Store("never")]
PARTS = [StorePartition(store.name, partition) for store in STORES for partition in range(PARTITIONS)]
TIMESTAMPED = STORES[1]


class Warmed:
    """An application with snapshots in an archive, and what its stores have."""

    def __init__(self, app: KafkaStreams, directory: Path) -> None:
        self.app, self.archive = app, f"file://{directory}/archive"
        app.write(directory / "theirs", STORES, _commands(1_000, seed=1))
        where = ("--state-dir", str(directory / "nothing"), "--scratch", str(directory / "scratch"))
        self.run("snapshot", "create", *where, code=1)  # of a store that never had a row there is none
        app.write(directory / "theirs", STORES, _commands(200, seed=11))
        self.contents: Contents = app.read(directory / "theirs", STORES)

    def run(self, *arguments: str, code: int = 0, parallel: int = 1, **environment: str) -> list[dict[str, Any]]:
        """Run the command in a process of its own, and return its rows."""
        what = ("--application", self.app.application_id, "--bootstrap-servers", self.app.bootstrap_servers)
        stores = (part for store in described(STORES) for part in ("--store", store))
        argv = [sys.executable, "-m", "statestore.cli", *arguments, *what, "--archive", self.archive, *stores]
        argv += ["--parallel", str(parallel), "--json", "-"]
        environment = {**os.environ, **environment}
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)["rows"] if done.stdout else []

    def warm(self, state_dir: Path, *more: str, **how: Any) -> list[dict[str, Any]]:
        """Warm all tasks on an empty disk."""
        where = ("--state-dir", str(state_dir), "--kafka-streams", "4.3.1", "--max-bytes", "1Gi", *more)
        return self.run("warm", *where, **how)


def _commands(count: int, seed: int) -> list[Command]:
    """Changes of each task; a null into the store with duplicates numbers its log unlike its rows, so there is none."""
    return [
        command._replace(partition=partition)
        for partition in range(PARTITIONS)
        for command in recent(list(random_commands(EVERY_KIND, count, seed=seed + partition)))
        if not (command.store == "twice" and command.op == "delete")
    ]


@pytest.fixture(scope="module")
def warmed(kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory) -> Warmed:
    return Warmed(kafka_streams(partitions=PARTITIONS, changelog_config={}), tmp_path_factory.mktemp("warmed"))


def outcomes(rows: Sequence[dict[str, Any]]) -> set[str]:
    return {row["outcome"] for row in rows}


POINTS = ["restore, snapshot fetched:5", "swap, before the last rename:5", "restore, sealed, runs still there:5"]


@pytest.mark.parametrize("point", POINTS)
def test_kafka_streams_accepts_what_a_killed_one_has_left(warmed: Warmed, tmp_path: Path, point: str) -> None:
    """It restores what is not there; what it then has is the same."""
    warmed.warm(tmp_path, code=-9, STATESTORE_KILL_AT=point)
    warmed.app.write(tmp_path, STORES, [])
    contents = warmed.app.read(tmp_path, STORES)  # opened again, as what it is compared with
    assert contents.restored == dict.fromkeys(PARTS, 0)
    assert contents.rows == warmed.contents.rows


def test_kafka_streams_has_nothing_to_restore_and_goes_on(warmed: Warmed, tmp_path: Path) -> None:
    rows = warmed.warm(tmp_path, "--require", parallel=2)
    assert outcomes(rows) == {"warmed"}
    contents = warmed.app.read(tmp_path, STORES)
    assert contents.restored == dict.fromkeys(PARTS, 0)
    assert contents.rows == warmed.contents.rows
    went_on = warmed.app.write(tmp_path, STORES, [Command("plain-kv", b"new", b"value", T0)])
    assert went_on.restored == dict.fromkeys(PARTS, 0)
    assert outcomes(warmed.warm(tmp_path, "--require")) == {"ready"}
    contents = warmed.app.read(tmp_path, STORES)
    assert contents.restored == dict.fromkeys(PARTS, 0)
    assert Row(b"new", b"value") in contents.rows[StorePartition("plain-kv")]


def test_a_task_of_which_a_store_is_not_known_is_left_whole(warmed: Warmed, tmp_path: Path) -> None:
    argv = ["--state-dir", str(tmp_path), "--kafka-streams", "4.3.1", "--max-bytes", "1Gi"]
    known = [store for store in STORES if store is not TIMESTAMPED]
    stores = [part for store in described(known) for part in ("--store", store)]
    what = ["--application", warmed.app.application_id, "--bootstrap-servers", warmed.app.bootstrap_servers]
    done = subprocess.run(
        [sys.executable, "-m", "statestore.cli", "warm", *argv, *what, *stores, "--json", "-"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    rows = json.loads(done.stdout)["rows"]
    assert outcomes(rows) == {"left"}
    assert {TIMESTAMPED.name in row["detail"] for row in rows} == {True}
    assert not list(tmp_path.rglob("*.sst"))
