"""Reports as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from statestore.reports import Action, RestorePlanRow, RestoreRow, Status, VerifyRow

_BAD, _DOUBTFUL, _GOOD = "bold red", "yellow", "green"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Text | str | int | float | None]]) -> Table:
    """Return a table; columns whose name ends in ``>`` hold numbers."""
    result = Table(title=title, title_justify="left")
    for column in columns:
        result.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    for row in rows:
        result.add_row(*(_cell(value) for value in row))
    return result


def _cell(value: Text | str | int | float | None) -> Text:
    if isinstance(value, Text):
        return value
    # Text, not markup: names of files and keys may have brackets.
    return Text("-" if value is None else f"{value:,}" if isinstance(value, int | float) else value)


def status_text(status: Status) -> Text:
    """Return the status in its colour."""
    doubtful = status in (Status.LOCKED, Status.LAGGING, Status.UNKNOWN_FORMAT)
    return Text(status.value, style=_GOOD if status.healthy else _DOUBTFUL if doubtful else _BAD)


def show_verified(console: Console, rows: Sequence[VerifyRow]) -> None:
    """Print what verification found."""
    columns = ("store partition", "status", "action", "committed>", "end>", "rows>", "s>", "detail")
    found = (
        (
            row.label,
            status_text(row.status),
            "" if row.action is Action.NONE else row.action.value,
            row.committed,
            row.end,
            row.keys,
            row.seconds,
            row.detail,
        )
        for row in rows
    )
    console.print(table(f"{len(rows)} store partitions", columns, found))


def show_restored(console: Console, rows: Sequence[RestoreRow]) -> None:
    """Print what a restore did."""
    columns = ("store partition", "before", "outcome", "mode", "records>", "rows>", "committed>", "s>", "detail")
    styles = {"restored": _GOOD, "skipped": "", "failed": _BAD}
    found = (
        (
            row.label,
            "" if row.before is None else status_text(row.before),
            Text(row.outcome, style=styles.get(row.outcome, "")),
            row.mode or "",
            row.records,
            row.keys,
            row.committed,
            row.seconds,
            f"{row.failure.kind}: {row.failure.message}" if row.failure else "",
        )
        for row in rows
    )
    console.print(table(f"{len(rows)} store partitions", columns, found))


def show_plan(console: Console, rows: Sequence[RestorePlanRow]) -> None:
    """Print what a restore would do, why, and what that takes."""
    columns = ("store partition", "is", "to do", "offsets>", "ranges>", "log bytes>", "disk bytes>", "s>", "why")
    found = (
        (
            row.label,
            "" if row.status is None else status_text(row.status),
            Text("refused", style=_BAD) if row.failure else row.mode or "nothing",
            *((row.offsets, row.ranges, row.log_bytes, row.disk_needed, row.seconds) if row.mode else ("",) * 5),
            row.failure.message if row.failure else row.reason,
        )
        for row in rows
    )
    console.print(table(f"{len(rows)} store partitions", columns, found))
