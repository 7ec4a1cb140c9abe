"""How long a restore takes, by measured rates: those of docs/benchmarks.md, or the user's own."""

from __future__ import annotations

from typing import NamedTuple


class Rate(NamedTuple):
    """What one machine restores, whichever of the two limits it.

    Attributes
    ----------
    records_per_s, bytes_per_s
        Of the log.
    """

    records_per_s: float
    bytes_per_s: float

    def seconds(self, records: int, size: int) -> float:
        """Return the time for a log."""
        return max(records / self.records_per_s, size / self.bytes_per_s)


class Rates(NamedTuple):
    """Rates of both ways to restore."""

    kafka_streams: Rate
    statestore: Rate
    measured: str

    @property
    def assumption(self) -> str:
        """Return what the estimates assume."""
        streams, ours = self.kafka_streams, self.statestore
        return (
            f"A restore reads the whole log of every store. Kafka Streams reads {streams.records_per_s:,.0f} records/s "
            f"or {streams.bytes_per_s:,.0f} bytes/s, statestore {ours.records_per_s:,.0f} records/s or "
            f"{ours.bytes_per_s:,.0f} bytes/s, whichever takes longer: {self.measured}. Each application has one such "
            "machine to itself. Records are counted as offsets, so a compacted log is overestimated, and bytes are "
            "those on disk, so a compressed log is underestimated. A snapshot, or a store that is only behind, takes "
            "less"
        )


#: docs/benchmarks.md, Restore: records/s of the base case, and bytes/s of the case with values of 1,000 bytes (1,030
#: bytes for each record). Kafka Streams' bytes/s are those of its tuned consumer: with defaults it was not measured.
DEFAULT = Rates(
    Rate(451_000, 177_000 * 1_030),
    Rate(3_950_000, 461_000 * 1_030),
    "measured on two cores that also ran the broker, with an uncompressed log in memory (docs/benchmarks.md)",
)


def with_own(rates: Rates, kafka_streams: float | None, statestore: float | None) -> Rates:
    """Return rates with the user's own records/s; bytes/s change in proportion."""
    if kafka_streams is None and statestore is None:
        return rates
    own = [name for name, rate in (("Kafka Streams", kafka_streams), ("statestore", statestore)) if rate is not None]
    return Rates(
        _scaled(rates.kafka_streams, kafka_streams),
        _scaled(rates.statestore, statestore),
        f"your rate for {' and '.join(own)}"
        + ("" if len(own) == 2 else f", and otherwise {rates.measured}")
        + "; bytes/s are in the proportion of docs/benchmarks.md",
    )


def _scaled(rate: Rate, records_per_s: float | None) -> Rate:
    if records_per_s is None:
        return rate
    return Rate(records_per_s, rate.bytes_per_s * records_per_s / rate.records_per_s)
