"""Definitions in YAML: what is read, and what is refused with a message that names the file."""

from __future__ import annotations

import io
import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import DefinitionError, InputError, UnknownApplicationError, UnknownStoreError
from statestore.metastore.definition_files import load_definitions, parse_definitions, select, to_yaml
from statestore.model import StoreFormat
from tests.session.examples import examples

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


def test_a_path_that_is_not_there_is_an_error_with_the_next_step(tmp_path):
    with pytest.raises(DefinitionError, match="absent does not exist; expected a YAML file"):
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
        GOOD.format(name="a" * 250, store="s"),
        GOOD.format(name="123", store="s"),
        GOOD.format(name="yes", store="s"),
        GOOD.format(name="1.5", store="s"),
        GOOD.format(name="!!int x", store="s"),
        GOOD.format(name='!!int ""', store="s"),
        GOOD.format(name="!!bool x", store="s"),
        GOOD.format(name="!!timestamp x", store="s"),
        GOOD.format(name="!!str app", store="s"),
        GOOD.format(name="! app", store="s"),
        GOOD.format(name='"\\UFFFFFFFF"', store="s"),
        GOOD.format(name='"\\ud800"', store="s"),
        GOOD.format(name="app", store="s") + "1: 2\n",
        GOOD.format(name="!!python/object/apply:os.getcwd []", store="s"),
        GOOD.format(name="app", store="s") + "---\n" + GOOD.format(name="app", store="s"),
        GOOD.format(name="app", store="s") + "---\n" + GOOD.format(name="b", store="a/b"),
        "---\n---\n",
        GOOD.format(name="app", store="s") + "input_topic: other\n",  # a key that is there twice
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


@settings(max_examples=examples(60))
@given(st.binary(max_size=200) | st.text(alphabet="{}[]:,&*!|>-?'\"#% \n\tabc019.", max_size=80).map(str.encode))
@example(b"\xff\xfe")
@example(b"a: 0x")
@example(b"? 1:60:")
@example(b"!!bool x")
@example(b"!!set {1}")
@example(b"=: <<")
def test_any_bytes_are_a_definition_or_a_definition_error(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("any") / "app.yaml"
    path.write_bytes(raw)
    with pytest.raises(DefinitionError):
        load_definitions(path)


@pytest.mark.parametrize("what", ["directory", "dangling link"])
def test_something_else_of_that_name_is_refused_in_our_words(tmp_path, what):
    if what == "directory":
        (tmp_path / "app.yaml").mkdir()
    else:
        os.symlink(tmp_path / "absent", tmp_path / "app.yaml")
    with pytest.raises(DefinitionError, match=r"app\.yaml"):
        load_definitions(tmp_path)


def test_the_problems_of_a_definition_are_named_one_by_one(tmp_path):
    (tmp_path / "app.yaml").write_text("name: a/b\nprocessor: f\nstores:\n  - name: s\n    kind: neither\n")
    with pytest.raises(DefinitionError) as caught:
        load_definitions(tmp_path)
    for part in ("name:", "input_topic:", "processor:", "stores.0.kind:"):
        assert part in str(caught.value)


@pytest.mark.parametrize(("wrong", "meant"), [("ttl", "ttl_ms"), ("retention", "retention_ms"), ("knid", "kind")])
def test_an_unknown_field_is_refused_with_the_one_that_is_meant(wrong, meant):
    text = f"name: a\ninput_topic: i\nprocessor: a:b\nstores: [{{name: s, {wrong}: 30d}}]"
    with pytest.raises(DefinitionError, match=rf"stores\.0\.{wrong}: there is no such field; did you mean {meant}\?"):
        parse_definitions(text, "the form")


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


# -- several documents


def test_a_file_gives_all_of_its_documents_in_order_of_names(tmp_path):
    text = "---\n".join(["", GOOD.format(name="beta", store="s"), GOOD.format(name="alpha", store="s"), ""])
    (tmp_path / "both.yaml").write_text(text)
    assert list(load_definitions(tmp_path)) == list(parse_definitions(text, "the form")) == ["alpha", "beta"]


def test_a_problem_in_one_of_several_documents_is_named_with_its_number():
    text = GOOD.format(name="a", store="s") + "---\n" + GOOD.format(name="b", store="s") + "colour: red\n"
    with pytest.raises(DefinitionError, match="the form, document 2, does not define an application: colour: "):
        parse_definitions(text, "the form")


def test_an_application_in_two_documents_is_refused():
    text = GOOD.format(name="a", store="s")
    with pytest.raises(DefinitionError, match="the form defines application a twice"):
        parse_definitions(f"{text}---\n{text}", "the form")


def test_applications_whose_topics_kafka_takes_for_the_same_are_refused(tmp_path):
    for name in ("a.b", "a_b"):
        (tmp_path / f"{name}.yaml").write_text(GOOD.format(name=name, store="s"))
    with pytest.raises(DefinitionError, match=r"a\.b-s-changelog of application a\.b: Kafka treats \. and _"):
        load_definitions(tmp_path)


def test_an_application_that_feeds_on_itself_is_refused():
    with pytest.raises(DefinitionError, match="input_topic: x-s-changelog is its own internal topic"):
        parse_definitions(GOOD.format(name="x", store="s").replace("flights", "x-s-changelog"), "the form")


# -- what would exhaust us


class _Counted(io.BytesIO):
    taken = 0

    def read(self, size=-1):
        content = super().read(size)
        self.taken += len(content)
        return content


def test_of_ten_megabytes_only_the_first_is_read(tmp_path, monkeypatch):
    path = tmp_path / "app.yaml"
    path.touch()
    opened = _Counted(b"#" * 10_000_000)
    monkeypatch.setattr(type(path), "open", lambda self, mode: opened)
    with pytest.raises(DefinitionError, match=r"app\.yaml is too long: expected at most 1048576"):
        load_definitions(path)
    assert 0 < opened.taken <= (1 << 20) + 1


@pytest.mark.parametrize("text", ["#" * ((1 << 20) + 1), "é" * (1 << 19) + "é"])
def test_a_text_of_more_than_a_megabyte_is_refused(text):
    with pytest.raises(DefinitionError, match="the form is too long"):
        parse_definitions(text, "the form")


def test_a_bomb_of_aliases_is_refused_at_its_first_anchor():
    levels = "\n".join(f"l{at}: &l{at} [{', '.join([f'*l{at - 1}'] * 9)}]" for at in range(1, 40))
    with pytest.raises(DefinitionError, match=r"anchors and aliases .* not accepted(?s:.*)line 1, column 5"):
        parse_definitions(f"l0: &l0 [x]\n{levels}\n", "the form")


@pytest.mark.parametrize("text", ["name: &a app", "&a name: app", "- &a\n- x", "name: *a"])
def test_anchors_and_aliases_are_refused_also_where_they_are_harmless(text):
    with pytest.raises(DefinitionError, match="is not YAML"):
        parse_definitions(text, "the form")


@pytest.mark.short_for(every=2)
@pytest.mark.parametrize(
    "nested", [lambda depth: "[" * depth + "]" * depth, lambda depth: "{a: " * depth + "}" * depth]
)
def test_more_than_32_levels_are_refused(nested):
    with pytest.raises(DefinitionError, match="does not define an application"):
        parse_definitions(nested(31), "the form")
    with pytest.raises(DefinitionError, match="nested deeper than 32 levels"):
        parse_definitions(nested(33), "the form")
    with pytest.raises(DefinitionError, match="nested deeper than 32 levels"):
        parse_definitions(nested(100_000), "the form")


@pytest.mark.long
def test_more_values_than_any_application_has_are_refused_before_all_are_read():
    with pytest.raises(DefinitionError, match="more than 50000 values"):
        parse_definitions("[" + "1," * 60_000 + "]", "the form")


@pytest.mark.short_for(every=3)
@pytest.mark.parametrize("text", ["name: {}", "{}: 1", "{0}: 1\n{0}: 2", "owner: [{}]"])
def test_of_a_long_text_only_the_beginning_is_shown(text):
    with pytest.raises(DefinitionError) as caught:
        parse_definitions(text.format("x" * 100_000), "the form")
    assert len(str(caught.value)) < 2_000


@pytest.mark.long
def test_of_many_problems_the_first_are_named():
    unknown = "".join(f"unknown{number}: 1\n" for number in range(5_000))
    with pytest.raises(DefinitionError, match="and 4980 more") as caught:
        parse_definitions(GOOD.format(name="app", store="s") + unknown, "the form")
    assert len(str(caught.value)) < 5_000


@pytest.mark.long
def test_numbers_to_the_base_of_sixty_are_texts_and_take_no_time():
    sixties = ":".join(["1"] * 100_000)
    for field in (
        "commit_interval_ms: {}",
        "commit_interval_ms: {}.5",
        "processor: {}",
        "stores: [{{partitions: {}}}]",
    ):
        with pytest.raises(DefinitionError, match="does not define an application"):
            parse_definitions(field.format(sixties), "the form")


# -- types


@pytest.mark.parametrize("text", ["010", "0x10", "1:30", "2026-01-02", "2026-13-45", "1e3", "<<", "=", ".5", ".inf"])
def test_what_only_looks_like_a_number_is_a_text(text):
    application = parse_definitions(GOOD.format(name="app", store="s") + f"    owner: {text}\n", "the form")["app"]
    assert application.store("other").owner == text


@pytest.mark.parametrize(
    ("field", "found"),
    [
        ("commit_interval_ms: '1000'", "found '1000'"),
        ("commit_interval_ms: 1000.0", "found 1000.0"),
        ("commit_interval_ms: 010", "found '010'"),
        ("commit_interval_ms: true", "found True"),
        ("schema_version: true", "expected 1, found True"),
        ("schema_version: 1.0", "expected 1, found 1.0"),
        ("schema_version: '1'", "found '1'"),
        ("aggregations: [{store: s, windows: {size_ms: true}}]", "size_ms: .* found True"),
        ("aggregations: [{store: s, group_by: 'm:f', partitions: '4'}]", "partitions: .* found '4'"),
        ("output_topics: [1]", r"output_topics\.0: .* found 1"),
    ],
)
def test_a_value_of_another_type_is_refused_with_what_was_found(field, found):
    with pytest.raises(DefinitionError, match=found):
        parse_definitions(GOOD.replace("output_topics: [out]\n", "").format(name="app", store="s") + field, "the form")


@pytest.mark.parametrize(
    "field",
    ["partitions: '4'", "partitions: 4.0", "partitions: true", "retain_duplicates: 'yes'", "retain_duplicates: 1"],
)
def test_a_store_with_a_value_of_another_type_is_refused_with_what_was_found(field):
    name = field.partition(":")[0]
    window = "    kind: window\n    retention_ms: 10\n    window_size_ms: 10\n"
    text = GOOD.replace("    format: plain\n", window).format(name="app", store="s")
    parse_definitions(text, "the form")
    with pytest.raises(DefinitionError, match=rf"stores\.1\.{name}: Input should be a valid .*, found "):
        parse_definitions(f"{text}    {field}\n", "the form")


def test_a_truth_value_may_be_said_as_yaml_says_it():
    window = "    kind: window\n    retention_ms: 1_0\n    window_size_ms: 10\n    retain_duplicates: yes\n"
    text = GOOD.replace("    format: plain\n", window).format(name="app", store="s")
    assert parse_definitions(text, "the form")["app"].store("other").retain_duplicates is True


# -- owner, partitions and changelog of a store


def _store(**fields):
    application = {"name": "app", "input_topic": "in", "processor": "m:f", "stores": [{"name": "s", **fields}]}
    return ApplicationDefinition.model_validate(application).store("s")


def test_a_store_may_have_an_owner_and_what_is_to_be_checked():
    store = _store(owner="Zoë, fleet team <fleet@example.org>", partitions=6, changelog="app-s-changelog")
    assert (store.owner, store.partitions) == ("Zoë, fleet team <fleet@example.org>", 6)
    assert _store().owner is _store().partitions is _store().changelog is None


@pytest.mark.parametrize("owner", ["", "x" * 201, "two\nlines", "\x1b[2J", 7])
def test_an_owner_that_is_no_line_of_text_is_refused(owner):
    with pytest.raises(ValidationError, match="owner"):
        _store(owner=owner)


@pytest.mark.parametrize("partitions", [0, -1, 10_001, "many"])
def test_a_number_of_partitions_that_no_topic_has_is_refused(partitions):
    with pytest.raises(ValidationError, match="partitions"):
        _store(partitions=partitions)


@pytest.mark.parametrize("changelog", ["s-changelog", "app-s", "app-t-changelog", ""])
def test_a_changelog_that_is_not_the_stores_is_refused_with_the_right_one(changelog):
    with pytest.raises(ValidationError, match="the changelog topic of store s is app-s-changelog, as in Kafka Streams"):
        _store(changelog=changelog)


def test_an_aggregation_s_own_store_is_checked_too(tmp_path):
    text = AGGREGATING + "stores: [{name: spent, changelog: other}]\n"
    with pytest.raises(DefinitionError, match="changelog topic of store spent is orders-spent-changelog"):
        parse_definitions(text, "the form")


# -- writing


def test_what_was_read_is_written_with_all_defaults_and_read_again():
    application = parse_definitions(AGGREGATING, "the form")["orders"]
    text = to_yaml(application)
    assert "commit_interval_ms: 1000" in text
    assert parse_definitions(text, "the form") == {"orders": application}


@pytest.mark.parametrize("name", ["yes", "null", "123", "1.5", "1_0", "2026-01-02", "0x10", "1e3"])
@pytest.mark.parametrize("owner", ["no", "- a: b # c", "'\"", "*", "Zoë", "a" * 200])
def test_names_and_texts_that_look_like_something_else_are_read_as_they_were_written(name, owner):
    fields = {"name": name, "input_topic": name, "processor": "m:f", "stores": [{"name": "s"}]}
    fields["stores"][0]["owner"] = owner
    application = ApplicationDefinition.model_validate(fields)
    assert parse_definitions(to_yaml(application), "the form") == {name: application}


# -- choosing


def test_what_is_named_is_chosen_once_in_the_order_asked_and_all_where_nothing_is(directory):
    definitions = load_definitions(directory)
    assert [chosen.name for chosen in select(definitions, [], [])] == ["alpha", "beta"]
    assert [chosen.name for chosen in select(definitions, ["beta", "alpha", "beta"], ["bs"])] == ["beta", "alpha"]


@pytest.mark.parametrize("name", ["gamma", "", "alpha ", "../alpha"])
def test_an_unknown_application_is_refused_with_those_that_there_are(directory, name):
    with pytest.raises(UnknownApplicationError, match="the applications are: alpha, beta"):
        select(load_definitions(directory), [name], [])


@pytest.mark.parametrize(("applications", "store"), [([], "x"), (["alpha"], "bs"), (["alpha"], "")])
def test_a_store_of_none_of_the_applications_is_refused_with_those_that_there_are(directory, applications, store):
    with pytest.raises(UnknownStoreError, match="the stores are: as"):
        select(load_definitions(directory), applications, [store])


def test_nothing_is_defined_and_something_asked_for(tmp_path):
    assert select(load_definitions(tmp_path), [], []) == []
    with pytest.raises(InputError, match="the applications are: none"):
        select({}, ["app"], [])
    with pytest.raises(InputError, match="the stores are: none"):
        select({}, [], ["s"])
