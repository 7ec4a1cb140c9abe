"""The positions in records' headers (formats/position.py), merged: up to which input offsets a changelog has them.

A task writes one with the last change of each store in a commit. Kafka Streams writes one with each record on request.
Anything else under these names, in a source topic for example, is no position.

A store's position is known only if its last record has one. Otherwise the rows are ahead of the merged position: the
record is from the middle of a commit, or its writer logs no positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from confluent_kafka import Message

from statestore.errors import StoreCorruptedError
from statestore.formats import position as position_format
from statestore.kafka.compression import Bytes
from statestore.model import TopicPartition

_ROWS = 64


class HeaderPositions:
    """Merges positions as records come.

    Attributes
    ----------
    merged
        The last offset of each topic partition so far.
    """

    def __init__(self) -> None:
        self.merged: dict[TopicPartition, int] = {}
        self._last_has_one = False

    @property
    def of_last(self) -> dict[TopicPartition, int]:
        """The merged position, if the last record has one; otherwise empty."""
        return dict(self.merged) if self._last_has_one else {}

    def add_columns(self, data: Bytes, headers: Any, records: int) -> None:
        """Merge what `record_kernels.decode` found in so many records, at least one."""
        self._last_has_one = False
        if not len(headers):
            return
        from statestore.kafka import record_kernels

        if headers[-1, 3] == records - 1:
            self._last_has_one = bool(record_kernels.has_position(data, headers[-1]))
        at, rows = 0, _ROWS
        while at < len(headers):
            found = np.empty((rows, 4), np.int64)
            known, stopped = record_kernels.merge_positions(data, headers, at, found)
            for name, length, partition, offset in found[:known].tolist():
                topic = data[name : name + length].tobytes().decode(errors="replace")
                self._add(TopicPartition(topic, partition), offset)
            if stopped == at:  # one record's position has more entries than fit
                rows *= 2
            at = stopped

    def add_messages(self, messages: Iterable[Message]) -> None:
        """Merge the positions in messages' headers."""
        for message in messages:
            self._last_has_one = False
            headers = dict(message.headers() or ())  # of several with one name, the last
            version, raw = headers.get("v"), headers.get("c")
            if not version or version[0] or raw is None:
                continue
            try:
                found = position_format.decode(raw)
            except StoreCorruptedError:
                continue
            self._last_has_one = True
            for partition, offset in found.items():
                self._add(partition, offset)

    def _add(self, partition: TopicPartition, offset: int) -> None:
        self.merged[partition] = offset  # of an input topic that was recreated, a later offset may be smaller
