"""What must come of a fault: it is found or did no harm; a restore mends it; the damaged files are kept.

Nothing else is accepted: a store that is called whole has the rows of its changelog, whatever was done to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from statestore.errors import RebuildError
from statestore.reports import Action, Loss, Status, VerifyRow
from statestore.verification.options import Depth
from tests.faults.damage.places import Place
from tests.faults.damage.stores import Copy, Original, files_of

#: Without its record, it is not known when a store was whole.
_OF_RECORD = {Status.LAGGING}
#: RocksDB takes some damage for the end of a MANIFEST. What it forgets then, it forgets whole: rows and offsets.
_OF_MANIFEST = {Status.CORRUPT, Status.LAGGING, Status.UNCLEAN, Status.DIVERGED, Status.WRONG_OFFSET}
#: A proof may show which tail corrects a store that is to be rebuilt (docs/proof.md).
_PROVABLE = {Status.UNCLEAN, Status.LAGGING}


def suffer(original: Original, place: Place, depth: Depth = "scan") -> Status:
    """Damage a copy at a place and judge what comes of it. Return what was found."""
    copy = original.copy(sealed=place.sealed, only=place.store)
    try:
        place.inflict(copy)
        found = judge(copy, place.store, _allowed(place), must_be_found=place.must_be_found, depth=depth)
    except BaseException as error:
        error.add_note(str(place))
        raise
    copy.remove()
    return found


def _allowed(place: Place) -> set[Status]:
    if place.kind == "record":
        return _OF_RECORD
    return _OF_MANIFEST if place.kind == "MANIFEST" and not place.sealed else {Status.CORRUPT}


def judge(
    copy: Copy,
    store: str,
    allowed: Collection[Status],
    *,
    action: Action | None = None,
    must_be_found: bool = True,
    depth: Depth = "scan",
) -> Status:
    """Verify a damaged store, restore it, verify it again; return what was found.

    Parameters
    ----------
    allowed
        Statuses that say what is wrong.
    action
        What must follow; None: whatever mends it.
    must_be_found
        Whether it may not be called whole even if its rows are right.
    """
    live = copy.live(store)
    damaged = files_of(live)
    found = copy.verify(store, depth)
    assert files_of(live) == damaged, "verification changed the store"
    if found.healthy:
        assert _reads_as_expected(copy, store), f"missed: called {found.status}, and is not whole"
        assert not must_be_found, f"missed: called {found.status}"
    else:
        assert found.status in allowed, f"taken for {found.status}: {found.detail}"
        assert found.detail, f"{found.status} without a reason"
        assert action in (None, found.action), f"to be mended by {found.action}: {found.detail}"
    mend(copy, store, found, damaged, depth)
    return found.status


def _reads_as_expected(copy: Copy, store: str) -> bool:
    try:
        return copy.contents(store) == copy.original.expected(store)
    except RebuildError:
        return False


def mend(copy: Copy, store: str, found: VerifyRow, damaged: dict[str, bytes], depth: Depth = "scan") -> None:
    """Restore a store as its verification says; the damaged files are in quarantine, the rows are the changelog's."""
    expected, live = copy.original.expected(store), copy.live(store)
    # A restore looks at a store as a scan does: one that only its log gives away is rebuilt when that is asked for.
    forced = found.status.is_found_by_rows
    row = copy.restore(store, force=forced, accept_loss=_waits_for_loss(found))
    assert row.failure is None, f"not restored: {row.failure}"
    if found.healthy:
        assert row.mode is None, f"a whole store was restored: {row}"
        assert files_of(live) == damaged, "a store that was skipped was changed"
    else:
        assert row.outcome == "restored", f"found {found.status}, then {row}"
        assert forced or row.before is found.status, f"found {found.status}, restored as {row.before}"
        modes = {"tail"} if found.action is Action.TAIL else {"full"}
        assert row.mode in modes | ({"tail"} if found.status in _PROVABLE else set())
        kept = {} if row.quarantine is None else files_of(Path(row.quarantine))
        assert kept == damaged, f"the damaged files are not those in quarantine {row.quarantine}"
    assert copy.contents(store) == expected, "O1: the restored store is not its changelog's fold"
    again = copy.verify(store, depth)
    assert again.status is (Status.OK if expected else Status.EMPTY), (
        f"after the restore: {again.status}: {again.detail}"
    )


def _waits_for_loss(found: VerifyRow) -> bool:
    """Return whether only what a rebuild would lose is in its way."""
    return found.action is Action.BY_HAND and found.loss is Loss.LIKELY and found.topic_id is not None


def failures(original: Original, drawn: Iterable[Place], depth: Depth = "scan") -> list[str]:
    """Let copies suffer at all places; return what was wrong instead of stopping at the first."""
    failed = []
    for place in drawn:
        try:
            suffer(original, place, depth)
        except Exception as error:
            failed.append(f"{place}: {type(error).__name__}: {error}")
    return failed
