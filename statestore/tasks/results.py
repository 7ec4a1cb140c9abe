"""The destinations of changed results: the store with its changelog, and an output topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from statestore.formats.value_format import ValueFormat
from statestore.stores.typed import WindowStore

#: What a window's row key has behind the key of Kafka Streams' TimeWindowedSerializer.
_SEQUENCE_BYTES = 4
#: Called with keys, values (None: deleted) and timestamps (ms) of changed results, of equal length.
Forward = Callable[[Sequence[bytes], Sequence[bytes | None], Sequence[int]], None]


class Results:
    """The results of one aggregation."""

    def __init__(self, store: Any, forward: Forward | None) -> None:
        self.store = store
        self.layout: ValueFormat = store.layout
        self._windowed = isinstance(store, WindowStore)
        self._forward = forward

    @property
    def timestamped(self) -> bool:
        """Whether the store keeps a timestamp with each result."""
        return self.layout.timestamped

    def write(
        self,
        row_keys: Sequence[bytes],
        values: Sequence[bytes | None],
        newest: Sequence[int],
        last: Sequence[int],
        forwarded_at: Sequence[int] | None = None,
    ) -> None:
        """Write rows, in the order of their times, and forward them.

        Parameters
        ----------
        values
            Plain values, serialized; None deletes.
        newest, last
            Largest timestamp of the records in a result, and that of the last one (ms). The first is the result's in a
            timestamped store; a plain one does not know it. A delete is logged with the last one, as Kafka Streams
            does.
        forwarded_at
            Timestamps (ms) to forward with, where they are not the results'.
        """
        if not row_keys:
            return
        timestamps = newest if self.timestamped else last
        logged_at = timestamps
        if self.timestamped and None in values:
            logged_at = [at[0] if value is not None else at[1] for value, *at in zip(values, newest, last, strict=True)]
        self.store.put_rows(row_keys, values, logged_at)
        if self._forward is not None:
            # A session's row key is that of Kafka Streams' SessionWindowedSerializer.
            keys = [key[:-_SEQUENCE_BYTES] for key in row_keys] if self._windowed else row_keys
            self._forward(keys, values, timestamps if forwarded_at is None else forwarded_at)
