"""What a found store is, from what was seen of it and what the user says. Pure: no files, no Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from statestore.errors import LockedError
from statestore.model import StoreDefinition, TaskId, changelog_topic
from statestore.partition.spec import ChangelogSpec
from statestore.stores.segments import segment_interval_ms
from statestore.verification.directories import StoreHere
from statestore.verification.hints import Hint
from statestore.verification.look import Look, store_format

#: Kafka Streams' default of `windowstore.changelog.additional.retention.ms`.
_ADDITIONAL_RETENTION_MS = 24 * 60 * 60 * 1000

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
    """

    name: str
    definition: StoreDefinition | None
    changelog: ChangelogSpec | None
    tasks: tuple[TaskId, ...]
    here: frozenset[TaskId]
    problem: str = ""
    trouble: Trouble | None = None

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
    """

    application: str
    name: str
    here: Sequence[StoreHere]
    look: Look | str | LockedError | None
    changelog: ChangelogSpec | None
    config: Mapping[str, str]


def found_store(seen: Seen, hint: Hint, tasks: Sequence[TaskId]) -> FoundStore:
    """Say what a store is, or what is needed to say it.

    Parameters
    ----------
    tasks
        Tasks that have the store, or should.
    """
    name, look = seen.name, seen.look
    store = FoundStore(name, None, seen.changelog, tuple(tasks), frozenset(found.task for found in seen.here))
    if isinstance(look, LockedError):
        return store.with_problem("in use", str(look))
    if isinstance(look, str):
        return store.with_problem("unknown", look)
    if seen.changelog is None and look is not None and not look.offsets:
        return store.with_problem("unlogged", "it has no changelog, so there is nothing to verify it against")
    if not seen.here and (hint.kind is None or hint.subtopology is None):
        topic = hint.changelog or changelog_topic(seen.application, name)
        return store.with_problem(
            "missing",
            f"topic {topic} is there, a directory of the store is not: to restore it, say --store "
            f"{name}:kind=key-value|window|session,format=plain|timestamped,subtopology=N; if it is kept in memory, "
            f"say --store {name}:engine=in_memory",
        )
    if hint.format is None and int(seen.config.get("min.compaction.lag.ms") or 0) > 0:
        return store.with_problem(
            "unknown",
            "its changelog has min.compaction.lag.ms, as those of versioned stores, which are not known here; if it "
            f"is another, say --store {name}:format=plain|timestamped",
        )
    return _defined(store, seen, hint, look)


def _defined(store: FoundStore, seen: Seen, hint: Hint, look: Look | None) -> FoundStore:
    name = store.name
    kind = hint.kind or _kind(seen.here, look)
    if kind is None and look is not None and look.rows:
        return store.with_problem("unknown", "its row keys are neither those of windows nor those of sessions")
    if kind is None:
        return store.with_problem("needed", f"no row tells its kind; say --store {name}:kind=window|session")
    if (contradiction := _contradiction(seen, hint, kind, look)) is not None:
        return store.with_problem("needed", contradiction)
    store_is = hint.format or (store_format(look) if look is not None else None)
    if store_is is None and kind != "session":
        return store.with_problem(
            "needed", f"no database tells its format; say --store {name}:format=plain|timestamped"
        )
    fields: dict[str, object] = {"name": name, "kind": kind, "format": store_is or "plain", "engine": "rocksDB"}
    if kind != "key-value":
        retention_ms = hint.retention_ms or _retention_ms(seen.config)
        if retention_ms is None:
            problem = f"retention.ms of its changelog does not tell its own retention; say --retention {name}=MS"
            return store.with_problem("needed", problem)
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


def _contradiction(seen: Seen, hint: Hint, kind: str, look: Look | None) -> str | None:
    """Tell where what is said of a store is not what its directories are."""
    if not seen.here:
        return None
    directory, subtopologies = seen.here[0].directory, {found.task.subtopology for found in seen.here}
    if (kind == "key-value") is seen.here[0].segmented:
        return f"{directory} is not that of a {kind} store; correct its kind"
    if look is not None and look.rows and kind not in look.spread_ms:
        return f"its row keys are not those of a {kind} store; correct its kind"
    if hint.subtopology is not None and hint.subtopology not in subtopologies:
        return f"{directory} is not of sub-topology {hint.subtopology}; correct its subtopology"
    return None


def _kind(here: Sequence[StoreHere], look: Look | None) -> str | None:
    if here and not here[0].segmented:
        return "key-value"
    if look is None or not look.rows or not look.spread_ms:
        return None
    # The wrong reading makes times of other bytes, which are far off if they fit at all.
    return min(look.spread_ms, key=lambda kind: look.spread_ms[kind])


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
