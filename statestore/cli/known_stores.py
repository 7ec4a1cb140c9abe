"""Keeping what a command has found out about the stores of applications without a definition."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from statestore import clock
from statestore.archive.archive import ArchiveSpec, archive_spec
from statestore.changelog.topics import Topics
from statestore.cli.selection import Chosen
from statestore.discovery.known_stores_file import keep_known, learned
from statestore.discovery.older_versions import shown_layout
from statestore.errors import ArchiveAccessError, ArchiveUnavailableError, StateStoreError
from statestore.reports import RestoreRow, Status, VerifyRow

#: A store that is so has all segments that it had, but for those that have expired.
_WHOLE = (Status.OK, Status.EMPTY, Status.LAGGING, Status.OLD_FORMAT)


def reachable(url: str | None, timeout_s: float, topics: Topics) -> ArchiveSpec | None:
    """Say in which archive it is known what stores are; None if there is none, or it does not answer now."""
    found = archive_spec(url, timeout_s, topics)
    try:
        if found is not None:
            found.open()
    except (ArchiveUnavailableError, ArchiveAccessError) as error:
        print(f"statestore: verified without the archive: {error}", file=sys.stderr)
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
    for application, before in chosen.known.items():
        found = learned(
            before,
            [store for store in chosen.discovered if store.application == application],
            [spec for spec in chosen.specs if spec.application == application and str(spec.store_partition) in whole],
            chosen.said,
            clock.now_ms(),
            offsets_beside=shown_layout(state_dir, application).offsets_beside,
            tables={
                row.store
                for row in rows
                if isinstance(row, VerifyRow) and row.application == application and row.global_kind == "table"
            },
        )
        try:
            keep_known(state_dir, application, found, archive)
        except (OSError, StateStoreError) as error:
            print(f"statestore: what the stores of {application} are could not be kept: {error}", file=sys.stderr)
