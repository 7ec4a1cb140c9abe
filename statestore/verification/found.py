"""What a found store is, from what was seen of it and what the user says. Pure: no files, no Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from statestore.definitions.store import StoreDefinition
from statestore.errors import LockedError
from statestore.model import TaskId, TopicPartition, changelog_topic
from statestore.partition.spec import ChangelogSpec
from statestore.stores.segments import segment_interval_ms
from statestore.verification.directories import StoreHere
from statestore.verification.hints import Hint
from statestore.verification.look import Look, store_format

#: Kafka Streams' default of `windowstore.changelog.additional.retention.ms`.
_ADDITIONAL_RETENTION_MS = 24 * 60 * 60 * 1000

#: What a versioned store's changelog has (KIP-889), and no other that Kafka Streams makes.
COMPACTION_LAG = "min.compaction.lag.ms"

_LEFT_ALONE = "Nothing was changed. Leave the store to Kafka Streams, which restores it by itself."

_RETENTION_NEEDED = "retention.ms of its changelog does not tell its own retention; say --retention {name}=MS"

Trouble = Literal["needed", "unknown", "unlogged", "missing", "in use"]


@dataclass(frozen=True)
class FoundStore:
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
        What sort of problem that is: an option is `needed`, the store is in a format that is `unknown`, it is
        `unlogged`, its directory is `missing` and only its topic is known, or it could not be looked into because it is
        `in use`.
    described
        What the user says that it is; empty if nothing.
    applied
        By changelog partition: the offset of a record that a store here is known to have.
    """

    name: str
    definition: StoreDefinition | None
    changelog: ChangelogSpec | None
    tasks: tuple[TaskId, ...]
    here: frozenset[TaskId]
    problem: str = ""
    trouble: Trouble | None = None
    described: str = ""
    applied: Mapping[TopicPartition, int] = field(default_factory=dict)

    def with_problem(self, trouble: Trouble, problem: str) -> FoundStore:
        """Return the store with a problem."""
        return replace(self, definition=None, trouble=trouble, problem=problem)


@dataclass(frozen=True)
class Seen:
    """What was seen of one store.

    Attributes
    ----------
    here
        Its directories.
    look
        What a look into one of them told: a text is why the store is left alone, an error that all are in use; None:
        there was nothing to look into.
    changelog, config
        Its changelog topic, if there is one, and that topic's settings.
    header
        Where no directory tells what it is: a header in the changelog that stores which we know do not log.
    """

    application: str
    name: str
    here: Sequence[StoreHere]
    look: Look | str | LockedError | None
    changelog: ChangelogSpec | None
    config: Mapping[str, str]
    header: str | None = None


def found_store(seen: Seen, hint: Hint, tasks: Sequence[TaskId]) -> FoundStore:
    """Say what a store is, or what is needed to say it.

    Parameters
    ----------
    tasks
        Tasks that have the store, or should.
    """
    name, look = seen.name, seen.look
    store = FoundStore(
        name,
        None,
        seen.changelog,
        tuple(tasks),
        frozenset(found.task for found in seen.here),
        described=hint.description,
        applied=look.applied if isinstance(look, Look) else {},
    )
    if isinstance(look, LockedError):
        return store.with_problem("in use", str(look))
    if isinstance(look, str):
        return _unknown(store, look) if store.described else store.with_problem("unknown", look)
    if seen.changelog is None and look is not None and not look.offsets:
        return store.with_problem("unlogged", "it has no changelog, so there is nothing to verify it against")
    if not seen.here and (hint.kind is None or hint.subtopology is None):
        topic = hint.changelog or changelog_topic(seen.application, name)
        return store.with_problem(
            "missing",
            f"topic {topic} is there, a directory of the store is not: to restore it, say --store "
            f"{name}:kind=key-value|window|session,format=plain|timestamped,subtopology=N; if it is kept in memory, "
            f"say --store {name}:engine=in_memory; leave it out if it is versioned, keeps headers, or belongs to "
            "EmitStrategy.onWindowClose",
        )
    if (given_away := _by_topic(seen)) is not None:
        return _unknown(store, given_away)
    return _defined(store, seen, hint, look)


def _unknown(store: FoundStore, reason: str) -> FoundStore:
    described = f" It was described as {store.described}." if store.described else ""
    return store.with_problem("unknown", f"{reason}.{described} {_LEFT_ALONE}")


def _by_topic(seen: Seen) -> str | None:
    """Tell what the changelog alone gives away of a store that we do not know."""
    lag_ms = int(seen.config.get(COMPACTION_LAG) or 0)
    if seen.changelog is not None and lag_ms > 0 and not any(found.segmented for found in seen.here):
        return (
            f"Topic {seen.changelog.topic} has {COMPACTION_LAG}={lag_ms}, as the changelogs of versioned stores have; "
            "these are not known here. If the store is certainly not versioned, delete that setting from the topic "
            "first"
        )
    if seen.changelog is not None and seen.header is not None:
        return (
            f"Topic {seen.changelog.topic} has records with the header {seen.header!r}, as the changelogs of stores "
            "that keep headers have; these are not known here"
        )
    return None


def _defined(store: FoundStore, seen: Seen, hint: Hint, look: Look | None) -> FoundStore:
    name = store.name
    retention_ms = hint.retention_ms or _retention_ms(seen.config)
    interval_ms = None if retention_ms is None else segment_interval_ms(retention_ms)
    if look is not None and (given_away := _by_row_keys(seen, look, interval_ms)) is not None:
        return _unknown(store, given_away)
    kinds = _kinds(seen.here, look, interval_ms)
    kind = hint.kind or (kinds[0] if len(kinds) == 1 else None)
    if kind is None and kinds and retention_ms is None:
        return store.with_problem("needed", _RETENTION_NEEDED.format(name=name))
    if kind is None:
        found = f"its row keys can be those of {' and of '.join(kinds)} stores" if kinds else "no row tells its kind"
        return store.with_problem("needed", f"{found}; say --store {name}:kind=window|session")
    if (contradiction := _contradiction(seen, hint, kind, look, kinds)) is not None:
        return store.with_problem("needed", contradiction)
    store_is = hint.format or (store_format(look) if look is not None else None)
    if store_is is None and kind != "session":
        return store.with_problem(
            "needed", f"no database tells its format; say --store {name}:format=plain|timestamped"
        )
    fields: dict[str, object] = {"name": name, "kind": kind, "format": store_is or "plain", "engine": "rocksDB"}
    if kind != "key-value":
        if retention_ms is None:
            return store.with_problem("needed", _RETENTION_NEEDED.format(name=name))
        odd = None if look is None else _odd_segment(look, kind, retention_ms)
        if odd is not None:
            return store.with_problem(
                "needed",
                f"segment {name}.{odd} does not fit a retention of {retention_ms} ms, which makes segments "
                f"{segment_interval_ms(retention_ms)} ms long; say --retention {name}=MS as the application has it",
            )
        fields["retention_ms"] = retention_ms
    if kind == "window":
        # No file tells how long a window is, and no row depends on it.
        fields |= {"window_size_ms": 0, "retain_duplicates": look is not None and look.duplicates}
    return replace(store, definition=StoreDefinition.model_validate(fields))


def _contradiction(seen: Seen, hint: Hint, kind: str, look: Look | None, kinds: Sequence[str]) -> str | None:
    """Tell where what is said of a store is not what its directories are."""
    if not seen.here:
        return None
    directory, subtopologies = _directory(seen, look), {found.task.subtopology for found in seen.here}
    if (kind == "key-value") is seen.here[0].segmented:
        return f"{directory} is not that of a {kind} store; correct its kind"
    if kinds and kind not in kinds:
        return f"{directory} has row keys of a {' or '.join(kinds)} store, not of a {kind} store; correct its kind"
    if look is not None and look.families and hint.format not in (None, store_format(look)):
        return (
            f"{directory} has the column families {', '.join(sorted(look.families))}, which are those of a "
            f"{store_format(look)} store, not of a {hint.format} one; correct its format"
        )
    if hint.subtopology is not None and hint.subtopology not in subtopologies:
        return f"{directory} is not of sub-topology {hint.subtopology}; correct its subtopology"
    return None


def _directory(seen: Seen, look: Look | None) -> Path:
    """Directory that was looked into; the first one if none was."""
    return seen.here[0].directory if look is None or look.directory is None else look.directory


def _by_row_keys(seen: Seen, look: Look, interval_ms: int | None) -> str | None:
    """Tell what its row keys give away of a window or session store that we do not know; None if we know it."""
    if not look.rows or not look.starts:
        return None
    ordered = _within(look.time_ordered_ms, interval_ms)
    ordinary = _within(look.spread_ms, interval_ms)
    directory = _directory(seen, look)
    times_first = "begin with 00 or 01 and their times, as in stores of EmitStrategy.onWindowClose"
    if look.indexed or (ordered and not ordinary):
        return f"{directory} has row keys that {times_first}; these are not known here"
    if ordered:
        said = "" if interval_ms is not None else f". If it is no such store, say --retention {seen.name}=MS"
        return (
            f"{directory} has row keys that can be read in two ways: as those of a {' or '.join(ordinary)} store, "
            f"and as such that {times_first}; these are not known here{said}"
        )
    if not look.spread_ms:
        return f"{directory} has row keys that are neither those of windows nor those of sessions"
    return None


def _within(spread_ms: Mapping[str, int], interval_ms: int | None) -> list[str]:
    """Kinds whose reading of row keys puts no row behind the end of its segment, as far as that is known."""
    return [kind for kind, widest in spread_ms.items() if interval_ms is None or widest < interval_ms]


def _kinds(here: Sequence[StoreHere], look: Look | None, interval_ms: int | None) -> list[str]:
    """Kinds that a store can be of, by its directories and row keys."""
    if here and not here[0].segmented:
        return ["key-value"]
    if look is None or not look.rows:
        return []
    # If no segment is as long, the retention is not the store's: the nearest reading is told with that.
    return _within(look.spread_ms, interval_ms) or sorted(look.spread_ms, key=lambda kind: look.spread_ms[kind])[:1]


def _retention_ms(config: Mapping[str, str]) -> int | None:
    """Retention (ms) of a windowed store by its changelog's, which Kafka Streams makes longer by a day."""
    if "delete" not in config.get("cleanup.policy", ""):
        return None
    found = int(config.get("retention.ms") or -1) - _ADDITIONAL_RETENTION_MS
    return found if found > 0 else None


def _odd_segment(look: Look, kind: str, retention_ms: int) -> int | None:
    """Start of a segment that cannot be one of this retention; None if all can."""
    interval_ms = segment_interval_ms(retention_ms)
    odd = [start for start in look.starts if start % interval_ms]
    if not odd and look.rows and look.spread_ms.get(kind, interval_ms) >= interval_ms:
        odd = list(look.starts)
    return odd[0] if odd else None
