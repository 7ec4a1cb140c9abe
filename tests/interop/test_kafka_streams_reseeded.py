"""Kafka Streams loses its changelogs and keeps its stores: they are written anew from these, and it goes on.

It has a store of every kind in two tasks, stops, and its changelog topics are deleted. Kafka Streams alone would make
empty topics, take its stores for corrupt, and delete them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_streams import EVERY_KIND, Command, Contents, KafkaStreams, Row, Store, StorePartition

from statestore.cli.selection import PartitionSelection, Where, choose
from statestore.cli.verification import verify_all
from statestore.model import StoreFormat
from statestore.reports import Status
from statestore.verification.options import VerifyOptions
from tests.integration import broker, command_line
from tests.integration.broker import T0

pytestmark = pytest.mark.long  # Kafka Streams is started several times

STORES = [
    *EVERY_KIND,
    Store("noted", format=StoreFormat.HEADERS),
    Store("noted-windows", "window", StoreFormat.HEADERS),
    Store("noted-sessions", "session", StoreFormat.HEADERS),
    Store("closed-sessions", "session", layout="time-ordered"),
    Store("closed-sliding", "window", layout="sliding"),
    Store("closed-windows", "window", layout="time-ordered"),
]
PARTITIONS, RETENTION_MS = 2, 3_600_000
PARTS = [StorePartition(store.name, partition) for store in STORES for partition in range(PARTITIONS)]
START = T0 - T0 % RETENTION_MS


def commands() -> list[Command]:
    found = []
    for partition in range(PARTITIONS):
        for number in range(90):
            # Out of order, in several segments, and some again as deletes.
            start = START + (number * 37 % 90) * 60_000
            for store in STORES:
                key, value = b"key-%05d" % (number % 20), b"%d" % number
                notes = (("trace", b"%d" % number),) if store.format is StoreFormat.HEADERS else ()
                found.append(Command(store.name, key, value, T0 + number, start=start, end=start + 500))
                found[-1] = found[-1]._replace(partition=partition, headers=notes)
                if number % 7 == 0 and not store.duplicates:
                    found.append(found[-1]._replace(value=None, timestamp=T0 + number + 1))
    return found


def kept(rows: list[Row]) -> set[Row]:
    """Rows that have not expired."""
    last = max(row.start or 0 for row in rows)
    return {row for row in rows if (row.start or 0) > last - RETENTION_MS}


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], bootstrap_servers: str, tmp_path: Path
) -> command_line.Command:
    return command_line.Command(monkeypatch, capfd, command_line.settings_of(bootstrap_servers, tmp_path))


def test_it_starts_with_nothing_to_restore_and_finds_and_changes_what_it_had(
    kafka_streams: Callable[..., KafkaStreams], command: command_line.Command, tmp_path: Path
) -> None:
    app, state_dir = kafka_streams(partitions=PARTITIONS, changelog_config={}), tmp_path / "state"
    app.write(state_dir, STORES, commands())
    before: Contents = app.read(state_dir, STORES)
    assert before.restored == dict.fromkeys(PARTS, 0)
    assert all(len(rows) > 10 for rows in before.rows.values())
    for store in STORES:
        broker.delete_topic(app.bootstrap_servers, f"{app.application_id}-{store.name}-changelog")
    asked = ["rewrite", "reseed", "--application", app.application_id, "--partitioner", "any", "--yes"]
    ran = command(*asked, "--store", "plain-kv")
    assert (ran.code, "add --tasks 2" in ran.err) == (2, True)
    for store in STORES:
        times = [] if store.kind == "kv" else ["--retention", f"{store.name}={RETENTION_MS}"]
        ran = command(*asked, "--store", store.name, "--tasks", "2", *times)
        assert ran.code == 0, ran.err
    topics = app.cluster.topics
    chosen = choose(PartitionSelection(Where(app.cluster, state_dir), applications=[app.application_id]), topics)
    rows = verify_all(chosen.specs, VerifyOptions("deep"))
    assert {(row.status, row.detail) for row in rows} == {(Status.OK, "")}
    assert len(rows) == len(PARTS)
    after = app.read(state_dir, STORES)
    assert after.restored == dict.fromkeys(PARTS, 0)
    assert after.rows == before.rows
    assert after.positions == before.positions
    went_on = app.write(state_dir, STORES, [Command("plain-kv", b"new", b"value", T0 + 1_000)])
    assert went_on.restored == dict.fromkeys(PARTS, 0)
    # A new instance elsewhere has nothing but the new changelogs; in restoring it drops what has expired.
    elsewhere = app.read(tmp_path / "elsewhere", STORES)
    assert min(elsewhere.restored.values()) > 0
    part = StorePartition("plain-kv")
    assert Row(b"new", b"value") in elsewhere.rows[part]
    for found in set(PARTS) - {part}:
        assert kept(elsewhere.rows[found]) == kept(before.rows[found]), found
