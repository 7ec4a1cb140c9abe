"""From where on a rebuild needs its log, as rows expire and as logs lose records."""

from __future__ import annotations

import pytest

from statestore.kafka.topics import LogRange
from statestore.partition.needed_offsets import advanced_need, recorded_need
from statestore.statedir.record import StoreRecord

OLDEST = 1_000


def _log(start: int) -> LogRange:
    return LogRange(start, 100, 100)


def _record(needed_from: int | None) -> StoreRecord:
    return StoreRecord(topic_id="t", caught_up_ms=0, needed_from=needed_from)


@pytest.mark.parametrize(
    ("record", "start", "needed"),
    [
        (None, 0, 0),
        (_record(7), 0, 0),
        (None, 5, None),
        (_record(None), 5, None),
        (_record(7), 5, 7),
        (_record(7), 9, 7),
    ],
)
def test_a_log_that_begins_with_0_has_lost_nothing_and_else_the_record_tells(
    record: StoreRecord | None, start: int, needed: int | None
) -> None:
    assert recorded_need(record, _log(start)) == needed


@pytest.mark.parametrize(("needed", "start"), [(7, 7), (7, 3), (None, 0)])
def test_what_has_expired_is_no_longer_needed_where_the_log_has_all_that_was(needed: int | None, start: int) -> None:
    assert advanced_need(needed, _log(start), 20, OLDEST, None) == 20


def test_a_log_that_begins_where_it_is_needed_has_all_that_was() -> None:
    assert advanced_need(8, _log(8), 8, OLDEST, None) == 8
    assert advanced_need(None, _log(0), 0, OLDEST, None) == 0


def test_a_log_that_begins_behind_0_may_have_lost_what_nobody_recorded() -> None:
    assert advanced_need(None, _log(1), 1, OLDEST, None) is None
    assert advanced_need(None, _log(1), 1, OLDEST, OLDEST - 1) == 1


def test_what_was_no_longer_needed_stays_so() -> None:
    assert advanced_need(30, _log(3), 20, OLDEST, None) == 30


@pytest.mark.parametrize("needed", [7, None])
def test_a_log_that_begins_with_what_has_not_expired_may_have_lost_more_of_it(needed: int | None) -> None:
    assert advanced_need(needed, _log(8), 8, OLDEST, None) == needed
    assert advanced_need(needed, _log(8), 8, OLDEST, OLDEST) == needed


@pytest.mark.parametrize("needed", [7, None])
def test_a_log_that_begins_with_what_has_expired_has_lost_nothing_else(needed: int | None) -> None:
    assert advanced_need(needed, _log(8), 9, OLDEST, None) == 9


@pytest.mark.parametrize("needed", [7, None])
def test_nothing_is_lost_of_rows_that_have_all_expired_since(needed: int | None) -> None:
    assert advanced_need(needed, _log(8), 8, OLDEST, OLDEST - 1) == 8


@pytest.mark.parametrize("needed", [7, None])
def test_a_log_without_a_record_that_has_not_expired_tells_nothing(needed: int | None) -> None:
    assert advanced_need(needed, _log(3), None, OLDEST, OLDEST - 1) == needed
