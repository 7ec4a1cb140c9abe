"""Key-value stores against a dict."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import strategies as st
from mortal_machine import MortalMachine
from plain_model import Rows
from store_machine import AT_ONCE, PLAIN_VALUES, TIMES, step

from statestore.stores.readers import IsolationLevel
from statestore.stores.views import read_only

#: Few, so that they meet; among them the empty one, prefixes of each other, and prefixes of 0xff.
ALL_KEYS = [b"", b"\0", b"a", b"a\0", b"a\xff", b"ab", b"b", b"\xff", b"\xff\0", b"\xff\xff"]
ALL_BOUNDS = [None, *ALL_KEYS]
KEYS = st.sampled_from(ALL_KEYS)
BOUNDS = st.sampled_from(ALL_BOUNDS)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["put", "put", "delete", "delete_range", "put_if_absent"]), KEYS, BOUNDS, PLAIN_VALUES),
    min_size=1,
    max_size=8,
)


class KeyValueMachine(MortalMachine):
    """Point reads, ranges, and views of a key-value store."""

    def all_rows(self) -> Rows:
        return dict(self.store.all())

    def write_some(self, data: Any) -> None:
        self.write(data.draw(KEYS), self.value(data.draw(PLAIN_VALUES), 0))

    def write(self, key: bytes, value: Any) -> None:
        self.store.put(key, value)
        self.model.write(key, value)

    def expected(self, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> list[tuple[bytes, Any]]:
        return between(self.model.rows, start, stop, reverse=reverse)

    # -- writing

    @step(key=KEYS, value=PLAIN_VALUES, timestamp=TIMES)
    def put(self, key, value, timestamp):
        self.write(key, self.value(value, timestamp))

    @step(key=KEYS)
    def put_none(self, key):
        self.write(key, None)

    @step(keys=st.lists(KEYS, max_size=6), value=PLAIN_VALUES, timestamp=TIMES)
    def put_all(self, keys, value, timestamp):
        rows = [
            (key, self.value(value + bytes([at]), timestamp) if at % 3 < 2 else None) for at, key in enumerate(keys)
        ]
        self.store.put_all(rows)
        for key, stored in rows:
            self.model.write(key, stored)

    @step(key=KEYS, value=st.none() | PLAIN_VALUES, timestamp=TIMES)
    def put_if_absent(self, key, value, timestamp):
        self.write_if_absent(key, None if value is None else self.value(value, timestamp))

    def write_if_absent(self, key: bytes, value: Any) -> None:
        assert self.store.put_if_absent(key, value) == self.model.rows.get(key)
        if value is not None:
            self.model.rows.setdefault(key, value)

    @step(key=KEYS)
    def delete(self, key):
        self.remove(key)

    def remove(self, key: bytes) -> None:
        assert self.store.delete(key) == self.model.rows.pop(key, None)

    @step(start=BOUNDS, stop=BOUNDS)
    def delete_range(self, start, stop):
        self.remove_range(start, stop)

    def remove_range(self, start: bytes | None, stop: bytes | None) -> None:
        self.store.delete_range(start, stop)
        for key, _ in self.expected(start, stop):
            del self.model.rows[key]

    @step(changes=CHANGES, timestamp=TIMES, reading_from=st.integers(0, 3), reverse=st.booleans())
    def make_several_changes(self, changes, timestamp, reading_from, reverse):
        """An iterator is opened between two of them, and shows none of those that follow."""
        for at, (what, key, stop, value) in enumerate(changes):
            if at == reading_from:
                self.read(
                    self.store.reverse_all() if reverse else self.store.all(),
                    self.expected(None, None, reverse=reverse),
                    0,
                )
            if what == "put":
                self.write(key, self.value(value, timestamp))
            elif what == "put_if_absent":
                self.write_if_absent(key, self.value(value, timestamp))
            elif what == "delete":
                self.remove(key)
            else:
                self.remove_range(key, stop)
        if len(changes) > reading_from:
            self.finish(-1)

    # -- reading

    @step(key=KEYS)
    def get(self, key):
        assert self.store.get(key) == self.model.rows.get(key)

    @step(keys=st.lists(KEYS, max_size=5))
    def get_many(self, keys):
        assert self.store.get_many(keys) == [self.model.rows.get(key) for key in keys]

    @step(start=BOUNDS, stop=BOUNDS, reverse=st.booleans(), at_once=AT_ONCE)
    def range(self, start, stop, reverse, at_once):
        scan = self.store.reverse_range if reverse else self.store.range
        self.read(scan(start, stop), self.expected(start, stop, reverse=reverse), at_once)

    @step(reverse=st.booleans(), many=st.booleans())
    def read_everything_there_is_to_read(self, reverse, many):
        found = self.store.get_many(ALL_KEYS) if many else [self.store.get(key) for key in ALL_KEYS]
        assert found == [self.model.rows.get(key) for key in ALL_KEYS]
        scan = self.store.reverse_range if reverse else self.store.range
        for start, stop in product(ALL_BOUNDS, ALL_BOUNDS):
            assert list(scan(start, stop)) == self.expected(start, stop, reverse=reverse)

    @step(reverse=st.booleans(), at_once=AT_ONCE)
    def all(self, reverse, at_once):
        rows = self.store.reverse_all() if reverse else self.store.all()
        self.read(rows, self.expected(None, None, reverse=reverse), at_once)
        assert self.store.is_empty == (not self.model.rows)

    @step(prefix=KEYS, at_once=AT_ONCE)
    def prefix_scan(self, prefix, at_once):
        expected = [row for row in self.expected(None, None) if row[0].startswith(prefix)]
        self.read(self.store.prefix_scan(prefix), expected, at_once)

    @step(start=BOUNDS, stop=BOUNDS, key=KEYS)
    def a_read_only_view_hides_what_is_not_committed(self, start, stop, key):
        rows = self.model.committed if self.composition.transactional else self.model.rows
        view = read_only(self.store, IsolationLevel.READ_COMMITTED)
        assert view.get(key) == rows.get(key)
        assert view.get_many([key, b"a"]) == [rows.get(key), rows.get(b"a")]
        assert list(view.range(start, stop)) == between(rows, start, stop)
        assert list(view.reverse_range(start, stop)) == between(rows, start, stop, reverse=True)

    @step(start=BOUNDS, stop=BOUNDS, key=KEYS)
    def a_plain_view_has_no_timestamps(self, start, stop, key):
        plain = {at: value if isinstance(value, bytes) else value[0] for at, value in self.model.rows.items()}
        view = read_only(self.store, timestamps=False)
        assert view.get(key) == plain.get(key)
        assert list(view.range(start, stop)) == between(plain, start, stop)


def between(rows: Rows, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> list[tuple[bytes, Any]]:
    """Both ends inclusive."""
    found = [
        row for row in sorted(rows.items()) if (start is None or row[0] >= start) and (stop is None or row[0] <= stop)
    ]
    return found[::-1] if reverse else found
