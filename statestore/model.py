"""Identifiers and definitions: what an application is, what its stores are, and how their parts are named.

Names pass one allowlist here, so that every path and topic built from them is safe.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from statestore.errors import InputError, UnknownStoreError

# Kafka's topic characters. 100 leaves room for `<application>-<store>-changelog` within Kafka's 249.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")


def check_name(name: str) -> str:
    """Return `name` if it may stand in a topic name and in a path, otherwise raise ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid name: expected 1 to 100 of a-z A-Z 0-9 . _ -, starting with a letter or digit"
        )
    return name


Name = Annotated[str, AfterValidator(check_name)]


class TopicPartition(NamedTuple):
    """A topic's partition; as text `<topic>-<partition>`, also its key in a store's `offsets` column family."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TaskId(NamedTuple):
    """Kafka Streams' task id: one input partition of one subtopology, as text `0_3`."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Read `0_3`.

        Raises
        ------
        InputError
            If the text is not a task id.
        """
        match = re.fullmatch(r"([0-9]{1,9})_([0-9]{1,9})", text)
        if not match:
            raise InputError(f"{text!r} is not a task id: expected <subtopology>_<partition>, such as 0_3")
        return cls(int(match[1]), int(match[2]))


class _Definition(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StoreFormat(StrEnum):
    """How a value is laid out in RocksDB (KIP-258)."""

    PLAIN = "plain"
    TIMESTAMPED = "timestamped"


#: Values of Kafka Streams' `default.dsl.store`; `txn_rocksDB` is RocksDB with transactions (KIP-844).
Engine = Literal["rocksDB", "in_memory", "txn_rocksDB"]


class StoreDefinition(_Definition):
    """One store of an application.

    Attributes
    ----------
    engine
        Where its rows are; the application's `default_dsl_store` if not said.
    retention_ms
        How long a window or session store keeps its rows.
    window_size_ms
        Length of a window, in a window store.
    retain_duplicates
        Whether a window store adds a value at each put instead of replacing the one before.
    """

    name: Name
    kind: Literal["key-value", "window", "session"] = "key-value"
    format: StoreFormat = StoreFormat.TIMESTAMPED
    engine: Engine = "txn_rocksDB"
    retention_ms: int | None = Field(default=None, ge=0, lt=1 << 63)
    window_size_ms: int | None = Field(default=None, ge=0, lt=1 << 63)
    retain_duplicates: bool = False
    expectations: Name | None = Field(default=None, description="suite in expectations/suites, without .json")

    @model_validator(mode="after")
    def _settings_fit_the_kind(self) -> StoreDefinition:
        needed: set[str] = {
            "key-value": set(),
            "session": {"retention_ms"},
            "window": {"retention_ms", "window_size_ms"},
        }[self.kind]
        found = {name for name in ("retention_ms", "window_size_ms") if getattr(self, name) is not None}
        if found != needed or (self.retain_duplicates and self.kind != "window"):
            raise ValueError(
                f"a {self.kind} store has {', '.join(sorted(needed)) or 'neither retention nor window'}"
                f"{' and may have retain_duplicates' if self.kind == 'window' else ', and no retain_duplicates'}; "
                f"found {', '.join(sorted(found)) or 'none'}, retain_duplicates {self.retain_duplicates}"
            )
        if self.kind == "window" and (self.retention_ms or 0) < (self.window_size_ms or 0):
            raise ValueError(
                f"retention_ms of {self.retention_ms} is shorter than window_size_ms of {self.window_size_ms}; "
                "expected at least as long"
            )
        return self


class ApplicationDefinition(_Definition):
    """A stream application: its topics, its processor and its stores.

    `name` is Kafka Streams' `application.id`: consumer group, prefix of changelog topics and of `transactional.id`.
    """

    schema_version: Literal[1] = 1
    name: Name
    input_topic: Name
    output_topics: tuple[Name, ...] = ()
    processor: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", description="module:attribute")
    default_dsl_store: Engine = Field(default="txn_rocksDB", description="engine of stores that name none")
    stores: tuple[StoreDefinition, ...] = Field(min_length=1)
    commit_interval_ms: int = Field(default=1_000, ge=10, le=600_000)
    uncommitted_max_bytes: int = Field(
        default=64 * 1024 * 1024, ge=1024, description="staged bytes per task at which a commit is made early"
    )

    @model_validator(mode="after")
    def _stores_have_an_engine(self) -> ApplicationDefinition:
        engine = self.default_dsl_store
        stores = tuple(
            store if "engine" in store.model_fields_set else store.model_copy(update={"engine": engine})
            for store in self.stores
        )
        object.__setattr__(self, "stores", stores)  # a frozen model's own validator may still complete it
        return self

    @model_validator(mode="after")
    def _topics_and_stores_are_distinct(self) -> ApplicationDefinition:
        names = [store.name for store in self.stores]
        if len(set(names)) != len(names):
            raise ValueError(f"store names must be distinct, found {names}")
        taken = {self.input_topic, *(changelog_topic(self.name, name) for name in names)}
        if mixed := sorted(taken.intersection(self.output_topics)):
            raise ValueError(f"{mixed} cannot be output topics: they are the application's input or changelogs")
        return self

    @model_validator(mode="after")
    def _stores_are_what_the_jobs_know(self) -> ApplicationDefinition:
        for store in self.stores:
            if store.kind != "key-value" or store.engine != "txn_rocksDB":
                raise ValueError(
                    f"store {store.name} is a {store.kind} store with engine {store.engine}: the library has such "
                    "stores, the jobs do not yet; expected kind key-value and engine txn_rocksDB"
                )
        return self

    def store(self, name: str) -> StoreDefinition:
        """Return the store called `name`.

        Raises
        ------
        UnknownStoreError
            If the application has no such store.
        """
        for store in self.stores:
            if store.name == name:
                return store
        known = ", ".join(store.name for store in self.stores)
        raise UnknownStoreError(f"application {self.name} has no store {name!r}; its stores are: {known}")


class StorePartition(NamedTuple):
    """One store of one task: the unit that is verified, restored and validated."""

    application: str
    store: str
    task: TaskId

    @property
    def changelog(self) -> TopicPartition:
        """Partition of the changelog topic, Kafka Streams' name."""
        return TopicPartition(changelog_topic(self.application, self.store), self.task.partition)

    def __str__(self) -> str:
        return f"{self.application}/{self.store}/{self.task}"


def changelog_topic(application: str, store: str) -> str:
    """Name of a store's changelog topic: `<application.id>-<store>-changelog`."""
    return f"{application}-{store}-changelog"


def transactional_id(application: str, task: TaskId) -> str:
    """`transactional.id` of a task: one for all attempts, so that a later one fences an earlier one."""
    return f"{application}-{task}"
