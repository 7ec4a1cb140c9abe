"""The row of a verification report, made from a verdict."""

from __future__ import annotations

import time

from statestore.partition.advice import LostLog, advise
from statestore.partition.plan import advised
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import Verdict
from statestore.reports import VerifyRow
from statestore.requests.verify import Depth


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
    return VerifyRow(
        application=spec.application,
        store=spec.store.name,
        task=str(spec.task),
        status=verdict.status,
        action=action,
        advice=advise(spec, verdict, action, lost=lost),
        detail=verdict.detail,
        loss=None if loss is None else loss.loss,
        loss_detail="" if loss is None else loss.why,
        loss_cause=loss.status if loss is not None and verdict.loses else None,
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
