"""A store as it was at a point of its changelog, built into a state directory of its own.

    <target>/.statestore/as-of.json          what the directory was made for, so that a rerun goes on
    <target>/<application.id>/<task id>/...  the stores, as in any state directory

The result is exact only if the log still has every record up to the point. A log that was compacted has not: older
values of keys that were written again later are gone. Which offsets never held a record of a key, because a
transaction's marker took them, can be told; see `changelog/compaction_gaps.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from statestore import clock
from statestore.changelog.compaction_gaps import holes
from statestore.changelog.reader import ChangelogReader
from statestore.discovery.changelogs import log_ranges
from statestore.durable import write_durably
from statestore.errors import InputError, TopicMismatchError
from statestore.kafka.topics import LogRange, Topics
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.full import Logs
from statestore.recovery.spec import RestoreSpec
from statestore.requests.restore import AsOf
from statestore.statedir.paths import OWN_DIRECTORY
from statestore.statedir.record import StoreRecord, read_record
from statestore.statedir.rewritten import rewritten_records
from statestore.statedir.scratch import default_scratch

_CLAIM = Path(OWN_DIRECTORY, "as-of.json")


class _Claim(BaseModel):
    """Purpose of a target directory."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    state_dir: Path
    as_of: str


def claim_target(target: Path, state_dir: Path, as_of: AsOf) -> None:
    """Take a directory for stores as of a point; call it before others restore into it at the same time.

    Raises
    ------
    InputError
        As `require_free_target`.
    """
    if require_free_target(target, state_dir, as_of):
        claim = _Claim(state_dir=state_dir.resolve(), as_of=str(as_of))
        write_durably(target / _CLAIM, claim.model_dump_json())


def is_target(directory: Path) -> bool:
    """Tell whether a directory was made for stores as of a point."""
    return (directory / _CLAIM).is_file()


def require_free_target(target: Path, state_dir: Path, as_of: AsOf) -> bool:
    """Tell whether a directory is still to be claimed; False if it is claimed for the same already.

    Raises
    ------
    InputError
        If it is not empty, and not from an earlier attempt at the same; or if it is in the live state directory, and
        not in its scratch space.
    """
    resolved, live = target.resolve(), state_dir.resolve()
    in_scratch = resolved.is_relative_to(default_scratch(live))
    if not in_scratch and (resolved.is_relative_to(live) or live.is_relative_to(resolved)):
        raise InputError(f"target: expected a directory apart from the state directory {state_dir}, found {target}")
    if target.exists() and not target.is_dir():
        raise InputError(f"target: expected a directory, found the file {target}")
    there = sorted(found.name for found in target.iterdir()) if target.exists() else []
    if not there:
        return True
    try:
        found = _Claim.model_validate_json((target / _CLAIM).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        raise InputError(
            f"target: expected an empty directory, found {', '.join(there[:3])} in {target}: name another one"
        ) from None
    if (found.state_dir, found.as_of) != (live, str(as_of)):
        raise InputError(
            f"target: expected stores of {live} as of {as_of} in {target}, found those of {found.state_dir} as of "
            f"{found.as_of}: name another directory"
        )
    return False


def point_and_target(spec: RestoreSpec) -> tuple[AsOf, Path]:
    """Return what mode `as-of` cannot do without.

    Raises
    ------
    InputError
        If one of them is not given.
    """
    if spec.request.as_of is None or spec.request.target is None:
        raise InputError("mode as-of: expected an offset or a timestamp, and a target directory")
    return spec.request.as_of, spec.request.target.absolute()


def built_before(store: StorePartitionSpec) -> StoreRecord | None:
    """Return the record of a store that an attempt before has completed in its target; None if there is none."""
    complete = store.live.exists() and store.paths.seal(store.store.name).exists()
    return read_record(store.paths, store.store.name) if complete else None


def in_target(spec: RestoreSpec) -> StorePartitionSpec:
    """Return the store partition that is built."""
    return spec.store.model_copy(update={"state_dir": point_and_target(spec)[1]})


def point_range(store: StorePartitionSpec, as_of: AsOf) -> Logs:
    """Return the part of the changelog up to a point, as if the log ended there.

    Raises
    ------
    InputError
        If the point lies before the log's start or after its end, or among the rows of a rewrite; with the numbers.
    TopicMismatchError
        If the changelog does not exist.
    """
    if as_of.snapshot is not None:
        raise InputError(f"as of {as_of}: expected an offset or a time")
    if store.changelog is None:
        raise TopicMismatchError(f"changelog topic {store.partition.topic} does not exist: nothing to restore from")
    if store.origin.as_of_refused is not None:
        raise InputError(f"{store.store_partition} {store.origin.as_of_refused}")
    topics, partition = store.cluster.topics, store.partition
    log = log_ranges(topics, [store])[partition]
    end = (
        _end_at_offset(partition, log, as_of) if as_of.timestamp_ms is None else _end_at_time(store, log, topics, as_of)
    )
    _require_after_rewrite(store, as_of, end)
    return {partition: LogRange(log.start, end, end)}


def _require_after_rewrite(store: StorePartitionSpec, as_of: AsOf, end: int) -> None:
    """Refuse a point among the rows that a rewrite has written: no store ever had only some of them."""
    assert store.changelog is not None
    number = store.partition.partition
    rows = rewritten_records(store.state_dir, store.application, store.changelog.topic_id, number)
    if end < rows:
        raise InputError(
            f"as of {as_of}: the point is at offset {end - 1} of {store.partition}. A rewrite wrote the offsets 0 to "
            f"{rows - 1} as the rows of the store, in no order of time, so the store never had only some of them. Name "
            f"a later point, such as offset {rows - 1}"
        )


def _end_at_offset(partition: TopicPartition, log: LogRange, as_of: AsOf) -> int:
    assert as_of.offset is not None
    if not log.start <= as_of.offset < log.last_stable:
        raise InputError(
            f"as of {as_of}: the log of {partition} has the offsets {log.start} to {log.last_stable - 1}; name one of "
            "them"
            if log.start < log.last_stable
            else f"as of {as_of}: the log of {partition} is empty, it begins and ends at {log.start}"
        )
    return as_of.offset + 1


def _end_at_time(store: StorePartitionSpec, log: LogRange, topics: Topics, as_of: AsOf) -> int:
    """Offset of the first record that is younger, or the log's end.

    Kafka looks up a record or a marker; a marker has the time of its commit, which may be much later than the times of
    the records around it, so the log is read from there to the first record.
    """
    assert as_of.timestamp_ms is not None
    now_ms = clock.now_ms()
    if as_of.timestamp_ms > now_ms:
        raise InputError(f"as of {as_of}: expected a time in the past; it is now {now_ms} ms")
    if log.start >= log.last_stable:
        return log.start  # an empty log is that of an empty store at any time; `require_exact` tells if it had records
    partition = store.partition
    found = topics.first_after(partition, as_of.timestamp_ms)
    end = log.last_stable
    if found is not None and found < end:
        with ChangelogReader(store.cluster, partition) as reader:
            for batch in reader.read(max(found, log.start), end):
                times, offsets = batch.column(2).to_numpy(), batch.column(3).to_numpy()
                later = times > as_of.timestamp_ms
                if later.any():
                    end = int(offsets[later.argmax()])
                    break
    if end <= log.start:
        raise InputError(
            f"as of {as_of}: the log of {partition} begins at offset {log.start} with a later record. Name a later time"
        )
    return end


def require_exact(spec: RestoreSpec, logs: Logs) -> bool:
    """Tell whether the log has every record up to the point.

    Raises
    ------
    InputError
        If it has not, and best effort was not asked for (conformance R16).
    """
    missing = _missing(spec, logs)
    if missing and not spec.request.best_effort:
        ((partition, _),) = logs.items()
        raise InputError(
            f"as of {spec.request.as_of}: the log of {partition} no longer has every record up to there: {missing}. "
            "The store may have had values of them, and no snapshot has these. Name a later point, or accept what is "
            "left with --best-effort"
        )
    return not missing


def is_exact(spec: RestoreSpec, logs: Logs) -> bool:
    """Tell whether the log has every record up to the point."""
    return not _missing(spec, logs)


def _missing(spec: RestoreSpec, logs: Logs) -> str:
    store = spec.store
    ((partition, log),) = logs.items()
    if log.start:
        missing = f"its first {log.start} offsets were deleted"
    else:
        gone = holes(store.cluster, partition, 0, log.last_stable)
        first = f"its first {log.last_stable} offsets"
        missing = f"it is unknown what is left of {first}" if gone is None else ""
        missing = f"{gone} of {first} were compacted away" if gone else missing
    return missing
