"""The recorded description of a store without a definition, from its directory or its user.

Nothing in Kafka tells a plain store from a timestamped one, or from one of EmitStrategy.onWindowClose, nor how long a
window or session store keeps its rows. `known_stores_file.py` keeps what was found out.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from statestore.definitions.store import StoreDefinition
from statestore.discovery.hints import Hint
from statestore.partition.spec import GlobalKind
from statestore.stores.manifest import DatabaseProgress


class StoreProgress(BaseModel):
    """How far a store had been written when it was last verified.

    Attributes
    ----------
    committed
        Its committed offset; None: it had none.
    databases
        By the name of the directory, "" for the only one.
    restored_by
        The restore that had put it there; None: none had.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    committed: int | None = None
    databases: Mapping[str, DatabaseProgress] = {}
    restored_by: str | None = None


class KnownStore(BaseModel):
    """Known description of one store.

    Attributes
    ----------
    definition
        Its kind, format and retention; None: they are not known.
    segment_interval_ms
        Length of its segments; None: it has none.
    subtopology
        Of its tasks.
    changelog, topic_id
        Its changelog topic; what is known holds for this one alone.
    described
        What a user said that it is, where nothing else showed it; empty: its directories did.
    unknown
        Why it is none that we know; empty if it is.
    guessed
        Whether that was concluded from rows and settings of the topic: then what a user says goes before it.
    in_memory
        A user said that it is kept in memory.
    segments
        By task and directory of a segment: the identity of its database.
    progress
        By task: how far its databases had been written, and its committed offset then.
    offsets_beside
        Whether its application has its offsets beside its stores, as Kafka Streams before 4.3 has; None: not known.
    is_global
        It is a global store.
    global_kind, global_said
        How that is filled, and whether somebody has said so, as of `StorePartitionSpec`.
    stale
        By directory that was left from a former topology, below the application's: the offset of the last changelog
        record in it, -1 if it has none.
    seen_ms
        When it was seen so last, ms since the epoch.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    definition: StoreDefinition | None = None
    segment_interval_ms: int | None = None
    subtopology: int | None = None
    changelog: str = ""
    topic_id: str = ""
    described: str = ""
    unknown: str = ""
    guessed: bool = True
    in_memory: bool = False
    segments: Mapping[str, Mapping[str, str]] = {}
    progress: Mapping[str, StoreProgress] = {}
    offsets_beside: bool | None = None
    is_global: bool = False
    global_kind: GlobalKind | None = None
    global_said: bool = False
    stale: Mapping[str, int] = {}
    seen_ms: int = 0

    @property
    def shown(self) -> bool:
        """True where its own directory showed what it is."""
        return not self.in_memory and not self.described and (self.definition is not None or bool(self.unknown))

    def completed(self, hint: Hint) -> Hint:
        """Return what is said of a store, and what is known where nothing is said."""
        if self.definition is None:
            return hint.model_copy(update={"engine": hint.engine or ("in_memory" if self.in_memory else None)})
        kept = self.definition
        known = {
            "kind": kept.kind,
            "format": kept.format,
            "retention_ms": kept.retention_ms,
            "segment_interval_ms": kept.segment_interval_ms,
            "subtopology": self.subtopology,
            "changelog": self.changelog,
            "global_kind": self.global_kind,
        }
        return hint.model_copy(update={name: known[name] for name in known if getattr(hint, name) is None})

    def contradiction(self, hint: Hint) -> str:
        """Say what of what is said of a store its own directory has shown to be otherwise; empty if nothing."""
        if not self.shown or self.definition is None:
            return ""
        kept = self.definition
        said = {"kind": kept.kind, "format": kept.format}  # the application may have changed the retention since
        return ", ".join(
            f"{name}={value}, not {getattr(hint, name)}"
            for name, value in said.items()
            if getattr(hint, name) not in (None, value)
        )
