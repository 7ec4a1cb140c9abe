"""Snapshots of a Kafka Streams application that runs: it loses its directory, and goes on from one of them.

The snapshots are made from the changelogs alone. The application is not stopped for them, and its directory is not
looked into.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka_streams import EVERY_KIND, Command, KafkaStreams, Row, Store, StorePartition
from shared_state import described, random_commands, recent

from tests.integration import command_line
from tests.integration.broker import T0

pytestmark = pytest.mark.long
PARTITIONS = 2


class Archived:
    """An application of Kafka Streams, and the command that keeps snapshots of it."""

    def __init__(self, app: KafkaStreams, stores: Sequence[Store], run: command_line.Command, directory: Path) -> None:
        self.app, self.stores, self.directory = app, stores, directory
        self._run = run
        self._archive = f"file://{directory}/archive"

    @property
    def parts(self) -> list[StorePartition]:
        return [StorePartition(store.name, partition) for store in self.stores for partition in range(PARTITIONS)]

    def _shown(self, *arguments: str) -> list[dict[str, Any]]:
        what = ("--application", self.app.application_id, "--archive", self._archive, "--parallel", "1")
        stores = (part for store in described(self.stores) for part in ("--store", store))
        rows: list[dict[str, Any]] = self._run.shown(*arguments, *what, *stores)["rows"]
        assert [row["failure"] for row in rows] == [None] * len(self.parts)
        return rows

    def create(self) -> list[dict[str, Any]]:
        """Make snapshots of all stores; nothing is known of them but what is said."""
        where = ("--state-dir", str(self.directory / "nothing"), "--scratch", str(self.directory / "scratch"))
        return self._shown("snapshot", "create", *where)

    def restore(self, state_dir: Path) -> dict[StorePartition, dict[str, Any]]:
        """Restore all stores from snapshots; they must be what their changelogs give."""
        rows = self._shown("restore", "--mode", "snapshot", "--kafka-streams", "4.3.1", "--state-dir", str(state_dir))
        assert {row["mode"] for row in rows} == {"snapshot"}
        what = ("--application", self.app.application_id, "--parallel", "1")
        found = self._run.shown("verify", "--depth", "deep", "--state-dir", str(state_dir), *what)["rows"]
        assert {row["status"] for row in found} == {"OK"}
        return {StorePartition(row["store"], int(row["task"].partition("_")[2])): row for row in rows}


@pytest.fixture
def archived(
    kafka_streams: Callable[..., KafkaStreams],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Archived:
    app = kafka_streams(partitions=PARTITIONS, changelog_config={})
    settings = command_line.settings_of(app.bootstrap_servers, tmp_path)
    return Archived(app, EVERY_KIND, command_line.Command(monkeypatch, capfd, settings), tmp_path)


def _commands(stores: Sequence[Store], count: int, seed: int) -> list[Command]:
    """Changes of each task; a null into the store with duplicates numbers its log unlike its rows, so there is none."""
    return [
        command._replace(partition=partition)
        for partition in range(PARTITIONS)
        for command in recent(list(random_commands(stores, count, seed=seed + partition)))
        if not (command.store == "twice" and command.op == "delete")
    ]


def test_kafka_streams_has_nothing_to_restore_on_snapshots_of_its_running_application_and_the_rest_of_its_log(
    archived: Archived,
) -> None:
    app, stores, theirs = archived.app, archived.stores, archived.directory / "theirs"
    with app.running(theirs, stores, _commands(stores, 1_200, seed=1)):
        first = archived.create()
        app.send(_commands(stores, 300, seed=11))
    assert {row["grown_from"] for row in first} == {None}
    contents = app.read(theirs, stores)
    assert min(len(contents.rows[part]) for part in archived.parts) > 15
    shutil.rmtree(theirs)

    ours = archived.directory / "ours"
    restored = archived.restore(ours)
    assert min(row["records"] for row in restored.values()) > 0  # what came after the snapshots
    assert {row["snapshot"] for row in restored.values()} == {row["snapshot"] for row in first}
    again = app.read(ours, stores)
    assert again.restored == dict.fromkeys(archived.parts, 0)
    assert again.rows == contents.rows


def test_kafka_streams_goes_on_with_what_came_from_a_snapshot_and_the_next_one_has_that_too(archived: Archived) -> None:
    app, stores, ours = archived.app, archived.stores, archived.directory / "ours"
    app.write(archived.directory / "theirs", stores, _commands(stores, 600, seed=21))
    archived.create()
    archived.restore(ours)
    with app.running(ours, stores, [Command("plain-kv", b"new", b"value", T0)]):
        again = archived.create()  # begins with the snapshots before
    assert all(row["grown_from"] for row in again)
    contents = app.read(ours, stores)
    assert contents.restored == dict.fromkeys(archived.parts, 0)
    assert Row(b"new", b"value") in contents.rows[StorePartition("plain-kv")]
    shutil.rmtree(ours)
    restored = archived.restore(ours)
    assert {row["records"] for row in restored.values()} == {0}
    found = app.read(ours, stores)
    assert found.restored == dict.fromkeys(archived.parts, 0)
    assert found.rows == contents.rows
