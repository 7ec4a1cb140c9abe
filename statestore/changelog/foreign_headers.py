"""Headers of records that are no positions (header_positions.py): what a store that we know does not log.

Kafka Streams' stores that keep headers (KIP-1271) log those of their records, and its suppression logs a header `v` of
another version than positions have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Message

from statestore.kafka.compression import Bytes

_LONGEST_NAME = 100


class ForeignHeaders:
    """Looks for one as records come.

    Attributes
    ----------
    found
        Name of the first; None: there was none yet.
    """

    def __init__(self) -> None:
        self.found: str | None = None

    def add_columns(self, data: Bytes, headers: Any) -> None:
        """Look at what `record_kernels.decode` found."""
        if self.found is not None or not len(headers):
            return
        from statestore.kafka import record_kernels

        name, length = record_kernels.foreign_header(data, headers)
        if length >= 0:
            self.found = data[name : name + length].tobytes()[:_LONGEST_NAME].decode(errors="replace")

    def add_messages(self, messages: Iterable[Message]) -> None:
        """Look at messages' headers."""
        for message in messages:
            for name, value in message.headers() or ():
                if self.found is None and name != "c" and (name != "v" or value != b"\0"):
                    self.found = name[:_LONGEST_NAME]
