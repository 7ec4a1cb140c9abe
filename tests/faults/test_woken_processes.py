"""A process slept, its lock files were deleted, another one took its task: when it wakes up it changes nothing more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from statestore.recovery.restore import RestoreSpec
from statestore.requests.restore import RestoreRequest
from statestore.tasks.spec import TaskSpec
from tests.faults import oracle
from tests.faults.children import Child, Hook, Kill
from tests.faults.damage.stores import files_of
from tests.faults.hooks import on_another_host
from tests.faults.made import processor_subject, rebuilt
from tests.faults.subject import Subject

LONG = pytest.mark.long


def _slept(subject: Subject, specs: Sequence[TaskSpec] | Sequence[RestoreSpec], point: str) -> Child:
    """Start a process that sleeps at the point, and delete its lock files."""
    child = Child(specs, subject.directory / "sleeper", pause=Kill(point))
    child.paused()
    paths = subject.paths(subject.tasks[0])
    (paths.application_dir / ".lock").unlink()
    (paths.own_dir / "lock").unlink()
    return child


def _assert_woken_in_vain(
    subject: Subject, sleeper: Child, ended: Callable[[Child], list[Any]], hooks: Sequence[Hook] = ()
) -> None:
    """Let a successor run, wake the sleeper: it ends with an error and has changed nothing."""
    try:
        subject.produce(20)
        subject.run(hooks=hooks)
        after = files_of(subject.state_dir)
        sleeper.wake()
        (row,) = ended(sleeper)
    finally:
        sleeper.end()
    assert row.failure.kind == "LockedError"
    assert "is no longer the file that this process has locked" in row.failure.message
    assert files_of(subject.state_dir) == after


@pytest.mark.parametrize("on_disk", [True, pytest.param(False, marks=LONG)])
def test_a_task_that_slept_with_open_stores_writes_nothing_into_those_of_its_successor(
    bootstrap_servers: str, tmp_path: Path, on_disk: bool
) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path)
    if on_disk:
        subject.begin(processed=10)
    subject.produce(30)
    sleeper = _slept(subject, subject.specs(), "before close")
    for lock in subject.paths(subject.tasks[0]).task_dir.rglob("LOCK"):
        lock.unlink()
    _assert_woken_in_vain(subject, sleeper, Child.rows, [on_another_host])
    (row,) = subject.run()
    assert (row.restored, rebuilt(row)) == (0, set())
    oracle.check(subject)


@pytest.mark.long
@pytest.mark.parametrize(
    "point", ["stores closed, nothing recorded", pytest.param("store recorded, not sealed", marks=LONG)]
)
def test_a_task_that_slept_before_it_recorded_its_stores_leaves_those_of_its_successor_alone(
    bootstrap_servers: str, tmp_path: Path, point: str
) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path)
    subject.produce(30)
    sleeper = _slept(subject, subject.specs(), point)
    _assert_woken_in_vain(subject, sleeper, Child.rows)
    (row,) = subject.run()
    assert (row.restored, rebuilt(row)) == (0, set())
    oracle.check(subject)


@pytest.mark.long
def test_a_task_that_slept_before_it_opened_its_stores_does_not_open_them_any_more(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path)
    subject.begin(processed=30)
    sleeper = _slept(subject, subject.specs(), "task not idle")
    _assert_woken_in_vain(subject, sleeper, Child.rows)
    oracle.check(subject)


@pytest.mark.parametrize(
    "point",
    [
        "swap, journal written",
        pytest.param("swap, old store in quarantine", marks=LONG),
        pytest.param("swap, before the last rename", marks=LONG),
        pytest.param("swap, before the journal goes", marks=LONG),
        pytest.param("restore, swapped, not sealed", marks=LONG),
    ],
)
@pytest.mark.parametrize("store", ["counts", pytest.param("hourly", marks=LONG)])
def test_a_restore_that_slept_inside_its_swap_leaves_the_one_that_its_successor_finished_alone(
    bootstrap_servers: str, tmp_path: Path, store: str, point: str
) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path)
    subject.produce(30)
    subject.run()
    (spec,) = subject.specs()
    restore = RestoreSpec(spec.store_partition(store), RestoreRequest(mode="full", force=True), "run", 1 << 20)
    sleeper = _slept(subject, [restore], point)
    _assert_woken_in_vain(subject, sleeper, Child.restored)
    (row,) = Child([restore], subject.directory / "again").restored()
    assert row.failure is None
    (again,) = subject.run()
    assert (again.restored, rebuilt(again)) == (0, set())
    oracle.check(subject)
