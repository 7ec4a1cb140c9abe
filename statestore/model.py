"""Identifiers and definitions: what an application is, what its stores are, and how their parts are named.

Names pass one allowlist here, so that every path and topic built from them is safe.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from statestore.errors import InputError, UnknownStoreError

# Kafka's topic characters. 100 leaves room for `<application>-<store>-changelog` within Kafka's 249.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")

#: Kafka's offset.metadata.max.bytes is 4096, of which Base64 leaves three quarters (formats/commit_metadata.py).
_MAX_TIMES_BYTES = 3_000
_TIME_BYTES = 12


def check_name(name: str) -> str:
    """Return `name` if it may stand in a topic name and in a path, otherwise raise ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r:.120} is not a valid name: expected 1 to 100 of a-z A-Z 0-9 . _ -, starting with a letter or "
            "digit"
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


#: Fields that came later. While they say nothing they are left out, so that a catalogue is what it was before them.
_CAME_LATER = frozenset({"supplier", "rocksdb_config_setter"})


class _Definition(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_serializer(mode="wrap")
    def _without_what_came_later(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialized(self)
        return {name: value for name, value in fields.items() if value is not None or name not in _CAME_LATER}


class StoreFormat(StrEnum):
    """How a value is laid out in RocksDB (KIP-258)."""

    PLAIN = "plain"
    TIMESTAMPED = "timestamped"


def _check_printable(text: str) -> str:
    """Return `text` if a terminal shows it as it is: one line, nothing that moves the cursor."""
    if not text.isprintable():
        raise ValueError(f"{text!r} has characters that cannot be printed; expected one line of text")
    return text


def _check_suite(text: str) -> str:
    """Return `text` if it names a suite of this package, or is the path of a file that any job can find."""
    if not text.endswith(".json"):
        return check_name(text)
    if not PurePath(text).is_absolute():
        raise ValueError(f"{text!r:.120} is a relative path, and jobs run in directories of their own; expected /...")
    return _check_printable(text)


#: A suite of expectations/suites, by its name, or a user's own, by the absolute path of its JSON file.
Suite = Annotated[str, Field(min_length=1, max_length=1_000), AfterValidator(_check_suite)]
#: Free text for people, on one line.
Line = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_printable)]
#: An attribute of a module on the Python path, as `package.module:attribute`.
Reference = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
#: Values of Kafka Streams' `processing.guarantee`.
Guarantee = Literal["exactly_once_v2", "at_least_once"]
#: How a key or value of a store is turned into bytes; a reference names a `Serde` of the user's own.
SerdeName = Literal["bytes", "utf8", "int64", "json"] | Reference

#: Values of Kafka Streams' `default.dsl.store`; `txn_rocksDB` is RocksDB with transactions (KIP-844).
Engine = Literal["rocksDB", "in_memory", "txn_rocksDB"]

#: Lengths of time that a store of a kind has or has not.
_TIMES = ("retention_ms", "window_size_ms")
_HAS_TIMES = {"key-value": (False, False), "session": (True, False), "window": (True, True)}


#: Kafka Streams' directory of a task's key-value stores; window and session stores lie beside it, by their names.
KEY_VALUE_DIRECTORY = "rocksdb"


class StoreDefinition(_Definition):
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


class Windows(_Definition):
    """Windows of a fixed length, aligned to the epoch: tumbling, or hopping where they advance by less than a length.

    Attributes
    ----------
    size_ms
        Length of a window.
    advance_ms
        How far a window starts after the one before; the length if not said.
    grace_ms
        For how long after its end a window takes late records.
    """

    size_ms: int = Field(gt=0, lt=1 << 62)
    advance_ms: int | None = Field(default=None, gt=0)
    grace_ms: int = Field(default=0, ge=0, lt=1 << 62)

    @model_validator(mode="after")
    def _windows_leave_no_gap(self) -> Windows:
        if self.advance_ms is not None and self.advance_ms > self.size_ms:
            raise ValueError(f"advance_ms of {self.advance_ms} is longer than size_ms of {self.size_ms}")
        return self

    @property
    def step_ms(self) -> int:
        """How far a window starts after the one before."""
        return self.advance_ms or self.size_ms


class Sessions(_Definition):
    """Sessions of activity: records of a key that are at most the gap apart.

    Attributes
    ----------
    gap_ms
        Inactivity that ends a session.
    grace_ms
        For how long after its end and the gap a session takes late records.
    """

    gap_ms: int = Field(ge=0, lt=1 << 62)
    grace_ms: int = Field(default=0, ge=0, lt=1 << 62)


class AggregationDefinition(_Definition):
    """A ready-made aggregation: what is kept in a store for each key, or each window or session of a key.

    Attributes
    ----------
    store
        Where the results are kept; made with the kind's defaults if the definition does not list it.
    aggregate
        `count`, or an aggregate made with `statestore.tasks.aggregates`.
    group_by
        A function of the record that gives the key to group by, if that is not the record's own. Records then go
        through an internal repartition topic into a subtopology of their own.
    partitions
        Partitions of the repartition topic; as many as the input's if not said.
    windows, sessions
        What a key's records are divided into; neither: nothing, one result a key.
    output_topic
        Where changed results are sent with each commit; nowhere if not said.
    """

    store: Name
    aggregate: Literal["count"] | Reference = "count"
    group_by: Reference | None = None
    partitions: int | None = Field(default=None, ge=1, le=10_000)
    windows: Windows | None = None
    sessions: Sessions | None = None
    output_topic: Name | None = None

    @model_validator(mode="after")
    def _settings_fit_together(self) -> AggregationDefinition:
        if self.windows is not None and self.sessions is not None:
            raise ValueError(f"aggregation into {self.store} has windows and sessions; expected one of them at most")
        if self.partitions is not None and self.group_by is None:
            raise ValueError(
                f"aggregation into {self.store} has partitions but no group_by: only a repartition topic has its own"
            )
        return self

    @property
    def kept_ms(self) -> int:
        """How long the store must keep a window or session at least."""
        if self.windows is not None:
            return self.windows.size_ms + self.windows.grace_ms
        return self.sessions.gap_ms + self.sessions.grace_ms if self.sessions is not None else 0

    def default_store(self) -> dict[str, Any]:
        """Return the definition of the store that this needs, as far as it is not a matter of taste."""
        if self.windows is not None:
            return {"kind": "window", "retention_ms": self.kept_ms, "window_size_ms": self.windows.size_ms}
        return {"kind": "session", "retention_ms": self.kept_ms} if self.sessions is not None else {"kind": "key-value"}


class Subtopology(_Definition):
    """What the tasks of one index do: the part of an application that reads one topic.

    Attributes
    ----------
    index
        The first number of its tasks' ids. 0 reads the application's input, the others a repartition topic each.
    processor
        The application's own processor.
    aggregations
        What is aggregated from the topic's records as they are keyed.
    regrouped
        Aggregations whose records are sent on, with another key, to their repartition topics.
    """

    index: int
    input_topic: str
    processor: str | None = None
    aggregations: tuple[AggregationDefinition, ...] = ()
    regrouped: tuple[AggregationDefinition, ...] = ()
    stores: tuple[StoreDefinition, ...] = ()


class ApplicationDefinition(_Definition):
    """A stream application: its topics, what it does with records, and its stores.

    `name` is Kafka Streams' `application.id`: consumer group, prefix of changelog topics and of `transactional.id`.

    Attributes
    ----------
    processor
        A function `process(record, context)`, or a class with such a method.
    aggregations
        Ready-made aggregations of the input, beside the processor or instead of it.
    processing_guarantee
        `at_least_once` commits without Kafka transactions: faster, and after a crash records are processed again.
    rocksdb_config_setter
        A function `set_config(store_name, options)` that sets RocksDB's options where a task opens a store (Kafka
        Streams' `rocksdb.config.setter`); the options are rocksdict's.
    dead_letter_topic
        Where records go that the application's code fails on, with the reason in their headers. Without one the task
        stops at such a record.
    """

    schema_version: Literal[1] = 1
    name: Name
    input_topic: Name
    output_topics: tuple[Name, ...] = ()
    processor: Reference | None = Field(default=None, description="module:attribute")
    aggregations: tuple[AggregationDefinition, ...] = ()
    processing_guarantee: Guarantee = "exactly_once_v2"
    dead_letter_topic: Name | None = None
    default_dsl_store: Engine = Field(default="txn_rocksDB", description="engine of stores that name none")
    rocksdb_config_setter: Reference | None = Field(default=None, description="module:attribute")
    stores: tuple[StoreDefinition, ...] = ()
    commit_interval_ms: int = Field(default=1_000, ge=10, le=600_000)
    uncommitted_max_bytes: int = Field(
        default=64 * 1024 * 1024, ge=1024, description="staged bytes per task at which a commit is made early"
    )

    @model_validator(mode="after")
    def _stores_are_complete(self) -> ApplicationDefinition:
        listed = [store.name for store in self.stores]
        made = tuple(
            StoreDefinition(name=aggregation.store, **aggregation.default_store())
            for aggregation in {item.store: item for item in self.aggregations}.values()
            if aggregation.store not in listed
        )
        stores = tuple(
            store if "engine" in store.model_fields_set else store.model_copy(update={"engine": self.default_dsl_store})
            for store in (*self.stores, *made)
        )
        object.__setattr__(self, "stores", stores)  # a frozen model's own validator may still complete it
        return self

    @model_validator(mode="after")
    def _does_something(self) -> ApplicationDefinition:
        if self.processor is None and not self.aggregations:
            raise ValueError("expected a processor, aggregations or both, found neither")
        if not self.stores:
            raise ValueError("expected at least one store, found none")
        return self

    @model_validator(mode="after")
    def _topics_and_stores_are_distinct(self) -> ApplicationDefinition:
        names = [store.name for store in self.stores]
        if len(set(names)) != len(names):
            raise ValueError(f"store names must be distinct, found {names}")
        sent_to = {*self.output_topics, *(item.output_topic for item in self.aggregations)} | {self.dead_letter_topic}
        taken = {self.input_topic, *(changelog_topic(self.name, name) for name in names)}
        taken |= {repartition_topic(self.name, item.store) for item in self.aggregations}
        if mixed := sorted(taken.intersection(sent_to)):
            raise ValueError(
                f"{mixed} cannot be output topics: they are the application's input, changelogs or repartition topics"
            )
        return self

    @model_validator(mode="after")
    def _changelogs_are_their_stores(self) -> ApplicationDefinition:
        for store in self.stores:
            derived = changelog_topic(self.name, store.name)
            if store.changelog not in (None, derived):
                raise ValueError(
                    f"the changelog topic of store {store.name} is {derived}, as in Kafka Streams; found "
                    f"{store.changelog!r}. Rename the application or the store, or leave `changelog` out"
                )
        return self

    @model_validator(mode="after")
    def _stream_times_fit_into_a_commit(self) -> ApplicationDefinition:
        # Only subtopology 0 may have many stores: those behind a repartition topic have one each.
        elsewhere = {item.store for item in self.aggregations if item.group_by is not None}
        names = [store.name for store in self.stores if store.segmented and store.name not in elsewhere]
        size = sum(len(name) + _TIME_BYTES for name in names)
        if size > _MAX_TIMES_BYTES:
            raise ValueError(
                f"the names of the {len(names)} window and session stores of a task are too long: with each name, "
                f"{_TIME_BYTES} bytes more are committed, in all {size}; expected at most {_MAX_TIMES_BYTES}"
            )
        return self

    @model_validator(mode="after")
    def _aggregations_fit_their_stores(self) -> ApplicationDefinition:
        names = [aggregation.store for aggregation in self.aggregations]
        if len(set(names)) != len(names):
            raise ValueError(f"each aggregation has a store of its own, found {names}")
        for aggregation in self.aggregations:
            store, needed = self.store(aggregation.store), aggregation.default_store()
            if store.kind != needed["kind"] or store.window_size_ms != needed.get("window_size_ms"):
                raise ValueError(
                    f"aggregation into {store.name} needs a {needed['kind']} store with window_size_ms "
                    f"{needed.get('window_size_ms')}; found a {store.kind} store with {store.window_size_ms}"
                )
            if (store.retention_ms or 0) < aggregation.kept_ms or store.retain_duplicates:
                raise ValueError(
                    f"aggregation into {store.name} needs a retention_ms of at least {aggregation.kept_ms} and no "
                    f"retain_duplicates; found {store.retention_ms} and {store.retain_duplicates}"
                )
        return self

    @property
    def subtopologies(self) -> tuple[Subtopology, ...]:
        """Parts of the application, by index: 0 reads the input, each regrouped aggregation follows with its own."""
        regrouped = tuple(item for item in self.aggregations if item.group_by is not None)
        elsewhere = {item.store for item in regrouped}
        first = Subtopology(
            index=0,
            input_topic=self.input_topic,
            processor=self.processor,
            aggregations=tuple(item for item in self.aggregations if item.group_by is None),
            regrouped=regrouped,
            stores=tuple(store for store in self.stores if store.name not in elsewhere),
        )
        others = (
            Subtopology(
                index=index,
                input_topic=repartition_topic(self.name, item.store),
                aggregations=(item,),
                stores=(self.store(item.store),),
            )
            for index, item in enumerate(regrouped, start=1)
        )
        return (first, *others)

    def subtopology_of(self, store: str) -> Subtopology:
        """Return the subtopology that a store belongs to.

        Raises
        ------
        UnknownStoreError
            If the application has no such store.
        """
        self.store(store)
        return next(part for part in self.subtopologies if store in {found.name for found in part.stores})

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


def repartition_topic(application: str, store: str) -> str:
    """Name of the topic through which a regrouped aggregation's records go: `<application.id>-<store>-repartition`."""
    return f"{application}-{store}-repartition"


def transactional_id(application: str, task: TaskId) -> str:
    """`transactional.id` of a task: one for all attempts, so that a later one fences an earlier one."""
    return f"{application}-{task}"
