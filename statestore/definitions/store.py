"""What a store is."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from statestore.definitions.fields import Definition, Engine, Line, Reference, SerdeName, Suite
from statestore.model import KEY_VALUE_DIRECTORY, Name, StoreFormat

#: Lengths of time that a store of a kind has or has not.
_TIMES = ("retention_ms", "window_size_ms")

_HAS_TIMES = {"key-value": (False, False), "session": (True, False), "window": (True, True)}


class StoreDefinition(Definition):
    """One store of an application.

    Attributes
    ----------
    engine
        Where its rows are; the application's `default_dsl_store` if not said.
    supplier
        Makes a store of the user's own: a function that is called with this definition and returns a supplier. `engine`
        then says what that store is: `in_memory` if it does not outlive its process, `txn_rocksDB` if it is
        transactional, else `rocksDB`.
    retention_ms
        How long a window or session store keeps its rows.
    window_size_ms
        Length of a window, in a window store.
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
        Name of its changelog topic, where that is to be checked: it follows from application and store.
    """

    name: Name
    kind: Literal["key-value", "window", "session"] = "key-value"
    format: StoreFormat = StoreFormat.TIMESTAMPED
    engine: Engine = "txn_rocksDB"
    supplier: Reference | None = Field(default=None, description="module:attribute")
    retention_ms: int | None = Field(default=None, ge=0, lt=1 << 63)
    window_size_ms: int | None = Field(default=None, ge=0, lt=1 << 63)
    retain_duplicates: bool = False
    key_serde: SerdeName = "bytes"
    value_serde: SerdeName = "bytes"
    expectations: Suite | None = Field(default=None, description="suite by which the store is validated")
    owner: Line | None = None
    partitions: int | None = Field(default=None, ge=1, le=10_000)
    changelog: str | None = Field(default=None, max_length=249)

    @property
    def segmented(self) -> bool:
        """True for a window or session store: its rows lie in segments of time, a database each."""
        return self.kind != "key-value"

    @model_validator(mode="after")
    def _sessions_are_plain(self) -> StoreDefinition:
        """Kafka Streams has no timestamped session stores, so plain is their default."""
        if self.kind == "session" and "format" not in self.model_fields_set:
            object.__setattr__(self, "format", StoreFormat.PLAIN)  # a frozen model's own validator may complete it
        return self

    @model_validator(mode="after")
    def _settings_fit_the_kind(self) -> StoreDefinition:
        fits = (self.retention_ms is not None, self.window_size_ms is not None) == _HAS_TIMES[self.kind]
        if not fits or (self.retain_duplicates and self.kind != "window"):
            needed = [name for name, has in zip(_TIMES, _HAS_TIMES[self.kind], strict=True) if has]
            found = [name for name in _TIMES if getattr(self, name) is not None]
            raise ValueError(
                f"a {self.kind} store has {', '.join(needed) or 'neither retention nor window'}"
                f"{' and may have retain_duplicates' if self.kind == 'window' else ', and no retain_duplicates'}; "
                f"found {', '.join(found) or 'none'}, retain_duplicates {self.retain_duplicates}"
            )
        if self.kind == "window" and (self.retention_ms or 0) < (self.window_size_ms or 0):
            raise ValueError(
                f"retention_ms of {self.retention_ms} is shorter than window_size_ms of {self.window_size_ms}; "
                "expected at least as long"
            )
        return self

    @model_validator(mode="after")
    def _supplier_can_make_it(self) -> StoreDefinition:
        if self.supplier is not None and self.retain_duplicates:
            raise ValueError("a supplier's store cannot retain duplicates: its changes could not be replayed or undone")
        return self

    @model_validator(mode="after")
    def _has_a_directory_of_its_own(self) -> StoreDefinition:
        if self.segmented and self.name == KEY_VALUE_DIRECTORY:
            raise ValueError(
                f"a {self.kind} store cannot be called {self.name}, as the directory of a task's key-value stores is; "
                "choose another name"
            )
        return self
