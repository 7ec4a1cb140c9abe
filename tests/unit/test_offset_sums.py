"""How far tasks are, read without opening a store."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest

from statestore.model import TaskId
from statestore.statedir import lock as lock_module
from statestore.statedir.lock import locked
from statestore.statedir.offset_sums import LATEST_OFFSET, offset_sum, task_offset_sums
from statestore.statedir.record import write_record
from tests.records import recorded

pytestmark = pytest.mark.behaviour("L2")


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [([], 0), ([0], 1), ([4, 9], 15), ([4, None], 5), ([None], 0), ([2**63 - 2, 5], 2**63 - 1)],
)
def test_offsets_are_added_up_each_plus_one_unknown_as_nothing_and_pinned(offsets, expected):
    assert offset_sum(offsets) == expected


def test_a_closed_task_tells_its_sum_without_its_stores(paths):
    write_record(paths, "s", recorded("id", 4))
    write_record(paths, "t-1.x", recorded("id", 9))
    write_record(replace(paths, task=TaskId(0, 3)), "s", recorded("id", None))
    assert not paths.task_dir.exists()
    assert task_offset_sums(paths.state_dir, "app") == {TaskId(0, 0): 15, TaskId(0, 3): 0}


def test_a_running_task_is_at_the_latest(paths):
    write_record(paths, "s", recorded("id", 4))
    with locked(paths):
        assert task_offset_sums(paths.state_dir, "app") == {paths.task: LATEST_OFFSET}


def test_nobody_waits_for_a_running_task(paths, monkeypatch):
    def sleep(_):
        raise AssertionError("a task that runs was waited for")

    with locked(paths):
        monkeypatch.setattr(lock_module, "time", SimpleNamespace(monotonic=count(0, 0.5).__next__, sleep=sleep))
        assert task_offset_sums(paths.state_dir, "app") == {paths.task: LATEST_OFFSET}


def test_an_application_without_state_has_no_sums_and_foreign_names_are_not_tasks(paths):
    assert task_offset_sums(paths.state_dir, "app") == {}
    for foreign in ("-notes", "notes"):  # before and behind the tasks
        (paths.own_dir.parent / foreign).mkdir(parents=True)
    assert task_offset_sums(paths.state_dir, "app") == {}
    write_record(paths, "s", recorded("id", 4))
    assert task_offset_sums(paths.state_dir, "app") == {paths.task: 5}
