"""What the demo found, as tables for a person and as JSON for a program."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from statestore.archive.layout import snapshot_name
from statestore.durable import write_durably
from statestore.reports import DrillReport, ProcessReport, RestoreReport, ValidateReport, VerifyReport


class Summary(BaseModel):
    """The demo's result; `held` is what its exit code says.

    Attributes
    ----------
    filled
        Store partitions with rows, before the machine is lost.
    restored
        The damaged ones that were restored from their changelogs.
    lost
        Store partitions that were missing then.
    from_snapshots
        Those of them that were restored from a snapshot.
    replayed
        Changelog records that these restores applied on top of the snapshots.
    proven
        A drill has proven that a store partition can be restored, in `restorable_s` seconds.
    """

    records_in: int = 0
    stores: int = 0
    healthy_before: bool = False
    filled: int = 0
    damaged: int = 0
    found: int = 0
    restored: int = 0
    validated: bool = False
    lost: int = 0
    from_snapshots: int = 0
    replayed: int = 0
    all_validated: bool = False
    proven: bool = False
    restorable_s: float = 0.0
    equal_to_recomputation: bool = False
    aircraft: int = 0
    sessions: int = 0
    departure_hours: int = 0
    seconds: dict[str, float] = {}
    airflow: str = ""
    data_docs: str = ""

    @contextmanager
    def step(self, name: str, console: Console) -> Iterator[None]:
        """Say what is being done, and take its time."""
        console.rule(f"[bold]{name}", align="left")
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 1)

    def held(self, records: int) -> bool:
        """True if everything that the demo promises was so, `records` being what went in."""
        return (
            self.records_in == records
            and self.healthy_before
            and 0 < self.damaged == self.found == self.restored
            and self.validated
            and 0 < self.filled == self.lost == self.from_snapshots
            and self.all_validated
            and self.proven
            and self.equal_to_recomputation
        )

    def write(self, path: Path) -> None:
        """Write the summary as JSON, whole or not at all."""
        write_durably(path, self.model_dump_json(indent=1) + "\n")


def process_table(report: ProcessReport) -> Table:
    """Tasks of a process run."""
    columns = ("task", "records in", "records out", "changes", "commits", "records/s", "snapshots")
    table = Table(*columns, title="processed, exactly once")
    for row in report.rows:
        counts = (row.records_in, row.records_out, row.changelog_records, row.commits)
        published = sum(snapshot.snapshot is not None for snapshot in row.snapshots)
        table.add_row(row.label, *(f"{count:,}" for count in counts), f"{row.records_per_s:,.0f}", f"{published}")
    return table


def verify_table(report: VerifyReport) -> Table:
    """Findings of a verify run."""
    table = Table("store partition", "status", "action", "committed", "log end", "keys", title="verified")
    for row in report.rows:
        color = "green" if row.healthy else "red"
        numbers = ("" if number is None else f"{number:,}" for number in (row.committed, row.end, row.keys))
        table.add_row(row.label, f"[{color}]{row.status}[/]", row.action, *numbers)
    return table


def restore_table(report: RestoreReport) -> Table:
    """What a restore run did."""
    columns = ("store partition", "was", "outcome", "snapshot at", "records read", "keys", "seconds")
    table = Table(*columns, title="restored")
    for row in report.rows:
        color = "green" if row.healthy else "red"
        was, outcome = row.before or "", f"[{color}]{row.outcome}[/] {row.mode or ''}"
        name = None if row.snapshot is None else snapshot_name(f"{row.snapshot}.json")
        offset = "" if name is None else f"{name.offset:,}"
        table.add_row(row.label, was, outcome, offset, f"{row.records:,}", f"{row.keys:,}", f"{row.seconds:.1f}")
    return table


def validate_table(report: ValidateReport) -> Table:
    """Verdicts of a validate run."""
    table = Table("store partition", "verdict", "expectations", "keys", "failed", title="validated")
    for row in report.rows:
        color = "green" if row.healthy else "red"
        failed = ", ".join(row.failed_expectations)
        table.add_row(row.label, f"[{color}]{row.verdict}[/]", f"{row.expectations}", f"{row.keys:,}", failed)
    return table


def drill_table(report: DrillReport) -> Table:
    """Results of a drill."""
    columns = ("store partition", "standing", "restored from", "rows compared", "offsets proven", "seconds", "evidence")
    table = Table(*columns, title="drilled")
    for row in report.rows:
        color = "green" if row.healthy else "red"
        offsets = ", ".join(f"{first:,} to {last:,}" for first, last in row.offsets)
        figures = (f"{row.rows:,}", offsets, f"{row.seconds:.1f}", f"{row.evidence or ''}")
        source = "changelog" if row.snapshot is None else "snapshot"
        table.add_row(row.label, f"[{color}]{row.standing}[/]", source, *figures)
    return table


def summary_table(summary: Summary, root: Path) -> Table:
    """Everything in one table, at the end."""
    table = Table(show_header=False, title="the demo in short")
    for name, value in {
        "records processed": f"{summary.records_in:,}",
        "aircraft": f"{summary.aircraft:,}",
        "working sessions": f"{summary.sessions:,}",
        "airports and hours with departures": f"{summary.departure_hours:,}",
        "store partitions": summary.stores,
        "damaged / found / restored from changelogs": f"{summary.damaged} / {summary.found} / {summary.restored}",
        "validated": summary.validated,
        "lost with the machine / restored from snapshots": f"{summary.lost} / {summary.from_snapshots}",
        "records replayed after the snapshots": f"{summary.replayed:,}",
        "validated again": summary.all_validated,
        "proven restorable by a drill": f"{summary.proven}, in {summary.restorable_s:.1f} s",
        "equal to recomputation from the CSV": summary.equal_to_recomputation,
        "seconds": ", ".join(f"{name} {seconds:g}" for name, seconds in summary.seconds.items()),
        "Data Docs": summary.data_docs,
        "all files of the demo": str(root),
    }.items():
        table.add_row(name, str(value))
    return table
