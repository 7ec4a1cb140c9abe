"""Verifies stores that are in use, without their locks; looks again until a difference is confirmed or gone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from socket import gethostname
from time import monotonic, sleep
from types import MappingProxyType
from typing import NamedTuple

from statestore.advice import Situation, advice
from statestore.changelog import brokers_clock
from statestore.changelog.reader import ChangelogReader
from statestore.discovery.changelogs import log_ranges
from statestore.errors import (
    LockedError,
    RetryError,
    StateStoreError,
    StoreBehindLogStartError,
    TopicMismatchError,
    UnknownFormatError,
    UnknownStoreError,
    of_os_error,
)
from statestore.kafka.cluster import Cluster
from statestore.partition.advice import target_of
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import repartitioned
from statestore.reports import Action, Advice, Contents, DifferingKey, Status, VerifyRow
from statestore.requests.verify import Depth
from statestore.statedir.lock import require_made
from statestore.verification.live.confirmation import Seen, confirmed, end_of, lowest
from statestore.verification.live.kill_risk import kill_risk
from statestore.verification.live.looks import Look, change_of_topic, look
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.closed import Proof
from statestore.verification.proof.global_tables import GlobalProof
from statestore.verification.proof.prefix import Range, common_ranges
from statestore.verification.proof.suspects import Suspect
from statestore.verification.proof.unproven import unproven_keys

_log = logging.getLogger(__name__)
#: Pauses between two looks at the same store (s); the last one repeats.
_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
_ADVICE = "stop the application, then verify"
_NO_ROWS = "the store has no rows on disk"
_MARKERS = 2
#: Longest time (s) without a directory of a task that moves, or whose store was wiped.
_GONE_S = 60.0
#: Time (s) in which a locked store of a run that is not `--live` is looked at again.
_CONFIRM_LOCKED_S = 30.0


class _Judged(NamedTuple):
    status: Status
    action: Action = Action.NONE
    detail: str = ""
    contents: Contents | None = None
    offset: int | None = None
    pending: bool = False


class _Watched:
    """A store and the looks at it so far."""

    def __init__(
        self, spec: StorePartitionSpec, options: VerifyOptions, cluster: Cluster, tasks: int | None = None
    ) -> None:
        self.spec, self._options, self._cluster, self._tasks = spec, options, cluster, tasks
        self._began = monotonic()
        self._seen: list[Seen] = []
        self._claimed: dict[int, int] = {}
        self._look: Look | None = None
        self._damaged = 0
        self._lost_at: tuple[int, int] | None = None
        self._gone_since: float | None = None
        self.judged = _Judged(Status.LOCKED, Action.LATER)

    def look(self) -> None:
        """Look at the store, and judge it by this look and the earlier ones."""
        before = self.judged
        try:
            found = self._looked()
        except UnknownFormatError as error:
            found = _Judged(self.spec.origin.unknown_format, Action.BY_HAND, f"{error}; {_ADVICE}")
        except (LockedError, RetryError, UnknownStoreError, StoreBehindLogStartError, TopicMismatchError) as error:
            found = _Judged(Status.LOCKED, Action.LATER, f"it is in use, and cannot be read now: {error}")
        if before.status is Status.DIVERGED and found.status is not Status.DIVERGED:
            found = before._replace(pending=False)  # it was confirmed
        elif before.status is Status.UNCONFIRMED and found.status is Status.LOCKED:
            found = before
        self.judged = found

    def _looked(self) -> _Judged:
        refusal = _refusal(self.spec)
        if refusal:
            raise LockedError(refusal)
        if (wrong := repartitioned(self.spec, self._tasks)) is not None:
            return _Judged(wrong.status, Action.BY_HAND, f"{wrong.detail}; {_ADVICE}")
        require_made(self.spec.state_dir, self.spec.application)
        if self.spec.store.logged and self.spec.changelog is None:
            return self._without_log()
        if not self.spec.live.exists():
            self._look = None
            return self._missing()
        self._gone_since = None
        self._look = look(self.spec, self._options, self._cluster)
        return self._judge(self._look)

    def row(self) -> VerifyRow:
        """Return the row of a report."""
        spec, found, judged = self.spec, self._look, self.judged
        row = VerifyRow(
            application=spec.application,
            store=spec.store.name,
            task=str(spec.task),
            status=judged.status,
            action=judged.action,
            detail=judged.detail,
            advice=_advice(spec, judged),
            depth=self._options.depth,
            topic_id=spec.changelog.topic_id if spec.changelog else None,
            live=True,
            host=gethostname(),
            seconds=round(monotonic() - self._began, 3),
        )
        if found is None or judged.status is Status.LOCKED:
            return row
        offset = judged.offset if judged.offset is not None else found.committed
        behind = None if offset is None else max(found.log.last_stable - (offset + 1), 0)
        # Without a proof, what follows the last record may be the markers of its transaction alone.
        at_end = behind is not None and behind <= _MARKERS and found.proof is None
        has_one_log = spec.store.logged and spec.origin.has_partition_of_task
        return row.model_copy(
            update={
                "committed": found.committed,
                "start": found.log.start if has_one_log else None,
                "end": found.log.last_stable if has_one_log else None,
                "file": found.file,
                "keys": found.rows,
                "contents": judged.contents,
                "disk_offset": offset,
                "disk_lag": behind,
                "kill_risk": "" if at_end else self._kill_risk(found, offset),
            }
        )

    def _kill_risk(self, found: Look, offset: int | None) -> str:
        changelog = self.spec.changelog
        if changelog is None:
            return ""
        age_ms = None
        if found.changed_ms is not None and changelog.compacted:
            age_ms = max(brokers_clock.now_ms(self.spec.cluster) - found.changed_ms, 0)
        return kill_risk(offset, found.log, changelog, age_ms, alert_at=self._options.alert_at)

    def _without_log(self) -> _Judged:
        detail = f"changelog topic {self.spec.partition.topic} does not exist"
        if not self.spec.live.exists():
            return _Judged(Status.EMPTY, detail=f"{detail}, and neither does the store")
        return _Judged(Status.REPLACED, Action.BY_HAND, f"{detail}; {_ADVICE}")

    def _missing(self) -> _Judged:
        logs = log_ranges(self._cluster.topics, [self.spec]) if self.spec.store.logged else {}
        if logs and all(log.start == log.high_watermark == 0 for log in logs.values()):
            return _Judged(Status.EMPTY, detail="nothing logged yet")
        where = f"{self.spec.live} does not exist"
        first, now_s = self._gone_since is None, monotonic()
        since_s = self._gone_since = now_s if self._gone_since is None else self._gone_since
        # An application that was killed may be replacing it, or its task may be moving.
        if first or now_s - since_s < min(_GONE_S, self._options.confirm_within_s / 2):
            return _Judged(Status.UNCONFIRMED, Action.LATER, where, pending=True)
        detail = f"{where}; if its task runs on another machine, add --here-only; otherwise {_ADVICE}"
        return _Judged(Status.MISSING, Action.BY_HAND, detail)

    def _judge(self, found: Look) -> _Judged:
        spec = self.spec
        if found.damage:
            # The files of segments are linked one after the other. If one is written meanwhile, its offset changes.
            self._damaged = self._damaged + 1 if found.lost_at == self._lost_at else 1
            self._lost_at = found.lost_at
            detail = f"{found.damage}; {_ADVICE}"
            if self._damaged < 2:
                return _Judged(Status.UNCONFIRMED, Action.LATER, found.damage, pending=True)
            return _Judged(Status.CORRUPT, Action.BY_HAND, detail)
        self._damaged = 0
        if found.global_proof is not None:
            another = found.another_topic or ("" if found.global_proof.may_be_prefix else self._topic_since())
            return _by_global_proof(spec, found.global_proof, another)
        if found.committed is not None and found.committed >= end_of(found.log):
            detail = (
                f"its files have offset {found.committed}, but its changelog ends at {end_of(found.log)}; {_ADVICE}"
            )
            return _Judged(Status.AHEAD, Action.BY_HAND, detail)
        if found.proof is None:
            contents = None if not found.not_proven else Contents(not_proven=found.not_proven)
            said = f"not proven: {found.not_proven}" if found.not_proven else ""
            return _Judged(Status.IN_USE, detail=said, contents=contents)
        return self._by_proof(spec, found)

    def _topic_since(self) -> str:
        """Return whether the changelog was recreated since its topic was described."""
        if self.spec.changelog is None:
            return ""
        topic = self._cluster.topics.find(self.spec.partition.topic)
        return change_of_topic(self.spec.changelog.topic_id, None if topic is None else topic.topic_id)

    def _by_proof(self, spec: StorePartitionSpec, found: Look) -> _Judged:
        proof = found.proof
        assert proof is not None, "the rows were compared"
        torn = any(not prefix.is_prefix for prefix in proof.prefixes.values()) and not proof.suspects
        ranges = list(proof.ranges.values())
        torn = torn or not all(ranges) or proof.misplaced > 0
        seen = Seen(found.at_s, found.log, proof.suspects, torn)
        differing = confirmed(self._seen, seen)
        another = found.another_topic or (self._topic_since() if differing else "")
        count = sum(len(each.rows) for each in proof.suspects.values())
        offset = min((_certain(each, found) for each in ranges if each), default=-1)
        contents = _contents_of(proof, found)
        proves = seen.is_clean and 2 * contents.not_judged <= contents.store_rows > 0
        positions = dict(zip(proof.prefixes, ranges, strict=True))
        below = [at for at, claim in found.claims.items() if positions.get(at) and positions[at][-1].last < claim]
        if another and (below or not proves):
            contents = contents.model_copy(update={"not_proven": another, "offsets": ()})
            return _Judged(Status.UNCONFIRMED, Action.LATER, _of_another_topic(another), contents)
        if differing:
            named = _named(spec, [suspect for _, suspect in differing], found, self._options)
            contents = _with_differing(contents, [suspect for _, suspect in differing], named)
            detail = f"{len(differing)} rows differ from the changelog in two looks; {_ADVICE}"
            # One more look, so that the report names keys that only this look has shown, too.
            more = self.judged.status is not Status.DIVERGED and len(differing) < count
            self._seen.append(seen)
            return _Judged(Status.DIVERGED, Action.BY_HAND, detail, contents, pending=more)
        if seen.is_clean and not below:
            return _by_clean_proof(found, contents, offset, proves=proves)
        self._seen.append(seen)
        return self._by_doubtful_proof(found, contents, count, {at: positions[at][-1] for at in below})

    def _by_doubtful_proof(self, found: Look, contents: Contents, count: int, below: Mapping[int, Range]) -> _Judged:
        """Judge rows that differ in one look; `below` has the positions that are lower than the files state."""
        claimed = [at for at in below if self._claimed.get(at, -1) > below[at].last]
        self._claimed = {at: found.claims[at] for at in below}
        if claimed:
            return _with_wrong_claim(found.claims[claimed[0]], below[claimed[0]], contents)
        if below:
            at, position = next(iter(below.items()))
            why = f"its files state offset {found.claims[at]}, and its rows are those of offset {position.last}"
        elif count:
            why = f"{count} rows are not those of the store's position in its changelog"
        else:
            why = "its rows have no offset of the changelog in common"
        until = end_of(self._seen[0].log)
        said = f"{why}. A replay can cause this. A look after offset {until} is on disk confirms or refutes it"
        return _Judged(Status.UNCONFIRMED, Action.LATER, said, contents, pending=True)


def _by_clean_proof(found: Look, contents: Contents, offset: int, *, proves: bool) -> _Judged:
    """Judge rows of which none differs; `proves` if enough of them could be judged."""
    if found.behind:
        return _Judged(Status.UNCONFIRMED, Action.LATER, found.behind, contents, offset)
    if proves:
        return _Judged(Status.PROVEN, detail=unproven_keys(contents.unproven), contents=contents, offset=offset)
    rows, not_judged = contents.store_rows, contents.not_judged
    why = f"{not_judged} of {rows} rows could not be judged, as no record in the changelog explains them"
    why = why if rows else _NO_ROWS
    contents = contents.model_copy(update={"not_proven": why, "offsets": ()})
    at = offset if not_judged < max(rows, 1) else None
    return _Judged(Status.IN_USE, detail=f"not proven: {why}", contents=contents, offset=at)


def _by_global_proof(spec: StorePartitionSpec, proof: GlobalProof, another: str) -> _Judged:
    """Judge a global table by the offsets of its topic's partitions. Keys that several of them have do not count.

    Parameters
    ----------
    another
        How the topic has changed since the table was recorded; empty if it has not.
    """
    rows, digest = proof.digest.rows, proof.digest.hexdigest()
    contents = Contents(
        store_rows=rows,
        log_rows=rows,
        equal=max(rows - proof.shared, 0),
        not_judged=proof.shared,
        unproven=proof.unproven,
        store_digest=digest,
        partition_offsets=tuple(
            (partition.partition, first, last)
            for partition, prefix in proof.prefixes.items()
            for first, last in prefix.offsets
        ),
    )
    if proof.may_be_prefix and 2 * proof.shared <= rows > 0:
        return _Judged(Status.PROVEN, detail=unproven_keys(proof.unproven), contents=contents)
    unplaced = contents.model_copy(update={"partition_offsets": ()})
    if another:
        unplaced = unplaced.model_copy(update={"not_proven": another})
        return _Judged(Status.UNCONFIRMED, Action.LATER, _of_another_topic(another), unplaced)
    if not proof.may_be_prefix:
        why = "its rows are not those of any offsets of its topic"
        if spec.global_kind == "table":
            return _Judged(Status.UNCONFIRMED, Action.LATER, why, contents, pending=True)
        why = f"{why}, so it may be filled by a processor"
    elif rows:
        why = f"{proof.shared} of its keys are in several partitions of its topic"
    else:
        why = _NO_ROWS
    return _Judged(Status.IN_USE, detail=f"not proven: {why}", contents=unplaced.model_copy(update={"not_proven": why}))


def _of_another_topic(another: str) -> str:
    return f"{another}. Its rows are not those of the topic that is there now, and are not judged; {_ADVICE}"


def _with_wrong_claim(stated: int, rows_at: Range, contents: Contents) -> _Judged:
    """Judge a store whose files have stated an offset in two looks that its rows have in neither."""
    detail = f"its files state offset {stated}, and its rows are those of offset {rows_at.last}, in two looks"
    return _Judged(Status.WRONG_OFFSET, Action.BY_HAND, f"{detail}; {_ADVICE}", contents, offset=rows_at.last)


def _advice(spec: StorePartitionSpec, judged: _Judged) -> Advice | None:
    """Return the next step; it is never a restore."""
    if judged.action is Action.NONE:
        return None
    unconfirmed = Situation.UNCONFIRMED if judged.status is Status.UNCONFIRMED else Situation.IN_USE
    found = unconfirmed if judged.action is Action.LATER else Situation.DIFFERS_IN_USE
    return advice(found, target_of(spec))


def _contents_of(proof: Proof, found: Look) -> Contents:
    """Return what a proof shows, if no difference is confirmed."""
    ranges = list(proof.ranges.values())
    rows = proof.digest.rows
    not_judged = proof.not_judged + sum(each.not_judged for each in proof.suspects.values())
    offsets = common_ranges(ranges) if ranges else ()
    unproven = sum(
        prefix.doubts.count_at(_certain(each, found))
        for prefix, each in zip(proof.prefixes.values(), ranges, strict=True)
        if each
    )
    return Contents(
        store_rows=rows,
        log_rows=rows,
        equal=rows - not_judged,
        not_judged=not_judged,
        unproven=unproven,
        store_digest=proof.digest.hexdigest(),
        offsets=tuple((first, last) for first, last in (offsets or lowest(ranges))),
        brokers_timestamps=proof.append_times,
    )


def _certain(ranges: Sequence[Range], found: Look) -> int:
    """Return the last offset that a database certainly has."""
    first, last = ranges[-1]
    if first + 1 < found.log.start >= last + 1:  # unknown: the records between its rows and the log's start
        return max(first, -1 if found.committed is None else min(found.committed, last))
    return last


def _refusal(spec: StorePartitionSpec) -> str:
    """Return why a store cannot be verified while it is in use; empty if it can."""
    if not spec.store.files_are_known:
        return f"the files of a custom store cannot be read while it is in use: {_ADVICE}"
    return ""


def verify_live(
    specs: Sequence[StorePartitionSpec],
    options: VerifyOptions,
    archived: Callable[[Sequence[StorePartitionSpec]], Sequence[VerifyRow]] = lambda _: (),
    tasks: Mapping[tuple[str, int], int] = MappingProxyType({}),
) -> list[VerifyRow]:
    """Verify stores that are in use, or may be. Takes no lock, and writes nothing into the state directory.

    Parameters
    ----------
    archived
        Verifies stores whose home is the archive, where no application uses them.
    tasks
        How many tasks there are, by application and subtopology, where that is known.

    Raises
    ------
    KafkaUnavailableError
        If Kafka cannot be asked.
    StoreAccessError
        If the operating system refuses access.
    """
    if not all(spec.home.is_locked_in_use for spec in specs):
        kept = iter(archived([spec for spec in specs if not spec.home.is_locked_in_use]))
        looked = iter(verify_live([spec for spec in specs if spec.home.is_locked_in_use], options, tasks=tasks))
        return [next(looked) if spec.home.is_locked_in_use else next(kept) for spec in specs]
    clusters: dict[Cluster, Cluster] = {}  # equal clusters share the clients of the first
    watched = []
    for spec in specs:
        cluster = clusters.setdefault(spec.cluster, spec.cluster)
        watched.append(_Watched(spec, options, cluster, tasks.get((spec.application, spec.task.subtopology))))
    try:
        for each in watched:
            each.look()
        _look_again(watched, options)
        return [each.row() for each in watched]
    except OSError as error:
        raise of_os_error(error) from error


def _look_again(watched: Sequence[_Watched], options: VerifyOptions) -> None:
    """Look again at stores whose findings are not confirmed, until they are confirmed or the time is over."""
    deadline = monotonic() + options.confirm_within_s
    pauses = iter(_PAUSES_S)
    pause = next(pauses)
    while unconfirmed := [each for each in watched if each.judged.pending]:
        left = deadline - monotonic()
        if left <= 0:
            return
        for each in unconfirmed:
            _log.warning("%s: %s; looking again in %.0f s", each.row().label, each.judged.detail, min(pause, left))
        sleep(min(pause, left))
        for each in unconfirmed:
            each.look()
        pause = next(pauses, pause)


def was_read(row: VerifyRow) -> bool:
    """Return whether the files of a store in use could be read, or show why they cannot be."""
    read = row.end is not None or row.keys is not None or row.file is not None
    return read or row.status not in (Status.LOCKED, Status.MISSING, Status.EMPTY, Status.UNCONFIRMED)


def of_locked(options: VerifyOptions) -> VerifyOptions:
    """Return the options for locked stores: a short time, and no proof if a sample was requested."""
    depth: Depth = "scan" if options.sample is not None else options.depth
    within_s = min(options.confirm_within_s, _CONFIRM_LOCKED_S)
    return replace(options, depth=depth, sample=None, confirm_within_s=within_s)


def with_live(
    specs: Sequence[StorePartitionSpec], rows: Sequence[VerifyRow], options: VerifyOptions
) -> list[VerifyRow]:
    """Verify locked stores without their locks. The row of a store that cannot be read stays as it is."""
    locked = [
        at
        for at, row in enumerate(rows)
        if row.status is Status.LOCKED and specs[at].home.is_locked_in_use and not _refusal(specs[at])
    ]
    found = list(rows)
    if locked:
        looked = verify_live([specs[at] for at in locked], options)
        for at, row in zip(locked, looked, strict=True):
            if was_read(row):
                found[at] = row
    return found


# -- names of keys ----------------------------------------------------------------------------------------------------


def _with_differing(contents: Contents, suspects: Sequence[Suspect], named: Sequence[DifferingKey]) -> Contents:
    only_in_log = sum(not suspect.stored for suspect in suspects)
    only_in_store = sum(suspect.stored and suspect.record is None for suspect in suspects)
    return contents.model_copy(
        update={
            "only_in_log": only_in_log,
            "only_in_store": only_in_store,
            "other_value": len(suspects) - only_in_log - only_in_store,
            "equal": max(contents.equal - len(suspects) + only_in_log, 0),
            "first": tuple(named),
            "offsets": (),
        }
    )


def _named(
    spec: StorePartitionSpec, suspects: Sequence[Suspect], found: Look, options: VerifyOptions
) -> list[DifferingKey]:
    """Return the first keys that differ; the keys are read from the changelog, or from the store."""
    named: list[DifferingKey] = []
    for suspect in suspects[: options.first_keys]:
        key = found.keys.get(suspect.key) if suspect.record is None else _key_at(spec, suspect.record)
        if key is None:
            continue
        what = "only in log" if not suspect.stored else "only in store" if suspect.record is None else "other value"
        named.append(
            DifferingKey(
                found=what,
                key=key.hex() if options.name_keys else None,
                key_sha256=sha256(key).hexdigest(),
            )
        )
    return named


def _key_at(spec: StorePartitionSpec, offset: int) -> bytes | None:
    """Return the key of a record; None if it is no longer in the log."""
    try:
        with ChangelogReader(spec.cluster, spec.partition, read_committed=False) as reader:
            for batch in reader.read(offset, offset + 1):
                return bytes(batch.column(0)[0].as_py())
    except StateStoreError:
        return None
    return None
