"""Headers in a changelog that a restore must not drop.

A store that keeps headers is rebuilt by Kafka Streams with those of its changelog's records. We do not know how to, so
nothing is built from such a changelog, unless the store is known not to keep them.
"""

from __future__ import annotations

from statestore.changelog.reader import LogReader
from statestore.errors import UnknownFormatError
from statestore.partition.spec import StorePartitionSpec


def require_no_headers(store: StorePartitionSpec, reader: LogReader) -> None:
    """Refuse to go on if what was read has headers that would be lost.

    Raises
    ------
    UnknownFormatError
        Naming the header, and what to do.
    """
    if reader.foreign_header is not None:
        described = f" It was described as {store.described}." if store.described else ""
        raise UnknownFormatError(
            f"{reader.partition} has records with the header {reader.foreign_header!r}, as the changelogs of stores "
            f"that keep headers have. {store.store_partition}, taken for a {store.store.format} {store.store.kind} "
            f"store, would lose them.{described} Nothing was changed. Leave the store to Kafka Streams, which restores "
            "it by itself."
        )
