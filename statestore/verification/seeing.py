"""Looking at one store partition's directory, without changing anything in it. The task's lock is held."""

from __future__ import annotations

import re
from pathlib import Path

from statestore.errors import (
    StoreCorruptedError,
    StoreUncleanError,
    UnknownFormatError,
    WrongStoreError,
    unreadable_is_damaged,
)
from statestore.formats.offsets import COLUMN_FAMILY
from statestore.reports import Action, Status, VerifyRow
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.record import read_record
from statestore.statedir.seal import Seal, check_seal
from statestore.stores.accessor import DATA_COLUMN_FAMILIES
from statestore.stores.open import build_store
from statestore.stores.rocksdb import DEFAULT_COLUMN_FAMILY
from statestore.tasks.spec import StorePartitionSpec
from statestore.verification.judging import Seen, row, without_log
from statestore.verification.options import VerifyOptions


def see(spec: StorePartitionSpec, options: VerifyOptions) -> Seen | VerifyRow:
    """Look at a store partition: what is seen of it, or a row where that says all.

    At depth `offsets` a store is not opened if its seal is intact; deeper, the bytes of its files are compared with
    the seal, too, but for a sample.
    """
    present = spec.live.exists()
    if (found := without_log(spec, present=present)) is not None:
        return found
    if not present:
        return Seen(present=False)
    try:
        with unreadable_is_damaged():
            return _look(spec, options)
    except UnknownFormatError as error:
        if not spec.owned:
            return row(spec, Status.UNKNOWN_FORMAT, Action.BY_HAND, f"{error}; no definition of ours owns it")
        detail = f"{error}; its definition asks for {spec.store.format}"
        return row(spec, Status.DOWNGRADED, Action.FULL, detail)
    except StoreUncleanError as error:
        return row(spec, Status.UNCLEAN, Action.FULL, str(error)).model_copy(update={"sealed": False})
    except (StoreCorruptedError, WrongStoreError) as error:
        return corrupt(spec, error)


def _look(spec: StorePartitionSpec, options: VerifyOptions) -> Seen:
    seal = check_seal(
        spec.paths,
        spec.store.name,
        segmented=spec.store.kind != "key-value",
        contents=options.depth != "offsets" and options.sample is None,
    )
    if options.depth == "offsets" and seal is not None and (by_seal := _by_seal(spec, seal)) is not None:
        return by_seal
    return _open(spec, sealed=seal is not None)


def corrupt(spec: StorePartitionSpec, error: Exception) -> VerifyRow:
    """Make the row of a store that cannot be used, with the file if one is named."""
    found = row(spec, Status.CORRUPT, Action.FULL, str(error))
    cause = error.__cause__
    file = cause.filename if isinstance(cause, OSError) else None
    return found.model_copy(update={"file": file or damaged_file(str(error), spec.live)})


def damaged_file(text: str, directory: Path) -> str | None:
    """Find the file of a store that an error speaks of; RocksDB names it in its text only."""
    found = re.search(re.escape(str(directory)) + r"(/[\w.-]+)*/[\w.-]*\w", text)
    return found.group() if found else None


def _by_seal(spec: StorePartitionSpec, seal: Seal) -> Seen | None:
    """Tell from the seal alone how far a store is; None where only the store itself can tell."""
    record = read_record(spec.paths, spec.store.name)
    known = {DEFAULT_COLUMN_FAMILY, COLUMN_FAMILY, *DATA_COLUMN_FAMILIES[spec.store.format]}
    found = {family for database in seal.databases.values() for family in database.column_families}
    if (
        record is None
        or seal.committed is None
        or record.committed != seal.committed
        or not found <= known
        or spec.partition in legacy_offsets(spec.paths)
    ):
        return None
    return Seen(present=True, committed=seal.committed, empty=False, record=record, sealed=True)


def _open(spec: StorePartitionSpec, *, sealed: bool) -> Seen:
    store = build_store(spec.store)
    store.init(spec.context(read_only=True))
    try:
        empty = store.is_empty
        legacy = None if empty else legacy_offsets(spec.paths).get(spec.partition)
        return Seen(
            present=True,
            committed=store.committed_offset(spec.partition) if legacy is None else legacy,
            empty=empty,
            record=read_record(spec.paths, spec.store.name),
            sealed=sealed,
            upgrade_pending=getattr(store.inner, "upgrade_pending", False),
        )
    finally:
        store.close(clean=False)
