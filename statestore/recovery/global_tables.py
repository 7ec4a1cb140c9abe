"""Restoring a global table: all partitions of its topic into one database, beside the live one, checked, swapped.

The rows are those that Kafka Streams gives it when it fills it: of each key the last record, and of a key that several
partitions have that of the last of them. The offsets are the next to read, so Kafka Streams reads on from there.
Records without a key are left out, and records that the application could not read are not, as Kafka Streams does not
look into them either when it fills a table.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from statestore import kill_switch
from statestore.changelog import brokers_clock
from statestore.changelog.topics import LogRange
from statestore.errors import StateStoreError, StoreBehindLogStartError
from statestore.model import TopicPartition
from statestore.partition.quarantine import clean_quarantine
from statestore.partition.replacement import clear_built
from statestore.recovery.full import build_full
from statestore.recovery.global_mode import decide_global
from statestore.recovery.older_layout import move_offsets_out
from statestore.recovery.planning import require_disk, store_logs
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staged_check import check_staged
from statestore.recovery.staging import Staging
from statestore.reports import Loss, RestoreRow, VerifyRow
from statestore.statedir.record import StoreRecord
from statestore.statedir.seal import seal
from statestore.statedir.sidecar import Judgement
from statestore.statedir.swap import locked_task, swap
from statestore.verification.global_stores import loss_of_rebuild

_log = logging.getLogger(__name__)


def restore_global(spec: RestoreSpec, row: RestoreRow, progress: RestoreProgressWriter) -> RestoreRow:
    """Lock the global stores, and rebuild a table that is not whole; the live one is not touched before the swap.

    Raises
    ------
    InputError
        If it is not a table, or somebody must decide first.
    """
    store, name = spec.store, spec.store.store.name
    staging = Staging(store.paths, name)
    with locked_task(store.paths, store.lock_wait_s):
        whole, found = decide_global(spec, locked=True)
        row = row.model_copy(update={"before": found.status})
        with staging.alone(store.lock_wait_s):
            clear_built(store.paths)
            if whole:
                staging.clear()
                return row.model_copy(update={"outcome": "skipped", "keys": found.keys or 0})
            staging.clear_unfinished()
            asked_ms = brokers_clock.now_ms(store)
            logs = store_logs(store)
            found = _judged_again(spec, found, logs)
            require_disk(spec, "full", logs)
            built = build_full(spec, staging, logs, progress, asked_ms)
            progress.phase("checking")
            keys = check_staged(store, built, spec.request.check)
            kill_switch.reached("restore, built, not swapped")
            assert store.changelog is not None, "its topic was read"
            loss = found.loss or Loss.UNPROVEN
            quarantine = swap(
                store.paths,
                store.store,
                spec.label,
                store.partitions,
                verdict=Judgement(found.status, loss, found.loss_detail),
                record=StoreRecord(
                    topic_id=store.changelog.topic_id, caught_up_ms=built.since_ms, restored_by=spec.label
                ),
                legacy=move_offsets_out(store, built) if store.offsets_beside else (),
            )
            kill_switch.reached("restore, swapped, not sealed")
            seal(store.paths, name, store.store.store_kind)
            kill_switch.reached("restore, sealed, runs still there")
            clear_built(store.paths)
            staging.clear()
        try:
            clean_quarantine(store.paths, store.store, spec.quarantine_s)
        except (StateStoreError, OSError) as error:  # of no harm to the store, which is whole by now
            _log.warning("restore: %s: old stores in quarantine could not be removed: %s", row.label, error)
    return row.model_copy(
        update={
            "outcome": "restored",
            "mode": "full",
            "records": built.records,
            "resumed": built.resumed,
            "skipped": built.skipped,
            "keys": keys,
            "start": min(log.start for log in logs.values()),
            "end": max(log.last_stable for log in logs.values()),
            "checked": "deep" if spec.request.check == "deep" else "files",
            "digest": built.digest,
            "quarantine": None if quarantine is None else str(quarantine),
        }
    )


def _judged_again(spec: RestoreSpec, found: VerifyRow, logs: Mapping[TopicPartition, LogRange]) -> VerifyRow:
    """Judge anew what a rebuild would lose: while the table was compared, its topic may have lost its start.

    Raises
    ------
    StoreBehindLogStartError
        If it would lose something by now, and nobody accepts that.
    """
    lost = loss_of_rebuild(spec.store, logs)
    if lost.loss is not Loss.LIKELY or found.loss is Loss.LIKELY:
        return found
    if not spec.request.accept_loss:
        raise StoreBehindLogStartError(
            f"{spec.store.store_partition}: since the table was verified, {lost.why}, so a rebuild would lose data; "
            "run the restore again"
        )
    return found.model_copy(update={"loss": lost.loss, "loss_detail": lost.why})
