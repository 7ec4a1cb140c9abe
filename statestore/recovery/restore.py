"""Restoring one store partition: build beside the live store, check, swap.

The live store is not touched before the swap. An interrupted restore has changed nothing; run again, it goes on behind
the sorted runs that it left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from statestore import kill_switch
from statestore.archive.grown_from import beginning
from statestore.archive.manifest import Manifest
from statestore.changelog import brokers_clock
from statestore.durable import remove_tree
from statestore.errors import ChangelogReplacedError, LockedError, RetryError, StateStoreError, StoreBehindLogStartError
from statestore.kafka.cluster import Cluster
from statestore.model import TopicPartition
from statestore.partition.facts import Facts
from statestore.partition.generations import newest_generation
from statestore.partition.quarantine import clean_quarantine
from statestore.partition.replacement import clear_built
from statestore.partition.snapshots import publish_row, suspect_all
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import Verdict
from statestore.recovery.as_of import built_before, claim_target, in_target, point_and_target, require_free_target
from statestore.recovery.as_of_source import point_source, still_exact
from statestore.recovery.deciding import decide, examine_store
from statestore.recovery.disk_space import require_disk, require_disk_for_snapshot, require_spare_bytes
from statestore.recovery.full import Built, Logs
from statestore.recovery.homes import done_on_disk, home_of
from statestore.recovery.older_layout import move_offsets_out
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.rows import failed_row, in_row
from statestore.recovery.snapshot import build_from_snapshot, seal_new
from statestore.recovery.sources import all_sources, source_of
from statestore.recovery.sources.source import BuildResult, BuildSource, Work, record_of
from statestore.recovery.spec import RestoreSpec as RestoreSpec
from statestore.recovery.staged_check import check_staged
from statestore.recovery.staging import Staging
from statestore.recovery.tail import build_anew
from statestore.recovery.unlogged import restore_unlogged
from statestore.reports import RestoreRow
from statestore.requests.verify import Depth
from statestore.statedir.record import StoreRecord
from statestore.statedir.sidecar import Judgement
from statestore.statedir.swap import locked_task, swap
from statestore.verification.gathering import NOT_ASKED, AskedLogs
from statestore.verification.options import VerifyOptions

_log = logging.getLogger(__name__)
#: After a build that took less, the changelog is not asked for again: it would cost more than the build.
_QUICK_S = 5.0


def restore(spec: RestoreSpec, before: AskedLogs = NOT_ASKED) -> RestoreRow:
    """Lock the task and restore its store; a failure of ours becomes part of the row, so that others go on.

    Parameters
    ----------
    before
        Logs that were asked for a moment ago; see `log_facts`.
    """

    def work(row: RestoreRow) -> RestoreRow:
        room = partial(require_spare_bytes, spec) if spec.keep_free else None
        with RestoreProgressWriter(spec.store, spec.progress, keep_free=room) as progress:
            if not spec.store.store.logged:
                row = restore_unlogged(spec, row, progress)
            elif spec.request.mode == "as-of":
                row = _restore_as_of(spec, row, progress)
            else:
                row = _restore_live(spec, row, progress, before)
            progress.end_phase()
            return row.model_copy(update={"phase_seconds": progress.phase_seconds})

    return in_row(spec.store, work)


# -- the live store ---------------------------------------------------------------------------------------------------


def _restore_live(spec: RestoreSpec, row: RestoreRow, progress: RestoreProgressWriter, before: AskedLogs) -> RestoreRow:
    store = spec.store
    with locked_task(store.paths, store.lock_wait_s):
        row = _attempts(spec, row, progress, before)
        if row.failure is not None:
            return row
        try:
            clean_quarantine(store.paths, store.store, spec.quarantine_s)
        except (StateStoreError, OSError) as error:  # of no harm to the store, which is healthy by now
            _log.warning("restore: %s: old stores in quarantine could not be removed: %s", row.label, error)
    return row


def _attempts(spec: RestoreSpec, row: RestoreRow, progress: RestoreProgressWriter, before: AskedLogs) -> RestoreRow:
    cluster = spec.store.cluster
    for last_attempt in (False, True):
        # With --force, skip the scan.
        depth: Depth = "offsets" if spec.request.force and spec.request.mode != "tail" else "scan"
        options = VerifyOptions(depth=depth, before=NOT_ASKED if last_attempt else before)
        facts, verdict = examine_store(spec, options, cluster)
        row = row.model_copy(update={"before": verdict.status})
        try:
            return _carry_out(spec, row, facts, verdict, progress, cluster)
        except StoreBehindLogStartError as error:  # retention was faster: what would be lost is judged anew, too
            if last_attempt:
                return failed_row(row, error)
        except (StateStoreError, OSError) as error:
            return failed_row(row, error)
    raise AssertionError("the last attempt returns")


def _carry_out(
    spec: RestoreSpec,
    row: RestoreRow,
    facts: Facts,
    verdict: Verdict,
    progress: RestoreProgressWriter,
    cluster: Cluster,
) -> RestoreRow:
    """Plan the restore, build the store, and put it in place."""
    store = spec.store
    facts, made = decide(spec, facts, verdict, cluster)
    staging, started = Staging(store.paths, store.store.name), time.monotonic()
    with staging.alone(store.lock_wait_s):
        if made.source is None:
            _clear(store, staging)  # a killed restore may have left something, and the store was repaired since
            if spec.publish:
                _clean(store)
            figures = {"keys": verdict.keys or 0, "committed": verdict.committed}
            return row.model_copy(update={**home_of(store).done_before(spec), **figures})
        clear_built(store.paths)  # what a killed attempt left needs the room
        staging.clear_unfinished()
        given_up: tuple[str, ...] = ()
        while True:
            if made.mode == "full" and spec.request.mode == "snapshot":
                _log.warning("restore: %s: no snapshot can be used; it is rebuilt from its log alone", row.label)
            work = Work(spec, facts, made, staging, progress)
            source = source_of(made.source)
            try:
                result = source.build(work)
                break
            except StateStoreError as error:
                with suppress(RetryError):  # the first error counts
                    _require_same_log(work, cluster)
                if not source.may_replan(work, error):
                    raise
                given_up += (f"{made.snapshot or made.source}: {error}",)
            facts = facts._replace(failed=facts.failed | {made.snapshot or made.source})
            facts, made = decide(spec, facts, verdict, cluster)
            if made.source is None:
                raise AssertionError("a store that needs something does not become healthy while it is built")
        if time.monotonic() - started > _QUICK_S:
            _require_same_log(work, cluster)
        kill_switch.reached("restore, built, not swapped")
        row = row.model_copy(update={"failed_sources": (*given_up, *_unreadable(facts))})
        return _put_in_place(work, source, result, row)


def _unreadable(facts: Facts) -> Iterator[str]:
    """Name the snapshots whose manifests cannot be read; one that the log does not continue is only too old."""
    for candidate in facts.known_archive.candidates:
        if candidate.manifest is None and candidate.refused is not None:
            yield f"{candidate.name}: {candidate.refused}"


def _require_same_log(work: Work, cluster: Cluster) -> None:
    """Refuse what was built if the changelog was deleted or recreated since the restore was planned.

    Raises
    ------
    ChangelogReplacedError
        With the ids of the topics.
    """
    topic, expected = work.store.partition.topic, work.plan.topic_id
    found = cluster.topics.describe({topic}).get(topic)
    if found is None or found.topic_id != expected:
        now = "does not exist" if found is None else f"is topic {found.topic_id}"
        raise ChangelogReplacedError(
            f"{topic} was topic {expected} when the restore of {work.store.store_partition} was planned, and now "
            f"{now}. The live store is untouched. Run the restore again"
        )


def _put_in_place(work: Work, source: BuildSource, result: BuildResult, row: RestoreRow) -> RestoreRow:
    """Swap the new store with the live one, seal it, and publish it."""
    spec, made, store, built = work.spec, work.plan, work.store, result.built
    home = home_of(store)
    record = source.record(work, built)
    if made.adopted:  # its log does not give it, so a rebuild would not either
        record = record.model_copy(update={"adopted": True})
    begins = made.begins or (made.begins_if_inexact if result.exact is False else "")
    lineage = home.lineage(work, begins)
    verdict = home.replaced_verdict(work)
    replaced = home.keep_replaced(work)
    if made.suspects:
        suspect_all(store, made.suspects)
    quarantine = _swap_in(spec, built, record, verdict, lineage, work.snapshot)
    _clear(store, work.staging)
    published = publish_row(store, "restore", built.uploaded) if made.publishes else None
    if spec.publish and (published is None or published.failure is None):
        _clean(store)
    if published is not None and published.failure is not None and begins and not store.home.disks_are_shared:
        # Until its generation has begun, it is only a copy that nobody uses.
        row = row.model_copy(update={"failure": published.failure})
    done: dict[str, object] = {
        "mode": made.mode,
        "keys": result.keys,
        "exact": result.exact,
        "quarantine": home.kept(quarantine),
        "replaced": replaced,
        "published": published,
        "snapshot": made.snapshot,
    }
    return row.model_copy(update={**_figures(built, work.logs, spec), **done})


def put_in_place(spec: RestoreSpec, built: Built, logs: Logs, verdict: Judgement, begins: str) -> Path | None:
    """Put a staged store that was built from its whole log, and checked, in the place of the live one.

    The caller holds the task's lock and the runs.

    Parameters
    ----------
    verdict
        What the live store is, and what the new one may lack of it.
    begins
        Why the new one begins a generation of snapshots.

    Returns
    -------
    Path or None
        Where the old store is now; None if there was none.
    """
    store = spec.store
    record = record_of(spec, built, logs, built.since_ms)
    lineage = beginning(begins, newest_generation(store)) if begins else home_of(store).lineage_of_log()
    quarantine = _swap_in(spec, built, record, verdict, lineage, None)
    _clear(store, Staging(store.paths, store.store.name))
    return quarantine


def _swap_in(
    spec: RestoreSpec,
    built: Built,
    record: StoreRecord,
    verdict: Judgement,
    grown: str | None,
    snapshot: Manifest | None,
) -> Path | None:
    store = spec.store
    quarantine = swap(
        store.paths,
        store.store,
        spec.label,
        store.partitions,
        verdict=verdict,
        record=record,
        grown_from=grown,
        legacy=_offsets_beside(store, built),
    )
    seal_new(store, snapshot)
    kill_switch.reached("restore, sealed, runs still there")
    return quarantine


def _clean(store: StorePartitionSpec) -> None:
    """Remove what sources have prepared."""
    for source in all_sources():
        source.clean(store)


def _clear(store: StorePartitionSpec, staging: Staging) -> None:
    clear_built(store.paths, store.store.name)
    staging.clear()


def _figures(built: Built, logs: Logs, spec: RestoreSpec) -> dict[str, object]:
    return {
        "outcome": "restored",
        "records": built.records,
        "resumed": built.resumed,
        "skipped": built.skipped,
        "committed": built.committed_offset,
        "start": min(log.start for log in logs.values()),
        "end": max(log.last_stable for log in logs.values()),
        "checked": "deep"
        if spec.request.check == "deep" and spec.store.store.files_are_known
        else "files"
        if built.rows is not None
        else "rows",
        "digest": built.digest,
    }


# -- as of a point ----------------------------------------------------------------------------------------------------


def _restore_as_of(spec: RestoreSpec, row: RestoreRow, progress: RestoreProgressWriter) -> RestoreRow:
    as_of, target = point_and_target(spec)
    asked_ms, store = brokers_clock.now_ms(spec.store.cluster), in_target(spec)
    there = spec._replace(store=store)
    staging = Staging(store.paths, store.store.name)
    claimed = not require_free_target(target, spec.store.state_dir, as_of)
    # What is there already was read when the log may have had more.
    source = None if claimed and built_before(store) else point_source(spec)
    claim_target(target, spec.store.state_dir, as_of)
    with locked_task(store.paths, store.lock_wait_s), staging.alone(store.lock_wait_s):
        if (built_store := built_before(store)) is not None:
            _clear(store, staging)
            exact = bool(built_store.exact)
            there_already = {**done_on_disk(there), "mode": "as-of", "exact": exact, "directory": str(store.live)}
            return row.model_copy(update=there_already)
        if source is None:
            raise LockedError(f"{store.live} was removed in the meantime. Run the restore again")
        logs, snapshot = source.logs, source.snapshot
        clear_built(store.paths)
        staging.clear_unfinished()
        if snapshot is None:
            require_disk(there, "full", logs)
            built = build_anew(there, staging, logs, progress, asked_ms)
            progress.phase("checking")
            keys = check_staged(store, built, spec.request.check)
            record = record_of(there, built, logs, 0)  # it never had all of the log: its tail may lack deletes
        else:
            require_disk_for_snapshot(there, snapshot)
            # As of a point nobody asks whether deletes behind it are left.
            built, keys = build_from_snapshot(there, snapshot, logs, progress, asked_ms, by_hand=True)
            known = {"caught_up_ms": 0, "committed": built.committed_offset, "end": None, "epoch": None}
            record = snapshot.record.model_copy(update={**known, "restored_by": spec.label})
        exact = still_exact(spec, source)
        record = record.model_copy(update={"exact": exact})
        remove_tree(store.live)  # an attempt that was killed before it was sealed
        swap(store.paths, store.store, spec.label, store.partitions, record=record)
        seal_new(store, snapshot)
        _clear(store, staging)
    done = {"mode": "as-of", "keys": keys, "exact": exact, "directory": str(store.live)}
    done["snapshot"] = None if snapshot is None else str(snapshot.name)
    return row.model_copy(update={**_figures(built, logs, spec), **done})


def _offsets_beside(store: StorePartitionSpec, built: Built) -> tuple[tuple[TopicPartition, int | None], ...]:
    """Entries that the task's `.checkpoint` gets; Kafka Streams takes them over when it starts."""
    if not store.origin.offsets_are_inside:
        return move_offsets_out(store, built)
    return tuple(built.committed.items()) if store.store.store_kind.offsets_are_beside else ()
