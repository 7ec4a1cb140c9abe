"""Kafka Streams' `.checkpoint` file: changelog offsets of a cleanly closed task, from before KIP-1035.

    0                            version
    2                            number of entries
    app-store-changelog 3 1234   topic, partition, offset (-4 = unknown)

Kafka Streams copies it over the stores' own offsets at start, so a stale one is poison. Here it is read, taken over
into the stores, and removed before a store of the task is opened for writing.
"""

from __future__ import annotations

from pathlib import Path

from statestore.errors import StoreCorruptedError
from statestore.model import TopicPartition

FILE_NAME = ".checkpoint"
UNKNOWN_OFFSET = -4


def read(path: Path) -> dict[TopicPartition, int | None]:
    """Read the file; a partition with unknown offset is None.

    Raises
    ------
    StoreCorruptedError
        If it is torn or of another version; nothing is guessed.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        version, count = int(lines[0]), int(lines[1])
        entries = [line.split(" ") for line in lines[2:] if line]
        if version != 0 or len(entries) != count:
            raise ValueError(f"version {version} with {len(entries)} of {count} entries")
        offsets: dict[TopicPartition, int | None] = {}
        for topic, partition, offset in entries:
            number = int(offset)
            if number < 0 and number != UNKNOWN_OFFSET:
                raise ValueError(f"offset {number}")
            offsets[TopicPartition(topic, int(partition))] = None if number == UNKNOWN_OFFSET else number
    except (ValueError, IndexError) as error:
        raise StoreCorruptedError(
            f"{path} is not a whole checkpoint file of version 0 ({error}); "
            "remove it to have the stores' own offsets used"
        ) from error
    return offsets
