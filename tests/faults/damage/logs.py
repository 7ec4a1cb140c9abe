"""Faults of changelogs: topics deleted, made again, truncated, and compacted while they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from statestore.changelog.reader import ChangelogReader
from tests.faults.damage.stores import FORMATS, TASK, Original
from tests.integration import broker

_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}
#: Has a log rolled with nearly each batch, so that all but its end may be compacted.
SMALL_SEGMENTS = {"segment_ms": "100"}
_COMPACT_NOW = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.001", "delete_retention_ms": "0"}


def delete(original: Original) -> None:
    """Delete the changelogs."""
    for name in FORMATS:
        broker.delete_topic(original.subject.servers, original.changelog_name(name))
        original.changelogs[name] = None


def recreate(original: Original, records: int) -> None:
    """Delete the changelogs and make them again, with records of their own."""
    servers = original.subject.servers
    logs = {name: _records(original, name)[:records] for name in FORMATS}
    delete(original)
    for name, log in logs.items():
        topic = original.changelog_name(name)
        broker.create_topic(servers, topic, original.subject.partitions, _KEPT)
        broker.produce(servers, topic, [(record.key, b"%020d" % record.offset) for record in log], TASK.partition)
    original.look()


def delete_records(original: Original, behind: Callable[[str], int]) -> None:
    """Delete the changelogs' records up to the offset that `behind` gives for a store, that one included."""
    servers = original.subject.servers
    for name in FORMATS:
        topic = original.changelog_name(name)
        broker.delete_records(servers, topic, behind(name) + 1, TASK.partition)
    original.look()


def end(original: Original, store: str) -> int:
    """Offset of the last record of a changelog."""
    return _records(original, store)[-1].offset


def read_in_two_parts(original: Original, store: str) -> tuple[Callable[..., Iterator[pa.RecordBatch]], list[int]]:
    """Make a reader that has the log compacted when it is half way; the list gets the numbers of records by then."""
    whole, seen = ChangelogReader.read, [len(_records(original, store))]

    def read(reader: ChangelogReader, start: int, end: int, *more: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        half = start + (end - start) // 2
        yield from whole(reader, start, half, *more, **how)
        if len(seen) == 1:
            broker.set_topic_config(original.subject.servers, original.changelog_name(store), **_COMPACT_NOW)
            broker.wait_for(lambda: len(_records(original, store)) < seen[0], "compaction")
            seen.append(len(_records(original, store)))
        yield from whole(reader, half, end, *more, **how)

    return read, seen


def _records(original: Original, store: str) -> list[broker.Logged]:
    topic = original.changelog_name(store)
    return original.subject.logged(topic)[topic, TASK.partition][0]
