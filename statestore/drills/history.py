"""The history of drills as a Parquet data set; the state of each store partition comes from it.

    <reports_dir>/history/drill/run-<run id>.parquet      one row for each store partition that the run drilled

`maintenance` does not remove these files: an old proof is still the last one.
"""

from __future__ import annotations

import logging
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from statestore import clock
from statestore.drills.standing import CLOCK_TOLERANCE_MS, PROVEN, Past
from statestore.errors import InputError
from statestore.objects.path import Location, listing, read_all, write_whole
from statestore.reports import DrillReport, DrillRow

_log = logging.getLogger(__name__)
_DAY_MS = 86_400_000
_NAMES = ("run_id", "application", "store", "task", "verdict")
_INTEGERS = (
    "drilled_ms",
    "start",
    "end",
    "committed",
    "records",
    "bytes",
    "rows",
    "log_rows",
    "evidence",
    "suite_expectations",
)
_NUMBERS = (
    *("snapshot_age_seconds", "fetch_seconds", "replay_seconds", "build_seconds", "check_seconds", "proof_seconds"),
    *("seconds", "within_seconds", "suite_seconds"),
)
_TEXTS = (
    *("source", "snapshot", "topic", "topic_id", "detail", "rows_sha256", "snapshot_sha256"),
    *("suite", "suite_detail", "suite_sha256"),
)
#: Columns of every file; later versions only add some.
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in _NAMES),
        *(pa.field(name, pa.int64()) for name in _INTEGERS),
        *(pa.field(name, pa.float64()) for name in _NUMBERS),
        *(pa.field(name, pa.string()) for name in _TEXTS),
    ]
)


def drill_history_dir(reports_dir: Location) -> Location:
    """Return the data set's directory."""
    return reports_dir / "history" / "drill"


def write_drill_history(reports_dir: Location, report: DrillReport) -> None:
    """Add the drills of a run to the history; one of the same run id is replaced.

    Raises
    ------
    InputError
        If the run id cannot be the name of a file.
    """
    if Path(report.run_id).name != report.run_id:
        raise InputError(f"run id: expected the name of a file, found {report.run_id!r}")
    rows = [{"run_id": report.run_id, **row.model_dump(mode="json")} for row in report.rows if row.drilled]
    if not rows:
        return
    content = BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), content, compression="zstd")
    write_whole(drill_history_dir(reports_dir) / f"run-{report.run_id}.parquet", content.getvalue())


def read_drill_history(reports_dir: Location | None) -> pa.Table:
    """Return all drills, the oldest first.

    Raises
    ------
    InputError
        If a file is damaged.
    """
    if reports_dir is None:
        return SCHEMA.empty_table()
    paths = sorted(listing(drill_history_dir(reports_dir), "run-*.parquet"), key=str)
    tables = []
    for path, content in zip(paths, read_all(paths), strict=True):
        try:
            found = pq.read_table(BytesIO(content))
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path} is no history of drills: {error}. Remove it, then run again") from error
        tables.append(found.select([name for name in SCHEMA.names if name in found.column_names]))
    if not tables:
        return SCHEMA.empty_table()
    return pa.concat_tables([SCHEMA.empty_table(), *tables], promote_options="default").sort_by("drilled_ms")


class Drills:
    """Earlier drills, by store partition.

    Parameters
    ----------
    table
        As `read_drill_history` returns it.
    now_ms
        A proof that is dated later does not count. Otherwise, it would hold for too long, and hide later failures.
    """

    def __init__(self, table: pa.Table, now_ms: int) -> None:
        self._pasts: dict[str, Past] = {}
        self._reads: list[tuple[str, int, int]] = []
        for found in table.to_pylist():
            row = _row(found)
            if row.verdict in PROVEN and (row.drilled_ms or 0) > now_ms + CLOCK_TOLERANCE_MS:
                _log.warning("drill: %s: a proof dated in the future (%s) does not count", row.label, found["run_id"])
            else:
                self._pasts[row.label] = self.past(row.label).after(row)
            self._reads.append((row.application, row.drilled_ms or 0, row.bytes))

    def past(self, label: str) -> Past:
        """Return the drills of a store partition."""
        return self._pasts.get(label, Past())

    def spent(self, application: str, now_ms: int) -> int:
        """Return the bytes that the drills of an application have read in the last 24 hours."""
        return sum(size for name, at, size in self._reads if name == application and at > now_ms - _DAY_MS)


def _row(found: dict[str, object]) -> DrillRow:
    fields = {name: value for name, value in found.items() if value is not None and name != "run_id"}
    return DrillRow.model_validate({"standing": "never proven", "drilled": True, **fields})


def read_drills(reports_dir: Location | None) -> Drills:
    """Return earlier drills, as the history below a directory of reports has them; None: none are known."""
    return Drills(read_drill_history(reports_dir), clock.now_ms())
