"""Reports of many store partitions, as a deployment has them after some weeks: what the page has to read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from statestore.reports import (
    Action,
    AnyReport,
    ProcessReport,
    ProcessRow,
    RestoreReport,
    RestoreRow,
    Status,
    StoreFigures,
    ValidateReport,
    ValidateRow,
    VerifyReport,
    VerifyRow,
    write_report,
)

STORES, TASKS = 10, 100
_HOUR_MS = 3_600_000
_NOW_MS = 1_764_000_000_000
#: Runs of each job that lie there: of those that name all store partitions, and of `process` every ten minutes.
_WHOLE_RUNS = {"verify": 8, "process": 8, "validate": 4}
_SMALL_RUNS = 900
_RESTORES = 20


def fill(directory: Path, partitions: int) -> None:
    """Write the reports of applications that have so many store partitions together.

    A run of `verify`, `process` or `validate` names all of them. Each such report is made once; older runs have copies,
    with heads of their own.
    """
    applications = [f"application-{number:03}" for number in range(max(1, partitions // (STORES * TASKS)))]
    stores = [f"store-{number}" for number in range(STORES)]
    tasks = [f"0_{number}" for number in range(partitions // len(applications) // STORES)]
    names = [(a, s, t) for a in applications for s in stores for t in tasks]
    verified = VerifyReport(**_head("verify", applications), rows=tuple(_verified(*name) for name in names))
    _write(directory, verified, (age * 6 for age in range(_WHOLE_RUNS["verify"])))
    validated = ValidateReport(**_head("validate", applications), rows=tuple(_validated(*name) for name in names))
    _write(directory, validated, (age * 24 + 1 for age in range(_WHOLE_RUNS["validate"])))
    done = tuple(_processed(a, t, stores) for a in applications for t in tasks)
    processed = ProcessReport(**_head("process", applications), rows=done)
    _write(directory, processed, (age / 6 for age in range(_WHOLE_RUNS["process"])))
    # Runs of one application with a schedule of its own.
    _write(directory, processed.model_copy(update={"applications": tuple(applications[:1]), "rows": done[:2]}),
           (2 + age / 6 for age in range(_SMALL_RUNS)))  # fmt: skip
    some = tuple(_restored(*name) for name in names[:: len(names) // 20])
    restored = RestoreReport(**_head("restore", applications), rows=some)
    _write(directory, restored, (age * 12 + 3 for age in range(_RESTORES)))


def add_process(directory: Path) -> None:
    """Write one more run of `process`: the newest once more, which has ended later."""
    newest = max((directory / "process").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    text = newest.read_bytes().replace(b'"finished_ms": ', b'"finished_ms": 1', 1)
    (directory / "process" / "one-more.json").write_bytes(text)


def _head(job: str, applications: list[str]) -> dict[str, Any]:
    return {
        "run_id": "RUN",
        "applications": tuple(applications),
        "started_ms": 111,
        "finished_ms": 222,
        "catalogue": f"17:{'ab' * 32}",
        "dag_id": job,
        "dag_run_id": "scheduled__RUN",
    }


def _write(directory: Path, report: AnyReport, ages_hours: Iterable[float]) -> None:
    path = directory / report.job / "first.json"
    write_report(path, report)
    content = path.read_bytes()
    path.unlink()
    for hours in ages_hours:
        finished_ms = _NOW_MS - int(hours * _HOUR_MS)
        run = f"run-{finished_ms}-{len(content)}"
        own = {b'"RUN"': f'"{run}"', b"__RUN": f"__{run}", b": 111,": f": {finished_ms - 60_000},"}
        text = content.replace(b": 222,", f": {finished_ms},".encode(), 1)
        for old, new in own.items():
            text = text.replace(old, new.encode(), 1)
        copy = path.with_name(f"{run}.json")
        copy.write_bytes(text)
        os.utime(copy, (finished_ms / 1000, finished_ms / 1000))


def _verified(application: str, store: str, task: str) -> VerifyRow:
    damaged = task == "0_7"
    return VerifyRow(
        application=application,
        store=store,
        task=task,
        status=Status.CORRUPT if damaged else Status.OK,
        action=Action.FULL if damaged else Action.NONE,
        detail="a checksum failed in 000012.sst" if damaged else "",
        committed=1_234_567,
        start=0,
        end=1_234_568,
        lag=0,
        topic_id="AAAAAAAAAAAAAAAAAAAAAA",
        sealed=True,
        keys=98_765,
        seconds=0.731,
    )


def _processed(application: str, task: str, stores: list[str]) -> ProcessRow:
    figures = tuple(
        StoreFigures(
            store=store, commits=3, commit_latency_avg_ms=1.234, commit_latency_max_ms=5.678, committed=1_234_567
        )
        for store in stores
    )
    return ProcessRow(
        application=application,
        task=task,
        records_in=10_000,
        changelog_records=30_000,
        commits=3,
        lag=0,
        input_offset=7_654_321,
        seconds=4.5,
        stores=figures,
    )


def _validated(application: str, store: str, task: str) -> ValidateRow:
    return ValidateRow(
        application=application,
        store=store,
        task=task,
        verdict="passed",
        expectations=12,
        keys=98_765,
        data_docs=f"/var/lib/data-docs/validations/{application}.{store}/run/page.html",
    )


def _restored(application: str, store: str, task: str) -> RestoreRow:
    return RestoreRow(
        application=application, store=store, task=task, outcome="restored", mode="full", before=Status.CORRUPT,
        records=1_234_567, keys=98_765, committed=1_234_567, end=1_234_568,
    )  # fmt: skip
