"""Definition of an application: its topics, its processing, and its stores."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from statestore.definitions.aggregation import AggregationDefinition
from statestore.definitions.fields import Definition, Engine, Guarantee, Reference
from statestore.definitions.objectives import RestoreObjectives
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, UnknownStoreError
from statestore.kinds.known import built_in
from statestore.model import (
    Name,
    StoreFormat,
    changelog_number,
    changelog_topic,
    input_offsets_topic,
    repartition_topic,
)

#: Kafka's offset.metadata.max.bytes is 4096, of which Base64 leaves three quarters (formats/commit_metadata.py).
_MAX_TIMES_BYTES = 3_000

_TIME_BYTES = 12
#: Characters of a topic's name, at most.
_MAX_TOPIC = 249


#: Validation context: a definition like this one was complete and has passed the checks of the whole, which are not
#: repeated. It had the same name, topics and aggregations, a processor or none, as this one, and stores with the same
#: fields of `CHECKED_STORE_FIELDS`, each with its engine: nothing else is looked at.
FITS_TOGETHER = object()
CHECKED_STORE_FIELDS = (
    "name",
    "logged",
    "kind",
    "format",
    "changelog",
    "retention_ms",
    "window_size_ms",
    "retain_duplicates",
)


class Subtopology(Definition):
    """The part of an application that reads one topic. Its tasks have the same index.

    Attributes
    ----------
    index
        First number of its tasks' ids. Index 0 reads the application's input; each other index reads a repartition
        topic.
    offsets_topic
        Topic that keeps the input offsets of its tasks.
    processor
        The application's own processor.
    aggregations
        Aggregations of the topic's records by their own keys.
    regrouped
        Aggregations whose records are sent to their repartition topics, with another key.
    """

    index: int
    input_topic: str
    offsets_topic: str
    processor: str | None = None
    aggregations: tuple[AggregationDefinition, ...] = ()
    regrouped: tuple[AggregationDefinition, ...] = ()
    stores: tuple[StoreDefinition, ...] = ()


def require_usable_by_tasks(store: StoreDefinition) -> None:
    """Refuse a store that Kafka Streams' DSL alone makes.

    Raises
    ------
    ValueError
        Naming the kind or the format.
    """
    kind = built_in(store.kind)
    if kind is not None and kind.ordinary_kin:
        raise ValueError(
            f"store {store.name}: only Kafka Streams' DSL creates {kind.name} stores. Where it has written them, "
            f"they are verified, read, and restored. Tasks here use {kind.ordinary_kin} stores"
        )
    if store.format is StoreFormat.TIMESTAMPED_IN_DEFAULT:
        raise ValueError(f"store {store.name}: format {store.format} is only for time-ordered windows")


def require_shared_directory(definition: ApplicationDefinition, *, node_local: bool) -> None:
    """Refuse stores without a changelog where each node has its own state directory.

    There, the archive has the stores, and a task applies the changelog to the newest snapshot.

    Raises
    ------
    InputError
        Naming the stores.
    """
    found = [store.name for store in definition.stores if not store.logged]
    if node_local and found:
        raise InputError(
            f"application {definition.name}: {', '.join(found)}: logged: false needs one state directory for all "
            "nodes, and STATESTORE_NODE_LOCAL_STATE is set. On another node, a store without a changelog could not be "
            "brought up to date"
        )


class ApplicationDefinition(Definition):
    """A stream application: its topics, its processing, and its stores.

    `name` is Kafka Streams' `application.id`: consumer group, prefix of changelog topics and of `transactional.id`.

    Attributes
    ----------
    processor
        A function `process(record, context)`, or a class with such a method.
    aggregations
        Predefined aggregations of the input, in addition to the processor or instead of it.
    processing_guarantee
        `at_least_once` commits without Kafka transactions. It is faster, but after a crash, records are processed
        again.
    rocksdb_config_setter
        A function `set_config(store_name, options)` that sets RocksDB's options when a task opens a store, like Kafka
        Streams' `rocksdb.config.setter`. The options are rocksdict's.
    dead_letter_topic
        Topic for records on which the application's code fails, with the reason in their headers. Without it, the task
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
    objectives: RestoreObjectives | None = Field(default=None, description="objectives that restore drills prove")
    commit_interval_ms: int = Field(default=1_000, ge=10, le=600_000)
    uncommitted_max_bytes: int = Field(
        default=64 * 1024 * 1024, ge=1024, description="staged bytes per task at which a commit is made early"
    )

    def model_post_init(self, context: Any, /) -> None:
        """Complete the stores, and refuse what does not fit together.

        Here, and not in validators that pydantic calls after: it calls those again for each definition that it is given
        as it is, and definitions are immutable.
        """
        if context is not FITS_TOGETHER:
            self._complete_stores()
            self._check()

    def _complete_stores(self) -> None:
        listed = {store.name for store in self.stores}
        needed = {item.store: item for item in self.aggregations if item.store not in listed}
        made = [StoreDefinition(name=name, **item.default_store()) for name, item in needed.items()]
        if made or not all(["engine" in store.model_fields_set for store in self.stores]):
            engine = self.default_dsl_store
            stores = tuple(
                store if "engine" in store.model_fields_set else store.model_copy(update={"engine": engine})
                for store in (*self.stores, *made)
            )
            object.__setattr__(self, "stores", stores)  # a frozen model may still complete itself

    def _check(self) -> None:
        self._does_something()
        self._topics_have_names_for_kafka()
        self._topics_and_stores_are_distinct()
        self._changelogs_are_their_stores()
        self._stores_are_not_of_the_dsl_alone()
        self._unlogged_stores_commit_with_kafka()
        self._stream_times_fit_into_a_commit()
        self._aggregations_fit_their_stores()

    def _does_something(self) -> None:
        if self.processor is None and not self.aggregations:
            raise ValueError("expected a processor, aggregations, or both, found neither")
        if not self.stores:
            raise ValueError("expected at least one store, found none")

    def _topics_have_names_for_kafka(self) -> None:
        named = {changelog_topic(self.name, store.name) for store in self.logged_stores}
        named |= {
            input_offsets_topic(self.name, repartition_topic(self.name, item.store))
            for item in self.aggregations
            if item.group_by is not None
        }
        longest = max(named, key=len, default="")
        if len(longest) > _MAX_TOPIC:
            raise ValueError(
                f"the names of the application and of a store are too long together: topic {longest!r:.280} has "
                f"{len(longest)} characters, expected at most {_MAX_TOPIC}"
            )

    def _topics_and_stores_are_distinct(self) -> None:
        names = [store.name for store in self.stores]
        if len(set(names)) != len(names):
            raise ValueError(f"store names must be distinct, found {names}")
        sent_to = {*self.output_topics, *(item.output_topic for item in self.aggregations)} | {self.dead_letter_topic}
        taken = {self.input_topic, *(store.changelog_of(self.name) for store in self.logged_stores)}
        taken |= {repartition_topic(self.name, item.store) for item in self.aggregations}
        if mixed := sorted(taken.intersection(sent_to)):
            raise ValueError(
                f"{mixed} cannot be output topics: they are the application's input, changelogs, or repartition topics"
            )

    def _changelogs_are_their_stores(self) -> None:
        for store in self.stores:
            if store.changelog is not None and changelog_number(self.name, store.name, store.changelog) is None:
                derived = changelog_topic(self.name, store.name)
                raise ValueError(
                    f"the changelog topic of store {store.name} is {derived}, as in Kafka Streams, or {derived}-2, -3, "
                    f"and so on after it was rewritten; found {store.changelog!r}. Rename the application or the "
                    "store, or leave `changelog` out"
                )

    def _stores_are_not_of_the_dsl_alone(self) -> None:
        for store in self.stores:
            require_usable_by_tasks(store)

    def _unlogged_stores_commit_with_kafka(self) -> None:
        for store in self.stores:
            if store.logged:
                continue
            if store.engine != "txn_rocksDB":
                raise ValueError(
                    f"store {store.name}: logged: false needs the engine txn_rocksDB, found {store.engine}. Without a "
                    "changelog, a commit can only be completed or discarded as a whole, and only on disk"
                )
            if self.processing_guarantee != "exactly_once_v2":
                raise ValueError(
                    f"store {store.name}: logged: false needs processing_guarantee exactly_once_v2, found "
                    f"{self.processing_guarantee}. The Kafka transaction decides whether a commit counts"
                )

    def _stream_times_fit_into_a_commit(self) -> None:
        # Only subtopology 0 may have many stores: those behind a repartition topic have one each.
        elsewhere = {item.store for item in self.aggregations if item.group_by is not None}
        names = [store.name for store in self.stores if store.may_have_times and store.name not in elsewhere]
        size = sum(len(name) + _TIME_BYTES for name in names)
        if size > _MAX_TIMES_BYTES:
            raise ValueError(
                f"the names of the {len(names)} window and session stores of a task are too long: with each name, "
                f"{_TIME_BYTES} bytes more are committed, in all {size}; expected at most {_MAX_TIMES_BYTES}"
            )

    def _aggregations_fit_their_stores(self) -> None:
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

    def with_changelog(self, store: str, topic: str, store_format: StoreFormat | None = None) -> ApplicationDefinition:
        """Return the definition with another changelog topic of a store, and perhaps another format.

        Raises
        ------
        ValueError
            If a store of its kind, or of an application, cannot have the format.
        """
        changed = {"changelog": topic, **({} if store_format is None else {"format": store_format})}
        stores = tuple(
            StoreDefinition.model_validate({**found.model_dump(), **changed}) if found.name == store else found
            for found in self.stores
        )
        # With the stores, all that must be true of an application is checked again.
        return ApplicationDefinition.model_validate(self.model_copy(update={"stores": stores}).model_dump())

    @property
    def logged_stores(self) -> tuple[StoreDefinition, ...]:
        """Stores that have a changelog."""
        return tuple(store for store in self.stores if store.logged)

    @property
    def publishes_snapshots(self) -> bool:
        """True if `process` can publish its stores unchanged: with exactly once, a store is the fold of its log."""
        return self.processing_guarantee == "exactly_once_v2"

    @property
    def subtopologies(self) -> tuple[Subtopology, ...]:
        """Parts of the application, by index: 0 reads the input, and each regrouped aggregation has its own."""
        regrouped = tuple(item for item in self.aggregations if item.group_by is not None)
        elsewhere = {item.store for item in regrouped}
        first = Subtopology(
            index=0,
            input_topic=self.input_topic,
            offsets_topic=input_offsets_topic(self.name),
            processor=self.processor,
            aggregations=tuple(item for item in self.aggregations if item.group_by is None),
            regrouped=regrouped,
            stores=tuple(store for store in self.stores if store.name not in elsewhere),
        )
        others = (
            Subtopology(
                index=index,
                input_topic=(repartition := repartition_topic(self.name, item.store)),
                offsets_topic=input_offsets_topic(self.name, repartition),
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
