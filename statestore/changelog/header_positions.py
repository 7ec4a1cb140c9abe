"""The positions in records' headers (formats/position.py), merged: up to which input offsets a changelog has them.

Kafka Streams writes them on request: header `v` is one byte 0, header `c` the position (KIP-796). Whatever else
stands under these names, in a source topic for example, is no position.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from confluent_kafka import Message

from statestore.changelog.compression import Bytes
from statestore.errors import StoreCorruptedError
from statestore.formats import position as position_format
from statestore.model import TopicPartition

_ROWS = 64


class HeaderPositions:
    """Merges positions as records come.

    Attributes
    ----------
    merged
        The largest offset of each topic partition so far.
    """

    def __init__(self) -> None:
        self.merged: dict[TopicPartition, int] = {}

    def add_columns(self, data: Bytes, headers: Any) -> None:
        """Merge what `record_kernels.decode` found."""
        if not len(headers):
            return
        from statestore.changelog import record_kernels

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
            headers = dict(message.headers() or ())  # of several with one name, the last
            version, raw = headers.get("v"), headers.get("c")
            if not version or version[0] or raw is None:
                continue
            try:
                found = position_format.decode(raw)
            except StoreCorruptedError:
                continue
            for partition, offset in found.items():
                self._add(partition, offset)

    def _add(self, partition: TopicPartition, offset: int) -> None:
        self.merged[partition] = max(offset, self.merged.get(partition, offset))
