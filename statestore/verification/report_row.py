"""The verdict on a store whose task is locked meanwhile, and the row of a verification report, made from a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from statestore.errors import InvalidStateError, LockedError
from statestore.partition.advice import LostLog, advise
from statestore.partition.plan import advised
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import Verdict, locked
from statestore.reports import Status, VerifyRow
from statestore.requests.verify import Depth
from statestore.statedir.lock import give_way
from statestore.statedir.swap import locked_task
from statestore.verification.options import VerifyOptions


def under_lock(
    spec: StorePartitionSpec, options: VerifyOptions, examine: Callable[[VerifyOptions], Verdict]
) -> Verdict:
    """Lock the task, and return the verdict of `examine`, which gives way to a run of `process`."""
    try:
        with locked_task(spec.paths, spec.lock_wait_s, reading=True):
            return examine(replace(options, give_way=partial(give_way, spec.paths)))
    except (LockedError, InvalidStateError) as error:
        return unobserved(error)


def unobserved(error: LockedError | InvalidStateError) -> Verdict:
    """Return the verdict on a store that is in use, or in the middle of a swap that cannot be finished."""
    if isinstance(error, LockedError):
        return locked(error)
    return Verdict(Status.CORRUPT, str(error), rebuildable=False)


def report_row(
    spec: StorePartitionSpec,
    verdict: Verdict,
    depth: Depth,
    started: float | None = None,
    *,
    lost: LostLog | None = None,
) -> VerifyRow:
    """Return the row of a report; its action is the plan of the default request.

    Parameters
    ----------
    started
        When the verification began, by `time.monotonic`.
    lost
        As of `partition.advice.advise`.
    """
    loss, log, action = verdict.loss, verdict.log, advised(verdict)
    told: dict[str, Any] = {}
    if loss is not None:
        cause = loss.status if verdict.loses else None
        told = {"loss": loss.loss, "loss_detail": loss.why, "loss_cause": cause}
    return VerifyRow(
        application=spec.application,
        store=spec.store.name,
        task=str(spec.task),
        status=verdict.status,
        action=action,
        advice=advise(spec, verdict, action, lost=lost),
        detail=verdict.detail,
        **told,
        depth=depth,
        committed=verdict.committed,
        start=None if log is None else log.start,
        end=None if log is None else log.last_stable,
        lag=verdict.lag,
        topic_id=spec.changelog.topic_id if spec.changelog else None,
        store_topic_id=verdict.store_topic_id,
        sealed=verdict.sealed,
        file=verdict.file,
        keys=verdict.keys,
        contents=verdict.contents,
        global_kind=verdict.global_kind or spec.global_kind,
        seconds=0.0 if started is None else round(time.monotonic() - started, 3),
    )
