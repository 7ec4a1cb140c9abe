"""Stores that Kafka Streams has moved to another directory, with at-least-once processing: the former one is stale."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from kafka_streams import Command, KafkaStreams, Store
from stopped import Stopped

from statestore.cli.verification import exit_code
from statestore.errors import InputError
from statestore.reports import VerifyRow
from tests.integration.broker import T0, create_topic, delete_topic, produce

pytestmark = pytest.mark.long  # Kafka Streams is started several times

AT_LEAST_ONCE = {"processing.guarantee": "at_least_once"}
TOTALS = [Store("totals")]


def commands(first: int, *, start: int | None = None) -> list[Command]:
    return [
        Command("totals", b"key-%d" % number, b"%d" % number, T0 + number, start=start)
        for number in range(first, first + 50)
    ]


def with_table(app: KafkaStreams) -> KafkaStreams:
    """Return the application after a table was added in front of its topology."""
    topic = create_topic(app.bootstrap_servers, f"table-{uuid4().hex[:8]}", 1, {"cleanup.policy": "compact"})
    produce(app.bootstrap_servers, topic, [(b"id", b"v")], partition=0, timestamp=T0)
    moved = copy.copy(app)
    moved._tables = {**app._tables, "--table": {"by-id": topic}}
    return moved


def started(kafka_streams: Callable[..., KafkaStreams], state_dir: Path) -> Stopped:
    """Return an application before its topology changes."""
    app = kafka_streams(changelog_config={})
    app.write(state_dir, TOTALS, commands(0), config=AT_LEAST_ONCE)
    return Stopped(app, state_dir, "at_least_once")


@pytest.fixture
def first(kafka_streams: Callable[..., KafkaStreams], tmp_path: Path) -> Stopped:
    """An application before its topology changes."""
    return started(kafka_streams, tmp_path / "first")


@pytest.fixture(scope="module")
def moved(kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """An application after a table was added and more records were processed; it was not verified before."""
    stopped = started(kafka_streams, tmp_path_factory.mktemp("moved") / "state")
    with_table(stopped.app).write(stopped.state_dir, TOTALS, commands(50), config=AT_LEAST_ONCE)
    assert places(stopped) == ["0_0/rocksdb/totals", "1_0/rocksdb/totals"]
    return stopped


def places(stopped: Stopped) -> list[str]:
    found = [*stopped.directory.glob("*_0/rocksdb/totals"), *stopped.directory.glob("*_0/totals")]
    return sorted(str(path.relative_to(stopped.directory)) for path in found)


def verified(stopped: Stopped, *stores: str) -> Sequence[VerifyRow]:
    rows = stopped._rows(stopped.chosen(*stores), "deep")
    return [row for row in rows if row.store == "totals"]


def statuses(rows: Sequence[VerifyRow]) -> dict[str, str]:
    return {row.task: str(row.status) for row in rows}


def lose(stopped: Stopped, place: str) -> None:
    shutil.rmtree(stopped.directory / place)


def test_the_former_directory_is_stale_and_the_loss_of_the_live_one_is_noticed(moved: Stopped, tmp_path: Path) -> None:
    stopped = moved.copy(tmp_path / "state")
    rows = verified(stopped)
    assert statuses(rows) == {"0_0": "STALE", "1_0": "OK"}
    assert exit_code(rows) == 0
    stopped.keep_known()

    lose(stopped, "1_0/rocksdb/totals")
    rows = verified(stopped)
    assert statuses(rows) == {"0_0": "STALE", "1_0": "MISSING"}
    assert exit_code(rows) == 1
    (row,) = [row for row in stopped.restored() if row.store == "totals"]
    assert (row.task, row.outcome) == ("1_0", "restored")
    assert statuses(verified(stopped)) == {"0_0": "STALE", "1_0": "OK"}
    contents = with_table(moved.app).read(stopped.state_dir, TOTALS, config=AT_LEAST_ONCE)
    (rows_read,) = contents.rows.values()
    assert len(rows_read) == 100


def test_a_stale_directory_that_is_used_again_is_no_longer_stale(moved: Stopped, tmp_path: Path) -> None:
    """Given an application that went back to its former topology, and lost the other directory."""
    stopped = moved.copy(tmp_path / "state")
    stopped.keep_known()
    moved.app.write(stopped.state_dir, TOTALS, commands(100), config=AT_LEAST_ONCE)
    assert statuses(verified(stopped)) == {"0_0": "OK", "1_0": "STALE"}
    lose(stopped, "1_0/rocksdb/totals")
    assert statuses(verified(stopped)) == {"0_0": "OK"}


@pytest.mark.parametrize("known", [True, False])
def test_directories_with_the_same_records_are_told_apart_by_the_last_verification_or_the_user(
    first: Stopped, known: bool
) -> None:
    """Given that nothing was logged since the topology changed."""
    if known:
        first.keep_known()
    with_table(first.app).read(first.state_dir, TOTALS, config=AT_LEAST_ONCE)
    rows = verified(first)
    if known:
        assert statuses(rows) == {"0_0": "STALE", "1_0": "OK"}
        return
    assert statuses(rows) == {"0_0": "UNDETERMINED", "1_0": "UNDETERMINED"}
    assert exit_code(rows) == 1
    assert "--store totals:subtopology=0|1" in rows[0].detail
    with pytest.raises(InputError, match=r"totals:subtopology=0\|1"):
        first.restored("totals")
    assert statuses(verified(first, "totals:subtopology=1")) == {"0_0": "STALE", "1_0": "OK"}


@pytest.mark.parametrize("known", [True, False])
def test_a_store_that_has_changed_its_kind_leaves_a_stale_directory(first: Stopped, known: bool) -> None:
    """Given that the changelog was deleted for it, so that fewer records are logged than before."""
    if known:
        first.keep_known()
    delete_topic(first.app.bootstrap_servers, f"{first.app.application_id}-totals-changelog")
    window = [Store("totals", "window")]
    windows = [command for each in range(3) for command in commands(0, start=T0 - T0 % 60_000 + each * 1_800_000)[:9]]
    first.app.write(first.state_dir, window, windows, config=AT_LEAST_ONCE)
    assert places(first) == ["0_0/rocksdb/totals", "0_0/totals"]
    rows = verified(first)
    assert sorted(str(row.status) for row in rows) == ["OK", "STALE"]
    (stale,) = [row for row in rows if row.status == "STALE"]
    assert f"{first.directory}/0_0/rocksdb/totals is left from a former topology" in stale.detail
    first.keep_known()

    lose(first, "0_0/totals")
    rows = verified(first)
    assert sorted(str(row.status) for row in rows) == ["MISSING", "STALE"]
    (row,) = first.restored()
    assert (row.store, row.outcome) == ("totals", "restored")
    assert sorted(str(row.status) for row in verified(first)) == ["OK", "STALE"]
