"""The whole log of a store: in bulk, or by a replay if only a supplier knows the files of its stores."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from statestore.bulk.versions import fold_of
from statestore.changelog import brokers_clock
from statestore.errors import LockedError, StateStoreError
from statestore.kafka.topics import LogRange
from statestore.objects.path import Location
from statestore.partition.facts import Facts
from statestore.partition.plan import Need, Offer, Refusal, Request
from statestore.partition.replacement import may_lack_versions
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import LACKS_VERSIONS
from statestore.recovery.disk_space import disk_needed, is_cut, require_disk
from statestore.recovery.full import Logs, missing_changelog, plan_build, read_range, store_logs
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.rows import in_row
from statestore.recovery.runner import Part, Runner, run_parts
from statestore.recovery.sources.source import BuildResult, BuildSource, DiskNeeded, Work
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import OffsetRange, Staging, next_offsets
from statestore.recovery.tail import build_anew
from statestore.reports import RestoreRow

_log = logging.getLogger(__name__)


class WholeLogSource(BuildSource):
    """Reads all of the log."""

    name = "log"
    order = 15

    def offer(self, facts: Facts, need: Need, request: Request) -> Offer | Refusal | None:
        """Offer the log for a rebuild, unless a snapshot must have what it has lost."""
        if need.kind != "rebuild" or need.log_refused is not None:
            return None
        if facts.spec.changelog is None:
            return Refusal(missing_changelog(facts.spec))
        logs = facts.asked_log.all_logs
        return Offer("log", "full", replayed=sum(log.last_stable - log.start for log in logs.values()))

    def prepares(self, spec: RestoreSpec) -> bool:
        """Return whether ranges of the log are read ahead onto the disk that all workers share."""
        return is_cut(spec) and spec.store.home.disks_are_shared

    def prepare(self, specs: Sequence[RestoreSpec], run: Runner, progress: Location) -> list[RestoreSpec]:
        """Turn ranges of logs into sorted runs, each by itself."""
        parts: list[Part[OffsetRange]] = []
        for spec in filter(self.prepares, specs):
            try:
                ranges = begin_ranges(spec)
            except (StateStoreError, OSError):
                continue
            parts += [Part(spec, part, f"{number}/{len(ranges)}") for number, part in enumerate(ranges, 1)]
        for row in run_parts(parts, restore_range, run, progress):
            if row.failure is not None:
                _log.warning("restore: a range of %s is read again: %s", row.label, row.failure.message)
        return list({part.spec.store: part.spec for part in parts}.values())

    def resumable(self, spec: RestoreSpec, logs: Logs) -> int:
        """Return the number of offsets whose sorted runs are on this disk."""
        staging = Staging(spec.store.paths, spec.store.store.name)
        plan = staging.plan()
        if plan is None:
            return 0
        return sum(at - part.start for part, at in next_offsets(staging, plan.ranges).items())

    def disk(self, spec: RestoreSpec, log_bytes: int, offsets: int) -> DiskNeeded:
        """Return the space for sorted runs of all ranges, and for the store."""
        return DiskNeeded(disk_needed(log_bytes, spec.run_bytes, offsets, spec.ranges))

    def build(self, work: Work) -> BuildResult:
        """Build the store from all of its log."""
        require_disk(work.spec, "full", work.logs)
        built = build_anew(work.spec, work.staging, work.logs, work.progress, work.asked_ms)
        keys = self.checked(work, built)
        return BuildResult(built, keys, is_exact(work.store, work.log))


def begin_ranges(spec: RestoreSpec) -> tuple[OffsetRange, ...]:
    """Fix what is read to rebuild a store, and return its ranges for `restore_range`.

    `restore` then takes over their sorted runs. None of this needs the task's lock: the live store is not touched.

    Raises
    ------
    LockedError
        If another restore of this store is at work.
    """
    staging, asked_ms = Staging(spec.store.paths, spec.store.store.name), brokers_clock.now_ms(spec.store.cluster)
    logs = store_logs(spec.store)
    with staging.alone(spec.store.lock_wait_s):
        staging.clear_unfinished()
        require_disk(spec, "full", logs)
        plan = plan_build(spec, staging, logs, asked_ms)
        staging.before_a_run()  # others will write them
        return plan.ranges


def restore_range(item: Part[OffsetRange]) -> RestoreRow:
    """Turn one range of a store's log into sorted runs on disk; a failure becomes part of the row."""
    spec, part, name = item
    store = spec.store
    staging = Staging(store.paths, store.store.name)

    def work(row: RestoreRow) -> RestoreRow:
        with (
            staging.reading(store.lock_wait_s),
            staging.reading_range(part, store.lock_wait_s),
            RestoreProgressWriter(store, spec.progress, name) as progress,
        ):
            plan = staging.plan()
            if plan is None or part not in plan.ranges:
                raise LockedError(
                    f"another restore of {store.store_partition} has started in the meantime. Run it again"
                )
            progress.reading(part.start, part.end)
            runs, resumed = read_range(spec, staging, part, progress, fold_of(spec.store.store), keep_in_memory=False)
            figures = {"outcome": "restored", "start": part.start, "end": part.end, "resumed": resumed}
            return row.model_copy(update={**figures, "records": sum(found.records for found in runs)})

    return in_row(store, work)


def is_exact(store: StorePartitionSpec, log: LogRange) -> bool | None:
    """Return whether a rebuild has all versions of its keys; None if each key has only one.

    A warning names what compaction may have removed.
    """
    if store.store.compaction_keeps_rows:
        return None
    lacks = may_lack_versions(store, log.last_stable - 1, log)
    if lacks:
        _log.warning("restore: %s is built from its log alone, and %s", store.store_partition, LACKS_VERSIONS)
    return not lacks


SOURCE = WholeLogSource()
