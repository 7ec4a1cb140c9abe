"""Arguments that cannot be: sizes, times and retentions are refused before anything is made (KIP-844)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from statestore.definitions.store import StoreDefinition
from statestore.stores import suppliers
from tests.compositions import RETENTION, STORE, WINDOW, compositions

WINDOWS = ["persistent_window_store", "persistent_timestamped_window_store", "in_memory_window_store"]
SESSIONS = ["persistent_session_store", "persistent_timestamped_session_store", "in_memory_session_store"]


@pytest.mark.behaviour("T12")
@pytest.mark.parametrize("name", [*WINDOWS, *SESSIONS])
@pytest.mark.parametrize("retention", [timedelta(milliseconds=-1), timedelta.min, None, 3_600_000])
def test_a_retention_that_is_negative_or_no_duration_is_refused(name, retention):
    with pytest.raises(ValueError, match="retention_period"):
        getattr(suppliers, name)(STORE, retention, *([WINDOW] if name in WINDOWS else []))


@pytest.mark.behaviour("T12")
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("size", [timedelta(milliseconds=-1), timedelta.min, None, 60_000])
def test_a_window_size_that_is_negative_or_no_duration_is_refused(name, size):
    with pytest.raises(ValueError, match="window_size"):
        getattr(suppliers, name)(STORE, RETENTION, size)


@pytest.mark.behaviour("T12")
@pytest.mark.parametrize("name", WINDOWS)
def test_a_retention_shorter_than_the_window_is_refused_and_one_as_long_is_not(name):
    make = getattr(suppliers, name)
    with pytest.raises(ValueError, match=r"window store s: its retention_period of 59999 ms is shorter than .* 60000"):
        make(STORE, WINDOW - timedelta(milliseconds=1), WINDOW)
    make(STORE, WINDOW, WINDOW)
    make(STORE, timedelta(0), timedelta(0))


@pytest.mark.behaviour("T12")
def test_the_same_is_refused_in_a_definition():
    for settings in ({"retention_ms": -1}, {"window_size_ms": -1}, {"retention_ms": 59_999}, {"retention_ms": None}):
        with pytest.raises(ValueError, match=r"retention_ms|window_size_ms"):
            StoreDefinition(name=STORE, kind="window", **{"retention_ms": 60_000, "window_size_ms": 60_000} | settings)


@compositions(kind="window")
@pytest.mark.behaviour("T12")
@pytest.mark.parametrize("start", [-1, 1 << 63])
def test_a_time_that_does_not_exist_is_refused(store, start):
    with pytest.raises(ValueError, match="window start is in ms since 1970"):
        store.store.put("a", store.value("x"), start)


@compositions(kind="session")
@pytest.mark.behaviour("T12")
@pytest.mark.parametrize(("start", "end"), [(-1, 5), (0, 1 << 63), (5, 4)])
def test_a_session_that_cannot_be_is_refused(store, start, end):
    for call in (store.store.put, lambda session, _: store.store.remove(session)):
        with pytest.raises(ValueError, match="session"):
            call(store.key(1)._replace(start=start, end=end), store.value("x"))
