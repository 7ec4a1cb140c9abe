"""How many calls of ours lie between a processor's get or put and the engine: each costs every record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from types import FrameType

import pytest

import statestore
from statestore.definitions.store import StoreDefinition
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import StoreFormat, TaskId
from statestore.stores.api import StoreContext
from statestore.stores.open import build_store
from statestore.stores.serdes import Serde
from statestore.stores.typed import KeyValueStore

#: A serde that is no call of ours: what is counted is the way to the engine alone.
OTHERS = Serde("others", str.encode, bytes.decode)
PACKAGE = str(Path(statestore.__file__).parent)
FORMATS = PLAIN, TIMESTAMPED = StoreFormat.PLAIN, StoreFormat.TIMESTAMPED
#: What a get passes on its way from the typed store to the engine.
COMMITTED = ["ColumnFamily.get"]
STAGED = ["StagedRows.get", "ColumnFamily.get"]


@pytest.fixture(
    params=product((PLAIN, TIMESTAMPED), ("rocksDB", "txn_rocksDB")), ids=lambda param: f"{param[0]}-{param[1]}"
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyValueStore]:
    """A store with one committed row, as a task has it: it is told of failures."""
    store_format, engine = request.param
    store = build_store(StoreDefinition(name="s", format=store_format, engine=engine), OTHERS, OTHERS)
    store.init(StoreContext("app", TaskId(0, 0), tmp_path / "app" / "0_0", tmp_path / "own"))
    store.tell_failures_to(print)
    store.put("a", value_of(store, "1"))
    store.commit({})
    yield store
    store.close()


def value_of(store: KeyValueStore, text: str) -> object:
    """A value as the store's format has it."""
    return text if store.format is PLAIN else ValueAndTimestamp(text, 7)


def calls_of(work: Callable[[], object]) -> list[str]:
    """Python functions of the library that the work called, in their order."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            found.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def test_at_most_two_calls_lie_between_a_get_and_rocksdict(store):
    called = calls_of(lambda: store.get("a"))
    assert store.get("a") == value_of(store, "1")
    before = ["ReadOnlyKeyValueStore.get", *(STAGED if store.transactional else COMMITTED)]
    behind = [] if store.format is PLAIN else ["TimestampedCodec.decode"]
    assert called == before + behind


def test_a_put_without_a_changelog_goes_straight_to_the_rows(store):
    value = value_of(store, "2")
    called = calls_of(lambda: store.put("a", value))
    rows = ["StagedRows.put", "SortedRows.put"] if store.transactional else ["ColumnFamily.put"]
    encoding = [] if store.format is PLAIN else ["TimestampedCodec.encode"]
    assert called == ["KeyValueStore.put", *encoding, "KeyValueStore._put", *rows]


def test_a_closed_store_is_not_read_through_the_rows_that_it_had(store):
    store.close()
    with pytest.raises(statestore.errors.InvalidStateError, match="store s is closed; call init to open it"):
        store.get("a")
    with pytest.raises(statestore.errors.InvalidStateError, match="store s is closed; call init to open it"):
        store.put("a", value_of(store, "1"))
