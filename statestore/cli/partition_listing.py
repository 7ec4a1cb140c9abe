"""Lists store partitions by names, topics and records; a store with a definition is not opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from statestore.cli.selection import Chosen
from statestore.discovery.changelogs import log_ranges
from statestore.errors import LockedError
from statestore.kafka.topics import LogRange, Topics
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.statedir.lock import locked
from statestore.statedir.record import committed_of, read_record


class Listed(NamedTuple):
    """A store partition as it is listed.

    Attributes
    ----------
    task
        None where only the store is known.
    committed
        Offset of the last changelog record in the store when we last left it; None if there is no record of it.
    state
        `missing`, `in use`, `sealed`, or `closed` without a seal; `stale` or `undetermined` as the statuses.
    note
        Why it cannot be verified or restored as it is, and what to do.
    """

    application: str
    store: str
    task: str | None
    kind: str
    format: str
    retention_ms: int | None
    changelog: str
    committed: int | None
    start: int | None
    end: int | None
    state: str
    note: str

    @property
    def label(self) -> str:
        """The store partition, or the store."""
        return "/".join(filter(None, [self.application, self.store, self.task]))


def listed(chosen: Chosen, topics: Topics) -> list[Listed]:
    """List the store partitions, then what was found and is not one that can be worked on."""
    logs = log_ranges(topics, _existing(chosen.specs))
    rows = [_row(spec, logs) for spec in chosen.specs]
    for store in chosen.discovered:
        if store.trouble is not None:
            topic = store.changelog.topic if store.changelog else ""
            state = store.trouble if store.trouble in ("missing", "in use", "stale", "undetermined") else ""
            task = str(store.tasks[0]) if store.trouble == "stale" else None
            where = (store.application, store.name, task)
            note = "; ".join(filter(None, [store.acknowledged, store.problem]))
            rows.append(Listed(*where, "", "", None, topic, None, None, None, state, note))
    for application, name, error in chosen.failures():
        rows.append(Listed(application, name, None, "", "", None, "", None, None, None, "", str(error)))
    return rows


def _existing(specs: Sequence[StorePartitionSpec]) -> list[StorePartitionSpec]:
    """Store partitions whose part of the changelog exists: a topic may have fewer than there are tasks."""
    return [
        spec
        for spec in specs
        if spec.changelog is not None
        and (spec.changelog.partitions is None or spec.partition.partition < spec.changelog.partitions)
    ]


def _row(spec: StorePartitionSpec, logs: Mapping[TopicPartition, LogRange]) -> Listed:
    log = logs.get(spec.partition) if len(spec.partitions) == 1 else None
    record = read_record(spec.paths, spec.store.name)
    note = ""
    if not spec.store.logged:
        note = "it has no changelog (logged: false)"
    elif spec.changelog is None:
        note = f"topic {spec.partition.topic} does not exist"
    elif spec.partition not in logs:
        note = f"topic {spec.partition.topic} has {spec.changelog.partitions} partitions"
    return Listed(
        application=spec.application,
        store=spec.store.name,
        task=str(spec.task),
        kind=spec.store.kind,
        format=spec.store.format.value,
        retention_ms=spec.store.retention_ms,
        changelog=spec.partition.topic if spec.store.logged else "",
        committed=committed_of(record),
        start=log.start if log else None,
        end=log.last_stable if log else None,
        state=_state(spec),
        note=note,
    )


def _state(spec: StorePartitionSpec) -> str:
    if not spec.live.exists():
        return "missing"
    try:
        with locked(spec.paths, wait_s=0, reading=True):
            return "sealed" if spec.paths.seal(spec.store.name).exists() else "closed"
    except LockedError:
        return "in use"
