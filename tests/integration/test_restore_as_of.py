"""A store as it was at a point of its log, in a directory of its own; and plans of restores, which change nothing."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.formats import window_key
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.kafka.cluster import Cluster
from statestore.progress.files import ProgressFile
from statestore.recovery import restore as restoring
from statestore.recovery.as_of import claim_target, point_range
from statestore.recovery.many import require_points
from statestore.recovery.planning import plan_restore
from statestore.recovery.restore import restore
from statestore.recovery.restore_progress import RestoreProgress
from statestore.recovery.spec import RestoreSpec
from statestore.reports import RestoreRow, Status
from statestore.requests.restore import AsOf, RestoreRequest
from statestore.statedir.lock import locked
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration import broker
from tests.integration.broker import T0, Row, consume, transaction
from tests.integration.support import Application
from tests.oracle.rows import fold

ROWS: list[Row] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", b"1"), (b"a", b"3")]


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    """A log of two transactions and an aborted one: records 0 to 5, 7 and 8 (aborted), 10 to 15; markers between."""
    # Kafka would compact at once: records of an hour ago and markers of now do not fit into one segment.
    kept = {"cleanup.policy": "delete", "retention.ms": "-1"}
    application = Application(bootstrap_servers, tmp_path, changelog_config=kept)
    transaction(application.servers, application.changelog, ROWS)
    transaction(application.servers, application.changelog, [(b"a", b"never"), (b"x", b"never")], end="abort")
    transaction(application.servers, application.changelog, [(b"later", b"1"), *ROWS[1:]], timestamp=T0 + 60_000)
    return application


def as_of(application: Application, point: AsOf, target: Path, label: str = "run", **how: Any) -> RestoreRow:
    spec: RestoreSpec = application.restore_spec(label=label)
    return restore(spec._replace(request=request(point, target, **how)))


def request(point: AsOf, target: Path, **how: Any) -> RestoreRequest:
    time = None if point.timestamp_ms is None else str(point.timestamp_ms)
    return RestoreRequest(mode="as-of", as_of_offset=point.offset, as_of_timestamp=time, target=target, **how)


def contents(application: Application, target: Path) -> dict[bytes, ValueAndTimestamp]:
    there = Application.__new__(Application)
    there.__dict__.update(application.__dict__, state_dir=target)
    return there.contents()


@pytest.mark.short_for("8")
@pytest.mark.behaviour("R16")
@pytest.mark.parametrize("offset", [0, 2, 3, 6, 8, 12, 16])
def test_r16_as_of_an_offset_is_the_fold_of_the_log_up_to_it(
    application: Application, tmp_path: Path, offset: int
) -> None:
    row = as_of(application, AsOf(offset=offset), tmp_path / "then")
    records = [record for record in consume(application.servers, application.changelog)[0] if record.offset <= offset]
    assert row.failure is None
    assert (row.outcome, row.mode, row.exact, row.end) == ("restored", "as-of", True, offset + 1)
    assert contents(application, tmp_path / "then") == fold(records)
    assert row.committed == records[-1].offset
    assert not application.live.exists()
    assert not application.store_spec().paths.own_dir.exists()


@pytest.mark.short_for("50000-10")
@pytest.mark.parametrize(("after_ms", "end"), [(0, 1), (3, 4), (50_000, 10), (60_001, 12)])
def test_as_of_a_time_has_what_is_not_younger(application: Application, after_ms: int, end: int) -> None:
    # Markers have the time of their commit, which is an hour later than the records'.
    ((_, log),) = point_range(application.store_spec(), AsOf(timestamp_ms=T0 + after_ms)).items()
    assert (log.start, log.last_stable) == (0, end)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["key-value", "window"])
def test_as_of_a_time_an_empty_partition_has_an_empty_store(bootstrap_servers: str, tmp_path: Path, kind: str) -> None:
    windowed = {"kind": "window", "retention_ms": 600_000, "window_size_ms": 60_000} if kind == "window" else {}
    store = StoreDefinition(name="counts", **windowed)
    application = Application(bootstrap_servers, tmp_path, stores=[store], partitions=2)
    broker.produce(bootstrap_servers, application.changelog, [(window_key.encode(b"a", T0), b"1")], partition=1)
    point, target = AsOf(timestamp_ms=T0 + 1), tmp_path / "then"
    specs = [
        RestoreSpec(application.store_spec(partition), request(point, target), "run", 1 << 24) for partition in range(2)
    ]
    require_points(specs)
    assert [plan_restore(spec).failure for spec in specs] == [None, None]
    rows = [restore(spec) for spec in specs]
    assert [(row.failure, row.outcome, row.exact, row.keys) for row in rows] == [
        (None, "restored", True, 0),
        (None, "restored", True, 1),
    ]
    there = specs[0].store.model_copy(update={"state_dir": target})
    assert verify(there, VerifyOptions(depth="deep")).healthy
    assert restore(specs[0]._replace(label="another")).outcome == "skipped"


@pytest.mark.long
def test_as_of_a_time_a_partition_whose_records_were_deleted_is_refused(application: Application) -> None:
    broker.set_topic_config(application.servers, application.changelog, cleanup_policy="delete")
    broker.delete_records(application.servers, application.changelog, 17)
    row = as_of(application, AsOf(timestamp_ms=T0 + 1), application.state_dir.with_name("then"))
    assert "its first 17 offsets were deleted" in row.failure.message


@pytest.mark.parametrize(
    ("point", "message"),
    [
        (AsOf(offset=17), "has the offsets 0 to 16"),
        (AsOf(timestamp_ms=T0 - 1), "begins at offset 0 with a later record"),
        (AsOf(timestamp_ms=int(time.time() * 1000) + 86_400_000), "expected a time in the past"),
    ],
)
def test_a_point_outside_of_the_log_is_refused_with_the_numbers(
    application: Application, tmp_path: Path, point: AsOf, message: str
) -> None:
    row = as_of(application, point, tmp_path / "then")
    assert row.failure.kind == "InputError"
    assert message in row.failure.message
    assert not (tmp_path / "then").exists()


def test_a_point_before_the_logs_start_is_refused_and_one_behind_it_is_not_exact(
    application: Application, tmp_path: Path
) -> None:
    broker.set_topic_config(application.servers, application.changelog, cleanup_policy="compact,delete")
    broker.delete_records(application.servers, application.changelog, 2)
    with pytest.raises(InputError, match="has the offsets 2 to 16"):
        point_range(application.store_spec(), AsOf(offset=1))
    row = as_of(application, AsOf(offset=5), tmp_path / "then")
    assert "its first 2 offsets were deleted" in row.failure.message
    row = as_of(application, AsOf(offset=5), tmp_path / "then", best_effort=True)
    assert (row.failure, row.exact, row.keys) == (None, False, 2)


@pytest.mark.behaviour("R16")
def test_r16_a_compacted_log_is_refused_unless_best_effort_will_do(bootstrap_servers: str, tmp_path: Path) -> None:
    broker.make_compaction_eager(bootstrap_servers)
    eager = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    application = Application(bootstrap_servers, tmp_path, changelog_config=eager)
    broker.produce(bootstrap_servers, application.changelog, ROWS)
    at = [T0 + 10_000]

    def compacted() -> bool:
        broker.produce(bootstrap_servers, application.changelog, [(b"a", b"4")], timestamp=at[0])  # rolls a segment
        at[0] += 10_000
        return all(record.offset > 2 for record in consume(bootstrap_servers, application.changelog)[0])

    broker.wait_for(compacted, "compaction", 60)
    row = as_of(application, AsOf(offset=5), tmp_path / "then")
    assert "compacted away" in row.failure.message
    assert not (tmp_path / "then").exists()
    row = as_of(application, AsOf(offset=5), tmp_path / "then", best_effort=True)
    assert (row.failure, row.exact) == (None, False)


@pytest.mark.long
def test_a_target_in_use_is_refused_and_a_rerun_does_nothing_twice(application: Application, tmp_path: Path) -> None:
    claim_target(tmp_path / "then", application.state_dir, AsOf(offset=5))
    there = application.store_spec().model_copy(update={"state_dir": tmp_path / "then"})
    with locked(there.paths, 1):
        row = as_of(application, AsOf(offset=5), tmp_path / "then")
    assert row.failure.kind == "LockedError"
    assert as_of(application, AsOf(offset=5), tmp_path / "then").outcome == "restored"
    inode = there.live.stat().st_ino
    assert as_of(application, AsOf(offset=5), tmp_path / "then").outcome == "restored"  # by the attempt before
    assert as_of(application, AsOf(offset=5), tmp_path / "then", label="another").outcome == "skipped"
    assert there.live.stat().st_ino == inode


@pytest.mark.behaviour("R16")
@pytest.mark.parametrize("exact", [True, pytest.param(False, marks=pytest.mark.long)])
def test_r16_a_rerun_says_of_a_store_that_is_there_what_was_true_when_it_was_built(
    application: Application, tmp_path: Path, exact: bool
) -> None:
    point, target = AsOf(offset=5), tmp_path / "then"
    if not exact:
        broker.delete_records(application.servers, application.changelog, 2)
    row = as_of(application, point, target, best_effort=not exact)
    assert (row.failure, row.exact) == (None, exact)
    broker.delete_records(application.servers, application.changelog, 8)  # the point is gone
    require_points([application.restore_spec()._replace(request=request(point, target))])
    row = as_of(application, point, target)
    assert (row.failure, row.exact) == (None, exact)


@pytest.mark.long
@pytest.mark.behaviour("R16")
def test_r16_a_log_that_is_compacted_between_the_look_and_the_reading_is_not_exact(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.make_compaction_eager(bootstrap_servers)
    application = Application(bootstrap_servers, tmp_path, changelog_config={"cleanup.policy": "delete"})
    broker.produce(bootstrap_servers, application.changelog, ROWS, timestamp=round(time.time() * 1000))
    look = restoring.point_source

    def look_then_compact(spec: RestoreSpec) -> Any:
        found = look(spec)
        eager = {"cleanup_policy": "compact", "segment_ms": "100", "min_cleanable_dirty_ratio": "0.001"}
        broker.set_topic_config(bootstrap_servers, application.changelog, **eager)
        broker.wait_for(lambda: _compacted(application), "compaction", 60)
        return found

    monkeypatch.setattr(restoring, "point_source", look_then_compact)
    row = as_of(application, AsOf(offset=5), tmp_path / "then")
    assert "compacted away" in row.failure.message
    row = as_of(application, AsOf(offset=5), tmp_path / "then", best_effort=True)
    assert (row.failure, row.exact) == (None, False)


def _compacted(application: Application) -> bool:
    at = round(time.time() * 1000)
    broker.produce(application.servers, application.changelog, [(b"a", b"4")], timestamp=at)  # rolls a segment
    return all(record.offset > 2 for record in consume(application.servers, application.changelog)[0])


# -- plans ------------------------------------------------------------------------------------------------------------


def everything(directory: Path) -> dict[str, tuple[int, int]]:
    found = {path: path.stat() for path in directory.rglob("*")} if directory.exists() else {}
    return {str(path): (stat.st_ino, stat.st_size) for path, stat in found.items() if not path.name.endswith("lock")}


@pytest.mark.long
def test_a_plan_says_what_would_be_done_and_why_and_does_nothing(application: Application) -> None:
    before = everything(application.state_dir)
    planned = plan_restore(application.restore_spec())
    assert (planned.status, planned.mode, planned.start, planned.end) == (Status.MISSING, "full", 0, 17)
    assert (planned.offsets, planned.failure) == (17, None)
    assert "does not exist" in planned.reason
    assert 0 < planned.log_bytes < 1_000
    assert planned.log_bytes < planned.disk_needed < planned.disk_free
    after = everything(application.state_dir)
    assert {name for name in after if not before.get(name)} <= {str(path) for path in _task_directories(application)}
    assert restore(application.restore_spec()).outcome == "restored"
    whole = plan_restore(application.restore_spec())
    assert (whole.status, whole.mode, whole.offsets) == (Status.OK, None, 0)
    transaction(application.servers, application.changelog, ROWS, timestamp=T0 + 90_000)
    behind = plan_restore(application.restore_spec())
    assert (behind.status, behind.mode, behind.start, behind.end) == (Status.LAGGING, "tail", 16, 24)


def _task_directories(application: Application) -> list[Path]:
    """What taking the task's lock makes."""
    paths = application.store_spec().paths
    own = paths.own_dir
    return [application.state_dir, paths.application_dir, own, own.parent, own.parent.parent]


@pytest.mark.long
def test_a_plan_tells_why_it_would_be_refused(application: Application) -> None:
    spec = application.restore_spec("full", force=True)
    planned = plan_restore(spec._replace(store=spec.store.model_copy(update={"changelog": None})))
    assert planned.mode is None or planned.failure is not None
    late = plan_restore(spec._replace(request=request(AsOf(offset=99), Path("/nowhere"))))
    assert "has the offsets 0 to 16" in late.failure.message


# -- what a restore does not depend on, and what it shows -------------------------------------------------------------


@pytest.mark.behaviour("R5")
def test_r5_the_consumer_groups_offsets_do_not_matter(application: Application, tmp_path: Path) -> None:
    from statestore.kafka.groups import GroupOffset, commit_offsets

    contents = []
    for next_offset in (None, 0, 12):
        if next_offset is not None:
            commit_offsets(
                Cluster(application.servers),
                application.name,
                {application.store_spec().partition: GroupOffset(next_offset)},
            )
        shutil.rmtree(application.state_dir, ignore_errors=True)
        assert application.restore().records == 12
        contents.append(application.contents())
    assert contents[0] == contents[1] == contents[2] == fold(consume(application.servers, application.changelog)[0])


@pytest.mark.long
def test_a_restore_says_how_far_it_is(
    application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[RestoreProgress] = []
    monkeypatch.setattr(ProgressFile, "write", lambda _, progress: told.append(progress))
    restore(application.restore_spec()._replace(progress=tmp_path / "progress"))
    assert list(dict.fromkeys(found.phase for found in told)) == [
        "verifying",
        "reading",
        "building",
        "checking",
        "ended",
    ]
    assert (told[-1].start, told[-1].next, told[-1].end, told[-1].records) == (0, 17, 17, 12)
    assert told[-1].label == f"{application.name}/counts/0_0"
