"""Replaying the tail of a changelog into an open store, record by record."""

from __future__ import annotations

from typing import NamedTuple

from statestore import kill_switch
from statestore.changelog.reader import ChangelogReader
from statestore.stores.typed import AnyStore


class Replayed(NamedTuple):
    """Result of a replay: applied records, records without a key, and the last offset (None if there was none)."""

    records: int
    skipped: int
    last_offset: int | None


def replay(store: AnyStore, reader: ChangelogReader, start: int, end: int) -> Replayed:
    """Apply the records with `start <= offset < end`, committing the store after each batch.

    A null value deletes, a null key is skipped and counted (conformance R1).
    """
    records = skipped = 0
    last_offset: int | None = None
    for batch in reader.read(start, end, store.layout):
        keys, values, timestamps, offsets = (column.to_pylist() for column in batch.columns)
        if None in keys:
            known = [row for row in zip(keys, values, timestamps, strict=True) if row[0] is not None]
            skipped += len(keys) - len(known)
            keys_known, values, timestamps = zip(*known, strict=True) if known else ((), (), ())
            store.apply_changelog(keys_known, values, timestamps)
        else:
            store.apply_changelog(keys, values, timestamps)
        records += len(keys)
        last_offset = offsets[-1]
        kill_switch.reached("replayed, not committed")
        # Without a position in the last record's headers, the rows are ahead of the one that the store has.
        store.commit({reader.partition: last_offset}, reader.position or None)
        kill_switch.reached("replayed")
    return Replayed(records - skipped, skipped, last_offset)
