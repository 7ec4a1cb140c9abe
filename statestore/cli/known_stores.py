"""Keeping what a command has found out about the stores of applications without a definition."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from statestore import clock
from statestore.archive.archive import ArchiveSpec
from statestore.cli.selection import Chosen
from statestore.discovery.known_store import KnownStore
from statestore.discovery.known_stores_file import keep_known, learned
from statestore.discovery.older_versions import shown_layout
from statestore.discovery.shapes_file import shape_rows
from statestore.errors import ArchiveAccessError, ArchiveUnavailableError, StateStoreError
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import RestoreRow, Status, VerifyRow

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
    chosen: Chosen, state_dir: Path, rows: Sequence[VerifyRow | RestoreRow], archive: ArchiveSpec | None = None
) -> None:
    """Keep what was found out; say it if that cannot be, which is no fault of a store."""
    whole = {
        f"{row.application}/{row.store}/{row.task}"
        for row in rows
        if (row.status in _WHOLE if isinstance(row, VerifyRow) else row.outcome == "restored")
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
        )
        try:
            keep_known(state_dir, application, found, archive)
        except (OSError, StateStoreError) as error:
            print(
                f"statestore: could not record the descriptions of the stores of {application}: {error}",
                file=sys.stderr,
            )


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
) -> dict[str, KnownStore]:
    return learned(
        chosen.known[application],
        [store for store in chosen.discovered if store.application == application],
        whole,
        chosen.said,
        clock.now_ms(),
        offsets_beside=shown_layout(state_dir, application).offsets_beside,
        tables=tables,
    )
