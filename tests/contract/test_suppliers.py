"""Suppliers, builders and definitions: which store is made, under which names, and what is refused."""

from __future__ import annotations

import inspect

import pytest
from store_under_test import Home, StoreUnderTest

from statestore.definitions.store import StoreDefinition
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import StoreFormat
from statestore.stores import suppliers
from statestore.stores.open import build_store, supplier_of
from statestore.stores.suppliers import DslStore
from tests.compositions import ALL, CHANGELOG, FORMATS, RETENTION, STORE, WINDOW, Composition, gated

#: KIP-844's suppliers in snake_case, and those of our own timestamped session stores and in-memory stores.
SUPPLIERS = {
    "persistent_key_value_store": (),
    "persistent_timestamped_key_value_store": (),
    "persistent_timestamped_key_value_store_with_headers": (),
    "in_memory_key_value_store": (),
    "persistent_window_store": (RETENTION, WINDOW),
    "persistent_timestamped_window_store": (RETENTION, WINDOW),
    "persistent_timestamped_window_store_with_headers": (RETENTION, WINDOW),
    "in_memory_window_store": (RETENTION, WINDOW),
    "persistent_session_store": (RETENTION,),
    "persistent_timestamped_session_store": (RETENTION,),
    "persistent_session_store_with_headers": (RETENTION,),
    "in_memory_session_store": (RETENTION,),
}


@pytest.mark.behaviour("T1", "T14")
@pytest.mark.parametrize("name", SUPPLIERS)
def test_every_supplier_makes_stores_without_transactions_unless_asked_for_them(name):
    make = getattr(suppliers, name)
    assert inspect.signature(make).parameters["transactional"].default is False
    for settings, transactional in [({}, False), ({"transactional": False}, False), ({"transactional": True}, True)]:
        supplier = make(STORE, *SUPPLIERS[name], **settings)
        assert supplier.name == STORE
        store = supplier.get()
        assert store is not supplier.get()
        assert (store.name, store.transactional, store.is_open) == (STORE, transactional, False)
        assert store.persistent == store.manages_offsets == name.startswith("persistent")
        if store.persistent:
            older = StoreFormat.TIMESTAMPED if "timestamped" in name else StoreFormat.PLAIN
            assert store.format is (StoreFormat.HEADERS if name.endswith("_with_headers") else older)


@pytest.mark.behaviour("T1")
def test_an_open_store_tells_what_it_is(store):
    composition = store.composition
    assert store.store.transactional is composition.transactional
    assert store.store.persistent is store.store.manages_offsets is composition.persistent
    assert store.store.name == STORE
    assert store.store.is_open
    store.close()
    assert not store.store.is_open


def definition(kind, store_format, engine):
    """A definition of a store, as it is in a file."""
    settings = {
        "key-value": {},
        "window": {"retention_ms": 21_600_000, "window_size_ms": 60_000},
        "session": {"retention_ms": 21_600_000},
    }[kind]
    return StoreDefinition(name=STORE, kind=kind, format=store_format, engine=engine, **settings)


@pytest.mark.behaviour("T1")
@pytest.mark.parametrize("kind", ["key-value", "window", "session"])
@pytest.mark.parametrize("store_format", FORMATS)
@pytest.mark.parametrize(
    ("engine", "persistent", "transactional"),
    [("rocksDB", True, False), ("in_memory", False, False), ("txn_rocksDB", True, True)],
)
def test_a_definitions_engine_says_whether_it_is_transactional(kind, store_format, engine, persistent, transactional):
    dsl = DslStore(engine)
    assert (dsl.persistent, dsl.transactional) == (persistent, transactional)
    found = definition(kind, store_format, engine)
    for made in (build_store(found), supplier_of(found).get()):
        assert (made.persistent, made.transactional, made.format) == (persistent, transactional, store_format)


@pytest.mark.behaviour("T1")
def test_definitions_are_transactional_by_default_and_open_what_the_suppliers_make(tmp_path):
    assert StoreDefinition(name=STORE).engine == DslStore.TXN_ROCKS_DB
    for kind in ("key-value", "window", "session"):
        home = Home(tmp_path / kind)
        store = StoreUnderTest(Composition(kind, StoreFormat.TIMESTAMPED, True, True), home)
        store.put(1, "text")
        store.store.commit({})
        store.close()
        defined = build_store(definition(kind, StoreFormat.TIMESTAMPED, "txn_rocksDB"))
        defined.init(home.context())
        assert [value for _, value in defined.all()] == [ValueAndTimestamp(b"text", 1_004)]
        defined.close()


@pytest.mark.behaviour("T11")
def test_the_contract_runs_over_every_composition(request):
    """The fixture's default; a test that asks for fewer says which property it is about."""
    assert len(set(ALL)) == len(ALL) == 3 * 3 * 2 * 2
    definitions = request.session._fixturemanager.getfixturedefs("composition", request.node)
    assert list(definitions[0].params) == gated(ALL)


@pytest.mark.behaviour("T11")
def test_a_count_by_key_is_right_through_commits_rollbacks_and_replays(store):
    """What a stateful processor does: read, change, write; and what becomes of it when its task fails."""
    log, offset = [], -1
    counts = {}
    for run, commits in enumerate([True, False, True]):
        change = []
        for slot in (1, 7, 1, run):
            store.put(slot, str(int(store.get(slot) or "0") + 1))
            change.append((slot, store.get(slot)))
        if commits:
            log += change
            offset += len(change)
            store.store.commit({CHANGELOG: offset})
            counts = dict(log)
        elif store.composition.transactional:
            store.store.rollback()
        else:  # a store without transactions is rebuilt from the changelog
            for slot in store.rows():
                store.put(slot, None)
            store.replay(log)
        assert store.rows() == dict(sorted(counts.items()))
    assert counts == {0: "1", 1: "4", 2: "1", 7: "2"}
