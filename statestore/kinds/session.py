"""Session stores: rows by key, session end and session start (`formats/session_key.py`)."""

from __future__ import annotations

from statestore.formats.value_format import SESSION_HEADERS, ValueFormat
from statestore.kinds.kind import Number, StoreKind, StoreSettings
from statestore.model import StoreFormat


class SessionKind(StoreKind):
    """A value for each session of a key."""

    name = "session"
    storage = "statestore.stores.storage:SESSION"
    times = ("retention_ms",)
    numbers = (Number("session_end"), Number("session_start"))
    first_time, last_time = "session_start", "session_end"
    only_format = StoreFormat.PLAIN
    suite = "session"

    def value_format(self, store_format: StoreFormat) -> ValueFormat:
        """Kafka Streams keeps no timestamps of sessions, also where it keeps headers."""
        return SESSION_HEADERS if store_format is StoreFormat.HEADERS else super().value_format(store_format)

    def columns(self, store: StoreSettings) -> tuple[Number, ...]:
        """Start and end of the session."""
        return Number("session_start"), Number("session_end")


SESSION = SessionKind()
