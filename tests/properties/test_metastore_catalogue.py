"""Any sequence of commands gives one catalogue: at once or step by step, from the first one or from any snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from hypothesis import event, given, settings
from hypothesis import strategies as st

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InvalidCommandError
from statestore.metastore.catalogue import Catalogue, Rebuild
from statestore.metastore.commands import (
    Command,
    DropApplication,
    DropStore,
    PutApplication,
    RecordTopics,
    Snapshot,
    check_round_trip,
    decode,
    digest_of,
    stamped,
)
from statestore.metastore.definition_files import parse_definitions, to_yaml
from statestore.metastore.evolution import internal_topic_names, partitions_of
from statestore.metastore.plan import difference, put
from statestore.model import changelog_topic
from tests.session.examples import examples

# Few names, so that commands meet; and names with dashes, so that `a` + `b-c` meets `a-b` + `c`.
APPLICATIONS = st.sampled_from(["a", "a-b", "x"])
STORES = st.sampled_from(["c", "b-c", "s", "t"])
WRITERS = st.sampled_from(["anna@one", "Zoë@two"])


@st.composite
def stores(draw: st.DrawFn) -> dict[str, Any]:
    """A store of any kind."""
    fields: dict[str, Any] = {
        "name": draw(STORES),
        "owner": draw(st.none() | st.text("aé -#':", min_size=1, max_size=3)),
    }
    kind = draw(st.sampled_from(["key-value", "key-value", "key-value", "window", "session"]))
    if kind != "key-value":
        fields |= {"kind": kind, "retention_ms": draw(st.sampled_from([10, 20]))}
    if kind == "window":
        fields["window_size_ms"] = 10
    if draw(st.booleans()):
        fields["format"] = draw(st.sampled_from(["plain", "timestamped"]))
    return fields


@st.composite
def definitions(draw: st.DrawFn) -> ApplicationDefinition:
    """A definition; an aggregation takes a store only if it is one that it can write."""
    aggregations = st.fixed_dictionaries(
        {"store": STORES, "group_by": st.sampled_from([None, None, "m:key", "m:other"])}
    )
    listed = draw(st.lists(stores(), min_size=1, max_size=3, unique_by=lambda store: store["name"]))
    windowed = {store["name"] for store in listed if "kind" in store}
    drawn = draw(st.lists(aggregations, max_size=2, unique_by=lambda item: item["store"]))
    return ApplicationDefinition.model_validate(
        {
            "name": draw(APPLICATIONS),
            "input_topic": draw(st.sampled_from(["in", "in", "in", "other"])),
            "processor": "m:f",
            "commit_interval_ms": draw(st.integers(10, 12)),
            "stores": listed,
            "aggregations": [item for item in drawn if item["store"] not in windowed],
        }
    )


def puts() -> st.SearchStrategy[PutApplication]:
    return st.builds(
        lambda definition, count: PutApplication(definition=definition, partitions=partitions_of(definition, count)),
        definitions(),
        st.sampled_from([2, 2, 2, 3]),
    )


class OnState(NamedTuple):
    """A command on whatever is in the catalogue by then, chosen by a number."""

    kind: Literal["record topics", "drop store", "drop application", "snapshot"]
    number: int


Step = PutApplication | RecordTopics | OnState
_FOREIGN = RecordTopics(application="a", topics={"a-c-changelog": "id"})
STEPS = st.lists(
    puts()
    | puts()
    | st.builds(
        OnState,
        st.sampled_from(["record topics", "record topics", "drop store", "drop application", "snapshot"]),
        st.integers(0, 60),
    )
    | st.just(_FOREIGN),
    max_size=25,
)


def made(step: Step, catalogue: Catalogue) -> Command:
    """The step's command on this catalogue."""
    if not isinstance(step, OnState):
        return step
    names = list(catalogue.applications)
    if step.kind == "snapshot":
        return catalogue.snapshot()
    if not names:
        return DropApplication(name="a")
    definition = catalogue.entry(names[step.number % len(names)]).definition
    if step.kind == "drop application":
        return DropApplication(name=definition.name)
    if step.kind == "drop store":
        store = definition.stores[step.number % len(definition.stores)]
        return DropStore(application=definition.name, store=store.name)
    topics = internal_topic_names(definition)
    some = topics[step.number % len(topics) :]
    return RecordTopics(application=definition.name, topics=dict.fromkeys(some, f"id-{step.number}"))


class Model:
    """What the accepted commands come to, said as plainly as possible."""

    def __init__(self) -> None:
        self.defined: dict[str, ApplicationDefinition] = {}
        self.recorded: dict[str, dict[str, str]] = {}
        self.created: dict[str, int] = {}

    def apply(self, command: Command) -> None:
        match command:
            case PutApplication(definition=definition):
                self.created.setdefault(definition.name, command.id)
                self.defined[definition.name] = definition
            case DropApplication(name=name):
                del self.defined[name], self.created[name]
                self.recorded.pop(name, None)
            case DropStore(application=name, store=store):
                fields = self.defined[name].model_dump()
                fields["stores"] = [item for item in fields["stores"] if item["name"] != store]
                self.defined[name] = ApplicationDefinition.model_validate(fields)
            case RecordTopics(application=name, topics=topics):
                self.recorded.setdefault(name, {}).update(topics)
        for name, definition in self.defined.items():
            known = self.recorded.get(name, {})
            for topic in set(known).difference(internal_topic_names(definition)):
                del known[topic]

    def require(self, catalogue: Catalogue) -> None:
        assert catalogue.definitions() == self.defined
        assert list(catalogue.applications) == sorted(self.defined)
        assert {name: entry.topics or {} for name, entry in catalogue.applications.items()} == {
            name: self.recorded.get(name, {}) for name in self.defined
        }
        assert {name: entry.created_id for name, entry in catalogue.applications.items()} == self.created


def written(steps: Sequence[Step], writer: str) -> tuple[list[bytes], list[Catalogue]]:
    """Submit the steps one by one; return the log, and the catalogue before each of its records and after the last."""
    log: list[bytes] = []
    catalogues = [Catalogue()]
    model = Model()
    for step in steps:
        now = catalogues[-1]
        command = stamped(made(step, now), now.next_id, 1_000 + len(log), writer)
        before = (now.content().model_copy(deep=True), now.next_id)
        try:
            later = now.apply(command)
        except InvalidCommandError:
            event(f"{command.kind} refused")
            assert not isinstance(command, Snapshot)
            assert (now.content(), now.next_id) == before
            continue
        event(f"{command.kind} accepted")
        assert (now.content(), now.next_id) == before
        assert later.next_id == now.next_id + 1
        model.apply(command)
        model.require(later)
        log.append(check_round_trip(command))
        catalogues.append(later)
    return log, catalogues


def rebuilt(log: Sequence[bytes]) -> Catalogue:
    rebuild = Rebuild()
    for value in log:
        rebuild.apply(decode(value))
    return rebuild.catalogue()


def require_equal(found: Catalogue, expected: Catalogue) -> None:
    assert found == expected
    assert (found.digest(), found.next_id) == (expected.digest(), expected.next_id)
    assert list(found.applications) == list(expected.applications)


@settings(max_examples=examples(40), deadline=None)
@given(STEPS, WRITERS)
def test_a_log_is_rebuilt_the_same_at_every_offset_and_from_every_snapshot(steps: list[Step], writer: str) -> None:
    log, catalogues = written(steps, writer)
    for end, expected in enumerate(catalogues):
        require_equal(rebuilt(log[:end]), expected)
    for start, value in enumerate(log):
        if isinstance(decode(value), Snapshot):
            for end in range(start + 1, len(log) + 1):
                require_equal(rebuilt(log[start:end]), catalogues[end])


@settings(max_examples=examples(30), deadline=None)
@given(STEPS, STEPS, WRITERS, st.data())
def test_a_log_that_is_cut_at_any_point_goes_on_as_the_whole_one(
    before: list[Step], behind: list[Step], writer: str, data: st.DataObject
) -> None:
    whole, catalogues = written([*before, OnState("snapshot", 0), *behind], writer)
    compacted = [at for at, value in enumerate(whole) if isinstance(decode(value), Snapshot)]
    cut = data.draw(st.sampled_from(compacted))
    short, full = rebuilt(whole[cut:]), catalogues[-1]
    require_equal(short, full)
    # Whatever is submitted next is accepted or refused by both alike, and gives the same.
    for command in data.draw(st.lists(puts() | st.just(_FOREIGN), max_size=4)):
        next_one = stamped(command, full.next_id, 9_000, writer)
        results = []
        for catalogue in (short, full):
            try:
                results.append(catalogue.apply(next_one))
            except InvalidCommandError as error:
                results.append(str(error))
        assert results[0] == results[1]
        if isinstance(results[0], Catalogue):
            short, full = results
            require_equal(short, full)


@settings(max_examples=examples(30), deadline=None)
@given(STEPS, WRITERS)
def test_no_two_applications_ever_log_to_one_changelog(steps: list[Step], writer: str) -> None:
    for catalogue in written(steps, writer)[1]:
        topics = [
            changelog_topic(name, store.name)
            for name, entry in catalogue.applications.items()
            for store in entry.definition.stores
        ]
        assert len(topics) == len(set(topics))


@settings(max_examples=examples(30), deadline=None)
@given(definitions(), definitions())
def test_definitions_are_equal_when_they_do_not_differ_and_survive_yaml(
    old: ApplicationDefinition, new: ApplicationDefinition
) -> None:
    assert (old == new) == (not difference(old, new))
    assert parse_definitions(to_yaml(new), "text") == {new.name: new}


@settings(max_examples=examples(40), deadline=None)
@given(STEPS, WRITERS)
def test_what_is_in_the_catalogue_is_not_put_again(steps: list[Step], writer: str) -> None:
    catalogue = written(steps, writer)[1][-1]
    for entry in catalogue.applications.values():
        assert put(catalogue, entry.definition, entry.partitions) is None
    assert catalogue.digest() == digest_of(catalogue.content())
