"""Steps before a restore and a rewrite: a person approves in the Airflow UI that live stores may be replaced.

That of a restore is wanted by STATESTORE_RESTORE_APPROVAL for all, or by the form for one; that of a rewrite always. A
restore that replays tails, builds as of a point or only shows its plan replaces nothing that could not be had back, and
is not asked about.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator

from statestore_dags.arguments import may_rebuild, wants_approval
from statestore_dags.auditing import record_answer

if TYPE_CHECKING:
    from airflow.sdk import Context

_ON = ("1", "true", "yes", "on")
_OFF = ("", "0", "false", "no", "off")


def always_wanted() -> bool:
    """Tell whether the settings want every restore to be approved."""
    value = os.environ.get("STATESTORE_RESTORE_APPROVAL", "").strip().lower()
    if value not in (*_ON, *_OFF):
        raise ValueError(f"STATESTORE_RESTORE_APPROVAL: expected true or false, found {value!r}")
    return value in _ON


class _AuditedApproval(ApprovalOperator):
    """Writes an audit record of the answer."""

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Record the answer, then continue or skip."""
        record_answer(context, event, self.APPROVE)
        return super().execute_complete(context, event)


class ApproveRestoreOperator(_AuditedApproval):
    """Waits for a person where one is wanted; a rejection skips the rest of the run."""

    def __init__(self, *, always: bool, **arguments: Any) -> None:
        super().__init__(ignore_downstream_trigger_rules=True, **arguments)
        self.always = always

    def execute(self, context: Context) -> Any:
        """Ask, or go on."""
        params = context["params"]
        if not (may_rebuild(params) and (self.always or wants_approval(params))):
            self.log.info("no approval is required: restoring")
            return None
        return super().execute(context)


def approve() -> ApproveRestoreOperator:
    """Return the step, to be put between plan and Spark."""
    return ApproveRestoreOperator(
        task_id="approve",
        always=always_wanted(),
        subject="Rebuild live stores from their changelogs?",
        body=(
            "{{ ti.xcom_pull(task_ids='plan', key='summary') }}\n\nEach store is built beside the live one, checked, "
            "and swapped in; the old one is kept in quarantine. Started by run `{{ run_id }}`. *Reject* leaves "
            "everything as it is and skips the rest of this run."
        ),
    )


class ApproveRewriteOperator(_AuditedApproval):
    """Waits for a person, unless only the plan is to be shown; a rejection skips the rest of the run."""

    def execute(self, context: Context) -> Any:
        """Ask, or go on."""
        if context["params"].get("dry_run"):
            return None
        return super().execute(context)


def approve_rewrite() -> ApproveRewriteOperator:
    """Return the step, to be put before a rewrite."""
    return ApproveRewriteOperator(
        task_id="approve",
        ignore_downstream_trigger_rules=True,
        subject="Rewrite the state of this application?",
        body=(
            "`{{ ti.xcom_pull(task_ids='plan', key='summary') }}`\n\nThe log of *plan* shows what is written. Started "
            "by run `{{ run_id }}`. *Reject* leaves everything as it is and skips the rest of this run."
        ),
    )
