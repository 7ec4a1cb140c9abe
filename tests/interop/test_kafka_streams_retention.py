"""The retention of a window store is changed in the code, and Kafka Streams leaves segments of the old length."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_streams import OLDER_VERSIONS, Command, Driver, KafkaStreams, Store, other_driver
from shared_state import contents_of

from statestore.cli import known_stores
from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.selection import Chosen, PartitionSelection, Where, choose
from statestore.cli.verification import rows_without_work, verify_all
from statestore.model import StoreFormat
from statestore.recovery.restore import restore
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Status, VerifyRow
from statestore.requests.restore import RestoreRequest
from statestore.verification.options import Depth, VerifyOptions
from tests.integration.broker import T0

HOUR = 3_600_000
START = T0 - T0 % (4 * HOUR) - 8 * HOUR
AT_LEAST_ONCE = {"processing.guarantee": "at_least_once"}
DESCRIBED = "win:kind=window,format=timestamped,subtopology=0"

pytestmark = pytest.mark.long


class Changed:
    """An application whose store had a retention of 1 h, and then of 8 h."""

    def __init__(self, app: KafkaStreams, state_dir: Path) -> None:
        self.app = app
        self.state_dir = state_dir
        self.topics = app.cluster.topics

    @property
    def directory(self) -> Path:
        return self.state_dir / self.app.application_id / "0_0" / "win"

    def run(self, retention_ms: int, first: int, last: int) -> None:
        """Write a window every 5 minutes."""
        store = Store("win", "window", StoreFormat.TIMESTAMPED, retention_ms=retention_ms)
        times = range(START + first, START + last, HOUR // 12)
        commands = [Command("win", b"a", b"%d" % retention_ms, time, start=time) for time in times]
        self.app.write(self.state_dir, [store], commands, config=AT_LEAST_ONCE)

    def chosen(self, *stores: str, retentions: tuple[str, ...] = ()) -> Chosen:
        asked = PartitionSelection(
            Where(self.app.cluster, self.state_dir),
            applications=[self.app.application_id],
            stores=stores,
            retentions=retentions,
            guarantee="at_least_once",
        )
        return choose(asked, self.topics)

    def verified(self, *stores: str, depth: Depth = "deep", retentions: tuple[str, ...] = ()) -> VerifyRow:
        """Verify as the command does, which records what it found."""
        chosen = self.chosen(*stores, retentions=retentions)
        rows = verify_all(chosen.specs, VerifyOptions(depth)) + rows_without_work(chosen, self.topics)
        known_stores.keep(chosen, self.state_dir, rows)
        (row,) = rows
        return row

    def restored(self, *stores: str, retentions: tuple[str, ...] = ()) -> str:
        chosen = self.chosen(*stores, retentions=retentions)
        (spec,) = stores_to_restore(chosen, self.topics, kafka_streams="4.3.1")
        return restore(RestoreSpec(spec, RestoreRequest(), "run", 1 << 20)).outcome


@pytest.fixture
def shortened(kafka_streams: Callable[..., KafkaStreams], tmp_path: Path) -> Changed:
    """An application whose store had a retention of 8 h, and then of 1 h."""
    found = Changed(kafka_streams(changelog_config={}), tmp_path / "shortened")
    found.run(8 * HOUR, 0, 4 * HOUR)
    return found


def test_a_shorter_retention_loses_no_row_once_the_longer_segments_have_expired(shortened: Changed) -> None:
    shortened.run(HOUR, 6 * HOUR, 8 * HOUR)
    assert shortened.verified().status is Status.UNKNOWN_FORMAT  # the topic keeps the retention of 8 h
    assert shortened.verified(retentions=("win=1h",)).status is Status.OK
    assert shortened.verified().status is Status.OK


def test_rows_that_a_shorter_retention_takes_from_kafka_streams_are_named_and_restored(shortened: Changed) -> None:
    """Given a restart in the middle of a segment of 4 h, whose last hour has not expired."""
    shortened.run(HOUR, 4 * HOUR, 4 * HOUR + HOUR // 3)
    row = shortened.verified(retentions=("win=1h",))
    gone = not (shortened.directory / f"win.{START}").exists()
    assert row.status is (Status.DIVERGED if gone else Status.UNKNOWN_FORMAT), row.detail
    shutil.rmtree(shortened.directory)
    assert shortened.restored(DESCRIBED, retentions=("win=1h",)) == "restored"
    store = Store("win", "window", StoreFormat.TIMESTAMPED, retention_ms=HOUR)
    contents = shortened.app.read(shortened.state_dir, [store], config=AT_LEAST_ONCE)
    assert sum(contents.restored.values()) == 0
    assert sum(map(len, contents.rows.values())) >= 12


@pytest.mark.parametrize("version", OLDER_VERSIONS)
def test_segments_that_an_older_version_leaves_are_named(
    driver: Driver, bootstrap_servers: str, tmp_path: Path, version: str
) -> None:
    app = KafkaStreams(other_driver(driver, version, tmp_path), bootstrap_servers, changelog_config={})
    found = Changed(app, tmp_path / "state")
    found.run(HOUR, 0, 2 * HOUR)
    found.run(8 * HOUR, 2 * HOUR, 6 * HOUR)
    row = found.verified()
    assert (row.status, "--retention win=" in row.detail) == (Status.UNKNOWN_FORMAT, True)
    row = found.verified(retentions=("win=8h",))
    assert all(name in row.detail for name in left_over(found))
    # Before 4.3, offsets are not in the segments, so Kafka Streams does not notice that it has lost rows.
    store = Store("win", "window", StoreFormat.TIMESTAMPED, retention_ms=8 * HOUR)
    shown = sum(map(len, app.read(found.state_dir, [store], config=AT_LEAST_ONCE).rows.values()))
    assert row.contents is not None
    assert (row.status, row.contents.equal, row.contents.only_in_log) == (
        Status.OK if shown == 72 else Status.DIVERGED,
        shown,
        72 - shown,
    )


@pytest.fixture(scope="module")
def changed_once(kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory) -> Changed:
    found = Changed(kafka_streams(changelog_config={}), tmp_path_factory.mktemp("changed") / "state")
    found.run(HOUR, 0, 2 * HOUR)
    found.run(8 * HOUR, 2 * HOUR, 6 * HOUR)
    return found


@pytest.fixture
def changed(changed_once: Changed, tmp_path: Path) -> Changed:
    state_dir = shutil.copytree(changed_once.state_dir, tmp_path / "state")
    return Changed(changed_once.app, state_dir)


def left_over(changed: Changed) -> list[str]:
    return [f"win.{START + at * HOUR // 2}" for at in (1, 2, 3)]


def test_kafka_streams_leaves_segments_of_the_old_length(changed: Changed) -> None:
    assert {path.name for path in changed.directory.iterdir()} > set(left_over(changed))


def test_without_a_retention_it_is_asked_for_and_the_left_over_segments_are_named(changed: Changed) -> None:
    row = changed.verified()
    assert row.status is Status.UNKNOWN_FORMAT
    assert "neither those of windows nor those of sessions" not in row.detail
    assert "--retention win=" in row.detail
    assert all(name in row.detail for name in left_over(changed))


@pytest.mark.parametrize("depth", ["offsets", "scan", "deep"])
def test_left_over_segments_are_named_and_the_others_verified(changed: Changed, depth: Depth) -> None:
    before = contents_of(changed.directory)
    row = changed.verified(retentions=("win=8h",), depth=depth)
    assert row.status is Status.OK
    assert all(name in row.detail for name in left_over(changed))
    again = changed.verified(depth=depth)  # by the record alone
    assert (again.status, again.detail) == (Status.OK, row.detail)
    assert contents_of(changed.directory) == before


def test_a_wrong_retention_is_refused_as_before(changed: Changed) -> None:
    row = changed.verified(retentions=("win=16h",))
    assert row.status is Status.UNKNOWN_FORMAT
    assert "does not fit a retention of" in row.detail


@pytest.mark.parametrize("guessed", [True, False])
def test_a_lost_directory_is_restored_as_the_user_says(changed: Changed, guessed: bool) -> None:
    if guessed:
        assert changed.verified().status is Status.UNKNOWN_FORMAT
    else:
        assert changed.verified(retentions=("win=8h",)).status is Status.OK
    shutil.rmtree(changed.directory)
    assert changed.restored(DESCRIBED, retentions=("win=8h",)) == "restored"
    assert changed.verified(DESCRIBED, retentions=("win=8h",)).status is Status.OK
    store = Store("win", "window", StoreFormat.TIMESTAMPED, retention_ms=8 * HOUR)
    contents = changed.app.read(changed.state_dir, [store], config=AT_LEAST_ONCE)
    assert sum(contents.restored.values()) == 0
    assert sum(map(len, contents.rows.values())) == 72
