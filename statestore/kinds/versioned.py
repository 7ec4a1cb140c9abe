"""Versioned key-value stores (KIP-889): the values that a key had, each from its timestamp on."""

from __future__ import annotations

from statestore.formats.versioned_row import default_segment_interval_ms
from statestore.kinds.kind import Number, RowForm, StoreKind, StoreSettings
from statestore.model import StoreFormat

#: What Kafka Streams adds to the history retention of a store, so that compaction removes nothing that it needs.
ADDITIONAL_COMPACTION_LAG_MS = 24 * 60 * 60 * 1000
_LARGEST = (1 << 63) - 1
COMPACTION_LAG = "min.compaction.lag.ms"


class VersionedKind(StoreKind):
    """Versions of each key in one database: one row has several of them, so rows are not the changelog's records.

    `retention_ms` is Kafka Streams' history retention, and its grace period, too. The latest value of a key is kept
    forever.
    """

    name = "versioned"
    storage = "statestore.stores.storage:VERSIONED"
    times = ("retention_ms",)
    optional_times = ("segment_interval_ms",)
    compaction_keeps_rows = False
    log_may_be_split = False
    has_history = True
    has_times = True
    may_be_supplied = False
    row_form = RowForm.VERSIONS
    only_format = StoreFormat.PLAIN
    formats = (StoreFormat.PLAIN,)
    suite = "versioned"

    def changelog_config(self, store: StoreSettings) -> dict[str, str]:
        """Return Kafka Streams' settings of the changelog topic: earlier versions must outlive compaction."""
        lag_ms = min((store.retention_ms or 0) + ADDITIONAL_COMPACTION_LAG_MS, _LARGEST)
        return {"cleanup.policy": "compact", COMPACTION_LAG: str(lag_ms)}

    def columns(self, store: StoreSettings) -> tuple[Number, ...]:
        """From when until before when (ms) a version is valid; no row key tells them."""
        return (Number("valid_from"), Number("valid_to"))

    def replayed_from(self, stream_time: int | None) -> int | None:
        """Return the recorded stream time: the versions of a store may all be older."""
        return stream_time

    def segment_interval_ms(self, store: StoreSettings) -> int:
        """Length (ms) of a store's segments."""
        return store.segment_interval_ms or default_segment_interval_ms(store.retention_ms or 0)


VERSIONED = VersionedKind()
