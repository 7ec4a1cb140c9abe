"""Restores as the command does them, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from statestore.cli import local_processes as local
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.run import restore_specs, run_restore
from statestore.reports import RestorePlanReport, RestorePlanRow, RestoreReport, RestoreRow
from statestore.requests.restore import RestoreRequest


def restored_here(
    stores: Sequence[StorePartitionSpec], run_id: str = "test", *, run_bytes: int = 1 << 24, **how: Any
) -> Sequence[RestoreRow]:
    """Restore store partitions; nothing that is replaced is kept for long."""
    report = _run(stores, run_id, run_bytes, RestoreRequest.read(how))
    assert isinstance(report, RestoreReport)
    return report.rows


def planned_here(stores: Sequence[StorePartitionSpec], **how: Any) -> Sequence[RestorePlanRow]:
    """Say what that would do."""
    report = _run(stores, "test", 1 << 24, RestoreRequest.read({**how, "dry_run": True}))
    assert isinstance(report, RestorePlanReport)
    return report.rows


def _run(
    stores: Sequence[StorePartitionSpec], run_id: str, run_bytes: int, request: RestoreRequest
) -> RestoreReport | RestorePlanReport:
    specs = restore_specs(stores, request, run_id, run_bytes=run_bytes, quarantine_s=0.0)
    return run_restore(specs, request, run_id, local.runner(1), parallelism=1, started_ms=0)
