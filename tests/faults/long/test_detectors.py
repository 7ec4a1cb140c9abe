"""Every detector is needed: without it the campaign of `test_damage.py` misses a fault that it finds with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from statestore.changelog.standing import Standing, standing
from statestore.partition import inspection
from statestore.partition import verdict as judging_module
from statestore.reports import Action, Contents, Status
from statestore.statedir import seal as seal_module
from statestore.statedir.record import StoreRecord
from statestore.stores import key_value, segment_homes
from statestore.stores.database import LookedAt
from statestore.verification import check
from tests.faults.damage import directories, forging, judging, logs, places
from tests.faults.damage.stores import TASK, Copy, Original

SEED = os.environ.get("FAULTS_SEED", "1")
Sabotage = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def original(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Original:
    """Stores to be damaged."""
    return Original(bootstrap_servers, tmp_path_factory.mktemp("detectors"), seed=int(SEED))


# -- the faults, as the campaign has them ---------------------------------------------------------------------------


def _directory(original: Original, store: str, fault: str, sealed: bool) -> None:
    wrong, copy = directories.faults_of(store)[fault], original.copy(sealed=sealed)
    wrong.inflict(copy, store)
    allowed = wrong.sealed if sealed else wrong.unsealed
    judging.judge(copy, store, allowed, action=wrong.action, depth="scan" if sealed else "deep")


def _segment_gone(original: Original) -> None:
    _directory(original, "hourly", "segment gone", True)


def _another_partitions(original: Original) -> None:
    _directory(original, "counts", "another partition's", False)


def _another_partitions_segment(original: Original) -> None:
    _directory(original, "visits", "another partition's segment", False)


def _flipped_filters(original: Original) -> None:
    drawn = places.draw(original, "latest", sealed=True, seed=SEED, each=4)
    flips = [place for place in drawn if (place.kind, place.part, place.fault) == ("SST", "filter", "flip")]
    assert judging.failures(original, flips) == []


def _flipped_rows(original: Original) -> None:
    # Opening reads the first block of rows, only a scan the last one.
    live = original.subject.paths(TASK).live(original.store("latest"))
    sst = max(live.glob("*.sst"), key=lambda file: file.stat().st_size)
    at = places.filter_block(sst.read_bytes()).start - 64
    file = str(sst.relative_to(original.subject.state_dir))
    assert judging.failures(original, [places.Place("latest", False, file, "SST", "body", "flip", at, 0)]) == []


def _value_changed(original: Original) -> None:
    _forged(original, "value changed")


def _forged(original: Original, how: str) -> None:
    copy = original.copy(sealed=False)
    forging.forgeries_of("hourly")[how](copy, "hourly")
    judging.judge(copy, "hourly", {Status.DIVERGED}, action=Action.FULL, depth="deep")


def _beyond_the_log(original: Original) -> None:
    copy = original.copy(sealed=False)
    forging.move_offset(copy, "counts", 1_000_000)
    judging.judge(copy, "counts", {Status.AHEAD}, action=Action.BY_HAND)


# -- what is taken away -----------------------------------------------------------------------------------------------


def _no_seal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inspection, "check_seal", lambda *_, **__: None)


def _no_digests(patch: pytest.MonkeyPatch) -> None:
    whole = seal_module.check_seal
    patch.setattr(inspection, "check_seal", lambda paths, store, kind, **_: whole(paths, store, kind))


def _no_scan(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(check, "count_rows", lambda *_: 0)


def _no_comparison(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(check, "compare_contents", lambda *_, **__: Contents())


def _no_owner(patch: pytest.MonkeyPatch) -> None:
    for module in (key_value, segment_homes):
        patch.setattr(module, "check_on_disk", lambda *_: LookedAt())


def _no_memory_of_how_far_it_was(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoreRecord, "whole_ms", lambda record, *_: record.caught_up_ms)


def _never(status: Status) -> Sabotage:
    def judged(*known: object, **more: object) -> Standing:
        found = standing(*known, **more)  # type: ignore[arg-type]
        return Standing(Status.OK, "") if found.status is status else found

    return lambda patch: patch.setattr(judging_module, "standing", judged)


def _no_topic_id(patch: pytest.MonkeyPatch) -> None:
    def judged(*known: object, **more: object) -> Standing:
        return standing(*known, **{**more, "recorded_topic_id": None})  # type: ignore[arg-type]

    patch.setattr(judging_module, "standing", judged)


@pytest.mark.share_for("seal", "scan", why="one detector that reads the store, one that does not")
@pytest.mark.parametrize(
    ("detector", "fault"),
    [
        (_no_seal, _segment_gone),
        (_no_digests, _flipped_filters),
        (_no_scan, _flipped_rows),
        (_no_comparison, _value_changed),
        (_no_owner, _another_partitions),
        (_no_owner, _another_partitions_segment),
        (_never(Status.AHEAD), _beyond_the_log),
    ],
    ids=["seal", "SST digests", "scan", "comparison", "owner", "owner of a segment", "high watermark"],
)
def test_without_its_detector_a_fault_is_missed(
    original: Original, detector: Sabotage, fault: Callable[[Original], None]
) -> None:
    fault(original)
    with pytest.MonkeyPatch.context() as patch:
        detector(patch)
        with pytest.raises(AssertionError, match=r"missed|taken for|to be mended by"):
            fault(original)


# -- detectors of what happened to a log, or may have ------------------------------------------------------------------


@pytest.fixture
def logged(bootstrap_servers: str, tmp_path: Path) -> Original:
    """Stores whose changelogs are damaged."""
    config = {"cleanup_policy": "compact,delete"}
    return Original(bootstrap_servers, tmp_path, seed=int(SEED), runs=2, records=60, changelog_config=config)


def _replaced(logged: Original) -> Copy:
    logs.recreate(logged, 10_000)
    return logged.copy()


def _truncated(logged: Original) -> Copy:
    logs.delete_records(logged, lambda store: logs.end(logged, store) - 3)
    return logged.copy(older=True)


def _older_copy(logged: Original) -> Copy:
    copy = logged.copy(sealed=False)
    directories.faults_of("latest")["older copy"].inflict(copy, "latest")
    return copy


@pytest.mark.share_for("record", why="the one that knows a store's past")
@pytest.mark.parametrize(
    ("detector", "damage", "found"),
    [
        (_no_topic_id, _replaced, (Status.REPLACED, Action.BY_HAND)),
        (_never(Status.TRUNCATED), _truncated, (Status.TRUNCATED, Action.BY_HAND)),
        # Its rows may have been deleted since, by tombstones that compaction has removed: a tail would not mend it.
        (_no_memory_of_how_far_it_was, _older_copy, (Status.LAGGING, Action.FULL)),
    ],
    ids=["topic id", "log start", "record"],
)
def test_without_its_detector_what_a_log_has_lost_is_missed(
    logged: Original, detector: Sabotage, damage: Callable[[Original], Copy], found: tuple[Status, Action]
) -> None:
    copy, (status, action) = damage(logged), found
    with pytest.MonkeyPatch.context() as patch:
        detector(patch)
        with pytest.raises(AssertionError, match=r"missed|taken for|to be mended by"):
            judging.judge(copy, "latest", {status}, action=action)
    judging.judge(copy, "latest", {status}, action=action)
