"""Stores that we left open, and what came before we opened them again: another program, or another kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from statestore.definitions.store import StoreDefinition
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.statedir.paths import TaskPaths
from statestore.stores.api import StoreContext
from statestore.stores.open import build_store
from tests.faults import oracle
from tests.faults.children import RUN_S, Kill
from tests.faults.hooks import to_disk
from tests.faults.made import STORES, processor_subject, rebuilt
from tests.faults.subject import Subject
from tests.integration.dying import start_process

_FIRST, _SECOND = 30, 20
_CRASH = Kill("Kafka committed, stores not")
#: In the order of an opening. Each store that was left open is announced, its databases opened, and then recorded.
_OPENING = (
    Kill("databases about to be opened"),
    Kill("database opened, not recorded"),
    Kill("database opened, not recorded", 3),
    Kill("databases recorded, not marked open"),
    Kill("databases recorded, not marked open", len(STORES)),
)


def _left_open(servers: str, directory: Path) -> Subject:
    """An application whose second run was killed, with all that its stores held on disk."""
    subject = processor_subject(servers, directory)
    subject.begin(processed=_FIRST, waiting=_SECOND)
    subject.child(kill=_CRASH, hooks=[to_disk]).killed()
    return subject


def _use_as_another(subject: Subject) -> None:
    """Have another program, which has no transactions and knows nothing of ours, write to all stores and be killed."""
    (task,) = subject.tasks
    process = start_process(_leave_uncommitted_rows, subject.paths(task), subject.definition.stores)
    process.join(RUN_S)
    assert process.exitcode == -signal.SIGKILL, f"exit code {process.exitcode} instead of a kill"


def _leave_uncommitted_rows(paths: TaskPaths, stores: Sequence[StoreDefinition]) -> None:
    context = StoreContext(paths.application, paths.task, paths.task_dir, paths.own_dir / "other", exactly_once=False)
    for definition in stores:
        store: Any = build_store(definition.model_copy(update={"engine": "rocksDB"}))
        store.init(context)
        key, value = next(iter(store.all()))
        never = ValueAndTimestamp(b"never", 1) if isinstance(value, ValueAndTimestamp) else b"never"
        if definition.kind == "window":
            store.put(key.key, never, key.start)
        else:
            store.put(key, never)
        store.sync()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.behaviour("K17")
def test_k17_what_another_wrote_into_stores_that_we_left_open_is_not_taken_for_committed(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    subject = _left_open(bootstrap_servers, tmp_path)
    _use_as_another(subject)
    (row,) = subject.run()
    assert rebuilt(row) == set(STORES)
    oracle.check(subject)


@pytest.mark.long
@pytest.mark.behaviour("K17")
def test_k17_nor_if_we_were_killed_over_opening_them_just_before(bootstrap_servers: str, tmp_path: Path) -> None:
    subject = _left_open(bootstrap_servers, tmp_path)
    kill = Kill("database opened, not recorded", 4)
    subject.child(kill=kill).killed()
    _use_as_another(subject)
    (row,) = subject.run()
    assert rebuilt(row) == set(STORES)
    oracle.check(subject)


@pytest.mark.long
@pytest.mark.behaviour("T4")
def test_kills_one_after_the_other_while_stores_are_opened_cost_no_rebuild(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    subject = _left_open(bootstrap_servers, tmp_path)
    for kill in _OPENING:
        subject.child(kill=kill).killed()
    (row,) = subject.run()
    assert rebuilt(row) == set()
    assert row.restored > 0
    oracle.check(subject)


@pytest.mark.long
@pytest.mark.behaviour("T4")
def test_kills_while_a_segment_is_made_cost_no_rebuild(bootstrap_servers: str, tmp_path: Path) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path)
    subject.begin(processed=_FIRST, waiting=_SECOND, jump=True)
    there = len(list(subject.state_dir.rglob("CURRENT")))
    kills = (
        Kill("database opened, not recorded", there + 1),
        Kill("databases recorded, not marked open", len(STORES) + 1),
        Kill("database marked open"),  # the others are so since the first kill
    )
    for kill in kills:
        subject.child(kill=kill).killed()
    (row,) = subject.run()
    assert rebuilt(row) == set()
    oracle.check(subject)
