"""A discovered store: its description, from evidence and the user's statements. Pure: no files, no Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from statestore.definitions.store import StoreDefinition
from statestore.discovery.hints import Hint
from statestore.discovery.kind_and_format import (
    Remedy,
    discovered_kind,
    format_of,
    kind_with_times_in_front,
    refuse_other_row_keys,
    says,
    says_otherwise,
)
from statestore.discovery.known_store import KnownStore, StoreProgress
from statestore.discovery.log_headers import SUPPRESSED
from statestore.discovery.shape import StoreShape
from statestore.discovery.store_directory import LiveStore
from statestore.discovery.versioned import versioned_definition
from statestore.errors import InputError, LockedError, UnknownFormatError
from statestore.kinds.key_value import KEY_VALUE
from statestore.kinds.kind import ADDITIONAL_RETENTION_MS
from statestore.kinds.known import BUILT_IN
from statestore.kinds.time_ordered import TIME_ORDERED_BUFFER
from statestore.model import StoreFormat, TaskId, TopicPartition, changelog_topic
from statestore.partition.spec import GLOBAL_TASK, ChangelogSpec, GlobalKind
from statestore.stores.segment_starts import segment_interval_ms

_NOTHING_SAID = {"kind": None, "format": None}
_LEFT_ALONE = "Nothing was changed. Leave the store to Kafka Streams, which restores it itself."

Trouble = Literal[
    "needed", "damaged", "unknown", "unlogged", "in memory", "missing", "in use", "stale", "undetermined", "foreign"
]
#: Troubles of stores that are not judged, and that a user may acknowledge.
NOT_JUDGED: tuple[Trouble, ...] = ("unknown", "needed", "missing")
#: A store's shape, or why none is known: it is none that we know, or all of it is in use; None: none can be read.
Shape = StoreShape | UnknownFormatError | LockedError | None


@dataclass(frozen=True)
class DiscoveredStore:
    """A store of an application.

    Attributes
    ----------
    definition
        What it is; None if that is not known, or if it is left alone.
    changelog
        Its changelog topic; None if there is none.
    tasks
        Tasks that have it, or should.
    here
        Those of them that have a directory of it.
    problem
        Why it cannot be verified or restored, and what to do about it; empty if it can.
    trouble
        What sort of problem that is: an option is `needed`; it is needed because the store is `damaged`, and no
        database of it can be read; the store is in a format that is `unknown`; it is `unlogged`; it is kept
        `in memory`; its directory is `missing` and only its topic is known; it could not be looked into because it is
        `in use`; its directory is `stale`, left from a former topology; it is `undetermined` which directory is; or the
        topic of that name is `foreign`, which is another application's.
    described
        What a user says or has said that it is, where nothing else shows it; empty if nothing.
    shown
        Whether its directories show what it is, without a word of a user's.
    unknown
        What its directory shows that is not known here; empty if nothing.
    guessed
        Whether that was concluded from rows and settings of the topic, and so may be wrong.
    segments
        By task and directory of a segment that was seen there: the identity of its database.
    progress
        By task: how far it had been written when it was last verified.
    applied
        By changelog partition: the offset of a record that a store here is known to have.
    global_kind, global_said
        How a global store is filled, as of `StorePartitionSpec`.
    stale
        Its stale directories, as of `KnownStore`.
    acknowledged
        Why it need not be judged, if a user has said so; empty otherwise.
    """

    application: str
    name: str
    definition: StoreDefinition | None = None
    changelog: ChangelogSpec | None = None
    tasks: tuple[TaskId, ...] = ()
    here: frozenset[TaskId] = frozenset()
    problem: str = ""
    trouble: Trouble | None = None
    described: str = ""
    shown: bool = False
    unknown: str = ""
    guessed: bool = False
    segments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    progress: Mapping[str, StoreProgress] = field(default_factory=dict)
    applied: Mapping[TopicPartition, int] = field(default_factory=dict)
    global_kind: GlobalKind | None = None
    global_said: bool = False
    stale: Mapping[str, int] = field(default_factory=dict)
    acknowledged: str = ""

    @property
    def label(self) -> str:
        """Application and store, for messages."""
        return f"{self.application}/{self.name}"

    def with_problem(self, trouble: Trouble, problem: str) -> DiscoveredStore:
        """Return the store with a problem."""
        return replace(self, definition=None, trouble=trouble, problem=problem)


@dataclass(frozen=True)
class StoreEvidence:
    """Known facts about a store.

    Attributes
    ----------
    here
        Its directories.
    shape
        The shape of one of them.
    changelog, config
        Its changelog topic, if there is one, and that topic's settings.
    header
        Where no directory tells what it is: a header in the changelog that stores which we know do not log.
    known
        What was found out about it before.
    by_user
        What a user says of it now, without what is known; None: nothing is known.
    """

    application: str
    name: str
    here: Sequence[LiveStore]
    shape: Shape
    changelog: ChangelogSpec | None
    config: Mapping[str, str]
    header: str | None = None
    known: KnownStore | None = None
    by_user: Hint | None = None


def discovered_store(evidence: StoreEvidence, hint: Hint, tasks: Sequence[TaskId]) -> DiscoveredStore:
    """Say what a store is, or what is needed to say it.

    Parameters
    ----------
    hint
        What a user says of it, completed with what is known.
    tasks
        Tasks that have the store, or should.
    """
    name, shape, known = evidence.name, evidence.shape, evidence.known
    store = DiscoveredStore(
        evidence.application,
        name,
        changelog=evidence.changelog,
        tasks=tuple(tasks),
        here=frozenset(found.task for found in evidence.here),
        described=_described(evidence, hint),
        progress={} if known is None else known.progress,
        segments={} if known is None or _has_other_retention(known, hint) else known.segments,
        applied=_known(shape.offsets) if isinstance(shape, StoreShape) else {},
        global_kind=hint.global_kind,
        global_said=_is_said_of_global(evidence, hint),
    )
    if isinstance(shape, LockedError):
        return store.with_problem("in use", str(shape))
    if isinstance(shape, UnknownFormatError):
        store = replace(store, unknown=str(shape))
        return _unknown(store, str(shape)) if store.described else store.with_problem("unknown", str(shape))
    if evidence.changelog is None and shape is not None and not shape.offsets:
        return store.with_problem("unlogged", "it has no changelog, so there is nothing to verify it against")
    if not evidence.here and evidence.header == SUPPRESSED and not store.described:
        return store.with_problem("in memory", "records of its changelog are those of a suppression")
    by_user = (evidence.by_user or hint).description
    if known is not None and known.unknown and not evidence.here and not (by_user and known.guessed):
        again = f"To have it described anew: statestore partitions --application {evidence.application} --forget {name}"
        return _unknown(store, f"What is known of it: {known.unknown}. {again}")
    if known is not None and shape is None and (otherwise := known.contradiction(evidence.by_user or hint)):
        again = f"statestore partitions --application {evidence.application} --forget {name}"
        problem = (
            f"when a directory of it was last seen, it had {otherwise}; correct that, or forget what was seen: {again}"
        )
        return store.with_problem("needed", problem)
    is_global = GLOBAL_TASK in tasks
    if is_global and (needed := _needed_of_global(evidence, hint)):
        return store.with_problem("needed", needed)
    if not evidence.here and not is_global and (hint.kind is None or hint.subtopology is None):
        topic = hint.changelog or changelog_topic(evidence.application, name)
        task = ",subtopology=N" if hint.subtopology is None else ""
        return store.with_problem(
            "missing",
            f"topic {topic} exists, but no directory of the store does. To restore the store, add --shapes FILE, or "
            f"--store {name}:kind=key-value|window|session|versioned,format=plain|timestamped|headers{task}. "
            "Window, session and versioned stores also need retention_ms=MS. "
            "Kinds with EmitStrategy.onWindowClose: time-ordered-window (tumbling and hopping windows), "
            "indexed-time-ordered-window (sliding windows), time-ordered-session. Kind for a join with a grace period: "
            f"time-ordered-buffer. If the store is kept in memory, add --store {name}:engine=in_memory. If the "
            "topic is another application's, or this one no longer has the store: "
            f"{acknowledgement(evidence.application, name)}",
        )
    try:
        _refuse_by_topic(evidence, hint)
        return replace(store, definition=_definition(evidence, hint, shape), shown=_is_shown(evidence, hint, shape))
    except UnknownFormatError as error:
        return _unknown(replace(store, unknown=str(error) if evidence.here else "", guessed=True), str(error))
    except InputError as error:
        if evidence.here and shape is None:
            return store.with_problem("damaged", f"no database of it can be read; {error}")
        return store.with_problem("needed", str(error))


def acknowledgement(application: str, store: str) -> str:
    """Return the command that acknowledges a store that cannot be judged."""
    return f"statestore partitions --application {application} --acknowledge {store}"


def _is_said_of_global(evidence: StoreEvidence, hint: Hint) -> bool:
    """Tell whether it is somebody's word how a global store is filled."""
    known = evidence.known
    return (evidence.by_user or hint).global_kind is not None or (known is not None and known.global_said)


def _needed_of_global(evidence: StoreEvidence, hint: Hint) -> str:
    """Say what must be said of a global store, or corrected; empty if nothing."""
    name = evidence.name
    if hint.subtopology is not None:
        return "a global store is of no sub-topology; leave its subtopology out"
    if not evidence.here and evidence.changelog is None:
        return f"its topic is not known; add --changelog {name}=TOPIC"
    if hint.global_kind == "table" and (
        says_otherwise(hint.kind, KEY_VALUE) or any(found.segmented for found in evidence.here)
    ):
        return "a global table is a key-value store; correct its kind, or state global=processor"
    return ""


def _is_shown(evidence: StoreEvidence, hint: Hint, shape: StoreShape | None) -> bool:
    """Tell whether a store's kind and format would be known if nobody said them."""
    try:
        return shape is not None and bool(_definition(evidence, hint.model_copy(update=_NOTHING_SAID), shape))
    except (InputError, UnknownFormatError):
        return False


def _described(evidence: StoreEvidence, hint: Hint) -> str:
    """Return what a user says or has said of a store's kind and format, where nothing else shows them."""
    known, said = evidence.known, (evidence.by_user or hint).description
    if known is None or known.definition is None:
        return said
    if known.shown:
        return said if isinstance(evidence.shape, StoreShape) else ""
    same = not isinstance(evidence.shape, StoreShape) or known.definition.format is evidence.shape.format
    return said or (known.described if same else "")


def _has_other_retention(known: KnownStore, hint: Hint) -> bool:
    """Return whether the retention was changed since segments of a store were last seen."""
    before = None if known.definition is None else known.definition.retention_ms
    return hint.retention_ms is not None and hint.retention_ms != before


def _known(offsets: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    return {partition: offset for partition, offset in offsets.items() if offset is not None}


def _unknown(store: DiscoveredStore, reason: str) -> DiscoveredStore:
    described = f" It was described as {store.described}." if store.described else ""
    return store.with_problem("unknown", f"{reason}.{described} {_LEFT_ALONE}")


def _refuse_by_topic(evidence: StoreEvidence, hint: Hint) -> None:
    """Refuse a store that the changelog alone shows to be one that we do not know."""
    if evidence.changelog is None:
        return
    topic = evidence.changelog.topic
    policy, shape = evidence.config.get("cleanup.policy"), evidence.shape
    if isinstance(shape, StoreShape) and shape.buffered and "delete" in (policy or ""):
        raise UnknownFormatError(
            f"{shape.directory} has row keys as the buffers of joins with a grace period, and topic {topic} has "
            f"cleanup.policy={policy}, which theirs do not have"
        )
    may_be_buffer = isinstance(shape, StoreShape) and shape.starts == (0,) and policy == "compact"
    if may_be_buffer and not (shape.buffered or says(hint.kind, TIME_ORDERED_BUFFER)):  # type: ignore[union-attr]
        rows = "rows with other keys, as Kafka Streams itself restores them (see docs/operations.md)"
        raise UnknownFormatError(
            f"{shape.directory} has one segment, which starts at 0 and has "  # type: ignore[union-attr]
            f"{rows if shape.rows else 'no rows'}, and topic {topic} is compacted and "  # type: ignore[union-attr]
            "nothing else, as with the buffers of joins with a grace period. If it is one, add --store "
            f"{evidence.name}:kind={TIME_ORDERED_BUFFER.name}"
        )
    if evidence.header is not None and hint.format is not StoreFormat.HEADERS:
        raise UnknownFormatError(
            f"Topic {topic} has records with the header {evidence.header!r}, as the changelogs of stores that keep "
            f"headers have. If it keeps them, add --store {evidence.name}:format=headers"
        )


def _definition(evidence: StoreEvidence, hint: Hint, shape: StoreShape | None) -> StoreDefinition:
    """Return what a store is.

    Raises
    ------
    UnknownFormatError
        If it is not one that we know.
    InputError
        If something is needed to say it, or what is said is not so.
    """
    name = evidence.name
    if (found := versioned_definition(evidence, hint, shape)) is not None:
        return found

    def remedy(setting: str, values: Sequence[str]) -> str:
        option = f"--retention {name}" if setting == "retention_ms" else f"--store {name}:{setting}"
        return f"add {option}={'|'.join(values)}"

    retention_ms = hint.retention_ms or _retention_ms(evidence.config, shape)
    interval_ms = None if retention_ms is None else segment_interval_ms(retention_ms)
    kind: str | None = hint.kind
    if evidence.here:
        here = evidence.here[0]
        in_front = None
        if shape is not None:
            in_front = kind_with_times_in_front(shape, kind, shape.certain_limit_ms(interval_ms), remedy)
        if in_front is None and shape is not None:
            refuse_other_row_keys(shape)
        kind = in_front or discovered_kind(here, shape, kind, interval_ms, remedy)
        if hint.subtopology is not None and all(found.task.subtopology != hint.subtopology for found in evidence.here):
            raise InputError(f"{here.directory} is not of sub-topology {hint.subtopology}; correct its subtopology")
    if kind is None and hint.global_kind is not None:
        kind = KEY_VALUE.name
    assert kind is not None, "one that has no directory is described"
    store_format = format_of(kind, shape, hint.format, remedy)
    fields: dict[str, object] = {"name": name, "kind": kind, "format": store_format, "engine": "rocksDB"}
    known = BUILT_IN[kind]
    if known.times:
        if retention_ms is None:
            said = "no segment is left that shows its retention" if not evidence.here or shape is None else ""
            said = said or "retention.ms of its changelog does not tell its own retention"
            raise InputError(f"{said}; {remedy('retention_ms', ('MS',))}")
        if shape is not None:
            _require_fitting_segments(name, shape, kind, retention_ms, remedy, said=hint.retention_ms is not None)
            if hint.retention_ms is None:
                _require_shown_segments(name, shape, retention_ms, remedy)
        fields["retention_ms"] = retention_ms
    if "window_size_ms" in known.times:  # no file tells how long a window is, and no row depends on it
        fields["window_size_ms"] = 0
    if known.may_retain_duplicates:
        kept = None if evidence.known is None else evidence.known.definition
        fields["retain_duplicates"] = shape.duplicates if shape is not None else bool(kept and kept.retain_duplicates)
    return StoreDefinition.model_validate(fields)


def _retention_ms(config: Mapping[str, str], shape: StoreShape | None) -> int | None:
    """Retention (ms) of a windowed store by its changelog's, which Kafka Streams makes longer by a day.

    The application may have it made longer by something else (`windowstore.changelog.additional.retention.ms`): it is
    believed only where segments can contradict it.
    """
    if shape is None or not shape.starts or "delete" not in config.get("cleanup.policy", ""):
        return None
    found = int(config.get("retention.ms") or -1) - ADDITIONAL_RETENTION_MS
    return found if found > 0 else None


def _require_fitting_segments(
    name: str, shape: StoreShape, kind: str, retention_ms: int, remedy: Remedy, *, said: bool
) -> None:
    """Refuse a retention that the segments cannot be of.

    A stated retention may be shorter than the one that made the older segments. Kafka Streams deletes those with its
    next write, and until then finds only the first rows of each. Nothing is lost if all of their rows have expired.
    """
    interval_ms = segment_interval_ms(retention_ms)
    odd = [start for start in shape.starts if start % interval_ms]
    if shape.are_left_over(odd):
        odd = []
    spread_ms = shape.spread_of(kind)
    if not odd and shape.rows and (interval_ms if spread_ms is None else spread_ms) >= interval_ms:
        longer = shape.unexpired_in_longer(kind, retention_ms, interval_ms) if said else None
        if longer:
            named = ", ".join(f"{name}.{start}" for start in longer)
            raise InputError(
                f"segments {named} were made with a longer retention, and may have rows that have not expired with the "
                f"present one of {retention_ms} ms. Kafka Streams does not find these rows, and deletes them with one "
                f"of its next writes. To keep them, stop the application, move {shape.directory} away, and restore the "
                "store from its changelog"
            )
        odd = list(shape.starts) if longer is None else []
    if odd:
        raise InputError(
            f"segment {name}.{odd[0]} does not fit a retention of {retention_ms} ms, which makes segments "
            f"{interval_ms} ms long{_several_lengths(name, shape)}; {remedy('retention_ms', ('MS',))} as the "
            "application has it"
        )


def _several_lengths(name: str, shape: StoreShape) -> str:
    """Return the part of a message that names segments of several lengths; empty if all have the same length."""
    if not shape.overlapping:
        return ""
    newest = max(shape.segment_offsets.values(), default=0)
    behind = [f"{name}.{start}" for start, offset in shape.segment_offsets.items() if offset < newest]
    left_over = f", and {', '.join(sorted(behind))} are left over from before" if behind else ""
    return f". Segments have several lengths, as after a change of the retention{left_over}"


def _require_shown_segments(name: str, shape: StoreShape, retention_ms: int, remedy: Remedy) -> None:
    """Refuse a retention that only the changelog tells, where segments may be longer than it makes them."""
    interval_ms, longest_ms = segment_interval_ms(retention_ms), shape.longest_segment_ms
    if longest_ms is not None and longest_ms != interval_ms:
        raise InputError(
            f"{shape.directory} has segments {longest_ms} ms apart, and retention.ms of its changelog, less the day "
            f"that Kafka Streams adds by default, makes segments {interval_ms} ms long: either some are missing "
            f"between them, or the application has windowstore.changelog.additional.retention.ms; "
            f"{remedy('retention_ms', ('MS',))} as the application has it"
        )
