"""Which tasks of a `process` run may begin: none behind an earlier task of its application that is unfinished.

A task behind a repartition topic moves its stream time with what it reads. If it ran without the records of an
unfinished task, windows and sessions would close that still miss them.
"""

from __future__ import annotations

from collections.abc import Sequence

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import EarlierTaskError, StateStoreError
from statestore.reports import Failure, ProcessRow
from statestore.tasks.spec import TaskSpec


def split_by_readiness(
    applications: Sequence[ApplicationDefinition], rows: Sequence[ProcessRow]
) -> tuple[list[ApplicationDefinition], list[ApplicationDefinition]]:
    """Return the applications whose tasks of these rows have all reached their ends, and the others."""
    unfinished = {row.application for row in rows if row.failure is not None}
    return (
        [application for application in applications if application.name not in unfinished],
        [application for application in applications if application.name in unfinished],
    )


def failed_row(spec: TaskSpec, error: StateStoreError) -> ProcessRow:
    """Return the row of a task that was not begun, or whose worker died."""
    return ProcessRow(application=spec.application.name, task=str(spec.task), failure=Failure.of(error))


def not_begun(specs: Sequence[TaskSpec], rows: Sequence[ProcessRow]) -> list[ProcessRow]:
    """Return a row for each task that was not begun, with the unfinished tasks that it waits for.

    A retry helps these tasks if it helps every task that they wait for.
    """
    found = []
    for spec in specs:
        application = spec.application.name
        before = [row for row in rows if row.application == application and row.failure is not None]
        failures = [row.failure for row in before if row.failure is not None]
        why = "; ".join(f"{row.task} failed with {row.failure.kind}" for row in before if row.failure is not None)
        error = EarlierTaskError(
            f"task {spec.task} of {application} was not started, because an earlier task did not finish: {why}. "
            "Nothing is lost. Fix the earlier task, then run again"
        )
        failure = Failure.of(error).model_copy(update={"retriable": all(failure.retriable for failure in failures)})
        found.append(failed_row(spec, error).model_copy(update={"failure": failure}))
    return found
