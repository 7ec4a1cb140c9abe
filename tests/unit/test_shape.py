"""A definition that was changed since the stores were built: what may change, and what is refused."""

from __future__ import annotations

import json

import pytest

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import DefinitionError
from statestore.kafka.cluster import Cluster
from statestore.model import TaskId
from statestore.partition.spec import ChangelogSpec
from statestore.tasks.shape import check_shape, remember_shape
from statestore.tasks.spec import TaskSpec

WINDOWED = {"store": "w", "group_by": "module:origin", "windows": {"size_ms": 100, "advance_ms": 50}}
SESSIONS = {"store": "v", "sessions": {"gap_ms": 10}}
DEFINITION = {
    "name": "app",
    "input_topic": "in",
    "processor": "module:process",
    "stores": [{"name": "s"}, {"name": "d", "kind": "window", "window_size_ms": 10, "retention_ms": 500}],
    "aggregations": [{"store": "c"}, SESSIONS, WINDOWED],
}


@pytest.fixture
def spec(tmp_path):
    """Make the spec of a task, its definition changed as told."""

    def make(subtopology=0, **changes):
        return TaskSpec(
            application=ApplicationDefinition.model_validate({**DEFINITION, **changes}),
            task=TaskId(subtopology, 0),
            input_end=0,
            offsets_id="offsets",
            changelogs={},
            cluster=Cluster("", 1),
            state_dir=tmp_path,
        )

    return make


def aggregations(index, **changes):
    found = [dict(item) for item in DEFINITION["aggregations"]]
    found[index].update(changes)
    return {"aggregations": found}


def stores(index, **changes):
    found = [dict(item) for item in DEFINITION["stores"]]
    found[index].update(changes)
    return {"stores": found}


def test_a_task_that_has_never_run_takes_any_definition(spec):
    check_shape(spec())


@pytest.mark.parametrize("subtopology", [0, 1])
def test_the_same_definition_goes_on(spec, subtopology):
    remember_shape(spec(subtopology))
    check_shape(spec(subtopology))


@pytest.mark.parametrize(
    "changes",
    [
        {"commit_interval_ms": 50, "uncommitted_max_bytes": 2048},
        {"processing_guarantee": "at_least_once"},
        {"dead_letter_topic": "dead", "output_topics": ["out"]},
        {"default_dsl_store": "rocksDB"},
        {"processor": "module:other"},
        stores(0, format="plain"),
        stores(1, retention_ms=1_000),
        {"stores": [*DEFINITION["stores"], {"name": "new"}]},
        {"stores": DEFINITION["stores"][1:]},
        aggregations(0, output_topic="out"),
        aggregations(1, sessions={"gap_ms": 10, "grace_ms": 99}),
        {"aggregations": [*DEFINITION["aggregations"], {"store": "new"}]},
        {"aggregations": DEFINITION["aggregations"][1:]},
    ],
)
def test_what_decides_on_no_key_and_value_may_change(spec, changes):
    remember_shape(spec())
    check_shape(spec(**changes))


@pytest.mark.parametrize(
    ("subtopology", "changes", "found"),
    [
        (0, {"input_topic": "other"}, "input_topic in -> other"),
        (0, stores(0, kind="session", retention_ms=500), "s.kind key-value -> session"),
        (0, stores(1, window_size_ms=20), "d.window_size_ms 10 -> 20"),
        (0, stores(1, retain_duplicates=True), "d.retain_duplicates False -> True"),
        (0, aggregations(0, aggregate="module:total"), "c.aggregate count -> module:total"),
        (0, aggregations(1, sessions={"gap_ms": 11}), "v.windows sessions with a gap of 10 ms -> .* 11 ms"),
        (0, {"aggregations": [SESSIONS, {"store": "s"}]}, "s.aggregate None -> count"),
        (1, aggregations(2, group_by="module:city"), "w.group_by module:origin -> module:city"),
        (1, aggregations(2, windows={"size_ms": 100}), "w.windows 100 ms every 50 ms -> 100 ms every 100 ms"),
    ],
)
def test_what_decides_on_keys_and_values_is_refused_with_what_was_and_what_is(spec, subtopology, changes, found):
    remember_shape(spec(subtopology))
    with pytest.raises(DefinitionError, match=f"of task {subtopology}_0 were built: .*{found}.*Go back"):
        check_shape(spec(subtopology, **changes))


def test_all_changes_are_named_at_once(spec):
    remember_shape(spec())
    with pytest.raises(DefinitionError, match=r"input_topic in -> other; c\.aggregate count -> module:total"):
        check_shape(spec(input_topic="other", **aggregations(0, aggregate="module:total")))


def test_another_aggregation_before_it_makes_it_another_task(spec):
    remember_shape(spec(1))
    first = {"store": "x", "group_by": "module:city"}
    with pytest.raises(DefinitionError, match="input_topic app-w-repartition -> app-x-repartition"):
        check_shape(spec(1, aggregations=[first, WINDOWED]))


def test_a_store_that_left_the_definition_is_not_taken_over_by_another_one_of_its_name(spec):
    remember_shape(spec())
    without = {"aggregations": DEFINITION["aggregations"][1:]}
    check_shape(spec(**without))
    remember_shape(spec(**without))
    check_shape(spec())
    with pytest.raises(DefinitionError, match=r"c\.aggregate count -> module:total"):
        check_shape(spec(**aggregations(0, aggregate="module:total")))


@pytest.mark.parametrize("gone", ["both", "changelog", "directory"])
def test_a_store_may_become_another_once_its_directory_and_its_changelog_are_deleted(spec, gone):
    def logged(topic_id, **changes):
        log = ChangelogSpec(topic="app-c-changelog", topic_id=topic_id, delete_retention_ms=1)
        return spec(**changes).model_copy(update={"changelogs": {"c": log}})

    remember_shape(logged("one"))
    if gone == "changelog":
        spec().paths.store("c").mkdir(parents=True)
    later = logged("one" if gone == "directory" else "two", **aggregations(0, aggregate="module:total"))
    if gone == "both":
        check_shape(later)
    else:
        with pytest.raises(DefinitionError, match=r"c\.aggregate count -> module:total"):
            check_shape(later)


def test_serdes_of_a_processors_store_are_settled_and_those_of_an_aggregations_store_are_a_view(spec):
    remember_shape(spec())
    with pytest.raises(DefinitionError, match=r"s\.key_serde bytes -> utf8; s\.value_serde bytes -> int64"):
        check_shape(spec(**stores(0, key_serde="utf8", value_serde="int64")))
    check_shape(spec(stores=[*DEFINITION["stores"], {"name": "c", "value_serde": "int64"}]))


def test_a_shape_from_before_serdes_were_recorded_forbids_none(spec):
    remember_shape(spec())
    content = json.loads(spec().paths.shape.read_text())
    for store in content["stores"].values():
        del store["key_serde"], store["value_serde"], store["topic_id"]
    spec().paths.shape.write_text(json.dumps(content))
    check_shape(spec(**stores(0, value_serde="int64")))


def test_a_refused_definition_changes_nothing_and_an_accepted_one_is_remembered(spec):
    remember_shape(spec())
    with pytest.raises(DefinitionError):
        check_shape(spec(input_topic="other"))
    check_shape(spec())
    grown = {"stores": [*DEFINITION["stores"], {"name": "new"}]}
    check_shape(spec(**grown))
    remember_shape(spec(**grown))
    with pytest.raises(DefinitionError, match=r"new\.kind key-value -> session"):
        check_shape(spec(stores=[*DEFINITION["stores"], {"name": "new", "kind": "session", "retention_ms": 1}]))


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"schema_version": 2}', b"\0", b"\xff"])
def test_a_shape_that_cannot_be_read_forbids_nothing_and_is_replaced(spec, content):
    spec().paths.shape.parent.mkdir(parents=True)
    spec().paths.shape.write_bytes(content)
    check_shape(spec(input_topic="other"))
    remember_shape(spec())
    with pytest.raises(DefinitionError):
        check_shape(spec(input_topic="other"))
