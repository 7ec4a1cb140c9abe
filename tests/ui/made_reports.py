"""Reports as the jobs write them, by the jobs' own models, of as many store partitions as a test wants."""

from __future__ import annotations

from typing import Any

from statestore.drills.history import write_drill_history
from statestore.objects.path import Location, write_whole
from statestore.recovery.restore_progress import RestoreProgress
from statestore.reports import (
    Action,
    Advice,
    DrillReport,
    DrillRow,
    Failure,
    JobReport,
    ProcessReport,
    ProcessRow,
    RestoreReport,
    RestoreRow,
    Status,
    StoreFigures,
    SurveyedApplication,
    SurveyReport,
    SurveyRisk,
    SurveyUnread,
    ValidateReport,
    ValidateRow,
    VerifyReport,
    VerifyRow,
    write_report,
)
from statestore.tasks.task_progress import TaskProgress
from statestore.verification.history import write_history

APPLICATION = "shop"
#: A moment in the past; runs are so many minutes behind it.
T0 = 1_750_000_000_000
_ACTIONS = {Status.OK: Action.NONE, Status.EMPTY: Action.NONE, Status.OLD_FORMAT: Action.NONE}
_ACTIONS |= {Status.LAGGING: Action.TAIL, Status.LOCKED: Action.LATER, Status.UNKNOWN_FORMAT: Action.BY_HAND}
_ACTIONS |= {Status.STALE: Action.NONE, Status.UNLOGGED: Action.NONE}
_ACTIONS |= {Status.PROVEN: Action.NONE, Status.IN_USE: Action.NONE, Status.UNCONFIRMED: Action.LATER}


def names(partition: int, store: str = "orders", application: str = APPLICATION) -> dict[str, str]:
    return {"application": application, "store": store, "task": f"0_{partition}"}


def verify_row(partition: int = 0, status: Status = Status.OK, *, store: str = "orders", **more: object) -> VerifyRow:
    application = str(more.pop("application", APPLICATION))
    known = {"lag": 0, "committed": 99, "end": 100, "action": _ACTIONS.get(status, Action.FULL)}
    return VerifyRow(**names(partition, store, application), status=status, **{**known, **more})


def surveyed(
    *risks: str, unread: int = 0, applications: tuple[str, ...] = (APPLICATION,), **more: object
) -> SurveyReport:
    """Return the report of a survey that found these risks of applications; "": of the cluster."""
    advice = Advice(situation="cluster has one broker", sentence="Add brokers.", command="echo add")
    head = {"run_id": "survey", "started_ms": T0 - 5_000, "finished_ms": T0, "applications": applications}
    facts = {
        "bootstrap_servers": "kafka:9092",
        "cluster_id": "<b>cluster",
        "brokers": 1,
        "requests": 9,
        "assumption": "two cores",
    }
    return SurveyReport(
        **{**head, **facts, **more},
        surveyed=tuple(
            SurveyedApplication(name=name, kind="Kafka Streams", group_state="Empty", stores=())
            for name in applications
        ),
        risks=tuple(SurveyRisk(application=name, subject="topic", why="1 of 3", advice=advice) for name in risks),
        unread=tuple(SurveyUnread(subject=f"topic {each}", fact="bytes", why="refused") for each in range(unread)),
    )


class Reports:
    """A reports directory, or a place in object storage, as runs of our DAGs fill it.

    Parameters
    ----------
    before
        What stands before the names of the DAGs in their ids.
    """

    def __init__(self, directory: Location, before: str = "") -> None:
        self.directory, self._before = directory, before

    def verify(
        self, rows: list[VerifyRow], minute: int = 0, *, kind: str = "scheduled", run: str = "", history: bool = False
    ) -> Location:
        """One run of the DAG verify; `kind` "" is a run of the command."""
        report = VerifyReport(**self._head(rows, minute, "verify", kind, run), rows=tuple(rows))
        if history:
            write_history(self.directory, report)
        return self._write("verify", report)

    def restore(self, rows: list[RestoreRow], minute: int = 0) -> Location:
        return self._write("restore", RestoreReport(**self._head(rows, minute, "restore", "manual"), rows=tuple(rows)))

    def drill(self, rows: list[DrillRow], minute: int = 0) -> Location:
        report = DrillReport(**self._head(rows, minute, "drill", "scheduled"), rows=tuple(rows))
        write_drill_history(self.directory, report)
        return self._write("drill", report)

    def validate(self, rows: list[ValidateRow], minute: int = 0) -> Location:
        head = self._head(rows, minute, "validate", "manual")
        return self._write("validate", ValidateReport(**head, rows=tuple(rows)))

    def process(
        self,
        tasks: list[int],
        stores: list[str],
        minute: int = 0,
        failure: Failure | None = None,
        *,
        figures: dict[str, object] | None = None,
        **more: object,
    ) -> Location:
        known = {"commits": 1, "commit_latency_avg_ms": 1, "commit_latency_max_ms": 1, **(figures or {})}
        found = tuple(StoreFigures(store=store, **known) for store in stores)
        row = {"application": APPLICATION, "lag": 7, "stores": found, "failure": failure, **more}
        rows = [ProcessRow(task=f"0_{task}", **row) for task in tasks]
        head = self._head(rows, minute, "process", "scheduled")
        return self._write("process", ProcessReport(**head, rows=tuple(rows)))

    def progress(self, run: str, job: str = "restore", **said: object) -> Location:
        """What a running restore or snapshot says of a store partition."""
        progress = RestoreProgress(**{**names(0), "phase": "reading", **said})
        path = self.directory / job / f".progress-{run}" / f"{progress.label.replace('/', '-')}.json"
        write_whole(path, progress.model_dump_json())
        return path

    def task_progress(self, run: str, task: int = 0, **said: object) -> Location:
        """What a running task of `process` says."""
        progress = TaskProgress(**{"application": APPLICATION, "task": f"0_{task}", "phase": "processing", **said})
        path = self.directory / "process" / f".progress-{run}" / f"{APPLICATION}-0_{task}.json"
        write_whole(path, progress.model_dump_json())
        return path

    def survey(self, *risks: str, minute: int = 0, before: str = "", **more: Any) -> Location:
        """One run of the DAG survey of the environment whose name, with a dot, is `before`."""
        head = self._head([], minute, "survey", "scheduled") | {"dag_id": f"{self._before}{before}survey"}
        named = {name: value for name, value in head.items() if name != "applications"}
        run = f"{before}{head['run_id']}"
        return self._write("survey", surveyed(*risks, **{**named, "run_id": run, **more}))

    def _head(self, rows: list, minute: int, job: str, kind: str, run: str = "") -> dict:
        run = run or f"{job}-{minute:05}"
        finished_ms = T0 + minute * 60_000
        dag_run = {"dag_id": f"{self._before}{job}", "dag_run_id": f"{kind}__{run}"} if kind else {}
        applications = tuple(dict.fromkeys(row.application for row in rows))
        return {
            "run_id": run,
            "applications": applications,
            "started_ms": finished_ms - 5_000,
            "finished_ms": finished_ms,
            **dag_run,
        }

    def _write(self, job: str, report: JobReport) -> Location:
        path = self.directory / job / f"{report.run_id}.json"
        write_report(path, report)
        return path


def restored(partition: int = 0, outcome: str = "restored", **more: object) -> RestoreRow:
    return RestoreRow(**names(partition), outcome=outcome, mode="full", before=Status.CORRUPT, **more)


def validated(partition: int = 0, verdict: str = "passed", **more: object) -> ValidateRow:
    return ValidateRow(**names(partition), verdict=verdict, expectations=9, **more)


def drill_row(partition: int, standing: str, **more: Any) -> DrillRow:
    verdict = {"proven too long ago": "proven", "never proven": None}.get(standing, standing)
    drilled = {"drilled": verdict is not None, "drilled_ms": None if verdict is None else T0 + partition}
    proven = {"proven_ms": T0 + partition if verdict in ("proven", "too slow", "too old") else None}
    known = {"seconds": float(partition), "detail": f"why {standing}", "rows": 3, "within_seconds": 900.0}
    return DrillRow(**names(partition), standing=standing, verdict=verdict, **{**drilled, **proven, **known, **more})
