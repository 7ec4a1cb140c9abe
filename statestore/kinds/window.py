"""Window stores: rows by key and window start (`formats/window_key.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statestore.formats.window_key import MAX_TIME
from statestore.kinds.kind import Number, StoreKind, StoreSettings


class WindowKind(StoreKind):
    """A value for each window of a key, or several."""

    name = "window"
    storage = "statestore.stores.storage:WINDOW"
    times = ("retention_ms", "window_size_ms")
    may_retain_duplicates = True
    numbers = (Number("window_start"), Number("sequence", 4))
    first_time = last_time = "window_start"
    suite = "window"

    def check(self, store: StoreSettings) -> None:
        """As any kind; and a window is kept until it ends."""
        super().check(store)
        if (store.retention_ms or 0) < (store.window_size_ms or 0):
            raise ValueError(
                f"retention_ms of {store.retention_ms} is shorter than window_size_ms of {store.window_size_ms}; "
                "expected at least as long"
            )

    def columns(self, store: StoreSettings) -> tuple[Number, ...]:
        """Start and end of the window, and the number of a duplicate where there are any."""
        shown = (Number("window_start"), Number("window_end"))
        return (*shown, Number("sequence", 4)) if store.retain_duplicates else shown

    def shown(self, numbers: Mapping[str, Any], store: StoreSettings) -> Mapping[str, Any]:
        """With the window's end, at the largest time at most, as in Kafka Streams."""
        starts = numbers["window_start"]
        ends = starts + (store.window_size_ms or 0)
        ends[ends < starts] = MAX_TIME
        return {**numbers, "window_end": ends}


WINDOW = WindowKind()
