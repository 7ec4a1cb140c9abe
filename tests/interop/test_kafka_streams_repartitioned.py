"""The state of a Kafka Streams application becomes that of one with other partitions, which starts on it at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_streams import EVERY_KIND, Command, KafkaStreams, Row, Store, StorePartition

from statestore.cli.selection import PartitionSelection, Where, choose
from statestore.cli.verification import verify_all
from statestore.kafka.partitioner import partition_of
from statestore.model import StoreFormat, TopicPartition
from statestore.reports import Status
from statestore.verification.options import VerifyOptions
from tests.integration import command_line
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
RETENTION_MS = 3_600_000
START = T0 - T0 % RETENTION_MS
KEYS = [b"key-%05d" % number for number in range(40)]


def commands(partitions: int, first: int, count: int, at: int) -> list[Command]:
    """Changes of all stores, each where Kafka's partitioner puts its key; none expires."""
    found = []
    for number in range(first, first + count):
        key, start = KEYS[number % len(KEYS)], START + number % 50 * 60_000
        for store in STORES:
            notes = (("trace", b"%d" % number),) if store.format is StoreFormat.HEADERS else ()
            change = Command(store.name, key, b"%d" % number, at + number, start=start, end=start + 500)
            found.append(change._replace(partition=partition_of(key, partitions), headers=notes))
            if number % 7 == 0 and not store.duplicates:
                found.append(found[-1]._replace(value=None, timestamp=at + number + 1))
    return found


def by_key(rows: dict[StorePartition, list[Row]], partitions: int) -> dict[str, list[Row]]:
    """Rows of all partitions of each store, sorted; each must lie where the partitioner puts its key."""
    found: dict[str, list[Row]] = {}
    for part, its in rows.items():
        assert {partition_of(row.key, partitions) for row in its} <= {part.partition}, part
        found.setdefault(part.store, []).extend(its)
    return {store: sorted(its, key=repr) for store, its in found.items()}


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], bootstrap_servers: str, tmp_path: Path
) -> command_line.Command:
    return command_line.Command(monkeypatch, capfd, command_line.settings_of(bootstrap_servers, tmp_path))


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)])
def test_it_starts_with_nothing_to_restore_and_goes_on_as_one_that_had_so_many_from_the_start(
    kafka_streams: Callable[..., KafkaStreams], command: command_line.Command, tmp_path: Path, before: int, after: int
) -> None:
    state_dir = tmp_path / "state"
    old, new, other = (kafka_streams(partitions=count, changelog_config={}) for count in (before, after, after))
    old.write(state_dir, STORES, commands(before, 0, 120, T0))
    kept = old.read(state_dir, STORES)
    names = ["--application", old.application_id, "--to", new.application_id, "--partitions", str(after)]
    times = [f"--retention={store.name}={RETENTION_MS}" for store in STORES if store.kind != "kv"]
    asked = ["rewrite", "repartition", *names, *times, "--parallel", "2"]
    ran = command(*asked, "--yes")
    assert (ran.code, f"--input {old.input_topic}=TOPIC" in ran.err) == (2, True), ran
    ran = command(*asked, "--input", f"{old.input_topic}={new.input_topic}", "--yes")
    assert ran.code == 0, ran.err
    topics, where = new.cluster.topics, Where(new.cluster, state_dir)
    chosen = choose(
        PartitionSelection(where, applications=[new.application_id], retentions=[t[12:] for t in times]), topics
    )
    rows = verify_all(chosen.specs, VerifyOptions("deep"))
    assert {(row.status, row.detail) for row in rows} <= {(Status.OK, ""), (Status.EMPTY, "")}
    assert len(rows) == len(STORES) * after
    parts = [StorePartition(store.name, number) for store in STORES for number in range(after)]
    found = new.read(state_dir, STORES)
    assert found.restored == dict.fromkeys(parts, 0)
    assert by_key(dict(found.rows), after) == by_key(dict(kept.rows), before)
    assert set(found.rows) == set(parts)
    went_on = new.write(state_dir, STORES, commands(after, 120, 80, T0))
    assert went_on.restored == dict.fromkeys(parts, 0)
    other.write(tmp_path / "other", STORES, [*commands(after, 0, 120, T0), *commands(after, 120, 80, T0)])
    expected = other.read(tmp_path / "other", STORES)
    result = new.read(state_dir, STORES)
    assert by_key(dict(result.rows), after) == by_key(dict(expected.rows), after)
    assert {position for of in result.positions.values() for position in of} <= {
        TopicPartition(new.input_topic, number) for number in range(after)
    }
    again = old.read(state_dir, STORES)
    assert (again.rows, set(again.restored.values())) == (kept.rows, {0})
