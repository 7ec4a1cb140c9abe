"""Selects the applications of a repartition: two definitions of the catalogue, or an application in directories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from statestore import clock
from statestore.archive.archive import ArchiveSpec
from statestore.cli.selection import Chosen, PartitionSelection
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.discovery.changelogs import logged_stores
from statestore.discovery.directories import stores_in
from statestore.discovery.partitions import store_partition_specs
from statestore.discovery.topic_owners import other_owners
from statestore.errors import InputError, UnknownApplicationError
from statestore.kafka.topics import Topic, Topics
from statestore.metastore.commands import Entry
from statestore.metastore.effects import record_topics
from statestore.model import TaskId, check_name
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.clone_offsets import CloneInput, CloneReadsFrom, clone_offsets
from statestore.rewrite.cut import Cut
from statestore.rewrite.group_offsets import InputPair, ReadsFrom
from statestore.rewrite.new_application import NewApplication
from statestore.rewrite.repartition_plan import CutSource, RepartitionSpec

Adopt = Callable[[Sequence[Topic]], None]
#: Of a store's definition: what changes nothing of its rows.
_FREE = {"engine", "expectations", "owner", "partitions", "changelog"}


def repartition_spec(
    asked: PartitionSelection,
    chosen: Chosen,
    topics: Topics,
    *,
    to: str,
    partitions: int | None,
    renamed: Sequence[str],
    reads_from: ReadsFrom | None,
    any_partitioner: bool,
    archive: ArchiveSpec | None,
    run_bytes: int,
    parallelism: int,
) -> tuple[RepartitionSpec, Adopt]:
    """Return what is to be made of what, and what has the catalogue know it.

    Raises
    ------
    InputError
        If definitions or options do not fit each other, or a store of the application cannot be written anew.
    """
    (source,) = chosen.applications
    try:
        check_name(to)
    except ValueError as error:
        raise InputError(f"--to: {error}") from error
    if to == source:
        raise InputError("--to: expected a name other than that of --application, which is not changed")
    read_instead = _renamed(renamed)
    inputs: list[InputPair] | None = None
    recorded: dict[str, str] | None = None
    counts: dict[str, int] = {}
    adopt: Adopt = lambda topics: None  # noqa: E731
    if chosen.defined:
        if asked.stores:
            raise InputError("--store: all stores of the application are included. Leave it out")
        if read_instead:
            raise InputError("--input: the definitions name the input topics. Leave it out")
        before, after = _entries(asked, source, to)
        partitions = _partitions_of(after, partitions)
        inputs, recorded = _inputs(before.definition, after), dict(after.topics or {})
        counts = {store.name: _tasks_of(after, store.name) for store in after.definition.stores}
        stores = [store for store in chosen.specs if store.task.partition < _tasks_of(before, store.store.name)]
        definitions = _definitions(before.definition, after.definition)
        adopt = _adopter(asked, to)
    else:
        _require_undefined(asked, to)
        if partitions is None:
            raise InputError("--partitions: expected the number of partitions of the new changelogs")
        stores, definitions = (
            _discovered(asked, chosen, topics),
            {store.store.name: store.store for store in chosen.specs},
        )
    if not stores:
        raise InputError(f"application {source} has no store on disk here: there is nothing to write")
    before_counts = Counter(store.store.name for store in stores)
    if any_partitioner and any(counts.get(name, partitions) != count for name, count in before_counts.items()):
        raise InputError(
            f"--partitioner any: the partition of each key among {partitions} is unknown. Use it only if the number of "
            "partitions does not change"
        )
    stores = [store.model_copy(update={"archive": archive}) for store in stores]
    new = {
        name: [_new_store(found, to, definition, number) for number in range(counts.get(name, partitions))]
        for name, definition in definitions.items()
        for found in [next(store for store in stores if store.store.name == name)]
    }
    spec = RepartitionSpec(
        source=stores,
        new=NewApplication(to, new, recorded),
        partitions=partitions,
        inputs=inputs,
        renamed=read_instead,
        reads_from=reads_from,
        any_partitioner=any_partitioner,
        run_bytes=run_bytes,
        started_ms=clock.now_ms(),
        parallelism=parallelism,
    )
    return spec, adopt


def clone_spec(
    asked: PartitionSelection,
    topics: Topics,
    cut: Cut,
    *,
    to: str,
    elsewhere: bool,
    reads_from: CloneReadsFrom | None,
    any_partitioner: bool,
    run_bytes: int,
    parallelism: int,
) -> tuple[RepartitionSpec, Adopt]:
    """Return what is to be made of a cut, whose stores are still to be fetched, and what has the catalogue know it.

    Parameters
    ----------
    elsewhere
        The cut is of another Kafka cluster, and so of an application that another catalogue has.

    Raises
    ------
    InputError
        If definitions do not fit each other, or the cut, or it must be said where the clone begins.
    """
    (source,) = asked.applications
    if not elsewhere:
        if to == source:
            raise InputError("--to: expected a name other than that of --application, which is not changed")
        before, after = _entries(asked, source, to)
        _definitions(before.definition, after.definition)
    else:
        after = _entry(asked, source, to)
    new = after.definition
    pairs = _inputs_of_cut(cut, source, after)
    same = not elsewhere and pairs[0].source == pairs[0].target
    if same and reads_from is not None:
        raise InputError(f"--reads-from: {to} reads the topic of {source} and starts where the set ends. Leave it out")
    _require_stores_of_cut(cut, new)
    target = store_partition_specs(asked.where, topics, [new])
    made = {
        store.name: [
            _new_store(found, to, store, found.task.partition) for found in target if found.store.name == store.name
        ]
        for store in new.stores
    }
    spec = RepartitionSpec(
        source=[store.model_copy(update={"application": source, "changelog": None}) for store in target],
        new=NewApplication(to, made, dict(after.topics or {})),
        partitions=_partitions_of(after, None),
        inputs=pairs,
        renamed={},
        reads_from=None,
        any_partitioner=same or any_partitioner,  # rows stay where they are
        run_bytes=run_bytes,
        started_ms=clock.now_ms(),
        parallelism=parallelism,
        cut=CutSource(
            cut.found.uuid,
            elsewhere,
            pairs[0].target if same else None,
            clone_offsets(topics, cut, CloneInput(to, pairs, same, reads_from)),
        ),
    )
    return spec, _adopter(asked, to)


def _inputs_of_cut(cut: Cut, source: str, after: Entry) -> list[InputPair]:
    """Pair what a set is of with what the sub-topologies of a clone read.

    Raises
    ------
    InputError
        If these are not the same sub-topologies.
    """
    new, set_of = after.definition, sorted(cut.partitions)
    # The names of repartition topics are those of the stores, behind the application's.
    internal = [part.input_topic for part in new.model_copy(update={"name": source}).subtopologies[1:]]
    inputs = [topic for topic in set_of if topic not in internal]
    if len(inputs) != 1 or not {*internal} <= {*set_of}:
        raise InputError(
            f"set {cut.found.uuid} has the input {', '.join(set_of)}, but {new.name} reads "
            f"{', '.join(part.input_topic for part in new.subtopologies)}. A clone needs the aggregations of the "
            "application. Correct its definition, or use a newer set"
        )
    return [
        InputPair(topic, part.input_topic, bool(part.index), part.index, after.partitions[part.input_topic])
        for topic, part in zip([*inputs, *internal], new.subtopologies, strict=True)
    ]


def _require_stores_of_cut(cut: Cut, new: ApplicationDefinition) -> None:
    """Make sure that the stores of a clone are what the snapshots are of.

    Raises
    ------
    InputError
        Naming the first that is not.
    """
    stores = {store.name: store for store in new.stores}
    if in_memory := [name for name, store in stores.items() if store.engine == "in_memory"]:
        raise InputError(f"{', '.join(in_memory)}: sets do not include stores in memory, so these cannot be cloned")
    for snapshot in cut.snapshots:
        then, now = snapshot.definition, stores.get(snapshot.definition.name)
        if now is None:
            continue  # which stores there are is compared for each task
        one, other = then.model_dump(exclude=_FREE), now.model_dump(exclude=_FREE)
        if changed := [f"{key} {one[key]} -> {other[key]}" for key in one if one[key] != other[key]]:
            raise InputError(
                f"store {then.name} of {new.name} is defined differently in set {cut.found.uuid}: "
                f"{', '.join(changed)}. Use a newer set, or correct the definition"
            )


def _renamed(said: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in said:
        source, equals, target = text.partition("=")
        if not (source and equals and target):
            raise InputError(f"--input: expected TOPIC=TOPIC, found {text!r}")
        found[source] = target
    return found


def _new_store(found: StorePartitionSpec, to: str, definition: StoreDefinition, number: int) -> StorePartitionSpec:
    """Return a store partition of the new application: what it is, is what one of the other shows or a definition says.

    A store of ours has the place that its definition gives it, which is that of the other's.
    """
    told = {"application": to, "store": definition, "task": TaskId(found.task.subtopology, number)}
    return found.model_copy(
        update={**told, "changelog": None, "archive": None, "segments_seen": (), "progress_seen": ()}
    )


def _entries(asked: PartitionSelection, source: str, to: str) -> tuple[Entry, Entry]:
    after = _entry(asked, source, to)
    assert asked.service is not None
    return asked.service.certain_view().catalogue.entry(source), after


def _entry(asked: PartitionSelection, source: str, to: str) -> Entry:
    assert asked.service is not None, "a definition that is not from a file is from a catalogue"
    catalogue = asked.service.certain_view().catalogue
    if to not in catalogue.applications:
        raise UnknownApplicationError(
            f"--to: the catalogue has no application {to!r}. Copy the definition of {source}, give it the new name "
            "and its own input, and apply it"
        )
    return catalogue.entry(to)


def _require_undefined(asked: PartitionSelection, to: str) -> None:
    if asked.service is not None and to in asked.service.certain_view().catalogue.applications:
        raise InputError(
            f"--to: {to} has a definition in the catalogue, but --application has none. The program that runs one "
            "cannot run the other"
        )


def _partitions_of(after: Entry, said: int | None) -> int:
    found = after.partitions[after.definition.input_topic]
    if said not in (None, found):
        raise InputError(
            f"--partitions: {after.definition.input_topic}, the input of {after.definition.name}, has {found}, found "
            f"{said}. Leave it out"
        )
    return found


def _tasks_of(entry: Entry, store: str) -> int:
    return entry.partitions[entry.definition.subtopology_of(store).input_topic]


def _inputs(before: ApplicationDefinition, entry: Entry) -> list[InputPair]:
    """Pair what the sub-topologies of two applications read, whose stores are the same."""
    result, after = [], entry.definition
    for part in before.subtopologies:
        if part.index and not part.stores:
            continue
        other = after.subtopology_of(part.stores[0].name) if part.index else after.subtopologies[0]
        if other.index != part.index:
            raise InputError(
                f"store {part.stores[0].name} belongs to sub-topology {part.index} of {before.name}, but to "
                f"{other.index} of {after.name}. Give both applications the same aggregations in the same order"
            )
        count = entry.partitions[other.input_topic]
        result.append(InputPair(part.input_topic, other.input_topic, bool(part.index), part.index, count))
    return result


def _definitions(before: ApplicationDefinition, after: ApplicationDefinition) -> Mapping[str, StoreDefinition]:
    """Return the stores of the new application.

    Raises
    ------
    InputError
        If they are not those of the other, or any is kept in memory.
    """
    stores, others = ({store.name: store for store in found.stores} for found in (before, after))
    problems = [f"{name} is in only one of them" for name in sorted(set(stores) ^ set(others))]
    for name in sorted(set(stores) & set(others)):
        one, other = stores[name].model_dump(exclude=_FREE), others[name].model_dump(exclude=_FREE)
        problems += [f"{name}.{key} {one[key]} -> {other[key]}" for key in one if one[key] != other[key]]
        in_memory = [found for found in (stores[name], others[name]) if found.engine == "in_memory"]
        problems += [f"{name} is kept in memory"] if in_memory else []
    one, other = (
        {item.store: item.model_dump(exclude={"output_topic", "partitions"}) for item in of.aggregations}
        for of in (before, after)
    )
    problems += [f"the aggregation into {name}" for name in sorted({*one, *other}) if one.get(name) != other.get(name)]
    if problems:
        raise InputError(
            f"the stores of {before.name} and {after.name} must be the same, and on disk: {'; '.join(problems)}"
        )
    return others


def _adopter(asked: PartitionSelection, to: str) -> Adopt:
    def adopt(topics: Sequence[Topic]) -> None:
        assert asked.service is not None
        record_topics(asked.service.metastore, to, topics, replacing=frozenset(topic.name for topic in topics))

    return adopt


def _discovered(asked: PartitionSelection, chosen: Chosen, topics: Topics) -> list[StorePartitionSpec]:
    """Return the store partitions of an application without a definition, of which every store can be written anew."""
    if left_out := [name for name, hint in chosen.said.items() if hint.engine == "in_memory"]:
        raise InputError(f"{', '.join(left_out)}: stores in memory cannot be rewritten, and no store can be left out")
    own = [store for store in chosen.discovered if store.trouble != "foreign"]
    own = [store for store in own if store.here or not store.acknowledged]
    if problems := [f"{store.label}: {store.problem}" for store in own if store.definition is None]:
        raise InputError(
            "each store of the application must be known and on disk here: " + "; ".join(problems) + ". Nothing was "
            "changed"
        )
    (source,) = chosen.applications
    there = {store.name for store in stores_in(asked.where.state_dir, source)[0]}
    logged = [store for store in logged_stores(topics, source) if store not in there]
    there |= {*logged} - {*other_owners(asked.where, topics, source, logged, {})}
    if missing := sorted(there - {store.name for store in chosen.discovered}):
        raise InputError(
            f"--store: all stores of {source} are included. Name {', '.join(missing)} as well, or leave --store out "
            "and give required settings with --retention and --changelog"
        )
    return list(chosen.specs)
