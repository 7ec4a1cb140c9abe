"""Tasks of a `process` run that are not begun, and whether a retry helps them."""

from __future__ import annotations

from pathlib import Path

import pytest
from statestore_jobs.stages import not_begun, split_by_readiness

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import LockedError, ProcessingError, StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.model import TaskId
from statestore.reports import Failure, ProcessRow
from statestore.tasks.spec import TaskSpec


def application(name: str) -> ApplicationDefinition:
    return ApplicationDefinition(
        name=name, input_topic="in", processor="module:process", stores=(StoreDefinition(name="s"),)
    )


def ended(name: str, task: str, error: StateStoreError | None = None) -> ProcessRow:
    return ProcessRow(application=name, task=task, failure=error and Failure.of(error))


@pytest.mark.parametrize(
    ("errors", "retriable"),
    [
        ([LockedError("in use")], True),
        ([LockedError("in use"), ProcessingError("poison")], False),
    ],
)
def test_a_task_that_was_not_begun_is_retried_if_a_retry_helps_all_that_it_waits_for(errors, retriable):
    rows = [ended("a", f"0_{number}", error) for number, error in enumerate(errors)] + [ended("a", "0_9")]
    spec = TaskSpec(
        application=application("a"),
        task=TaskId(1, 0),
        input_end=0,
        offsets_id="offsets",
        changelogs={},
        cluster=Cluster("", 1),
        state_dir=Path(),
    )
    [row] = not_begun([spec], rows)
    assert row.failure is not None
    assert (row.label, row.failure.kind, row.failure.retriable) == ("a/1_0", "EarlierTaskError", retriable)
    for number, error in enumerate(errors):
        assert f"0_{number} failed with {error.kind}" in row.failure.message
    assert "0_9" not in row.failure.message


def test_only_applications_with_an_unfinished_task_wait():
    one, other = application("a"), application("b")
    rows = [ended("a", "0_0"), ended("a", "0_1", LockedError("in use")), ended("b", "0_0")]
    assert split_by_readiness([one, other], rows) == ([other], [one])
