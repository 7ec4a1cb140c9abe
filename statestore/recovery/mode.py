"""The mode of a restore, from the result of verification, the request, and the archive."""

from __future__ import annotations

from typing import Literal, NamedTuple

from statestore.archive.grown_from import put_in_place_by
from statestore.archive.snapshots import history
from statestore.errors import InputError, LockedError
from statestore.partition.archived import known_of, lives_in_archive
from statestore.partition.generations import snapshot_directory
from statestore.partition.judgement import Lost, may_be_archived, waits_for_loss
from statestore.partition.snapshots import Needs, archived_loss, newest_snapshot
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Action, Loss, Status, VerifyRow
from statestore.requests.restore import Mode
from statestore.statedir.record import read_record
from statestore.stores.rocksdb import exists

_ACCEPT = "to rebuild it anyway, and keep the present store in quarantine, add --accept-loss"


class DecidedMode(NamedTuple):
    """How a store partition is restored.

    Attributes
    ----------
    mode
        None: it is not.
    found
        What verification found; of a store that only the archive knows, with what a rebuild would lose of that.
    needs
        The log has lost its start: what a snapshot must have so that nothing is lost. None: it is not only that.
    """

    mode: Literal["tail", "snapshot", "full"] | None
    found: VerifyRow
    needs: Needs | None


def decide_mode(spec: RestoreSpec, found: VerifyRow) -> DecidedMode:
    """Decide how to restore a store partition.

    Raises
    ------
    InputError
        If it cannot be restored, or not in the way asked for.
    LockedError
        If it could not be looked at.
    ArchiveAccessError, ArchiveUnavailableError
        If only the archive may know what the store had, and does not answer.
    """
    decided = _decide(spec, found)
    if decided.mode == "full":
        require_not_chosen(spec, found)
    return decided


def require_not_chosen(spec: RestoreSpec, found: VerifyRow) -> None:
    """Refuse to rebuild from its log alone what a person has put in place, unless it is damaged.

    Raises
    ------
    InputError
        Saying by what it is here, if nobody accepts a loss.
    """
    # A comparison with its log says what this one is; what only looks at offsets and blocks finds it well.
    usable = found.action in (Action.NONE, Action.TAIL)
    if usable and not spec.request.accept_loss and (chosen := _put_in_place_by(spec.store)):
        raise InputError(
            f"{found.label} is not rebuilt: it is here by {chosen}, so its log need not give it; {_ACCEPT}"
        )


def _put_in_place_by(store: StorePartitionSpec) -> str | None:
    if lives_in_archive(store):
        newest = known_of(store)
        return None if newest is None else newest.by_hand
    return put_in_place_by(store.paths, store.store.name)


def _decide(spec: RestoreSpec, found: VerifyRow) -> DecidedMode:
    store, request = spec.store, spec.request
    if lives_in_archive(store):
        return _decide_archived(spec, found)
    undecided = found.action is Action.LATER or (found.action is Action.BY_HAND and not waits_for_loss(found))
    held = None if undecided else _only_in_archive(store, found)
    if held is not None:
        lost, needs = held
        cause = {"loss": lost.loss, "loss_detail": lost.why, "loss_cause": lost.status}
        return DecidedMode(_mode_by_archive(spec, lost), found.model_copy(update=cause), needs)
    if is_made_empty(store, found) and request.mode != "tail":
        return DecidedMode("full", found, None)
    archived = store.archive is not None and not spec.diverged
    mode = choose_mode(request.mode, request.force, found, accept_loss=request.accept_loss, archived=archived)
    covers = archived and may_be_archived(found)
    return DecidedMode(mode, found, Needs.of(read_record(store.paths, store.store.name)) if covers else None)


def is_made_empty(store: StorePartitionSpec, found: VerifyRow) -> bool:
    """Tell whether a store is made although its log has nothing for it.

    Exactly once, Kafka Streams 4.3 discards all stores of a task if one of them does not say how far it is. A store
    without a database says nothing, nor does a window or session store without a segment.
    """
    if store.owned or store.is_global or not store.exactly_once or found.status is not Status.EMPTY:
        return False
    return not any(exists(database) for database in store.store.store_kind.databases(store.live))


def _decide_archived(spec: RestoreSpec, found: VerifyRow) -> DecidedMode:
    """Decide by what the archive has: that is the store, so its snapshot and the tail are what else a tail alone is."""
    store, request = spec.store, spec.request
    archived = not spec.diverged
    mode: Literal["tail", "snapshot", "full"] | None = "snapshot"
    begins = found.action is Action.TAIL or (found.action is Action.NONE and request.force)
    if request.mode == "full" or not begins or (request.mode == "auto" and request.force):
        mode = choose_mode(request.mode, request.force, found, accept_loss=request.accept_loss, archived=archived)
    known = known_of(store) if archived and may_be_archived(found) else None
    return DecidedMode("snapshot" if mode == "tail" else mode, found, None if known is None else Needs.of(known.record))


def choose_mode(
    asked: Mode, force: bool, found: VerifyRow, *, accept_loss: bool = False, archived: bool = False
) -> Literal["tail", "snapshot", "full"] | None:
    """Decide what to do with a store partition; None if it is whole. Pure.

    Parameters
    ----------
    archived
        It has an archive. A snapshot that its log still continues has what the log has lost at its start.

    Raises
    ------
    InputError
        If it cannot be restored, or not in the way asked for.
    LockedError
        If it could not be looked at.
    """
    if archived and asked in ("auto", "snapshot") and waits_for_loss(found) and may_be_archived(found):
        return "snapshot"
    if waits_for_loss(found) and accept_loss:
        found = found.model_copy(update={"action": Action.FULL})
    if found.action is Action.BY_HAND:
        advice = f"; {_ACCEPT}" if waits_for_loss(found) else ""
        raise InputError(f"{found.label} is {found.status} and needs a manual decision: {found.detail}{advice}")
    if found.action is Action.LATER:
        raise LockedError(f"{found.label} could not be verified ({found.status}): {found.detail}; try again later")
    if found.action is Action.NONE and not force:
        return None
    if asked == "tail" and found.action is Action.FULL:
        raise InputError(f"{found.label} is {found.status}, which mode tail cannot repair. Use mode full")
    if asked in ("full", "snapshot") or (asked == "auto" and (force or found.action is Action.FULL)):
        if found.loss is Loss.LIKELY and not accept_loss:
            raise InputError(
                f"{found.label} is {found.status}, and is not rebuilt, because a rebuild would lose data: "
                f"{found.loss_detail}; {_ACCEPT}"
            )
        return "snapshot" if asked == "snapshot" else "full"
    return None if found.action is Action.NONE else "tail"


def _only_in_archive(store: StorePartitionSpec, found: VerifyRow) -> tuple[Lost, Needs | None] | None:
    """Say what the log can no longer give of a store that only the archive knows; None: it can, or more is known here.

    Where the node was lost, neither store nor record tells what there was. What `process` began there since, and never
    committed, does not either.
    """
    if store.archive is None or store.is_global or found.committed is not None:
        return None
    record = read_record(store.paths, store.store.name)
    if record is not None and record.committed is not None:
        return None
    objects = store.archive.open()
    snapshots = history(objects, snapshot_directory(store, store.archive))
    newest = newest_snapshot(objects, snapshots)
    lost = archived_loss(store, snapshots, newest)
    had = None if newest is None else newest.record
    more = (had is not None and had.adopted) or not store.store.compaction_keeps_rows  # than the log may have
    if lost is None or lost.loss is Loss.NONE or (lost.loss is Loss.UNPROVEN and not more):
        return None
    if lost.loss is Loss.LIKELY and lost.status is not Status.TRUNCATED:
        return lost, None
    return lost, Needs.of(had)


def _mode_by_archive(spec: RestoreSpec, lost: Lost) -> Literal["snapshot", "full"]:
    request = spec.request
    if request.mode in ("auto", "snapshot") and (
        lost.loss is not Loss.LIKELY or lost.status is Status.TRUNCATED or request.accept_loss or request.snapshot
    ):
        return "snapshot"
    if request.mode == "full" and (request.accept_loss or lost.loss is not Loss.LIKELY):
        return "full"
    way = "mode snapshot, or " if lost.status is Status.TRUNCATED else ""
    raise InputError(
        f"{spec.store.store_partition} is not rebuilt from its log: {lost.why}, and the archive has more; use {way}"
        "mode full and --accept-loss"
    )
