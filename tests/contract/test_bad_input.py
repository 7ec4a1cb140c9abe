"""Keys, values and names at their limits, and directories that are not this store's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from store_under_test import Home, StoreUnderTest, contents

from statestore.definitions.store import StoreDefinition
from statestore.errors import RebuildError, UnknownFormatError, WrongStoreError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import StoreFormat, TaskId, TopicPartition
from statestore.stores.api import Windowed
from statestore.stores.serdes import BYTES
from tests.compositions import CHANGELOG, STORE, Composition, compositions

#: Keys that are easily got wrong: empty, NUL-filled, the largest bytes, and 100 kB of either.
KEYS = [b"", b"\0", b"\0" * 1000, b"a\0", b"a\0\0", b"\xff", b"\xff" * 20, b"\0" * 100_000, b"\xff" * 100_000]
VALUES = [b"", b"\0", b"\xff" * 20, b"\0" * 100_000]
BAD_NAMES = ["a/b", "/etc", "..", "../a", ".", "a\0b", "", "a b", ".statestore", "a" * 250, "ä", "a\n"]


class Bytes(StoreUnderTest):
    """A store of bytes, whatever its kind, read and written by key."""

    def open(self, **settings):
        store = self.composition.build(self.supplier, BYTES, BYTES)
        store.init(self.home.context(**settings))
        self.store = store

    @property
    def carries_more(self):
        return self.composition.timestamped or self.composition.keeps_headers

    def write(self, key, value):
        if value is not None and self.composition.keeps_headers:
            value = self.value("x")._replace(**{"value" if self.composition.timestamped else "aggregation": value})
        elif value is not None and self.composition.timestamped:
            value = ValueAndTimestamp(value, 7)
        if self.composition.kind == "key-value":
            self.store.put(key, value)
        elif self.composition.kind == "window":
            self.store.put(key, value, 0)
        else:
            self.store.put(Windowed(key, 0, 0), value)

    def read(self, key):
        if self.composition.kind == "key-value":
            found = self.store.get(key)
        elif self.composition.kind == "window":
            found = self.store.fetch(key, 0)
        else:
            found = self.store.fetch_session(key, 0, 0)
        return found[0] if found is not None and self.carries_more else found

    def all(self):
        rows = self.store.all()
        if self.composition.kind != "key-value":
            rows = ((window.key, value) for window, value in rows)
        return {key: value[0] if self.carries_more else value for key, value in rows}


@pytest.mark.parametrize("bound", [None, 64 * 1024], ids=["in memory", "spilled"])
def test_every_key_and_every_value_round_trips(composition, home, bound):
    settings = {} if bound is None else {"uncommitted_max_bytes": bound}
    store = Bytes(composition, home, **settings)
    expected = {}
    for number, key in enumerate(KEYS):
        expected[key] = VALUES[number % len(VALUES)]
        store.write(key, expected[key])
    for committed in (False, True):
        if committed:
            store.store.commit({CHANGELOG: 8})
        assert {key: store.read(key) for key in KEYS} == store.all() == expected
    if composition.persistent:
        store.reopen()
        assert {key: store.read(key) for key in KEYS} == store.all() == expected
    for key in KEYS:
        store.write(key, None)
    assert store.all() == {}
    assert [store.read(key) for key in KEYS] == [None] * len(KEYS)
    store.store.commit({CHANGELOG: 17})
    assert store.all() == {}
    store.close()


@compositions(kind="key-value")
def test_the_same_keys_in_ranges_prefixes_and_range_deletes(composition, home):
    store = Bytes(composition, home)
    for key in KEYS:
        store.write(key, b"")
    ordered = sorted(KEYS)
    assert [key for key, _ in store.store.all()] == ordered
    assert [key for key, _ in store.store.reverse_all()] == ordered[::-1]
    for at, key in enumerate(ordered):
        assert [found for found, _ in store.store.range(key, None)] == ordered[at:]
        assert [found for found, _ in store.store.range(None, key)] == ordered[: at + 1]
        assert [found for found, _ in store.store.prefix_scan(key)] == [one for one in ordered if one.startswith(key)]
    store.store.delete_range(b"", b"\0" * 1000)
    assert list(store.all()) == [key for key in ordered if key > b"\0" * 1000]
    store.close()


def test_a_key_of_none_is_an_error_for_every_call_and_leaves_no_trace(store):
    logged = []
    store.store.log_changes_to(lambda *change: logged.append(change))
    reads = {
        "key-value": [lambda: store.store.get(None), lambda: store.store.get_many(["a", None])],
        "window": [lambda: store.store.fetch(None, 0), lambda: store.store.fetch_between(None, 0, 1)],
        "session": [lambda: store.store.fetch_session(None, 0, 0), lambda: store.store.fetch(None)],
    }[store.composition.kind]
    writes = {
        "key-value": [
            lambda: store.store.put(None, store.value("x")),
            lambda: store.store.put(None, None),
            lambda: store.store.put_if_absent(None, store.value("x")),
            lambda: store.store.delete(None),
        ],
        "window": [lambda: store.store.put(None, store.value("x"), 0), lambda: store.store.put(None, None, 0)],
        "session": [
            lambda: store.store.put(Windowed(None, 0, 0), store.value("x")),
            lambda: store.store.remove(Windowed(None, 0, 0)),
        ],
    }[store.composition.kind]
    for call in reads + writes:
        with pytest.raises(TypeError, match="expected str, found NoneType"):
            call()
    assert (store.rows(), store.store.staged_bytes, logged) == ({}, 0, [])


def test_a_value_of_another_type_is_refused_at_the_call_and_leaves_no_trace(store):
    logged = []
    store.store.log_changes_to(lambda *change: logged.append(change))
    arguments = (0,) if store.composition.kind == "window" else ()
    bad = [1, b"bytes", ["a"], ("text", 5), ValueAndTimestamp("text", None)]
    if store.composition.timestamped:
        bad += ["text", ValueAndTimestamp(1, 5), ValueAndTimestamp("text", 1 << 63)]
    for value in bad:
        with pytest.raises(TypeError):
            store.store.put(store.key(1), value, *arguments)
    assert (store.rows(), store.store.staged_bytes, logged) == ({}, 0, [])


def test_a_bad_name_is_refused_before_any_path_is_made(composition, home):
    for name in BAD_NAMES:
        with pytest.raises(ValueError, match="is not a valid name: expected 1 to 249 of"):
            composition.supplier(name)
        custom = SimpleNamespace(name=name, get=None)
        with pytest.raises(ValueError, match="is not a valid name"):
            composition.build(custom)
    assert not home.root.exists()


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_in_a_definition_is_refused(name):
    with pytest.raises(ValueError, match="is not a valid name"):
        StoreDefinition(name=name)


@compositions(persistent=True, transactional=True, format=StoreFormat.PLAIN)
@pytest.mark.parametrize("name", ["a", "A-1_b.c", "x" * 100])
def test_a_good_name_is_a_directory_of_its_own_where_kafka_streams_has_it(composition, home, name):
    store = StoreUnderTest(composition, home, supplier=composition.supplier(name))
    store.fill([1, 7], "text")
    store.store.commit({})
    store.close()
    parts = {"key-value": [f"rocksdb/{name}"]}.get(composition.kind, [f"{name}/{name}.0", f"{name}/{name}.10800000"])
    assert home.databases(composition.kind, name) == [home.task_directory / part for part in parts]
    assert {path.name for path in home.task_directory.iterdir()} == {parts[0].partition("/")[0]}


@pytest.mark.short_for(every=5)
@compositions(persistent=True, transactional=True, format=StoreFormat.TIMESTAMPED)
@pytest.mark.parametrize(
    ("found", "who"),
    [
        (TopicPartition("app-other-changelog", 0), "another store"),
        (TopicPartition("app-s-changelog", 3), "another partition"),
        (TopicPartition("other-s-changelog", 0), "another application"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.parametrize("read_only", [True, False], ids=["read", "written"])
def test_a_directory_of_somebody_else_is_refused_with_what_was_found_and_left_alone(
    composition, home, found, who, read_only
):
    theirs = StoreUnderTest(composition, home, changelogs={STORE: (found,)})
    theirs.fill([1, 7], who)
    theirs.store.commit({found: 5})
    theirs.close()
    before = contents(home.root)
    with pytest.raises(WrongStoreError) as refused:
        StoreUnderTest(composition, home, read_only=read_only)
    assert isinstance(refused.value, RebuildError)
    for told in (str(found), str(CHANGELOG), f"store {STORE}", str(theirs.directories[0])):
        assert told in str(refused.value)
    assert contents(home.root) == before
    theirs.open(changelogs={STORE: (found,)})
    assert theirs.rows() == {1: who, 7: who}
    theirs.close()


@compositions(persistent=True, transactional=True)
def test_the_directory_of_another_task_moved_here_is_refused(composition, tmp_path):
    home = Home(tmp_path)
    store = StoreUnderTest(composition, home)
    store.fill([1, 7], "text")
    store.store.commit({CHANGELOG: 5})
    store.close()
    with pytest.raises(WrongStoreError, match=r"app-s-changelog-0, expected app-s-changelog-1"):
        composition.build().init(home.context_of(TaskId(0, 1)))


def test_what_lies_beside_segments_and_is_none_is_refused_and_left_alone(home):
    for name in ("s.x", "s.²", "other.0", "s:0", "s-202601010000", "notes.txt"):
        foreign = home.task_directory / STORE / name
        foreign.mkdir(parents=True)
        before = sorted(home.root.rglob("*"))
        with pytest.raises(
            UnknownFormatError, match=r"not a segment of store s, expected s\.<start in ms>.*not changed"
        ):
            StoreUnderTest(Composition("window", StoreFormat.PLAIN, True, True), home)
        assert sorted(home.root.rglob("*")) == before
        foreign.rmdir()
