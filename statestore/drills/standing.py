"""Standing of store partitions: their last drills, judged by the objectives. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from statestore.clock import duration_text
from statestore.definitions.objectives import RestoreObjectives
from statestore.errors import RetryError
from statestore.reports import DrillConfidence, DrillReport, DrillRow, DrillStanding

#: Verdicts of drills that have restored and proven a store.
PROVEN = ("proven", "too slow", "too old")
#: Difference between the clocks of two machines that is still plausible. A time that is further in the future is wrong.
CLOCK_TOLERANCE_MS = 300_000
#: Exit code of each standing, the most urgent first.
EXIT_CODES: Mapping[DrillStanding, int] = {
    "failed": 1,
    "unproven": 14,
    "too slow": 12,
    "too old": 13,
    "proven too long ago": 11,
    "never proven": 10,
    "proven": 0,
}
_CLOCKS = "Correct the clocks, then drill it again"


class Past(NamedTuple):
    """Earlier drills of one store partition.

    Attributes
    ----------
    last
        The last drill with a result; None: no drill had one.
    proven_ms
        When the store was last proven, in whatever time; None: never.
    """

    last: DrillRow | None = None
    proven_ms: int | None = None

    def after(self, row: DrillRow) -> Past:
        """Return the past after one more drill."""
        if row.verdict in (None, "not done"):
            return self
        return Past(row, row.drilled_ms if row.verdict in PROVEN else self.proven_ms)


def standing_of(past: Past, objectives: RestoreObjectives, now_ms: int) -> tuple[DrillStanding, str]:
    """Return how a store partition stands, and why.

    The figures of its last drill are compared with the current objectives, which may have changed since.
    """
    last = past.last
    if last is None:
        return "never proven", "no drill has proven it"
    if last.verdict not in PROVEN:
        return "failed" if last.verdict == "failed" else "unproven", last.detail
    if objectives.suites and last.suite != "passed":
        return "unproven", "its last drill did not run its suite"
    if (missed := missed_objective(last, objectives)) is not None:
        return missed
    every = objectives.proven_every
    since_ms = now_ms - (past.proven_ms or 0)
    if since_ms < -CLOCK_TOLERANCE_MS:
        return "unproven", f"the last proof is dated {_text(-since_ms)} in the future, so its age is unknown. {_CLOCKS}"
    if every is not None and since_ms > every:
        return "proven too long ago", f"the last proof is {_text(since_ms)} old, the objective is {_text(every)}"
    return "proven", ""


def missed_objective(
    row: DrillRow, objectives: RestoreObjectives
) -> tuple[Literal["too slow", "too old", "unproven"], str] | None:
    """Return the objective that a proven restore misses, by its duration and by its snapshot; None if it meets all."""
    within, oldest = objectives.restorable_within, objectives.not_older_than
    if within is not None and row.seconds * 1000 > within:
        return "too slow", f"the restore took {duration_text(row.seconds)}, the objective is {_text(within)}"
    age = row.snapshot_age_seconds
    if oldest is None or age is None:
        return None
    if age * 1000 < -CLOCK_TOLERANCE_MS:
        return (
            "unproven",
            f"the snapshot is dated {duration_text(-age)} in the future, so its age is unknown. {_CLOCKS}",
        )
    if age * 1000 > oldest:
        return "too old", f"the snapshot was {duration_text(age)} old, the objective is {_text(oldest)}"
    return None


def row_standing(row: DrillRow, past: Past, objectives: RestoreObjectives, now_ms: int) -> DrillRow:
    """Return the row of a report: this run's drill, or the last one before, with how the store partition stands."""
    now = past.after(row) if row.drilled else past
    standing, why = standing_of(now, objectives, now_ms)
    if row.drilled:
        shown, why = row, why or row.detail
    else:
        names = {"application": row.application, "store": row.store, "task": row.task, "drilled": False}
        why = "; ".join(filter(None, [why, row.detail]))
        shown = row if now.last is None else now.last.model_copy(update={**names, "evidence": None})
    within, every = objectives.restorable_within, objectives.proven_every
    return shown.model_copy(
        update={
            "standing": standing,
            "detail": why,
            "proven_ms": now.proven_ms,
            "within_seconds": None if within is None else within / 1000,
            "valid_until_ms": None if every is None or now.proven_ms is None else now.proven_ms + every,
        }
    )


def exit_code(report: DrillReport) -> int:
    """Return the exit code of the most urgent standing; that of `never proven` if there is no store partition.

    If all store partitions are proven: 1 if evidence could not be kept, 3 if drills of this run were not completed.
    """
    found: set[DrillStanding] = {row.standing for row in report.rows} or {"never proven"}
    worst = next((code for standing, code in EXIT_CODES.items() if standing in found and code), 0)
    if worst == 0 and any(head.problem for head in report.evidence):
        return 1
    return worst or (RetryError.exit_code if any(row.failure is not None for row in report.rows) else 0)


def confidence_of(application: str, rows: Sequence[DrillRow], objectives: RestoreObjectives) -> DrillConfidence:
    """Return how far the restores of an application can be relied on.

    Parameters
    ----------
    rows
        One for each of its store partitions.
    """
    measured = sorted(row.seconds for row in rows if row.verdict in PROVEN)
    found = DrillConfidence(
        application=application, partitions=len(rows), proven=sum(row.standing == "proven" for row in rows)
    )
    if not measured:
        return found
    parallelism, nodes = objectives.budget.parallelism, objectives.nodes
    unknown = len(rows) - len(measured)
    total = sum(measured) + unknown * sum(measured) / len(measured)
    whole = max(total / min(parallelism, len(rows)), measured[-1])
    assumed = [
        f"{parallelism} store partitions are restored at the same time, as in the drills (budget.parallelism)",
        "each takes as long as in its last drill: the same network, brokers, and disks, and no other load",
        "the time until the restore begins, and until the application runs again, is not included",
    ]
    if unknown:
        assumed.append(f"{unknown} store partitions that were never proven take as long as the average of the others")
    of_node = None
    if nodes is not None:
        share = -(-len(rows) // nodes)
        of_node = round(max(total * share / len(rows) / min(parallelism, share), measured[-1]), 3)
        assumed.append(f"store partitions are spread evenly over {nodes} machines (objectives.nodes)")
    return found.model_copy(
        update={
            "slowest_seconds": measured[-1],
            "p99_seconds": measured[max(-(-99 * len(measured) // 100) - 1, 0)],
            "application_seconds": round(whole, 3),
            "node_seconds": of_node,
            "assumptions": tuple(assumed),
        }
    )


def _text(ms: int) -> str:
    return duration_text(ms / 1000)
