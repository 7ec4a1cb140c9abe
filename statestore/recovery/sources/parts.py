"""Parts that several machines have built: they read ranges of the log, and merged ranges of keys."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from statestore.errors import (
    ArchiveAccessError,
    ArchiveUnavailableError,
    SnapshotError,
    StateStoreError,
    StoreCorruptedError,
)
from statestore.objects.path import Location
from statestore.partition.facts import Facts
from statestore.partition.plan import Need, Offer, Request
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.disk_space import disk_of_parts, disk_to_put_together, is_cut
from statestore.recovery.distributed import begin_build, merge_key_range, put_together, read_log_range, remove_builds
from statestore.recovery.distributed_plan import FoundBuild, builds_there
from statestore.recovery.full import Logs
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.rows import in_row
from statestore.recovery.runner import Part, Runner, run_parts
from statestore.recovery.sources.source import BuildResult, BuildSource, DiskNeeded, Work
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import OffsetRange
from statestore.reports import RestoreRow

_log = logging.getLogger(__name__)


class PartsSource(BuildSource):
    """Puts together what other machines have built."""

    name = "parts"
    order = 30

    def offer(self, facts: Facts, need: Need, request: Request) -> Offer | None:
        """Offer the parts if they were built for this restore."""
        if need.kind != "rebuild" or need.log_refused is not None or not request.parts_built:
            return None
        return Offer("parts", "full", preferred=True)

    def build(self, work: Work) -> BuildResult:
        """Fetch the files of all parts, and add the rest of the log."""
        built, keys = put_together(work.spec, work.logs, work.progress, work.asked_ms)
        return BuildResult(built, keys)

    def prepares(self, spec: RestoreSpec) -> bool:
        """Return whether machines that do not see each other's disks read the ranges of a log."""
        return is_cut(spec) and not spec.store.home.disks_are_shared

    def prepare(self, specs: Sequence[RestoreSpec], run: Runner, progress: Location) -> list[RestoreSpec]:
        """Have many machines build what is then put together."""
        begun: list[tuple[RestoreSpec, FoundBuild]] = []
        for spec in filter(self.prepares, specs):
            try:
                found = begin_build(spec)
            except (StateStoreError, OSError) as error:
                _log.warning("restore: %s is built by one task alone: %s", spec.store.store_partition, error)
                continue
            begun.append((spec._replace(build=found.directory.uuid), found))
        ranges = [
            Part(spec, part, f"{number}/{len(found.plan.reading.ranges)}")
            for spec, found in begun
            for number, part in enumerate(found.plan.reading.ranges, start=1)
            if part in found.ranges_left
        ]
        failed = _failed(run_parts(ranges, _read_log_range, run, progress))
        keys = [
            Part(spec, number, f"keys {number + 1}/{len(found.plan.key_ranges)}")
            for spec, found in begun
            for number in found.keys_left
            if str(spec.store.store_partition) not in failed
        ]
        failed |= _failed(run_parts(keys, _merge_key_range, run, progress))
        return [spec for spec, _ in begun if str(spec.store.store_partition) not in failed]

    def resumable(self, spec: RestoreSpec, logs: Logs) -> int:
        """Return the number of offsets that the build in the archive has."""
        found, _ = builds_there(spec.store, spec.store.snapshot_archive.open(), logs)
        if found is None:
            return 0
        left = found.ranges_left
        return sum(part.end - part.start for part in found.plan.reading.ranges if part not in left)

    def disk(self, spec: RestoreSpec, log_bytes: int, offsets: int) -> DiskNeeded:
        """Return the space for the store, and for a part on each node."""
        each = disk_of_parts(log_bytes, spec.run_bytes, offsets, spec.ranges)
        return DiskNeeded(max(disk_to_put_together(log_bytes), each), each)

    def clean(self, store: StorePartitionSpec) -> None:
        """Remove builds from the archive."""
        if not store.home.disks_are_shared:
            remove_builds(store)

    def may_replan(self, work: Work, error: StateStoreError) -> bool:
        """Build it from its log alone if a part cannot be used."""
        known = (SnapshotError, StoreCorruptedError, ArchiveUnavailableError, ArchiveAccessError)
        if not isinstance(error, known):
            return False
        said = "parts built on other machines are not used; this task alone builds it from its log"
        _log.warning("restore: %s: %s: %s", work.store.store_partition, said, error)
        return True


def _failed(rows: Sequence[RestoreRow]) -> set[str]:
    """Return the store partitions of which a part failed, and log why."""
    found: dict[str, str] = {row.label: row.failure.message for row in rows if row.failure is not None}
    for label, why in found.items():
        _log.warning("restore: %s is built by one task alone: a part of it failed: %s", label, why)
    return set(found)


def _read_log_range(item: Part[OffsetRange]) -> RestoreRow:
    def work(row: RestoreRow) -> RestoreRow:
        with RestoreProgressWriter(item.spec.store, item.spec.progress, item.name) as progress:
            done = read_log_range(item.spec, item.what, progress)
        figures = {"outcome": "restored", "start": done.start, "end": done.end, "records": done.records}
        return row.model_copy(update=figures)

    return in_row(item.spec.store, work)


def _merge_key_range(item: Part[int]) -> RestoreRow:
    def work(row: RestoreRow) -> RestoreRow:
        with RestoreProgressWriter(item.spec.store, item.spec.progress, item.name) as progress:
            done = merge_key_range(item.spec, item.what, progress)
        return row.model_copy(update={"outcome": "restored", "keys": done.rows, "digest": done.digest})

    return in_row(item.spec.store, work)


SOURCE = PartsSource()
