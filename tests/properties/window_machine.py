"""Window stores against a dict, with and without retained duplicates."""

from __future__ import annotations

from itertools import product
from typing import Any

from driven_store import WINDOW_SIZE_MS
from hypothesis import strategies as st
from hypothesis.stateful import precondition
from store_machine import AT_ONCE, PLAIN_VALUES, TIMES, step
from windowed_machine import ALL_BOUNDS, ALL_KEYS, AROUND, BOUNDS, KEYS, TIME_BOUNDS, WHICH, WindowedMachine, within

from statestore.formats import window_key
from statestore.formats.window_key import MAX_TIME
from statestore.stores.api import Windowed


class WindowMachine(WindowedMachine):
    """Reads by key and window start."""

    sequence = 0

    @staticmethod
    def time_of(row_key: bytes) -> int:
        return window_key.decode(row_key)[1]

    def open(self) -> None:
        super().open()
        self.sequence = 0

    def write_some(self, data: Any) -> None:
        self.write(data.draw(KEYS), self.value(data.draw(PLAIN_VALUES), 0), self.time(data.draw(AROUND)))

    def write(self, key: bytes, value: Any, start: int) -> None:
        self.store.put(key, value, start)
        if self.duplicates:
            if value is None:
                return
            self.sequence += 1
            while window_key.encode(key, start, self.sequence) in self.model.rows:
                self.sequence += 1
        self.wrote(window_key.encode(key, start, self.sequence), value)

    def windows(self, *, committed: bool, backward: bool) -> list[tuple[Windowed[bytes], Any]]:
        rows = self.rows(committed=committed, backward=backward)
        decoded = ((window_key.decode(row_key), value) for row_key, value in rows)
        return [(Windowed(key, start, start + WINDOW_SIZE_MS), value) for (key, start, _), value in decoded]

    # -- writing

    @step(puts=st.lists(st.tuples(KEYS, PLAIN_VALUES, AROUND), min_size=1, max_size=6), timestamp=TIMES)
    def put(self, puts, timestamp):
        self.read(self.store.all(), self.windows(committed=False, backward=False), 0)
        for key, value, around in puts:
            self.write(key, self.value(value, timestamp), self.time(around))
        self.finish(-1)

    @step(key=KEYS, around=AROUND)
    def put_none(self, key, around):
        self.write(key, None, self.time(around))

    @precondition(lambda self: self.model.rows)
    @step(which=WHICH, value=st.none() | PLAIN_VALUES, timestamp=TIMES)
    def put_again(self, which, value, timestamp):
        key, start, _ = window_key.decode(self.some_row(which))
        self.write(key, None if value is None else self.value(value, timestamp), start)

    # -- reading

    @precondition(lambda self: self.model.rows)
    @step(which=WHICH, committed=st.booleans())
    def fetch(self, which, committed):
        key, start, _ = window_key.decode(self.some_row(which))
        windows = self.windows(committed=committed, backward=True)
        newest = next((value for window, value in windows if (window.key, window.start) == (key, start)), None)
        assert self.view(committed).fetch(key, start) == newest

    @step(
        key=KEYS,
        first=TIME_BOUNDS,
        last=TIME_BOUNDS,
        backward=st.booleans(),
        committed=st.booleans(),
        at_once=AT_ONCE,
    )
    def fetch_between(self, key, first, last, backward, committed, at_once):
        first, last = self.time(first), self.time(last)
        expected = [
            (window.start, value)
            for window, value in self.windows(committed=committed, backward=backward)
            if window.key == key and first <= window.start <= last
        ]
        self.read(self.view(committed).fetch_between(key, first, last, backward=backward), expected, at_once)

    @step(
        low=BOUNDS,
        high=BOUNDS,
        first=TIME_BOUNDS,
        last=TIME_BOUNDS,
        backward=st.booleans(),
        committed=st.booleans(),
        at_once=AT_ONCE,
    )
    def fetch_range(self, low, high, first, last, backward, committed, at_once):
        first, last = self.time(first), self.time(last)
        expected = [
            (window, value)
            for window, value in self.windows(committed=committed, backward=backward)
            if within(window.key, low, high) and first <= window.start <= last
        ]
        self.read(self.view(committed).fetch_range(low, high, first, last, backward=backward), expected, at_once)

    @step(backward=st.booleans(), committed=st.booleans(), around=AROUND)
    def read_everything_there_is_to_read(self, backward, committed, around):
        view, middle = self.view(committed), self.time(around)
        windows = self.windows(committed=committed, backward=backward)
        for first, last in ((0, middle), (middle, MAX_TIME)):
            shown = [row for row in windows if first <= row[0].start <= last]
            assert list(view.fetch_all(first, last, backward=backward)) == shown
            for key in ALL_KEYS:
                of_key = [(window.start, value) for window, value in shown if window.key == key]
                assert list(view.fetch_between(key, first, last, backward=backward)) == of_key
            for low, high in product(ALL_BOUNDS, ALL_BOUNDS):
                of_range = [row for row in shown if within(row[0].key, low, high)]
                assert list(view.fetch_range(low, high, first, last, backward=backward)) == of_range

    @step(backward=st.booleans(), committed=st.booleans(), at_once=AT_ONCE)
    def all(self, backward, committed, at_once):
        expected = self.windows(committed=committed, backward=backward)
        view = self.view(committed)
        assert view.is_empty == (not expected)
        self.read(view.all(backward=backward), expected, at_once)
