"""Commands that are read in parts are those that pydantic reads whole, and what is refused is refused in its words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from metastore_samples import WHO, orders, put, simple

from statestore.definitions.application import CHECKED_STORE_FIELDS, ApplicationDefinition
from statestore.errors import InputError
from statestore.metastore import commands
from statestore.metastore.command_topic import CommandRecord
from statestore.metastore.commands import Command, decode, encode, key_of, stamped
from statestore.metastore.replay import fold
from tests.session.examples import examples

DEFINITIONS = (
    orders(),
    simple(),
    simple("app", "s", {"name": "t", "owner": "Zoë, of {braces}"}),
    simple("app", {"name": "w", "kind": "window", "retention_ms": 20, "window_size_ms": 10}),
    simple("app", {"name": "v", "kind": "versioned", "retention_ms": 20, "partitions": 4}),
    simple("app", dead_letter_topic="dead", output_topics=["out", "other"], commit_interval_ms=77),
    simple("app", aggregations=[{"store": "s", "group_by": "m:key"}, {"store": "t", "windows": {"size_ms": 5}}]),
)
TEXTS = tuple(encode(stamped(put(definition), 7, 5, WHO)) for definition in DEFINITIONS)
#: A name with its value, where that is no object or list.
_FIELD = re.compile(rb'"[a-z_]+":(?:"[^"]*"|[^\[{,}\]]+)')
VALUES = st.sampled_from(
    b'null true 1 1.0 0 -7 1e400 "7" "" "in" "app-s-changelog" "stores" "\\u0073" "},{" "plain" "window" [] [[]] {}'
    b' [{"name":"x"}] ["app-s-changelog"]'.split()
)
NAMES = st.sampled_from(
    rb"name stores st\u006fres aggregations definition kind id version partitions output_topics input_topic processor"
    rb" owner retention_ms commit_interval_ms colour".split()
)
PIECES = st.sampled_from([b" ", b"[", b"]", b"{", b"}", b"},{", b"\\", b","])


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """The text of a command, changed here and there: some of its fields, some of its bytes."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(0, 3))):
        fields = [found.span() for found in _FIELD.finditer(text)]
        start, end = draw(st.sampled_from(fields)) if fields else (0, 0)
        match draw(st.integers(0, 5)):
            case 0:  # another value
                text = text[: text.find(b":", start) + 1] + draw(VALUES) + text[end:]
            case 1:  # one more field, of a name that is there or of another one
                text = text[:start] + b'"' + draw(NAMES) + b'":' + draw(VALUES) + b"," + text[start:]
            case 2:  # a field that is there twice
                text = text[:start] + text[start:end] + b"," + text[start:]
            case 3:  # none of it
                text = text[:start] + text[end:].removeprefix(b",")
            case 4:  # other bytes
                at = draw(st.integers(0, len(text)))
                text = text[:at] + draw(st.binary(max_size=3)) + text[at + draw(st.integers(0, 3)) :]
            case 5:  # a list that goes on elsewhere
                at = draw(st.integers(0, len(text)))
                text = text[:at] + draw(PIECES) + text[at:]
    return text


@contextmanager
def whole() -> Iterator[None]:
    """Read commands whole, as if there were no other way."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(commands, "read_in_parts", lambda *_: None)
        yield


def outcome(text: bytes) -> Command | tuple[type[InputError], str]:
    try:
        return decode(text)
    except InputError as error:
        return type(error), str(error)


def changed(before: bytes, after: bytes, text: bytes = TEXTS[0]) -> bytes:
    assert before in text
    return text.replace(before, after, 1)


BEHIND = b',"uncommitted_max_bytes":67108864'


@settings(max_examples=examples(400), deadline=None)
@given(texts())
# What seems to be the stores or the aggregations is not: the same key comes again, which counts instead.
@example(changed(BEHIND, BEHIND + b',"stores":[]'))
@example(changed(BEHIND, BEHIND + b',"st\\u006fres":[]'))
@example(changed(BEHIND, BEHIND + b',"aggregations":[]'))
@example(changed(BEHIND, BEHIND + b',"\\u0061ggregations":[]'))
@example(changed(b'"commit_interval_ms"', b'"aggregations":[],"commit_interval_ms"'))
@example(changed(b'"stores":[', b'"stores" : 7,"stores":['))
# Or it is elsewhere.
@example(changed(b'"id":7', b'"definition":{},"id":7'))
@example(changed(b'"id":7', b'"id":7,"stores":[],"uncommitted_max_bytes":1'))
@example(changed(b'"name":"orders"', b'"name":"orders","owner":{"stores":[],"uncommitted_max_bytes":1}'))
# It does not say what it is.
@example(changed(b'"kind":"put-application",', b""))
# Stores that leave their engine to the application, or an aggregation's to be made.
@example(changed(b'"engine":"txn_rocksDB",', b""))
@example(re.sub(rb'"stores":\[.*\](?=,"unc)', b'"stores":[]', TEXTS[6]))
def test_any_text_is_the_same_command_or_refusal_in_parts_and_whole(text: bytes) -> None:
    found = [outcome(text), outcome(text)]  # a second time with what the first one remembered
    with whole():
        expected = outcome(text)
    event("refused" if isinstance(expected, tuple) else "read")
    assert found == [expected, expected]
    if not isinstance(expected, tuple):
        assert [encode(command) for command in found if not isinstance(command, tuple)] == [encode(expected)] * 2


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(texts(), max_size=8))
def test_a_log_ends_at_the_same_record_for_the_same_reason(changed: list[bytes]) -> None:
    values = [_numbered(text, number) for number, text in enumerate(changed, start=1)]
    log = [CommandRecord(3 * at, 1, _key(value), value) for at, value in enumerate(values)]
    found = fold(log)
    with whole():
        expected = fold(log)
    event(f"{expected.applied} applied")
    assert found == expected
    assert found.catalogue.digest() == expected.catalogue.digest()


def _numbered(text: bytes, number: int) -> bytes:
    return text.replace(b'"id":7,', b'"id":%d,' % number)


def _key(value: bytes) -> bytes:
    command = outcome(value)
    return b"" if isinstance(command, tuple) else key_of(command)


@pytest.mark.parametrize("text", TEXTS)
def test_canonical_texts_are_read_in_parts(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_COMMANDS", None)
    assert encode(decode(text)) == text
    assert encode(decode(text)) == text


def test_stores_with_the_same_text_are_one_also_in_other_definitions() -> None:
    texts = [encode(stamped(put(simple(name, "shared", name)), 7, 5, WHO)) for name in ("one", "two")]
    first, second = (decode(text).definition.stores for text in texts)  # type: ignore[union-attr]
    assert first[0] is second[0]
    assert first[1] != second[1]


def test_a_list_that_is_too_long_to_be_remembered_is_read_all_the_same() -> None:
    definition = simple("app", *[f"store-{number}" for number in range(40)])
    text = encode(stamped(put(definition), 7, 5, WHO))
    assert decode(text).definition == definition  # type: ignore[union-attr]


class _Watched:
    """A model, and which of its fields are looked at."""

    def __init__(self, model: Any, seen: set[str], names: frozenset[str]) -> None:
        self.__dict__.update(_model=model, _seen=seen, _names=names)

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            self._seen.add(name)
        found = getattr(self._model, name)
        return found


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_the_checks_of_a_whole_definition_look_at_nothing_that_is_not_remembered(
    definition: ApplicationDefinition,
) -> None:
    of_stores: set[str] = set()
    store_fields = frozenset(type(definition.stores[0]).model_fields)
    stores = tuple(_Watched(store, of_stores, store_fields) for store in definition.stores)
    seen: set[str] = set()

    class Watched(ApplicationDefinition):
        def __getattribute__(self, name: str) -> Any:
            if name in ApplicationDefinition.model_fields:
                seen.add(name)
            return stores if name == "stores" else super().__getattribute__(name)

    watched = Watched.model_construct(**dict(definition))
    seen.clear()
    watched._check()
    assert seen <= {"name", "input_topic", "output_topics", "dead_letter_topic", "processor", "aggregations", "stores"}
    assert of_stores <= set(CHECKED_STORE_FIELDS)


def test_what_fits_together_is_told_by_all_that_decides_on_it() -> None:
    """One definition after the other, each of which differs from one that fits by what makes it unfit."""
    fits = json.loads(TEXTS[0])
    decode(TEXTS[0])
    for path, value in [
        (("output_topics",), ["orders-customers-changelog"]),
        (("dead_letter_topic",), "placed"),
        (("input_topic",), "checked"),
        (("name",), "o" * 250),
        (("stores", 0, "changelog"), "other"),
        (("stores", 0, "name"), "seen"),
        (("stores", 2, "retention_ms"), 1),
        (("stores", 2, "window_size_ms"), 1),
        (("stores", 2, "retain_duplicates"), True),
        (("aggregations", 0, "output_topic"), "placed"),
    ]:
        changed = json.loads(json.dumps(fits))
        at = changed["definition"]
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = value
        text = json.dumps(changed, sort_keys=True, separators=(",", ":")).encode()
        found = outcome(text)
        assert isinstance(found, tuple), path
        with whole():
            assert found == outcome(text)
