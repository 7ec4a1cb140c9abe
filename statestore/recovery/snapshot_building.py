"""Making a snapshot from the log alone, or from an earlier snapshot and the rest of the log.

The application is not touched, and need not stop: the store is built in a directory of its own, published, and removed.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from statestore import clock
from statestore.errors import StateStoreError, StoreBehindLogStartError
from statestore.partition.changelog_time import stream_time_at_least
from statestore.partition.judgement import Had, Supply, rebuild_loss
from statestore.partition.snapshots import publish_row
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.planning import store_logs
from statestore.recovery.restore import failed, restore
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Loss, RestoreRow
from statestore.requests.restore import RestoreRequest


def snapshot_from_log(
    store: StorePartitionSpec,
    label: str,
    run_bytes: int,
    scratch: Path,
    progress: Path | None = None,
    *,
    accept_loss: bool = False,
) -> RestoreRow:
    """Build a store partition beside all that is there, and publish it; a failure of ours becomes part of the row.

    Parameters
    ----------
    label
        Names the run.
    run_bytes
        Bound of a sorted run in memory.
    scratch
        Directory with room for the store; what is made in it is removed.
    progress
        Directory in which it says how far it is; None: nowhere.
    accept_loss
        Build it from the log alone, also where that has lost something: its snapshots begin a new generation.
    """
    with TemporaryDirectory(prefix=f"snapshot-{store.store.name}-", dir=scratch) as directory:
        there = store.model_copy(update={"state_dir": Path(directory) / "state"})
        request = RestoreRequest(mode="full" if accept_loss else "snapshot", accept_loss=accept_loss)
        spec = RestoreSpec(there, request, label, run_bytes, progress=progress, publish=False)
        try:
            built = restore(spec)
            if built.failure is not None:
                return built
            if built.mode == "full" and not accept_loss:
                require_complete_log(store)
        except (StateStoreError, OSError) as error:
            return failed(spec, error)
        assert store.archive is not None
        published = publish_row(there, store.archive, "snapshot")
        return built.model_copy(update={"published": published, "failure": published.failure})


def require_complete_log(store: StorePartitionSpec) -> None:
    """Refuse a log that has lost something which its store may have had: its fold would lack that.

    Raises
    ------
    StoreBehindLogStartError
        With the offsets.
    """
    log = store_logs(store)[store.partition]
    time = None
    if store.store.retention_ms is not None and log.start:
        time = stream_time_at_least(store, log)
    lost = rebuild_loss(
        Had(anything=True),
        Supply(store.changelog, log, stream_time=time),
        retention_ms=store.store.retention_ms,
        now_ms=clock.now_ms(),
    )
    if lost.loss is Loss.LIKELY:
        raise StoreBehindLogStartError(
            f"{store.store_partition}: {lost.why}: a snapshot of that log would lack what came before; have `process` "
            "publish the store itself, or begin with an earlier snapshot"
        )
