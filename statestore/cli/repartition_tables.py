"""What an application is made of that gets the state of another: for people, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statestore.cli import output

if TYPE_CHECKING:
    from rich.console import Console

    from statestore.rewrite.repartition_plan import MadeStore, RepartitionPlan


def show_repartition(console: Console, plan: RepartitionPlan) -> None:
    """Print what an application is made of."""
    from statestore.cli import tables

    if plan.finishes:
        output.say(
            console, "an earlier attempt has created the stores; only the group's offsets and the catalogue remain"
        )
    if plan.discards:
        output.say(console, f"the incomplete {plan.target} of an earlier attempt is discarded first")
    columns = ("store", "partitions>", "new partitions>", "rows>", "bytes>", "expired>", "unknown timestamps>")
    found = (
        (
            store.name,
            store.before,
            store.after,
            store.rows,
            store.bytes,
            store.counted.expired,
            store.counted.unknown_times,
        )
        for store in plan.stores
    )
    if plan.stores:
        console.print(tables.table(f"{tables.counted(len(plan.stores), 'store')} of {plan.source}", columns, found))
    for line in plan.said:
        output.say(console, line)
    output.say_cost(console, plan)


def repartition_content(plan: RepartitionPlan) -> dict[str, Any]:
    """Return the same for JSON."""
    return {
        "application": plan.source,
        "to": plan.target,
        "partitions": plan.partitions,
        "finishes": plan.finishes,
        "discards": plan.discards,
        "seconds": plan.seconds,
        "disk_needed": plan.disk_needed,
        "disk_free": plan.disk_free,
        "offsets": [
            {"topic": where.topic, "partition": where.partition, "next_offset": found.next_offset}
            for where, found in plan.offsets.items()
        ],
        "plan": [
            {
                "store": store.name,
                "partitions": store.before,
                "rows": [*store.counted.rows],
                "bytes": [*store.counted.bytes],
                "expired": store.counted.expired,
                "unknown_timestamps": store.counted.unknown_times,
            }
            for store in plan.stores
        ],
    }


def made(row: MadeStore) -> dict[str, Any]:
    """Return a store partition that was made, for JSON."""
    return {
        "application": row.store.application,
        "store": row.store.store.name,
        "task": str(row.store.task),
        "rows": row.rows,
        "committed": row.committed,
    }
