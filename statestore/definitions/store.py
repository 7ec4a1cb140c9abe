"""Definition of a store."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from statestore.definitions.fields import Definition, Engine, KindName, Line, Reference, SerdeName, Suite
from statestore.formats.value_format import ValueFormat
from statestore.kinds.kind import RowForm, StoreKind
from statestore.kinds.known import UNLOGGED, built_in, kind_of, may_be_unlogged
from statestore.model import Name, StoreFormat, changelog_topic, commit_numbers


class StoreDefinition(Definition):
    """One store of an application.

    Attributes
    ----------
    kind
        A built-in kind, or the `module:attribute` of a custom `StoreKind` (docs/extending.md).
    engine
        What holds its rows. The default is the application's `default_dsl_store`.
    supplier
        Function that is called with this definition and returns the supplier of a custom store. `engine` then describes
        that store: `in_memory` if it does not outlive its process, `txn_rocksDB` if it is transactional, otherwise
        `rocksDB`.
    retention_ms
        How long a window or session store keeps its rows, and a versioned store its earlier values (Kafka Streams'
        history retention).
    ttl_ms
        How long a key-value store keeps a row after the row's timestamp, in stream time. None: until it is deleted.
    window_size_ms
        Length of a window of a window store.
    segment_interval_ms
        Length of a segment of a versioned store. The default is that of Kafka Streams' supplier.
    retain_duplicates
        Whether each put into a window store adds a value instead of replacing the previous one.
    key_serde, value_serde
        Types that a processor sees. An aggregation writes its own types, so `value_serde` should match its result.
    expectations
        Suite with its own rules: the name of a suite in expectations/suites, or the absolute path of a JSON file.
    owner
        Person or team to contact.
    logged
        Whether the store has a changelog. Without one, only a snapshot can replace a lost store.
    partitions
        Number of partitions that the topic of its tasks must have, if `apply` is to check it.
    changelog
        Name of its changelog topic. The default is the name in the catalogue, or else the name derived from application
        and store.
    """

    name: Name
    kind: KindName = "key-value"
    format: StoreFormat = StoreFormat.TIMESTAMPED
    engine: Engine = "txn_rocksDB"
    supplier: Reference | None = Field(default=None, description="module:attribute")
    retention_ms: int | None = Field(default=None, ge=0, lt=1 << 63)
    ttl_ms: int | None = Field(default=None, ge=1, lt=1 << 62)
    window_size_ms: int | None = Field(default=None, ge=0, lt=1 << 63)
    segment_interval_ms: int | None = Field(default=None, ge=1, lt=1 << 63)
    retain_duplicates: bool = False
    key_serde: SerdeName = "bytes"
    value_serde: SerdeName = "bytes"
    expectations: Suite | None = Field(default=None, description="suite by which the store is validated")
    owner: Line | None = None
    logged: bool = True
    partitions: int | None = Field(default=None, ge=1, le=10_000)
    changelog: str | None = Field(default=None, max_length=249)

    @property
    def store_kind(self) -> StoreKind:
        """Kind of the store.

        Raises
        ------
        DefinitionError
            If it is a custom kind that cannot be loaded.
        """
        return kind_of(self.kind)

    @property
    def files_are_known(self) -> bool:
        """True if the format of its files is known, and its SST files never change: it is not a supplier's store."""
        return self.supplier is None

    @property
    def row_form(self) -> RowForm:
        """How its rows are read, and correspond to records of its changelog."""
        return self.store_kind.row_form if self.supplier is None else RowForm.SUPPLIED

    @property
    def log_may_be_split(self) -> bool:
        """True if ranges of its changelog can be read and sorted separately."""
        return self.supplier is None and self.store_kind.log_may_be_split

    def changelog_of(self, application: str) -> str:
        """Return the name of its changelog topic in an application.

        A store without a changelog has no such topic. It keeps the number of its last commit under this name.
        """
        if not self.logged:
            return commit_numbers(application, self.name)
        return self.changelog or changelog_topic(application, self.name)

    @property
    def segmented(self) -> bool:
        """True if rows are stored in time segments with one database each, as in a window or session store."""
        return self.store_kind.segmented

    @property
    def compaction_keeps_rows(self) -> bool:
        """True if compaction of its changelog leaves a record for each row."""
        return self.store_kind.compaction_keeps_rows

    @property
    def rows_prove_offsets(self) -> bool:
        """True if each row on disk, or each version, is of one record: the rows show how far the changelog was read.

        Store and changelog number duplicates independently, and the files of a supplier's store are unknown.
        """
        return self.files_are_known and not self.retain_duplicates

    @property
    def may_have_times(self) -> bool:
        """True unless its kind is built in and has no times; the code of a user's kind is not loaded for that."""
        known = built_in(self.kind)
        return known is None or known.has_times

    @property
    def row_retention_ms(self) -> int | None:
        """How long rows are kept, in ms. None: they never expire, like the latest values of a versioned store."""
        return self.retention_ms if self.segmented else None

    @property
    def values(self) -> ValueFormat:
        """Layout of its values, which follows from its kind and format."""
        return self.store_kind.value_format(self.format)

    def model_post_init(self, context: Any, /) -> None:
        """Complete the format, and refuse settings that do not fit the kind; once, as in `ApplicationDefinition`.

        Those of a user's kind are checked where its code is loaded (`tasks/loading.py`).
        """
        known = built_in(self.kind)
        if known is not None:
            if known.only_format is not None and "format" not in self.model_fields_set:
                # Kafka Streams has no timestamped session stores, so plain is their default.
                object.__setattr__(self, "format", known.only_format)  # a frozen model may still complete itself
            known.check(self)
        if self.ttl_ms is not None and (
            known is None or not known.may_have_ttl or not self.values.timestamped or self.supplier is not None
        ):
            raise ValueError(
                "ttl_ms goes by the timestamps of rows: expected a key-value store with format timestamped or headers, "
                "and without a supplier. Window and session stores have retention_ms"
            )
        if not self.logged:
            self._check_unlogged()
        if self.supplier is not None and known is not None and not known.may_be_supplied:
            raise ValueError("a versioned store has no supplier: its layout is known, and the jobs rely on it")
        if self.supplier is not None and self.retain_duplicates:
            raise ValueError("a supplier's store cannot retain duplicates: its changes could not be replayed or undone")

    def _check_unlogged(self) -> None:
        """Refuse settings that need a changelog."""
        refused = [
            (not may_be_unlogged(self.kind), f"kind {self.kind}: expected {', '.join(UNLOGGED)}"),
            (
                self.supplier is not None,
                "supplier: a commit must be completed after a crash, and its layout is unknown",
            ),
            (self.ttl_ms is not None, "ttl_ms: old rows are found by the changelog"),
            (self.retain_duplicates, "retain_duplicates: only the changelog numbers duplicates again after a restart"),
            (self.changelog is not None, "changelog: the store has none"),
        ]
        if found := [why for wrong, why in refused if wrong]:
            raise ValueError(f"a store with logged: false cannot have {'; '.join(found)}")
