"""Whether a global store is rebuilt: only a table is, and only if it is not whole or somebody asks for it."""

from __future__ import annotations

from typing import NamedTuple

from statestore.errors import InputError, LockedError
from statestore.partition.judgement import waits_for_loss
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Action, Loss, Status, VerifyRow
from statestore.verification.global_stores import check_global, logs_of, loss_of_rebuild, verify_global, what_decides
from statestore.verification.options import VerifyOptions


class Decided(NamedTuple):
    """Whether a global table is whole and stays as it is, and what verification found."""

    whole: bool
    found: VerifyRow


def require_table(store: StorePartitionSpec) -> None:
    """Refuse to rebuild a global store from the bytes of its topic that is not known to be a table.

    Raises
    ------
    InputError
        Saying what decides.
    """
    if store.global_kind == "processor":
        raise InputError(
            f"{store.store_partition} is not restored: a processor of the application fills it, and its topic does "
            f"not show with what. Remove its directory: Kafka Streams fills it when it starts"
        )
    if store.global_kind is None:
        raise InputError(
            f"{store.store_partition} is not restored: it is unknown whether it is a global table or a processor "
            f"fills it. While it is intact, run `statestore verify --depth deep`, which compares it with its topic. "
            f"Or {what_decides(store.store.name)}"
        )


def decide_global(spec: RestoreSpec, *, locked: bool = False) -> Decided:
    """Verify a global table, and decide whether it is rebuilt.

    Parameters
    ----------
    locked
        The caller holds its lock.

    Raises
    ------
    InputError
        If it cannot be rebuilt, or not in the way asked for.
    LockedError
        If it could not be looked at.
    """
    store, request = spec.store, spec.request
    require_table(store)
    if request.mode not in ("auto", "full"):
        raise InputError(f"{store.store_partition} is a global table: restore it in mode full, not {request.mode}")
    # Whoever has only its rows' word for it asks them again before they are replaced.
    options = VerifyOptions("scan" if store.global_said else "deep", run_bytes=spec.run_bytes)
    found = check_global(store, options) if locked else verify_global(store, options)
    if found.action is Action.LATER:
        raise LockedError(f"{found.label} could not be verified ({found.status}): {found.detail}; try again later")
    if found.status in (Status.OK, Status.EMPTY) and not request.force:
        return Decided(True, found)
    if found.loss is None:
        lost = loss_of_rebuild(store, logs_of(store))
        found = found.model_copy(update={"loss": lost.loss, "loss_detail": lost.why})
    if found.loss is Loss.LIKELY and not request.accept_loss:
        raise InputError(
            f"{found.label} is {found.status}, and is not rebuilt, because a rebuild would lose data: "
            f"{found.loss_detail}"
            "; to rebuild it anyway, and keep the present store in quarantine, add --accept-loss"
        )
    if found.action is Action.BY_HAND and not waits_for_loss(found) and not (request.force and store.global_said):
        raise InputError(f"{found.label} is {found.status} and needs a manual decision: {found.detail}")
    return Decided(False, found)
