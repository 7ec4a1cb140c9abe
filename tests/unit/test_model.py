"""Names, ids and definitions: what may stand in a path and in a topic name, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from statestore.errors import InputError, UnknownStoreError
from statestore.model import (
    ApplicationDefinition,
    StoreDefinition,
    StorePartition,
    TaskId,
    TopicPartition,
    changelog_topic,
    check_name,
    transactional_id,
)
from statestore.statedir.paths import TaskPaths, paths_of

NAMES = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}", fullmatch=True)
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
    "-a",
    "_a",
    ".a",
    "é",
    "a b",
    "ａ",
    "٣",
    "a" * 101,
]


def definition(**changes):
    return ApplicationDefinition.model_validate(
        {"name": "app", "input_topic": "in", "processor": "module:process", "stores": [{"name": "s"}], **changes}
    )


@settings(max_examples=40)
@given(NAMES)
def test_a_name_of_kafkas_characters_is_accepted_and_stays_in_its_directory(name):
    assert check_name(name) == name
    paths = TaskPaths(Path("/state"), name, TaskId(0, 1))
    for path in (paths.store(name), paths.staging(name), paths.quarantine(name, "run"), paths.journal(name)):
        assert path.is_relative_to("/state")
        assert ".." not in path.parts


@given(st.text())
@example("a\n")
def test_any_text_is_a_safe_name_or_refused(text):
    try:
        check_name(text)
    except ValueError:
        return
    assert text.isascii()
    assert text[0].isalnum()
    assert 1 <= len(text) <= 100
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


@settings(max_examples=40)
@given(NAMES, NAMES)
def test_a_changelog_topic_fits_kafkas_249_characters(application, store):
    assert len(changelog_topic(application, store)) <= 249


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


def test_the_names_are_kafka_streams_names(tmp_path):
    partition = StorePartition("app", "s", TaskId(0, 3))
    assert partition.changelog == TopicPartition("app-s-changelog", 3)
    assert str(partition.changelog) == "app-s-changelog-3"
    assert str(partition) == "app/s/0_3"
    assert transactional_id("app", TaskId(0, 3)) == "app-0_3"
    assert paths_of(tmp_path, partition).store("s") == tmp_path / "app" / "0_3" / "rocksdb" / "s"
    assert paths_of(tmp_path, partition).checkpoint == tmp_path / "app" / "0_3" / ".checkpoint"


@settings(max_examples=40)
@given(NAMES, NAMES)
def test_our_own_files_never_lie_in_kafka_streams_directories(application, store):
    paths = TaskPaths(Path("/state"), application, TaskId(0, 0))
    for path in (paths.own_dir, paths.staging(store), paths.quarantine(store, "l"), paths.journal(store)):
        assert not path.is_relative_to(paths.application_dir)


@settings(max_examples=40)
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


@pytest.mark.parametrize("topic", ["app-s-changelog", "in"])
def test_an_output_topic_is_neither_a_changelog_nor_the_input_of_the_application(topic):
    with pytest.raises(ValidationError):
        definition(output_topics=[topic])


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
        {"stores": [{"name": "s", "engine": "rocksDB"}]},
        {"stores": [{"name": "s", "format": "versioned"}]},
        {"stores": [{"name": "s", "retention_ms": 1}]},
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
    named = definition(default_dsl_store="in_memory", stores=[{"name": "s", "engine": "txn_rocksDB"}])
    assert named.store("s").engine == "txn_rocksDB"
    with pytest.raises(ValueError, match="store s is a key-value store with engine in_memory"):  # until jobs know it
        definition(default_dsl_store="in_memory")


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "window"},
        {"kind": "window", "retention_ms": 10},
        {"kind": "window", "retention_ms": 10, "window_size_ms": 11},
        {"kind": "session", "window_size_ms": 10},
        {"kind": "session", "retention_ms": 10, "retain_duplicates": True},
        {"retention_ms": 10},
        {"retain_duplicates": True},
        {"kind": "session", "retention_ms": -1},
    ],
)
def test_t12_settings_of_another_kind_or_that_contradict_each_other_are_refused(settings):
    with pytest.raises(ValueError, match=r"retention|retain"):
        StoreDefinition(name="s", **settings)
