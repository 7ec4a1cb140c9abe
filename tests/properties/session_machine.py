"""Session stores against a dict."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition
from store_machine import AT_ONCE, PLAIN_VALUES, TIMES, step
from windowed_machine import ALL_BOUNDS, ALL_KEYS, AROUND, BOUNDS, KEYS, TIME_BOUNDS, WHICH, WindowedMachine, within

from statestore.formats import session_key
from statestore.formats.session_key import MAX_TIME
from statestore.stores.api import Windowed

LENGTHS = st.sampled_from([0, 1, 500, 70_000])


class SessionMachine(WindowedMachine):
    """Reads by key, session start and session end."""

    @staticmethod
    def time_of(row_key: bytes) -> int:
        return session_key.decode(row_key)[2]

    def write_some(self, data: Any) -> None:
        value = self.value(data.draw(PLAIN_VALUES), 0)
        self.write(self.session(data.draw(KEYS), data.draw(AROUND), data.draw(LENGTHS)), value)

    def write(self, session: Windowed[bytes], value: Any) -> None:
        self.store.put(session, value)
        self.wrote(session_key.encode(*session), value)

    def session(self, key: bytes, around: int, length: int) -> Windowed[bytes]:
        end = self.time(around)
        return Windowed(key, max(end - length, 0), end)

    def some_session(self, which: int) -> Windowed[bytes]:
        return Windowed(*session_key.decode(self.some_row(which)))

    def sessions(self, *, committed: bool, backward: bool) -> list[tuple[Windowed[bytes], Any]]:
        rows = self.rows(committed=committed, backward=backward)
        return [(Windowed(*session_key.decode(row_key)), value) for row_key, value in rows]

    # -- writing

    @step(puts=st.lists(st.tuples(KEYS, PLAIN_VALUES, AROUND, LENGTHS), min_size=1, max_size=6), timestamp=TIMES)
    def put(self, puts, timestamp):
        self.read(self.store.all(), self.sessions(committed=False, backward=False), 0)
        for key, value, around, length in puts:
            self.write(self.session(key, around, length), self.value(value, timestamp))
        self.finish(-1)

    @precondition(lambda self: self.model.rows)
    @step(which=WHICH, value=st.none() | PLAIN_VALUES, timestamp=TIMES)
    def put_again(self, which, value, timestamp):
        self.write(self.some_session(which), None if value is None else self.value(value, timestamp))

    @precondition(lambda self: self.model.rows)
    @step(which=WHICH, value=PLAIN_VALUES, timestamp=TIMES, longer=LENGTHS)
    def merge(self, which, value, timestamp, longer):
        """A session grows: the one that it was goes (S7)."""
        before = self.some_session(which)
        self.store.remove(before)
        self.wrote(session_key.encode(*before), None)
        self.write(before._replace(end=before.end + longer), self.value(value, timestamp))

    # -- reading

    @precondition(lambda self: self.model.rows)
    @step(which=WHICH, committed=st.booleans())
    def fetch_session(self, which, committed):
        session = self.some_session(which)
        expected = dict(self.rows(committed=committed)).get(session_key.encode(*session))
        assert self.view(committed).fetch_session(*session) == expected

    @step(
        key=KEYS,
        earliest_end=TIME_BOUNDS,
        latest_start=TIME_BOUNDS,
        backward=st.booleans(),
        committed=st.booleans(),
        at_once=AT_ONCE,
    )
    def find_sessions(self, key, earliest_end, latest_start, backward, committed, at_once):
        earliest_end, latest_start = self.time(earliest_end), self.time(latest_start)
        expected = [
            (found, value)
            for found, value in self.sessions(committed=committed, backward=backward)
            if found.key == key and found.end >= earliest_end and found.start <= latest_start
        ]
        rows = self.view(committed).find_sessions(key, earliest_end, latest_start, backward=backward)
        self.read(rows, expected, at_once)

    @step(
        low=BOUNDS,
        high=BOUNDS,
        earliest_end=TIME_BOUNDS,
        latest_start=TIME_BOUNDS,
        backward=st.booleans(),
        committed=st.booleans(),
        at_once=AT_ONCE,
    )
    def find_sessions_range(self, low, high, earliest_end, latest_start, backward, committed, at_once):
        earliest_end, latest_start = self.time(earliest_end), self.time(latest_start)
        expected = [
            (found, value)
            for found, value in self.sessions(committed=committed, backward=backward)
            if within(found.key, low, high) and found.end >= earliest_end and found.start <= latest_start
        ]
        rows = self.view(committed).find_sessions_range(low, high, earliest_end, latest_start, backward=backward)
        self.read(rows, expected, at_once)

    @step(backward=st.booleans(), committed=st.booleans(), around=AROUND)
    def read_everything_there_is_to_read(self, backward, committed, around):
        view, middle = self.view(committed), self.time(around)
        sessions = self.sessions(committed=committed, backward=backward)
        for earliest, latest in ((middle, middle), (0, middle), (middle, MAX_TIME)):
            shown = [row for row in sessions if row[0].end >= earliest and row[0].start <= latest]
            for key in ALL_KEYS:
                of_key = [row for row in shown if row[0].key == key]
                assert list(view.find_sessions(key, earliest, latest, backward=backward)) == of_key
            for low, high in product(ALL_BOUNDS, ALL_BOUNDS):
                of_range = [row for row in shown if within(row[0].key, low, high)]
                assert list(view.find_sessions_range(low, high, earliest, latest, backward=backward)) == of_range

    @step(key=KEYS, low=BOUNDS, high=BOUNDS, backward=st.booleans(), committed=st.booleans(), at_once=AT_ONCE)
    def fetch(self, key, low, high, backward, committed, at_once):
        view = self.view(committed)
        sessions = self.sessions(committed=committed, backward=backward)
        assert view.is_empty == (not sessions)
        of_key = [(found, value) for found, value in sessions if found.key == key]
        of_range = [(found, value) for found, value in sessions if within(found.key, low, high)]
        self.read(view.fetch(key, backward=backward), of_key, at_once)
        self.read(view.fetch_range(low, high, backward=backward), of_range, at_once)
