"""Definitions in YAML: what is read, and what is refused with a message that names the file."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statestore.errors import DefinitionError, InputError, UnknownApplicationError, UnknownStoreError
from statestore.metastore.definitions import load_definitions, select
from statestore.model import StoreFormat

GOOD = """
name: {name}
input_topic: flights
output_topics: [out]
processor: demo.flight_delays:process
stores:
  - name: {store}
  - name: other
    format: plain
"""


@pytest.fixture
def directory(tmp_path):
    """Two definitions in a directory."""
    (tmp_path / "b.yaml").write_text(GOOD.format(name="beta", store="bs"))
    (tmp_path / "a.yml").write_text(GOOD.format(name="alpha", store="as"))
    return tmp_path


def test_a_directory_gives_its_definitions_in_order_of_names(directory):
    definitions = load_definitions(directory)
    assert list(definitions) == ["alpha", "beta"]
    assert [store.format for store in definitions["alpha"].stores] == [StoreFormat.TIMESTAMPED, StoreFormat.PLAIN]


def test_a_file_gives_its_one_definition(directory):
    assert list(load_definitions(directory / "b.yaml")) == ["beta"]


def test_an_empty_directory_defines_nothing(tmp_path):
    assert load_definitions(tmp_path) == {}


def test_a_path_that_is_not_there_is_an_error_with_the_next_step(tmp_path):
    with pytest.raises(DefinitionError, match="absent does not exist: set STATESTORE_DEFINITIONS"):
        load_definitions(tmp_path / "absent")


def test_an_application_defined_twice_is_refused(directory):
    (directory / "c.yaml").write_text(GOOD.format(name="beta", store="bs"))
    with pytest.raises(DefinitionError, match=r"c\.yaml defines application beta, which another file"):
        load_definitions(directory)


def test_two_applications_with_one_changelog_topic_are_refused(tmp_path):
    # `a` with store `b-c` and `a-b` with store `c` both log to a-b-c-changelog.
    (tmp_path / "1.yaml").write_text(GOOD.format(name="a", store="b-c"))
    (tmp_path / "2.yaml").write_text(GOOD.format(name="a-b", store="c"))
    with pytest.raises(DefinitionError, match="a-b-c-changelog"):
        load_definitions(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a list",
        "just text",
        "name: app",
        GOOD.format(name="app", store="s") + "unknown: 1\n",
        GOOD.format(name="../app", store="s"),
        GOOD.format(name="app", store="a/b"),
        GOOD.format(name='"a\\0b"', store="s"),
        GOOD.format(name="ünïcode", store="s"),
        GOOD.format(name="a" * 101, store="s"),
        GOOD.format(name="123", store="s"),
        GOOD.format(name="yes", store="s"),
        GOOD.format(name="2026-01-02", store="s"),
        GOOD.format(name="2026-13-45", store="s"),
        GOOD.format(name="!!int x", store="s"),
        GOOD.format(name="!!python/object/apply:os.getcwd []", store="s"),
        GOOD.format(name="app", store="s") + "---\n" + GOOD.format(name="b", store="s"),
        "name: [",
        "name: {",
        "name: *unknown",
        "\t",
        "name: \x00",
        "a: &a [*a]",
        "[" * 20_000,
        "&a [x,x]" + "".join(f"\n- &{c} [*a,*a]" for c in "bcd"),
    ],
)
def test_what_does_not_define_an_application_is_refused_and_the_file_named(tmp_path, text):
    (tmp_path / "app.yaml").write_text(text)
    with pytest.raises(DefinitionError, match=r"app\.yaml"):
        load_definitions(tmp_path)


def test_a_key_that_is_there_twice_contradicts_itself(tmp_path):
    (tmp_path / "app.yaml").write_text(GOOD.format(name="app", store="s") + "input_topic: other\n")
    with pytest.raises(DefinitionError, match=r"app\.yaml"):
        load_definitions(tmp_path)


@settings(max_examples=60)
@given(st.binary(max_size=200) | st.text(alphabet="{}[]:,&*!|>-?'\"#% \n\tabc019.", max_size=80).map(str.encode))
@example(b"\xff\xfe")
@example(b"a: 0x")
@example(b"? 1:60:")
def test_any_bytes_are_a_definition_or_a_definition_error(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("any") / "app.yaml"
    path.write_bytes(raw)
    with pytest.raises(DefinitionError):
        load_definitions(path)


def test_a_definition_of_more_than_a_megabyte_is_refused_unread(tmp_path):
    (tmp_path / "app.yaml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(DefinitionError, match="at most 1048576"):
        load_definitions(tmp_path)


@pytest.mark.parametrize("what", ["directory", "dangling link"])
def test_something_else_of_that_name_is_refused_in_our_words(tmp_path, what):
    if what == "directory":
        (tmp_path / "app.yaml").mkdir()
    else:
        os.symlink(tmp_path / "absent", tmp_path / "app.yaml")
    with pytest.raises(DefinitionError, match=r"app\.yaml"):
        load_definitions(tmp_path)


def test_the_problems_of_a_definition_are_named_one_by_one(tmp_path):
    (tmp_path / "app.yaml").write_text("name: a/b\nprocessor: f\nstores:\n  - name: s\n    kind: versioned\n")
    with pytest.raises(DefinitionError) as caught:
        load_definitions(tmp_path)
    for part in ("name:", "input_topic:", "processor:", "stores.0.kind:"):
        assert part in str(caught.value)


def test_a_definition_without_anything_to_do_is_refused_with_what_is_missing(tmp_path):
    (tmp_path / "app.yaml").write_text("name: app\ninput_topic: in\nstores: [{name: s}]\n")
    with pytest.raises(DefinitionError, match=r"app\.yaml does not define an application: .* found neither"):
        load_definitions(tmp_path)


AGGREGATING = """
name: orders
input_topic: orders
dead_letter_topic: orders-dead
processing_guarantee: at_least_once
default_dsl_store: rocksDB
aggregations:
  - store: spent
    aggregate: shop:spent
    output_topic: totals
  - store: by-city
    group_by: shop:city
    partitions: 4
    windows: {size_ms: 3600000, advance_ms: 600000, grace_ms: 60000}
  - store: visits
    sessions: {gap_ms: 1800000}
"""


def test_aggregations_windows_and_sessions_are_read(tmp_path):
    (tmp_path / "orders.yaml").write_text(AGGREGATING)
    application = load_definitions(tmp_path)["orders"]
    spent, by_city, visits = application.aggregations
    assert (spent.aggregate, spent.output_topic, by_city.aggregate) == ("shop:spent", "totals", "count")
    assert (by_city.group_by, by_city.partitions) == ("shop:city", 4)
    assert (by_city.windows.step_ms, by_city.kept_ms, visits.kept_ms) == (600_000, 3_660_000, 1_800_000)
    assert [store.kind for store in application.stores] == ["key-value", "window", "session"]
    assert {store.engine for store in application.stores} == {"rocksDB"}
    assert (application.processing_guarantee, application.dead_letter_topic) == ("at_least_once", "orders-dead")


# -- choosing


def test_nothing_named_is_everything(directory):
    definitions = load_definitions(directory)
    assert [chosen.name for chosen in select(definitions, [], [])] == ["alpha", "beta"]


def test_what_is_named_twice_is_chosen_once_in_the_order_asked(directory):
    definitions = load_definitions(directory)
    assert [chosen.name for chosen in select(definitions, ["beta", "alpha", "beta"], ["bs"])] == ["beta", "alpha"]


@pytest.mark.parametrize("name", ["gamma", "", "alpha ", "../alpha"])
def test_an_unknown_application_is_refused_with_those_that_there_are(directory, name):
    with pytest.raises(UnknownApplicationError, match="defined are: alpha, beta"):
        select(load_definitions(directory), [name], [])


@pytest.mark.parametrize(("applications", "store"), [([], "x"), (["alpha"], "bs"), (["alpha"], "")])
def test_a_store_of_none_of_the_applications_is_refused_with_those_that_there_are(directory, applications, store):
    with pytest.raises(UnknownStoreError, match="the stores are: as"):
        select(load_definitions(directory), applications, [store])


def test_nothing_is_defined_and_something_asked_for(tmp_path):
    assert select({}, [], []) == []
    with pytest.raises(InputError, match="defined are: none"):
        select({}, ["app"], [])
    with pytest.raises(InputError, match="the stores are: none"):
        select({}, [], ["s"])
