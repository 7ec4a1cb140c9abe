"""Headers in a changelog that a restore must not drop.

A store that keeps headers is rebuilt with those of its changelog's records. So nothing is built without them from a
changelog that has some, unless the store is known not to keep them.
"""

from __future__ import annotations

from statestore.changelog.reader import ChangelogReader
from statestore.errors import UnknownFormatError
from statestore.partition.spec import StorePartitionSpec


def require_no_headers(store: StorePartitionSpec, reader: ChangelogReader) -> None:
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
            f"store, would lose them.{described} Nothing was changed. If the store keeps headers, add --store "
            f"{store.store.name}:format=headers; otherwise leave it to Kafka Streams, which restores it itself."
        )
