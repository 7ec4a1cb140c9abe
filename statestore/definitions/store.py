"""What a store is."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from statestore.definitions.fields import Definition, Engine, KindName, Line, Reference, SerdeName, Suite
from statestore.formats.value_format import ValueFormat
from statestore.kinds.kind import StoreKind
from statestore.kinds.known import BUILT_IN, kind_of
from statestore.kinds.versioned import VERSIONED
from statestore.model import Name, StoreFormat, changelog_topic


class StoreDefinition(Definition):
    """One store of an application.

    Attributes
    ----------
    kind
        Of the user's own: the `module:attribute` of a `StoreKind` (docs/extending.md).
    engine
        Where its rows are; the application's `default_dsl_store` if not said.
    supplier
        Makes a store of the user's own: a function that is called with this definition and returns a supplier. `engine`
        then says what that store is: `in_memory` if it does not outlive its process, `txn_rocksDB` if it is
        transactional, else `rocksDB`.
    retention_ms
        How long a window or session store keeps its rows, and a versioned one earlier values (Kafka Streams' history
        retention).
    window_size_ms
        Length of a window, in a window store.
    segment_interval_ms
        How long a segment of a versioned store is; what Kafka Streams' supplier chooses by default if not said.
    retain_duplicates
        Whether a window store adds a value at each put instead of replacing the one before.
    key_serde, value_serde
        Types that a processor sees. An aggregation writes its own: `value_serde` should be its result's.
    expectations
        The suite of its own rules: the name of one in expectations/suites, or the absolute path of a JSON file.
    owner
        Who is to be asked about it: a person or a team.
    partitions
        How many partitions the topic has that its tasks read, where that is to be checked when the store is applied.
    changelog
        Name of its changelog topic. If not said, the one that the catalogue has, or else the one that follows from
        application and store.
    """

    name: Name
    kind: KindName = "key-value"
    format: StoreFormat = StoreFormat.TIMESTAMPED
    engine: Engine = "txn_rocksDB"
    supplier: Reference | None = Field(default=None, description="module:attribute")
    retention_ms: int | None = Field(default=None, ge=0, lt=1 << 63)
    window_size_ms: int | None = Field(default=None, ge=0, lt=1 << 63)
    segment_interval_ms: int | None = Field(default=None, ge=1, lt=1 << 63)
    retain_duplicates: bool = False
    key_serde: SerdeName = "bytes"
    value_serde: SerdeName = "bytes"
    expectations: Suite | None = Field(default=None, description="suite by which the store is validated")
    owner: Line | None = None
    partitions: int | None = Field(default=None, ge=1, le=10_000)
    changelog: str | None = Field(default=None, max_length=249)

    @property
    def store_kind(self) -> StoreKind:
        """What its kind is.

        Raises
        ------
        DefinitionError
            If it is one of the user's own that cannot be loaded.
        """
        return kind_of(self.kind)

    @property
    def supplied(self) -> bool:
        """True if it is a store of the user's own, of whose files nothing is known."""
        return self.supplier is not None

    def changelog_of(self, application: str) -> str:
        """Return the name of its changelog topic in an application."""
        return self.changelog or changelog_topic(application, self.name)

    @property
    def segmented(self) -> bool:
        """True if rows lie in segments of time, a database each, as those of a window or session store."""
        return self.store_kind.segmented

    @property
    def rows_are_records(self) -> bool:
        """True if each row is what a record of the changelog says, so that they can be compared."""
        return self.store_kind.rows_are_records

    @property
    def row_retention_ms(self) -> int | None:
        """How long rows are kept; None: they never expire, as the latest values of a versioned store."""
        return self.retention_ms if self.segmented else None

    @property
    def values(self) -> ValueFormat:
        """Layout of its values: what its kind makes of its format."""
        return self.store_kind.value_format(self.format)

    def model_post_init(self, context: Any, /) -> None:
        """Complete the format, and refuse settings that do not fit the kind; once, as in `ApplicationDefinition`.

        Those of a user's kind are checked where its code is loaded (`tasks/loading.py`).
        """
        known = BUILT_IN.get(self.kind)
        if known is not None:
            if known.only_format is not None and "format" not in self.model_fields_set:
                # Kafka Streams has no timestamped session stores, so plain is their default.
                object.__setattr__(self, "format", known.only_format)  # a frozen model may still complete itself
            known.check(self)
        if self.supplier is not None and self.kind == VERSIONED.name:
            raise ValueError("a versioned store has no supplier: its layout is known, and the jobs rely on it")
        if self.supplier is not None and self.retain_duplicates:
            raise ValueError("a supplier's store cannot retain duplicates: its changes could not be replayed or undone")
