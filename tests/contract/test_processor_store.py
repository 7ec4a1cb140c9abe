"""A processor can read and write a store as in Kafka Streams, and reaches nothing that belongs to the task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from custom import Supplier
from store_under_test import Home, StoreUnderTest, time_of

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, InvalidStateError
from statestore.model import StoreFormat
from statestore.stores.builders import window_store_builder
from statestore.stores.open import build_store
from statestore.stores.processor_store import processor_columns, processor_store
from statestore.stores.readers import VersionedRecord
from statestore.stores.serdes import UTF8
from statestore.stores.suppliers import in_memory_window_store
from statestore.stores.typed import AnyStore, KeyValueStore, TypedStore
from tests.compositions import Composition
from tests.integration.file_store import FileStore

HOUR_MS = 3_600_000
#: Names that a processor can use with every store, besides the methods of `calls_of`.
ATTRIBUTES = {"name", "format", "persistent", "transactional", "is_open", "is_empty", "expired_records"}
COMMON = {*ATTRIBUTES, "position", "flush"}
#: Some names that belong to the task; the tests below also try all other names of a store.
OF_THE_TASK = {
    *("init", "close", "commit", "sync", "rollback", "recover", "restore", "apply_changelog", "clear_offsets"),
    *("begin_record", "undo_record", "end_record", "log_changes_to", "tell_failures_to", "put_rows", "get_rows"),
    *("inner", "metrics", "layout", "_log", "_check", "_undo", "_rows"),
}


def calls_of(store: StoreUnderTest) -> dict[str, tuple[Any, ...]]:
    """Return arguments for each method that a processor can call, writes first."""
    a, b, at, until = store.key(3), store.key(4), time_of(3), time_of(4)
    if store.composition.kind == "key-value":
        return {
            "put": (a, store.value("new")),
            "put_if_absent": (b, store.value("new")),
            "put_all": ([(b, store.value("newer")), (a, None), (a, store.value("newer"))],),
            "get": (a,),
            "get_many": ([a, b, "none"],),
            "range": (a, b),
            "reverse_range": (a,),
            "all": (),
            "reverse_all": (),
            "prefix_scan": (b"k0",),
            "delete": (a,),
            "delete_range": ("k00", a),
        }
    if store.composition.kind == "window":
        return {
            "put": (a, store.value("new"), at),
            "fetch": (a, at),
            "fetch_between": (a, at, until),
            "fetch_range": (a, b, at, until),
            "fetch_all": (at, until),
            "all": (),
        }
    return {
        "put": (a, store.value("new")),
        "fetch_session": tuple(a),
        "find_sessions": (a.key, at, until),
        "find_sessions_range": (a.key, b.key, at, until),
        "fetch": (a.key,),
        "fetch_range": (a.key, b.key),
        "all": (),
        "remove": (a,),
    }


def names_of(thing: object) -> set[str]:
    """Return all names of an object, except those that every object of Python has."""
    return {name for name in dir(thing) if not name.startswith("__")}


def result_of(method: Callable[..., Any], *arguments: Any, **by_name: Any) -> Any:
    """Call a method, and read all that it returns."""
    found = method(*arguments, **by_name)
    return list(found) if isinstance(found, Iterator) else found


def assert_refuses_all_but(allowed: set[str], hidden: object, shown: object, told: list[Exception]) -> None:
    """Ask for every name of an object in what is shown of it."""
    assert set(dir(shown)) == allowed
    for name in names_of(hidden) - allowed:
        told.clear()
        with pytest.raises(InvalidStateError, match=f"a processor cannot use '{name}', which belongs to the task"):
            getattr(shown, name)
        assert [type(error) for error in told] == [InvalidStateError], f"{name}: told, although it may be caught"
    for name in allowed:
        assert not hasattr(getattr(shown, name), "__self__"), f"{name} leads to the task's store"
        for change in (lambda name=name: setattr(shown, name, None), lambda name=name: delattr(shown, name)):
            with pytest.raises((InvalidStateError, AttributeError)):
                change()


# -- built-in kinds -----------------------------------------------------------------------------------------------


def test_a_method_does_in_a_processor_what_it_does_in_the_store(composition: Composition, tmp_path: Path) -> None:
    both = [StoreUnderTest(composition, Home(tmp_path / name)) for name in ("direct", "shown")]
    direct, through = both
    shown = processor_store(through.store)
    for store in both:
        store.fill(range(6), "old")
    for name, arguments in calls_of(direct).items():
        parameters = inspect.signature(getattr(shown, name)).parameters
        assert list(parameters) == list(inspect.signature(getattr(direct.store, name)).parameters)
        directions = [{"backward": True}, {}] if "backward" in parameters else [{}]
        for direction in directions:
            by_name = dict(zip(parameters, arguments, strict=False)) | direction
            expected = result_of(getattr(direct.store, name), *arguments, **direction)
            assert result_of(getattr(shown, name), **by_name) == expected, name
        assert through.rows() == direct.rows(), name
    for name in ATTRIBUTES:
        assert getattr(shown, name) == getattr(through.store, name), name
    assert shown.position() == {}
    for store in both:
        store.close(clean=False)
    assert not shown.is_open


def test_a_processor_gets_an_error_for_everything_else(store: StoreUnderTest) -> None:
    told: list[Exception] = []
    shown = processor_store(store.store, told.append)
    assert names_of(store.store) >= OF_THE_TASK
    assert_refuses_all_but(calls_of(store).keys() | COMMON, store.store, shown, told)


@pytest.mark.parametrize("owner", [TypedStore, KeyValueStore])
def test_what_a_store_gets_later_is_refused(owner: type, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "compact", lambda self: None, raising=False)
    store = StoreUnderTest(Composition("key-value", StoreFormat.TIMESTAMPED, True, True), home)
    with pytest.raises(InvalidStateError, match="a processor cannot use 'compact'"):
        _ = processor_store(store.store).compact
    store.close()


def test_a_processor_can_still_call_flush_and_is_told_that_it_does_nothing(store: StoreUnderTest) -> None:
    with pytest.warns(DeprecationWarning, match="store s: flush does nothing") as warned:
        processor_store(store.store).flush()
    assert [found.filename for found in warned] == [__file__]


def test_the_error_names_the_store_and_says_what_to_do_instead(home: Home) -> None:
    store = StoreUnderTest(Composition("key-value", StoreFormat.TIMESTAMPED, True, True), home)
    shown = processor_store(store.store)
    for name, instead in {
        "commit": r"store s: .* To request a commit after the record, call context.commit\(\)\.",
        "rollback": "To undo what a record wrote, raise an error",
        "close": "The task opens and closes its stores",
        "restore": "To write a row and log it, call put",
        "layout": "A processor can use: all, delete, delete_range, expired_records, flush,",
    }.items():
        with pytest.raises(InvalidStateError, match=instead):
            getattr(shown, name)
    with pytest.raises(AttributeError, match="'comit'"):  # a slip, and no name of the task's
        _ = shown.comit
    store.close()


def test_after_the_end_of_a_task_a_kept_store_cannot_be_used(store: StoreUnderTest) -> None:
    shown, calls = processor_store(store.store), calls_of(store)
    kept = {name: getattr(shown, name) for name in calls}
    store.fill(range(6), "old")
    opened = shown.all()
    store.close(clean=False)
    for name, arguments in calls.items():
        with pytest.raises(InvalidStateError, match="closed"):
            result_of(kept[name], *arguments)
    with pytest.raises(InvalidStateError, match="closed"):
        list(opened)


# -- other stores -------------------------------------------------------------------------------------------------


def opened(home: Home, **definition: Any) -> AnyStore:
    """Open a store with this definition."""
    made = build_store(StoreDefinition(name="s", **definition), UTF8, UTF8)
    made.init(home.context())
    return made


def test_a_versioned_store_in_a_processor(home: Home) -> None:
    told: list[Exception] = []
    store = opened(home, kind="versioned", retention_ms=HOUR_MS)
    shown = processor_store(store, told.append)
    shown.put("tea", "300", timestamp=1_000)
    shown.put("tea", "320", 2_000)
    assert shown.get("tea") == VersionedRecord("320", 2_000)
    assert shown.get("tea", as_of_timestamp=1_500) == VersionedRecord("300", 1_000, 2_000)
    assert [found.value for found in shown.history("tea", descending=False)] == ["300", "320"]
    assert [(key, found.value) for key, found in shown.all()] == [("tea", "300"), ("tea", "320")]
    assert shown.delete("tea", 3_000) == VersionedRecord("320", 2_000)
    assert_refuses_all_but({"get", "history", "all", "put", "delete", *COMMON}, store, shown, told)
    store.close()


def test_a_store_that_retains_duplicates_in_a_processor(home: Home) -> None:
    supplier = in_memory_window_store("s", timedelta(hours=6), timedelta(minutes=1), retain_duplicates=True)
    store = window_store_builder(supplier, UTF8, UTF8).build()
    store.init(home.context())
    shown = processor_store(store)
    shown.put("a", "1", 0)
    shown.put("a", "2", 0)
    assert list(shown.fetch_between("a", 0, 0)) == [(0, "1"), (0, "2")]
    store.close()


def test_of_a_custom_kind_a_processor_gets_what_its_author_added(home: Home) -> None:
    told: list[Exception] = []
    store = opened(home, kind="tests.spark.series_kind:KIND", retention_ms=4 * HOUR_MS, format="plain")
    shown = processor_store(store, told.append)
    shown.put("a", 5, 1, value="1")
    assert shown.fetch("a", 5, channel=1) == "1"
    assert list(shown.all()) == [("a", 5, 1, "1")]
    assert_refuses_all_but({"put", "fetch", "all", *COMMON}, store, shown, told)
    store.close()


def test_of_a_custom_store_a_processor_gets_what_the_kind_has(home: Home) -> None:
    told: list[Exception] = []
    supplier = Supplier(FileStore)
    store = StoreUnderTest(Composition("key-value", StoreFormat.PLAIN, True, False), home, supplier=supplier)
    shown = processor_store(store.store, told.append)
    shown.put("a", "1")
    with pytest.warns(DeprecationWarning, match="flush does nothing"):
        shown.flush()
    assert not list(home.root.rglob("rows.json")), "its own flush, which writes, is the task's"
    assert_refuses_all_but(calls_of(store).keys() | COMMON, store.store, shown, told)
    store.close()


# -- in columns ---------------------------------------------------------------------------------------------------


def test_a_store_in_columns_is_read_and_written_and_nothing_else(home: Home) -> None:
    told: list[Exception] = []
    store = opened(home)
    shown = processor_columns(store, told.append)
    shown.put_many(pa.array(["a"]), values=pa.array(["1"]), timestamps=pa.array([7]))
    assert shown.get_many(pa.array(["a", "b"])).values.to_pylist() == ["1", None]
    assert dir(shown) == sorted({"get_many", "put_many"})
    for name in ("_store", "_layout", "_in_order"):
        told.clear()
        with pytest.raises(InvalidStateError, match=f"store s in columns: a processor cannot use '{name}'"):
            getattr(shown, name)
        assert len(told) == 1
    assert not any(hasattr(method, "__self__") for method in (shown.get_many, shown.put_many))
    store.close()
    with pytest.raises(InvalidStateError, match="closed"):
        shown.get_many(pa.array(["a"]))


def test_a_store_of_another_kind_is_refused_in_columns_as_before(home: Home) -> None:
    store = opened(home, kind="session", retention_ms=HOUR_MS)
    with pytest.raises(InputError, match="cannot be read or written as Arrow columns"):
        processor_columns(store)
    store.close()
