"""The loss and the cost of a kill of a running application. Pure."""

from __future__ import annotations

from statestore.clock import duration_text
from statestore.kafka.topics import LogRange
from statestore.partition.spec import ChangelogSpec


def kill_risk(
    offset: int | None, log: LogRange, changelog: ChangelogSpec, age_ms: int | None, *, alert_at: float
) -> str:
    """Return why a kill now would lose data or cost a full restore; empty if nothing shows it.

    Parameters
    ----------
    offset
        Last changelog offset that is on disk; None: unknown.
    log
        Where the changelog begins and ends.
    age_ms
        Time since the files of the store last changed; None: unknown.
    alert_at
        Fraction of the way to the limit at which to alert: 1 is the limit itself.
    """
    if offset is None or offset + 1 >= log.last_stable:
        return ""
    behind = log.last_stable - (offset + 1)
    if offset + 1 < log.start:
        return (
            f"a kill now would lose data: the files have offset {offset}, and the changelog begins at {log.start}. "
            "Stop the application cleanly, so that it writes its stores to disk"
        )
    if log.start > 0 and behind >= alert_at * (log.last_stable - log.start):
        return (
            f"a kill now would cost almost a full restore: the files have offset {offset}, and the changelog begins "
            f"at {log.start}, which moves on. Stop the application cleanly, or use smaller memtables"
        )
    limit_ms = changelog.delete_retention_ms
    if changelog.compacted and age_ms is not None and age_ms >= alert_at * limit_ms:
        return (
            f"a kill now could bring deleted rows back: the files have offset {offset} for "
            f"{duration_text(age_ms / 1000)}, and delete.retention.ms of the changelog is "
            f"{duration_text(limit_ms / 1000)}. Stop the application cleanly, or use smaller memtables"
        )
    return ""
