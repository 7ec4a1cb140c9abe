"""Keeping what a command has found out about the stores of applications without a definition."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from statestore import clock
from statestore.archive.archive import ArchiveSpec
from statestore.cli.selection import Chosen
from statestore.discovery.acknowledged import Acknowledgement, read_acknowledged, write_acknowledged
from statestore.discovery.directories import applications_in
from statestore.discovery.known_store import KnownStore
from statestore.discovery.known_stores_file import keep_known, learned, read_known
from statestore.discovery.older_versions import shown_layout
from statestore.discovery.shapes_file import shape_rows
from statestore.discovery.store import NOT_JUDGED, DiscoveredStore
from statestore.errors import ArchiveAccessError, ArchiveUnavailableError, InputError, StateStoreError
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import RestoreRow, Status, VerifyRow

if TYPE_CHECKING:
    from statestore.recovery.warming import WarmRow

#: A store that is so has all segments that it had, but for those that have expired.
_WHOLE = (Status.OK, Status.EMPTY, Status.LAGGING, Status.OLD_FORMAT)


def reachable(found: ArchiveSpec | None) -> ArchiveSpec | None:
    """Say in which archive it is known what stores are; None if there is none, or it does not answer now."""
    try:
        if found is not None:
            found.open()
    except (ArchiveUnavailableError, ArchiveAccessError) as error:
        print(f"statestore: continuing without the archive: {error}", file=sys.stderr)
        return None
    return found


def keep(
    chosen: Chosen,
    state_dir: Path,
    rows: Sequence[VerifyRow | RestoreRow | WarmRow],
    archive: ArchiveSpec | None = None,
) -> None:
    """Keep what was found out; say it if that cannot be, which is no fault of a store."""
    whole = {
        f"{row.application}/{row.store}/{row.task}"
        for row in rows
        if (row.status in _WHOLE if isinstance(row, VerifyRow) else row.outcome in ("restored", "warmed"))
    }
    tables = {(row.application, row.store) for row in rows if isinstance(row, VerifyRow) and row.global_kind == "table"}
    for application in chosen.known:
        specs = [spec for spec in chosen.specs if spec.application == application]
        found = _learned(
            chosen,
            application,
            state_dir,
            [spec for spec in specs if str(spec.store_partition) in whole],
            {store for name, store in tables if name == application},
            {f"{row.application}/{row.store}/{row.task}": row.committed for row in rows},
        )
        try:
            keep_known(state_dir, application, found, archive)
        except (OSError, StateStoreError) as error:
            print(
                f"statestore: could not record the descriptions of the stores of {application}: {error}",
                file=sys.stderr,
            )


def recorded(chosen: Chosen) -> list[dict[str, object]]:
    """Return what was recorded of stores without a definition: their descriptions, and the acknowledged ones."""
    rows: list[dict[str, object]] = [
        {"application": application, "store": store, **known.model_dump(mode="json", exclude={"segments", "progress"})}
        for application, stores in chosen.known.items()
        for store, known in stores.items()
    ]
    return rows + [
        {"application": store.application, "store": store.name, "acknowledged": store.acknowledged}
        for store in chosen.acknowledged
    ]


def acknowledge(chosen: Chosen, state_dir: Path, names: Sequence[str], reason: str) -> None:
    """Record that stores which cannot be judged are acknowledged.

    Raises
    ------
    InputError
        If one of them is judged, or does not exist.
    """
    for text in names:
        stores = [store for store in chosen.discovered if store.trouble in NOT_JUDGED and text in _names(store)]
        of = [(store.application, store.name) for store in stores]
        of += [(spec.application, spec.store.name) for spec in chosen.specs if spec.owned and text in _names(spec)]
        if not of:
            known = ", ".join(store.label for store in chosen.discovered if store.trouble in NOT_JUDGED) or "none"
            raise InputError(f"--acknowledge: {text!r} is no store that cannot be judged; these cannot be: {known}")
        for application, store in dict.fromkeys(of):
            before = read_acknowledged(state_dir, application)
            found = Acknowledgement(reason=reason, at_ms=clock.now_ms())
            write_acknowledged(state_dir, application, {**before, store: found})
            print(f"statestore: {application}/{store} is {found}", file=sys.stderr)


def forget(
    state_dir: Path, names: Sequence[str], applications: Sequence[str], archive: ArchiveSpec | None = None
) -> None:
    """Forget what was recorded of stores, here and in the archive: their descriptions, and acknowledgements.

    Raises
    ------
    InputError
        If nothing was.
    """
    for text in names:
        head, slash, store = text.rpartition("/")
        asked = [head] if slash else list(applications) or applications_in(state_dir)
        forgotten = False
        for application in asked:
            known, acknowledged = read_known(state_dir, application, archive), read_acknowledged(state_dir, application)
            if (was := known.pop(store, None)) is not None:
                keep_known(state_dir, application, known, archive)
                kind = "in memory" if was.definition is None else f"{was.definition.kind}, {was.definition.format}"
                said = was.unknown or kind
                print(f"statestore: forgotten: {application}/{store}: {said}", file=sys.stderr)
            if (why := acknowledged.pop(store, None)) is not None:
                write_acknowledged(state_dir, application, acknowledged)
                print(f"statestore: forgotten: {application}/{store}: {why}", file=sys.stderr)
            forgotten = forgotten or was is not None or why is not None
        if not forgotten:
            of = ", ".join(asked) or "no application"
            raise InputError(f"--forget: nothing is recorded of store {text!r} of {of}")


def _names(found: DiscoveredStore | StorePartitionSpec) -> tuple[str, str]:
    name = found.name if isinstance(found, DiscoveredStore) else found.store.name
    return name, f"{found.application}/{name}"


def shapes(chosen: Chosen, state_dir: Path) -> list[dict[str, object]]:
    """Return what is found of stores, as another machine takes it in a file (`discovery/shapes_file.py`)."""
    rows = []
    for application in chosen.known:
        found = _learned(chosen, application, state_dir, (), ())
        of_them = {store.name for store in chosen.discovered if store.application == application}
        of_them |= {name for name, known in found.items() if known.in_memory}
        rows += shape_rows(application, {name: known for name, known in found.items() if name in of_them})
    return rows


def _learned(
    chosen: Chosen,
    application: str,
    state_dir: Path,
    whole: Sequence[StorePartitionSpec],
    tables: Collection[str],
    committed: Mapping[str, int | None] | None = None,
) -> dict[str, KnownStore]:
    return learned(
        chosen.known[application],
        [store for store in chosen.discovered if store.application == application],
        whole,
        chosen.said,
        clock.now_ms(),
        committed=committed,
        offsets_beside=shown_layout(state_dir, application).offsets_beside,
        tables=tables,
    )
