"""The mapped tasks of *check*: one for each row of a report, or for each group of rows if there are very many.

    STATESTORE_CHECK_BY     row: a square for each row of a report (default); application: for each application

Squares travel through XCom, rows do not: a square says which rows of which report it stands for, and reads them. If a
later attempt has written the report anew, these may be other rows: then the square is red and says so.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any

from airflow.sdk import task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from statestore.objects.path import Location, location
from statestore.reports import AnyReport, read_any_report
from statestore_dags.archive_connection import reports_access
from statestore_dags.retrying import bad_input_fails
from statestore_dags.row_summaries import AnyRow, row_to_dict

log = logging.getLogger(__name__)

_CHECK_BY = "STATESTORE_CHECK_BY"
#: More squares than this are of no use to a person, and Airflow maps over 1,024 items at most.
MOST_SQUARES = 256


def by_application() -> bool:
    """Tell whether the settings want one square for each application, where each Airflow task costs a pod.

    Raises
    ------
    ValueError
        If the setting has another value.
    """
    value = os.environ.get(_CHECK_BY, "").strip() or "row"
    if value not in ("row", "application"):
        raise ValueError(f"{_CHECK_BY}: expected row or application, found {value!r}")
    return value == "application"


def squares(path: Location, report: AnyReport, *, applications: bool = False) -> list[dict[str, Any]]:
    """Return a square for each row; above `MOST_SQUARES`, one for each so many rows that stand together.

    Parameters
    ----------
    applications
        One for each application instead. Rows without one, of `maintenance`, have one together.
    """
    rows, written = report.rows, _written(report)
    if applications:
        sizes = [len(list(together)) for _, together in groupby(rows, _application)]
    else:
        size = max(-(-len(rows) // MOST_SQUARES), 1)
        sizes = [min(size, len(rows) - start) for start in range(0, len(rows), size)]
    starts = accumulate(sizes, initial=0)
    return [
        {
            "label": _label(rows[start : start + size]),
            "report": str(path),
            "written": written,
            "start": start,
            "count": size,
        }
        for start, size in zip(starts, sizes, strict=False)
    ]


def _application(row: AnyRow) -> str:
    return str(getattr(row, "application", ""))


def _written(report: AnyReport) -> list[int]:
    """What tells the reports of two attempts apart."""
    return [report.started_ms, report.finished_ms]


def _label(rows: Sequence[AnyRow]) -> str:
    first, last = rows[0].label, rows[-1].label
    return first if len(rows) == 1 else f"{first} … {last} ({len(rows)})"


@task(map_index_template="{{ task.op_kwargs['square']['label'] }}")
def check(square: dict[str, Any]) -> None:
    """Show what a square stands for: green if all of it is healthy, red if not, skipped if it was in use."""
    if "report" not in square:
        show([square])
        return
    with bad_input_fails(), reports_access():
        report = read_any_report(location(square["report"]))
    if _written(report) != square["written"]:
        raise AirflowFailException(
            f"{square['report']} was rewritten since this mapped task was created: its rows are of another "
            "attempt. Clear the task rows of this run, with downstream"
        )
    rows = report.rows[square["start"] : square["start"] + square["count"]]
    show([row_to_dict(row) for row in rows])


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Log rows in full, and end the Airflow task as they are.

    Raises
    ------
    AirflowFailException
        If one of them is not healthy; it names all that are not.
    AirflowSkipException
        If nothing could be said of any.
    """
    for row in rows:
        fields = "\n".join(f"{name:>20}: {row[name]}" for name in row)
        log.info("%s: %s\n%s", row["label"], row["headline"], fields)
    if failed := [f"{row['label']}: {row['headline']}" for row in rows if row["health"] == "failed"]:
        raise AirflowFailException("\n".join(failed))
    if rows and all(row["health"] == "later" for row in rows):
        raise AirflowSkipException("\n".join(row["headline"] for row in rows))
