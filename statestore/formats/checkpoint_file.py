"""Kafka Streams' `.checkpoint` file: changelog offsets of a cleanly closed task, from before KIP-1035.

    0                            version
    2                            number of entries
    app-store-changelog 3 1234   topic, partition, offset (-4 = unknown)

Kafka Streams copies it over the stores' own offsets at start, so a stale one is poison. Here it is read, taken over
into the stores, and removed before a store of the task is opened for writing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from statestore.errors import StoreCorruptedError, about
from statestore.formats.offsets import UNKNOWN_OFFSET
from statestore.model import TopicPartition

FILE_NAME = ".checkpoint"

_ENTRY = re.compile(rf"(?P<topic>\S+) (?P<partition>[0-9]{{1,9}}) (?P<offset>[0-9]{{1,18}}|{UNKNOWN_OFFSET})")


def name_of(store: str) -> str:
    """Name of the file of a single store that does not keep its offsets itself (KIP-1035)."""
    return f"{FILE_NAME}_{store}"


def read(path: Path) -> dict[TopicPartition, int | None]:
    """Read the file; a partition with unknown offset is None.

    Raises
    ------
    StoreCorruptedError
        If it is torn or of another version; nothing is guessed.
    """
    try:
        with about(path):
            text = path.read_bytes().decode()
        if not text.endswith("\n"):
            raise ValueError("its last line has no end")
        version, count, *entries = text[:-1].split("\n")
        if version != "0" or count != str(len(entries)):
            raise ValueError(f"version {version!r} with {len(entries)} of {count!r} entries")
        offsets: dict[TopicPartition, int | None] = {}
        for entry in entries:
            match = _ENTRY.fullmatch(entry)
            if match is None:
                raise ValueError(f"entry {entry!r}")
            partition = TopicPartition(match["topic"], int(match["partition"]))
            if partition in offsets:
                raise ValueError(f"{partition} twice")
            number = int(match["offset"])
            offsets[partition] = None if number == UNKNOWN_OFFSET else number
    except (ValueError, IndexError) as error:
        raise StoreCorruptedError(
            f"{path} is not a complete checkpoint file of version 0 ({error}); "
            "remove it to have the stores' own offsets used"
        ) from error
    return offsets


def write(offsets: Mapping[TopicPartition, int | None]) -> str:
    """Lay out the file; an offset of None is written as unknown."""
    lines = [
        f"{partition.topic} {partition.partition} {UNKNOWN_OFFSET if offset is None else offset}"
        for partition, offset in offsets.items()
    ]
    return "\n".join(["0", str(len(lines)), *lines, ""])
