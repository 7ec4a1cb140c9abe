"""A verification that reads a store for long gives it to a run of `process` that waits for it."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from statestore.errors import LockedError
from statestore.reports import Action, ProcessRow, Status
from statestore.statedir.lock import give_way, locked
from statestore.tasks.stream_task import run_task
from statestore.verification import check
from statestore.verification.options import Depth
from tests.integration.broker import T0, wait_for
from tests.integration.support import Application


def _is_wanted(application: Application) -> bool:
    try:
        give_way(application.store_spec().paths)
    except LockedError:
        return True
    return False


@pytest.mark.short_for("deep-inspect")
@pytest.mark.parametrize(
    ("depth", "step"), [("scan", "inspect"), ("scan", "count_rows"), ("deep", "inspect"), ("deep", "compare_contents")]
)
def test_process_goes_first_and_verify_says_that_the_store_was_in_use(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: Depth, step: str
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1"), (b"b", b"1")])
    application.send([(b"a", b"2")], timestamp=T0 + 10)
    spec = application.task_spec(lock_wait_s=60)
    waiting: list[Future[ProcessRow]] = []
    real = getattr(check, step)

    def with_somebody_waiting(*arguments: Any, **how: Any) -> Any:
        if not waiting:  # the work of the step is its own; only when the other one comes is ours to say
            waiting.append(others.submit(run_task, spec))
            wait_for(lambda: _is_wanted(application), "process to wait for the lock", 60)
        return real(*arguments, **how)

    monkeypatch.setattr(check, step, with_somebody_waiting)
    with ThreadPoolExecutor(1) as others:
        found = application.verify(depth)
        processed = waiting[0].result(60)
    assert (found.status, found.action) == (Status.LOCKED, Action.LATER)
    assert "it goes first" in found.detail
    assert (processed.failure, processed.records_in) == (None, 1)
    assert not _is_wanted(application)
    assert application.verify(depth).status is Status.OK
    application.assert_oracle()


def test_nobody_gives_way_to_who_is_not_urgent(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    paths = application.store_spec().paths
    with locked(paths), pytest.raises(LockedError), locked(paths, 0.2):
        raise AssertionError("it is locked")
    assert not _is_wanted(application)
