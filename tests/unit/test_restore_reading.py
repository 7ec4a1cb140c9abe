"""What a restore reads, and what comes of a log that cannot be read, or not fast enough. Needs no broker."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count
from types import SimpleNamespace

import pyarrow as pa
import pytest
from samples import CHANGELOG, store_partition

from statestore.changelog import brokers_clock
from statestore.errors import StoreBehindLogStartError, StoreCorruptedError, TopicMismatchError
from statestore.kafka.topics import LogRange
from statestore.partition.facts import DiskFacts, Facts, LogFacts, RebuildLoss
from statestore.partition.replacement import require_tombstones
from statestore.partition.verdict import Verdict
from statestore.recovery import full
from statestore.recovery import restore as restore_module
from statestore.recovery.as_of import point_range
from statestore.recovery.restore import restore
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import Staging
from statestore.recovery.tail import tail_logs
from statestore.reports import Loss, Status
from statestore.requests.restore import AsOf, RestoreRequest

LOGS = {CHANGELOG: LogRange(0, 100, 100)}


@pytest.fixture
def store(tmp_path):
    return store_partition(tmp_path)


@pytest.fixture
def spec(store):
    return RestoreSpec(store, RestoreRequest(mode="full"), "label", 4096)


def test_of_a_tail_only_what_the_store_has_not_seen_is_read():
    assert tail_logs(LOGS, None) == LOGS
    assert tail_logs(LOGS, 89) == {CHANGELOG: LogRange(90, 100, 100)}
    assert tail_logs(LOGS, 200) == {CHANGELOG: LogRange(100, 100, 100)}


def test_a_point_of_a_changelog_that_does_not_exist_is_refused(store):
    with pytest.raises(TopicMismatchError, match="does not exist: nothing to restore from"):
        point_range(store.model_copy(update={"changelog": None}), AsOf(offset=0))


@pytest.mark.behaviour("R6")
@pytest.mark.parametrize(
    ("took_ms", "changes", "refused"),
    [
        (999, {}, False),
        (1_000, {}, True),
        (10**9, {"compacted": False}, False),
        (10**9, {"delete_retention_ms": 0}, False),  # such a log promises nothing
    ],
)
def test_r6_what_was_read_for_longer_than_tombstones_are_kept_is_refused(store, took_ms, changes, refused):
    store = store.model_copy(update={"changelog": store.changelog.model_copy(update=changes)})
    said = (
        "app/s/0_0: when app-s-changelog was read to its end, 1 s had passed, and it keeps tombstones for 1 s: "
        "deletes may be gone from it; do so"
    )
    refusal = pytest.raises(StoreBehindLogStartError, match=f"^{said}$") if refused else nullcontext()
    with refusal:
        require_tombstones(store, 5_000, 5_000 + took_ms, "do so")


def test_r6_a_store_without_a_changelog_has_no_tombstones_to_wait_for(store):
    require_tombstones(store.model_copy(update={"changelog": None}), 0, 10**9, "do so")


# -- attempts


def failing_with(*errors):
    """Stand in for reading and building: fails once with each of the errors, then succeeds."""
    left = list(errors)

    def attempt(_spec, _staging, plan, _progress, _position):
        if left:
            raise left.pop(0)
        return full.Built(1, 0, 0, 1, {CHANGELOG: 0}, None, plan.started_ms)

    return attempt


def build(spec):
    return full.build_full(spec, Staging(spec.store.paths, "s"), LOGS, None, 1_000)


@pytest.mark.behaviour("R6")
def test_r6_what_was_read_too_slowly_is_not_gone_on_from(spec, monkeypatch):
    monkeypatch.setattr(full, "_build", failing_with(StoreBehindLogStartError("slow")))
    with pytest.raises(StoreBehindLogStartError):
        build(spec)
    assert Staging(spec.store.paths, "s").plan() is None


@pytest.mark.behaviour("R6")
@pytest.mark.parametrize(("times", "outcome"), [(1, "restored"), (2, "failed")])
def test_r6_a_store_whose_log_was_read_too_slowly_is_judged_and_built_once_more(spec, monkeypatch, times, outcome):
    judged = []
    left = [StoreBehindLogStartError("slow")] * times

    def examine_store(spec, *_):
        judged.append(spec.store)
        return Facts(spec.store, DiskFacts(present=False)), Verdict(Status.MISSING, loss=RebuildLoss(Loss.NONE))

    def carry_out(_spec, row, *_):
        if left:
            raise left.pop()
        return row.model_copy(update={"outcome": "restored"})

    monkeypatch.setattr(restore_module, "examine_store", examine_store)
    monkeypatch.setattr(restore_module, "_carry_out", carry_out)
    assert restore(spec).outcome == outcome
    assert len(judged) == 2


@pytest.mark.behaviour("R6")
def test_r6_the_time_that_reading_took_is_looked_at_when_it_ends(spec, monkeypatch):
    monkeypatch.setattr(full, "read_range", lambda *_, **__: ([], 0))
    times = count(2_100, 1_100)
    monkeypatch.setattr(brokers_clock, "now_ms", lambda _: next(times))
    with pytest.raises(StoreBehindLogStartError, match="1 s had passed"):
        full.build_full(spec, Staging(spec.store.paths, "s"), LOGS, SimpleNamespace(reading=lambda *_: None), 1_000)


def test_runs_that_arrow_cannot_read_are_an_error_of_ours(spec, monkeypatch):
    monkeypatch.setattr(full, "_build", failing_with(pa.ArrowInvalid("torn"), pa.ArrowInvalid("torn")))
    with pytest.raises(StoreCorruptedError, match=r"app/s/0_0 cannot be read: torn; .*run the restore again"):
        build(spec)


def test_old_stores_that_cannot_be_removed_do_not_fail_the_restore(spec, monkeypatch, caplog):
    spec = spec._replace(request=RestoreRequest())
    log = LogFacts(spec.store.changelog, LOGS[CHANGELOG], all_logs=LOGS)
    whole = Facts(spec.store, DiskFacts(present=True), log=log), Verdict(Status.OK, loss=RebuildLoss(Loss.NONE), keys=3)

    def refuse(*_, **__):
        raise OSError("no permission")

    monkeypatch.setattr(restore_module, "examine_store", lambda *_: whole)
    monkeypatch.setattr(restore_module, "clean_quarantine", refuse)
    row = restore(spec)
    assert (row.outcome, row.keys, row.failure) == ("skipped", 3, None)
    assert "quarantine could not be removed: no permission" in caplog.text
