"""`process_batch` in a task on a real broker: exactly once, over clean runs and kills at every point of a commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration import dying
from tests.integration.broker import T0, Row
from tests.integration.support import Application

INPUT: list[Row] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"b", None), (b"a", b"3"), (b"c", b"2")]
LATER: list[Row] = [(b"d", b"1"), (b"a", None), (b"c", b"3"), (b"a", b"4")]
#: Those that leave everything to the next run, and those behind which Kafka has the transaction.
BEFORE = [
    "before produce",
    "during produce:3",
    "before the flush",
    "flushed, input offsets not sent",
    "flushed, not committed",
]
BEHIND = ["Kafka committed, stores not", "store committed", "stores committed", "before close"]
LONG = pytest.mark.long


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    return Application(bootstrap_servers, tmp_path, processor="CountInBatches")


def test_o1_o3_o4_batches_count_exactly_over_several_runs(application: Application) -> None:
    first = application.process(INPUT)
    assert (first.records_in, first.records_out, first.changelog_records, first.commits) == (7, 7, 7, 1)
    application.assert_oracle()
    assert application.process(LATER, T0 + 100).records_in == 4
    application.assert_oracle()


@pytest.mark.short_for("Kafka committed, stores not")
@pytest.mark.parametrize(
    "point",
    [
        *(pytest.param(point, marks=[] if point == "during produce:3" else LONG) for point in BEFORE),
        *(pytest.param(point, marks=[] if point == "Kafka committed, stores not" else LONG) for point in BEHIND),
    ],
)
def test_o1_o4_batches_are_processed_once_whenever_the_task_is_killed(application: Application, point: str) -> None:
    application.process(INPUT)
    application.send(LATER, timestamp=T0 + 100)
    dying.die_in(application.task_spec(), point)
    assert application.process().records_in == (0 if point in BEHIND else 4)
    application.assert_oracle()


@LONG
def test_staged_rows_and_waiting_records_commit_early(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, processor="CountInBatches", uncommitted_max_bytes=100_000)
    row = application.process([(b"key-%d" % (number % 997), b"1") for number in range(30_000)])
    assert row.commits > 2
    application.assert_oracle()
