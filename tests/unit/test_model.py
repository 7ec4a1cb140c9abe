"""Names, ids and definitions: what may stand in a path and in a topic name, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from statestore.definitions.aggregation import TimeWindows
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, UnknownStoreError
from statestore.model import (
    StoreFormat,
    StorePartition,
    StoreSelector,
    TaskId,
    TopicPartition,
    changelog_topic,
    check_name,
    repartition_topic,
    transactional_id,
)
from statestore.partition.spec import GLOBAL_TASK
from statestore.statedir.paths import TaskPaths
from tests.session.examples import examples

NOT_NAMES = (".", "..", ".statestore")
#: Names that Kafka takes.
NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in NOT_NAMES)
#: Two that a definition takes together.
SHORT_NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,100}", fullmatch=True).filter(lambda name: name not in NOT_NAMES)
MEAN = [
    "",
    ".",
    "..",
    "../a",
    "a/../b",
    "/a",
    "a/b",
    "a\\b",
    "a\0",
    "a\n",
    ".statestore",
    "é",
    "a b",
    "ａ",
    "٣",
    "a" * 250,
]


def definition(**changes):
    return ApplicationDefinition.model_validate(
        {"name": "app", "input_topic": "in", "processor": "module:process", "stores": [{"name": "s"}], **changes}
    )


@settings(max_examples=examples(40))
@given(NAMES)
def test_a_name_of_kafkas_characters_is_accepted_and_stays_in_its_directory(name):
    assert check_name(name) == name
    paths = TaskPaths(Path("/state"), name, TaskId(0, 1))
    own = [of(name) for of in (paths.journal, paths.seal, paths.snapshot, paths.record, paths.runs_lock, paths.digests)]
    for path in (paths.store(name), paths.staging(name), paths.quarantine(name, "run"), *own):
        assert path.is_relative_to("/state")
        assert ".." not in path.parts
        assert all(len(part) <= 255 for part in path.parts)


@given(st.text())
@example("a\n")
def test_any_text_is_a_safe_name_or_refused(text):
    try:
        check_name(text)
    except ValueError:
        return
    assert text.isascii()
    assert text not in NOT_NAMES
    assert 1 <= len(text) <= 249
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@pytest.mark.parametrize("name", MEAN)
def test_a_name_that_leaves_its_directory_or_is_not_kafkas_is_refused_everywhere(name):
    with pytest.raises(ValidationError):
        StoreDefinition(name=name)
    for field in ("name", "input_topic"):
        with pytest.raises(ValidationError):
            definition(**{field: name})
    with pytest.raises(ValidationError):
        definition(output_topics=[name])
    with pytest.raises(ValidationError):
        StoreDefinition(name="s", expectations=name)


@settings(max_examples=examples(40))
@given(SHORT_NAMES, SHORT_NAMES)
def test_internal_topics_fit_kafkas_249_characters(application, store):
    assert len(changelog_topic(application, store)) <= 249
    assert len(repartition_topic(application, store)) <= 249


@given(st.integers(0, 999), st.integers(0, 999_999))
def test_a_task_id_comes_back_as_it_was_written(subtopology, partition):
    assert TaskId.parse(str(TaskId(subtopology, partition))) == TaskId(subtopology, partition)


@pytest.mark.parametrize(
    "text",
    ["", "0", "0_", "_0", "0_0_0", "-1_0", "0_-1", "0 _0", "0_0\n", "a_b", "../0_0", "٣_٣", "1" * 5000 + "_0"],
)
def test_what_is_no_task_id_is_refused(text):
    with pytest.raises(InputError, match="expected <subtopology>_<partition>"):
        TaskId.parse(text)


def test_the_names_are_kafka_streams_names():
    partition = StorePartition("app", "s", TaskId(0, 3))
    assert partition.changelog == TopicPartition("app-s-changelog", 3)
    assert str(partition.changelog) == "app-s-changelog-3"
    assert str(partition) == "app/s/0_3"
    assert transactional_id("app", TaskId(0, 3)) == "app-0_3"


@settings(max_examples=examples(40))
@given(NAMES, NAMES)
def test_no_two_stores_share_a_file_of_ours(first, second):
    paths = TaskPaths(Path("/state"), "app", TaskId(0, 0))

    def files(store):
        return {paths.staging(store), paths.quarantine(store, "l"), paths.journal(store), paths.record(store)}

    assert first == second or not files(first) & files(second)
    assert paths.own_dir / "lock" not in files(first)


def test_store_names_are_distinct():
    with pytest.raises(ValidationError, match="must be distinct"):
        definition(stores=[{"name": "s"}, {"name": "s"}])


@pytest.mark.parametrize("topic", ["app-s-changelog", "app-by-origin-repartition", "app-by-origin-changelog", "in"])
@pytest.mark.parametrize("use", ["output_topics", "dead_letter_topic", "an aggregation's output_topic"])
def test_an_output_topic_is_neither_the_input_nor_an_internal_topic_of_the_application(topic, use):
    by_origin = {"store": "by-origin", "group_by": "module:origin"}
    changes = {"output_topics": [topic]} if use == "output_topics" else {}
    if use == "dead_letter_topic":
        changes = {"dead_letter_topic": topic}
    elif not changes:
        by_origin["output_topic"] = topic
    with pytest.raises(ValidationError, match="cannot be output topics"):
        definition(aggregations=[by_origin], **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"commit_interval_ms": 9},
        {"commit_interval_ms": -1},
        {"commit_interval_ms": 600_001},
        {"uncommitted_max_bytes": 1023},
        {"uncommitted_max_bytes": -1},
        {"stores": []},
        {"stores": [{"name": "s", "kind": "window"}]},
        {"stores": [{"name": "s", "engine": "rocksdb"}]},
        {"stores": [{"name": "s", "format": "versioned"}]},
        {"stores": [{"name": "s", "retention_ms": 1}]},
        {"stores": [{"name": "s", "key_serde": "utf-8"}]},
        {"processing_guarantee": "exactly_once"},
        {"dead_letter_topic": "a/b"},
        {"schema_version": 2},
        {"processor": "module"},
        {"processor": "module:"},
        {"processor": "os.path; import os:x"},
        {"processor": "a:b\n"},
        {"unknown": 1},
        {"name": 1},
        {"name": None},
    ],
)
def test_t12_a_definition_with_an_invalid_argument_is_a_value_error(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        definition(**changes)


def test_a_definition_cannot_be_changed():
    with pytest.raises(ValidationError):
        definition().name = "other"


def test_a_store_is_found_by_its_name_and_an_unknown_one_says_which_there_are():
    assert definition().store("s").name == "s"
    with pytest.raises(UnknownStoreError, match="application app has no store 't'; its stores are: s"):
        definition().store("t")


def test_t1_a_store_without_an_engine_has_the_applications_default_dsl_store():
    assert definition().store("s").engine == "txn_rocksDB"
    chosen = definition(default_dsl_store="in_memory", stores=[{"name": "s", "engine": "rocksDB"}, {"name": "t"}])
    assert [store.engine for store in chosen.stores] == ["rocksDB", "in_memory"]


# -- aggregations -------------------------------------------------------------------------------------------------

WINDOWS = {"size_ms": 100, "grace_ms": 20}
SESSIONS = {"gap_ms": 100, "grace_ms": 20}


def aggregating(*aggregations, **changes):
    return definition(**{"processor": None, "stores": [], "aggregations": list(aggregations), **changes})


def test_an_application_has_a_processor_or_aggregations():
    with pytest.raises(ValidationError, match="expected a processor, aggregations, or both, found neither"):
        definition(processor=None)
    assert aggregating({"store": "c"}).processor is None


@pytest.mark.parametrize(
    ("aggregation", "kind", "retention_ms", "window_size_ms"),
    [
        ({}, "key-value", None, None),
        ({"windows": WINDOWS}, "window", 120, 100),
        ({"sessions": SESSIONS}, "session", 120, None),
    ],
)
def test_an_aggregation_makes_the_store_that_is_not_listed(aggregation, kind, retention_ms, window_size_ms):
    store = aggregating({"store": "c", **aggregation}, default_dsl_store="rocksDB").store("c")
    assert (store.kind, store.retention_ms, store.window_size_ms) == (kind, retention_ms, window_size_ms)
    assert store.engine == "rocksDB"
    # Kafka Streams has no timestamped session stores.
    assert store.format is (StoreFormat.PLAIN if kind == "session" else StoreFormat.TIMESTAMPED)


def test_a_listed_store_of_an_aggregation_keeps_its_own_settings():
    listed = {"name": "c", "kind": "window", "window_size_ms": 100, "retention_ms": 500, "format": "plain"}
    store = aggregating({"store": "c", "windows": WINDOWS}, stores=[listed]).store("c")
    assert (store.retention_ms, store.format) == (500, StoreFormat.PLAIN)


@pytest.mark.parametrize(
    ("store", "aggregation"),
    [
        ({}, {"windows": WINDOWS}),
        ({"kind": "session", "retention_ms": 500}, {}),
        ({"kind": "session", "retention_ms": 500}, {"windows": WINDOWS}),
        ({"kind": "window", "window_size_ms": 99, "retention_ms": 500}, {"windows": WINDOWS}),
        ({"kind": "window", "window_size_ms": 100, "retention_ms": 119}, {"windows": WINDOWS}),
        (
            {"kind": "window", "window_size_ms": 100, "retention_ms": 500, "retain_duplicates": True},
            {"windows": WINDOWS},
        ),
        ({"kind": "session", "retention_ms": 119}, {"sessions": SESSIONS}),
    ],
)
def test_a_store_that_does_not_fit_its_aggregation_is_refused(store, aggregation):
    with pytest.raises(ValidationError, match="aggregation into c needs"):
        aggregating({"store": "c", **aggregation}, stores=[{"name": "c", **store}])


def test_two_aggregations_never_share_a_store():
    with pytest.raises(ValidationError, match="each aggregation has a store of its own"):
        aggregating({"store": "c"}, {"store": "c", "group_by": "module:origin"}, stores=[{"name": "c"}])


@pytest.mark.parametrize(
    ("aggregation", "message"),
    [
        ({"windows": WINDOWS, "sessions": SESSIONS}, "has windows and sessions"),
        ({"partitions": 3}, "has partitions but no group_by"),
        ({"aggregate": "sum"}, "aggregate"),
        ({"aggregate": "count_of"}, "aggregate"),
        ({"group_by": "module"}, "group_by"),
        ({"group_by": "module:f", "partitions": 0}, "partitions"),
        ({"windows": {"size_ms": 0}}, "size_ms"),
        ({"windows": {"size_ms": 10, "advance_ms": 11}}, "advance_ms of 11 is longer than size_ms of 10"),
        ({"windows": {"size_ms": 10, "advance_ms": 0}}, "advance_ms"),
        ({"windows": {"size_ms": 10, "grace_ms": -1}}, "grace_ms"),
        ({"windows": {"size_ms": 1 << 62}}, "size_ms"),
        ({"sessions": {"gap_ms": -1}}, "gap_ms"),
        ({"sessions": {}}, "gap_ms"),
    ],
)
def test_t12_an_aggregation_with_an_invalid_argument_is_a_value_error(aggregation, message):
    with pytest.raises(ValueError, match=message):
        aggregating({"store": "c", **aggregation})


def test_windows_advance_by_their_length_unless_told_otherwise():
    assert TimeWindows(size_ms=10).step_ms == 10
    assert TimeWindows(size_ms=10, advance_ms=3).step_ms == 3


# -- subtopologies ------------------------------------------------------------------------------------------------


def test_each_regrouped_aggregation_has_a_subtopology_of_its_own_and_all_else_is_in_the_first():
    application = definition(
        aggregations=[
            {"store": "by-origin", "group_by": "module:origin"},
            {"store": "by-key"},
            {"store": "by-day", "group_by": "module:day"},
        ]
    )
    first, origin, day = application.subtopologies
    assert [part.index for part in application.subtopologies] == [0, 1, 2]
    assert (first.input_topic, first.processor) == ("in", "module:process")
    assert [item.store for item in first.aggregations] == ["by-key"]
    assert [item.store for item in first.regrouped] == ["by-origin", "by-day"]
    assert [store.name for store in first.stores] == ["s", "by-key"]
    assert (origin.input_topic, day.input_topic) == ("app-by-origin-repartition", "app-by-day-repartition")
    for part, store in ((origin, "by-origin"), (day, "by-day")):
        assert (part.processor, part.regrouped) == (None, ())
        assert [item.store for item in part.aggregations] == [found.name for found in part.stores] == [store]
        assert application.subtopology_of(store) == part
    assert application.subtopology_of("s") == first


def test_a_copy_with_other_aggregations_has_other_subtopologies():
    application = aggregating({"store": "c"})
    assert len(application.subtopologies) == 1
    regrouped = application.aggregations[0].model_copy(update={"group_by": "module:origin"})
    assert len(application.model_copy(update={"aggregations": (regrouped,)}).subtopologies) == 2


def test_the_subtopology_of_an_unknown_store_is_asked_for_in_vain():
    with pytest.raises(UnknownStoreError, match="application app has no store 't'; its stores are: s"):
        definition().subtopology_of("t")


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("sectors", ["0_1", "1_1", "1_3"]),
        ("weather/sectors", ["0_1", "1_1", "1_3"]),
        ("weather/sectors/1_3", ["1_3"]),
        ("sectors/1_3", ["1_3"]),
        ("sectors/1", ["0_1", "1_1"]),
        ("sectors/0_1,3", ["0_1", "1_3"]),
        ("sectors/?_3", ["1_3"]),
        ("weather/sectors/-", ["0_1", "1_1", "1_3"]),
        ("weather/sectors/global", ["global"]),
        ("harbour/sectors", []),
        ("3", []),
    ],
)
def test_each_name_that_is_printed_of_a_store_partition_selects_it(text, selected):
    tasks = [TaskId(0, 1), TaskId(1, 1), TaskId(1, 3)]
    found = [StorePartition("weather", "sectors", task) for task in (*tasks, GLOBAL_TASK)]
    selector = StoreSelector.parse(text)
    assert [str(each.task) for each in found if selector.selects(each)] in (selected, [*selected, "global"])
    assert StoreSelector.parse(str(selector)) == selector


@given(NAMES, NAMES, st.integers(0, 9), st.integers(0, 10**9 - 1))
def test_a_store_partition_is_selected_by_its_name_alone(application, store, subtopology, partition):
    found = StorePartition(application, store, TaskId(subtopology, partition))
    selector = StoreSelector.parse(str(found))
    assert selector.selects(found)
    assert not selector.selects(found._replace(task=TaskId(subtopology + 1, partition)))
    assert not selector.selects(found._replace(application=f"{application}x"[-100:]))


@pytest.mark.parametrize("text", ["", "/", "a/", "/0", "a/b/c", "a/b/0_1/2", "a/0_1/b", "../a", "a/b\n"])
def test_what_names_no_store_is_refused(text):
    with pytest.raises(InputError, match=r"names no store: .*Expected STORE, APPLICATION/STORE, or a store partition"):
        StoreSelector.parse(text)


def test_two_long_names_that_make_too_long_a_topic_are_refused():
    name = "a" * 130
    with pytest.raises(ValidationError, match="has 271 characters, expected at most 249"):
        definition(name=name, stores=[{"name": name}])
