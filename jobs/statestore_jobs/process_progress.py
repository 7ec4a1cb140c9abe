"""Shows the progress of the tasks in a run of `process`."""

from __future__ import annotations

from collections.abc import Collection

from statestore.progress.display import Bar, ProgressView
from statestore.tasks.task_progress import TaskProgress


def _bar(found: TaskProgress) -> Bar:
    label = f"{found.application}/{found.task}"
    description = label if found.phase == "processing" else f"{label} {found.phase}"
    return Bar(description, found.next - found.first, found.end - found.first)


def _line(tasks: Collection[TaskProgress], expected: int) -> str:
    records = sum(found.records_in for found in tasks)
    left = sum(max(found.end - found.next, 0) for found in tasks if found.phase == "processing")
    ended = sum(found.phase == "ended" for found in tasks)
    return (
        f"process: {ended} of {expected} tasks ended, {records} records processed, {left} offsets left in tasks that "
        "are at work"
    )


#: A bar for each task.
TASKS = ProgressView(TaskProgress, lambda found: f"{found.application}/{found.task}", _bar, _line)
