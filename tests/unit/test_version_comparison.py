"""What a versioned store has of a key, beside what its log gives: what differs, and what nobody can tell any more."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from statestore.bulk.versions import LoggedVersion, folded
from statestore.definitions.store import StoreDefinition
from statestore.formats.versioned_row import default_segment_interval_ms
from statestore.stores.versioned import RawVersion
from statestore.verification.comparison import Allowances
from statestore.verification.kernels import hashes_of
from statestore.verification.options import VerifyOptions
from statestore.verification.versions import VersionComparison, versions_of

MINUTE = 60_000
RETENTION_MS = 10 * MINUTE
DELETES_KEPT_MS = 60 * MINUTE
BEGIN = 1_700_000_040_000
NOW = BEGIN + 1_000 * MINUTE  # the log's stream time
STORE = StoreDefinition(name="v", kind="versioned", retention_ms=RETENTION_MS)
INTERVAL_MS = default_segment_interval_ms(RETENTION_MS)


def put(minute, value, *, late=False):
    return LoggedVersion(BEGIN + minute * MINUTE, value, late)


def latest(minute, value):
    return [RawVersion(value, BEGIN + minute * MINUTE, None)]


def comparison_of(allowances=None, *, gone_before_ms=0, logs_late=False):
    return VersionComparison(
        STORE,
        NOW,
        allowances or Allowances(),
        gone_before_ms,
        VerifyOptions("deep"),
        delete_retention_ms=DELETES_KEPT_MS,
        logs_late=logs_late,
    )


def sides(stored, logged):
    its = [(b"k", folded(logged, INTERVAL_MS))] if logged else []
    return iter([(b"k", stored)] if stored else []), iter(its)


def compared(stored, logged, **how):
    """Differing versions, those that are not judged, and equal ones: as verification and validation have them."""
    comparison = comparison_of(**how)
    comparison.compare(*sides(stored, logged))
    found = comparison.contents(None)
    changes = [change for key in comparison_of(**how).compared(*sides(stored, logged)) for change in key.changes]
    differing = sum(change.difference is not None for change in changes)
    excused = sum(change.excused for change in changes)
    assert (differing, excused, len(changes) - differing - excused) == (found.differing, found.not_judged, found.equal)
    return found.differing, found.not_judged, found.equal


def shown(stored, logged, allowances=None):
    """Versions that validation has of each side, in minutes and without those that are not judged."""
    [key] = comparison_of(allowances).compared(*sides(stored, logged))
    return [
        [(value, *((time and (time - NOW) // MINUTE) for time in times)) for value, *times in versions]
        for versions in (key.stored, key.logged)
    ]


DISORDERED = [put(1, b"old"), put(0, b"older, logged later"), put(5, b"latest")]


@pytest.mark.behaviour("V5")
@pytest.mark.parametrize("stored", [[], latest(5, b"rubbish")], ids=["lost", "changed"])
def test_a_latest_value_counts_whatever_was_logged_out_of_order_before_it(stored):
    assert compared(stored, DISORDERED) == (1, 0, 0)
    assert compared(latest(5, b"latest"), DISORDERED) == (0, 0, 1)


@pytest.mark.parametrize(
    "logged",
    [
        [put(5, b"one"), put(9, None), put(3, b"out of order")],  # the delete may have expired before that one came
        [put(5, b"one"), put(9, b"late", late=True)],  # Kafka Streams may have put it
    ],
)
def test_what_a_record_out_of_order_may_have_changed_is_counted_and_not_judged(logged):
    other = latest(9, b"late")
    assert compared(other, logged) == (0, 1, 0)
    assert compared(versions_of(folded(logged, INTERVAL_MS)), logged)[:2] == (0, 0)


def test_a_record_that_may_have_come_too_late_is_not_judged():
    """Compaction has removed the record before it that had the later time."""
    late, gone = [put(0, b"too late")], {"gone_before_ms": NOW, "logs_late": True}
    assert compared([], late, **gone) == (0, 1, 0)
    assert compared(latest(-5, b"before it"), late, **gone) == (0, 2, 0)
    assert compared(latest(5, b"behind it"), late, **gone) == (0, 2, 0)
    assert compared([], late, gone_before_ms=NOW) == (1, 0, 0)
    assert compared([], late, logs_late=True, gone_before_ms=BEGIN + RETENTION_MS) == (1, 0, 0)
    assert compared([], [put(995, b"within the history")], logs_late=True, gone_before_ms=2 * NOW) == (1, 0, 0)


def test_a_value_whose_key_has_no_record_is_not_judged_once_deletes_may_be_gone():
    """The delete of an earlier time was logged last, so compaction has left it alone, and removed it, too."""
    live = latest(5, b"live")
    at = live[0].valid_from
    assert compared(live, [put(2, None)], gone_before_ms=at + 1) == (0, 1, 0)
    assert compared(live, [], gone_before_ms=at + DELETES_KEPT_MS + 1) == (0, 1, 0)
    assert compared(live, [], gone_before_ms=at + DELETES_KEPT_MS) == (1, 0, 0)


def test_versions_that_were_valid_within_the_history_are_shown_and_deletes_are_none():
    logged = [put(980, b"ended"), put(985, b"at its begin"), put(992, None), put(995, b"latest")]
    versions = [(b"at its begin", -15, -8), (b"latest", -5, None)]
    assert shown(versions_of(folded(logged, INTERVAL_MS)), logged) == [versions, versions]
    assert shown([], logged) == [[], versions]
    assert shown(latest(995, b"latest"), logged[:1]) == [[(b"latest", -5, None)], [(b"ended", -20, None)]]


def test_versions_that_overlap_are_shown_as_they_lie_unless_their_key_has_a_later_record():
    logged = [put(980, b"one"), put(998, b"two")]
    moved = [RawVersion(b"one", NOW - 20 * MINUTE, NOW - 6 * MINUTE), *versions_of(folded(logged, INTERVAL_MS))]
    assert compared(moved, logged) == (0, 0, 2)
    one, two = (b"one", -20, -2), (b"two", -2, None)
    assert shown(moved, logged) == [[(b"one", -20, -6), one, two], [one, two]]
    changed = Allowances(changed_since=np.sort(hashes_of(pa.array([b"k"], pa.binary()))))
    assert shown(moved, logged, changed) == [[one, two], [one, two]]
