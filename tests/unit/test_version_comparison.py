"""What a versioned store has of a key, beside what its log gives: what differs, and what nobody can tell any more."""

from __future__ import annotations

import pytest

from statestore.bulk.versions import LoggedVersion, folded
from statestore.definitions.store import StoreDefinition
from statestore.formats.versioned_row import default_segment_interval_ms
from statestore.stores.versioned import RawVersion
from statestore.verification.comparison import Allowances
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


def compared(stored, logged, *, gone_before_ms=0, logs_late=False):
    """Differing versions, those that are not judged, and equal ones."""
    comparison = VersionComparison(
        STORE,
        NOW,
        Allowances(),
        gone_before_ms,
        VerifyOptions("deep"),
        delete_retention_ms=DELETES_KEPT_MS,
        logs_late=logs_late,
    )
    its = iter([(b"k", folded(logged, INTERVAL_MS))] if logged else [])
    comparison.compare(iter([(b"k", stored)] if stored else []), its)
    found = comparison.contents(None)
    return found.differing, found.not_judged, found.equal


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
