"""Recognizes versioned stores (KIP-889) without a definition, by their rows or their changelog topic.

Kafka Streams makes their changelogs with a `min.compaction.lag.ms` of the history retention and a day. That tells the
retention, unless the topic was made otherwise. The numbers of segments and the times of their rows tell how long
segments are, and so contradict a retention that is not the store's. An application may give any store's changelog such
a setting. So where no row can be read, the setting tells neither the kind nor the retention, and the user is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from statestore.definitions.store import StoreDefinition
from statestore.discovery.hints import Hint
from statestore.discovery.kind_and_format import says, says_otherwise
from statestore.discovery.known_store import KnownStore
from statestore.discovery.shape import StoreShape
from statestore.discovery.store_directory import LiveStore
from statestore.errors import InputError, UnknownFormatError
from statestore.kinds.key_value import KEY_VALUE
from statestore.kinds.versioned import ADDITIONAL_COMPACTION_LAG_MS, COMPACTION_LAG, VERSIONED
from statestore.model import StoreFormat
from statestore.partition.spec import GLOBAL_TASK, ChangelogSpec


class Evidence(Protocol):
    """Evidence of a store; see `StoreEvidence`."""

    @property
    def name(self) -> str:
        """The store's."""

    @property
    def here(self) -> Sequence[LiveStore]:
        """Its directories."""

    @property
    def changelog(self) -> ChangelogSpec | None:
        """Its changelog topic."""

    @property
    def config(self) -> Mapping[str, str]:
        """Settings of that topic."""

    @property
    def known(self) -> KnownStore | None:
        """Earlier findings about it."""


def versioned_definition(evidence: Evidence, hint: Hint, shape: StoreShape | None) -> StoreDefinition | None:
    """Return what a versioned store is; None if the store is none.

    Raises
    ------
    UnknownFormatError
        If something shows that it is versioned, and something else is said of it, or shown by its rows.
    InputError
        If its retention is not known, or is not that of its rows; or if it may be versioned, and no row tells.
    """
    lag_ms = 0 if evidence.changelog is None else int(evidence.config.get(COMPACTION_LAG) or 0)
    if any(found.segmented for found in evidence.here):
        lag_ms = 0
    by_rows = shape is not None and shape.versioned
    if not by_rows and not lag_ms and not says(hint.kind, VERSIONED):
        return None
    name, shown = evidence.name, _shown(evidence, shape, lag_ms, by_rows=by_rows)
    has_rows = shape is not None and shape.versions is not None and shape.versions.rows > 0
    if says_otherwise(hint.kind, VERSIONED) or hint.format not in (None, StoreFormat.PLAIN):
        if has_rows:
            raise UnknownFormatError(f"{shown}. The given description is of another store")
        return None  # the topic alone speaks for a versioned one
    if shape is not None and shape.versions is None and not shape.unread:
        raise UnknownFormatError(
            f"{shown}, but {shape.directory} has rows that are not those of such a store. If it is certainly not "
            f"versioned, add --store {name}:kind=key-value"
        )
    unread, kept = _no_row(evidence, shape), None if evidence.known is None else evidence.known.definition
    if not has_rows and hint.kind is None and kept is not None and not kept.store_kind.has_history:
        return None
    if not has_rows and hint.kind is None and kept is None:
        raise InputError(f"{shown}, and {unread}: add --store {name}:kind={VERSIONED.name}|{KEY_VALUE.name}")
    if hint.global_kind is not None or any(found.task == GLOBAL_TASK for found in evidence.here):
        raise UnknownFormatError(
            f"{shown}, and it is a global store: versioned ones of all partitions are not known here"
        )
    by_topic_ms = lag_ms - ADDITIONAL_COMPACTION_LAG_MS
    retention_ms = hint.retention_ms or by_topic_ms
    if retention_ms <= 0:
        raise InputError(f"{shown}; nothing tells its history retention: add --retention {name}=MS")
    if hint.retention_ms is None and not has_rows:
        raise InputError(
            f"{shown}, which makes its history retention {by_topic_ms} ms if the application has not set that itself, "
            f"and {unread}: add --retention {name}={by_topic_ms}, or as the application has it"
        )
    fields = {
        "name": name,
        "kind": VERSIONED.name,
        "engine": "rocksDB",
        "retention_ms": retention_ms,
        "segment_interval_ms": hint.segment_interval_ms,
    }
    definition = StoreDefinition.model_validate(fields)
    _require_fitting_rows(definition, shape, hint, lag_ms)
    here = {found.task.subtopology for found in evidence.here}
    if here and hint.subtopology not in (None, *here):
        raise InputError(
            f"{evidence.here[0].directory} is not of sub-topology {hint.subtopology}; correct its subtopology"
        )
    return definition


def _no_row(evidence: Evidence, shape: StoreShape | None) -> str:
    """Say why no row tells anything."""
    if shape is None:
        return "no row of it can be read" if evidence.here else "no directory of it is left"
    return f"its rows cannot be read ({shape.unread})" if shape.unread else f"{shape.directory} has no row"


def _shown(evidence: Evidence, shape: StoreShape | None, lag_ms: int, *, by_rows: bool) -> str:
    if by_rows and shape is not None:
        return f"{shape.directory} has row keys that begin with segment ids, as those of versioned stores"
    if lag_ms and evidence.changelog is not None:
        topic = evidence.changelog.topic
        return f"Topic {topic} has {COMPACTION_LAG}={lag_ms}, as the changelogs of versioned stores have"
    return f"Store {evidence.name} is said to be versioned"


def _require_fitting_rows(definition: StoreDefinition, shape: StoreShape | None, hint: Hint, lag_ms: int) -> None:
    if shape is None or shape.versions is None:
        return
    interval_ms, found = VERSIONED.segment_interval_ms(definition), shape.versions
    if found.shortest_ms <= interval_ms <= found.longest_ms:
        return
    length = (
        f"{found.shortest_ms} ms"
        if found.shortest_ms == found.longest_ms
        else (
            f"{found.shortest_ms} to {found.longest_ms} ms"
            if found.shortest_ms < found.longest_ms
            else "of no one length"
        )
    )
    said = "is said" if hint.retention_ms else f"follows from {COMPACTION_LAG}={lag_ms}"
    name = definition.name
    raise InputError(
        f"{shape.directory} has rows in segments {length} long, but the history retention of {definition.retention_ms} "
        f"ms, which {said}, has segments of {interval_ms} ms: add --retention {name}=MS as the application has it, and "
        f"--store {name}:segment_interval_ms=MS if it says that, too"
    )
