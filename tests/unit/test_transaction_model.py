"""Transactional stores (KIP-844) against a model: a dict with commit and rollback."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from samples import CHANGELOG, INPUT, PLAIN, TIMESTAMPED

from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.stores.key_value import open_key_value_store

KEYS = st.binary(max_size=2) | st.sampled_from([b"a", b"a\0", b"ab", b"b", b"\xff", b"\xff\xff"])
VALUES = st.builds(ValueAndTimestamp, st.binary(max_size=12), st.integers(-1, 2**40))
BOUNDS = st.none() | KEYS


class TransactionalStore(RuleBasedStateMachine):
    """A timestamped store, with rows not yet migrated, behaves as a dict with commit and rollback."""

    @initialize(legacy=st.dictionaries(KEYS, st.binary(max_size=12), max_size=6))
    def open_with_plain_rows(self, legacy):
        self.directory = Path(tempfile.mkdtemp())
        if legacy:
            plain = open_key_value_store(PLAIN, self.directory / "s")
            for key, value in legacy.items():
                plain.put(key, value)
            plain.commit({})
            plain.close()
        self.committed = {key: ValueAndTimestamp(value, -1) for key, value in legacy.items()}
        self.rows = dict(self.committed)
        self.offset = None
        self.input_offset = None
        self.iterators = []
        self.store = open_key_value_store(TIMESTAMPED, self.directory / "s")

    @rule(key=KEYS, value=VALUES)
    def put(self, key, value):
        self.store.put(key, value)
        self.rows[key] = value

    @rule(key=KEYS)
    def delete(self, key):
        assert self.store.delete(key) == self.rows.pop(key, None)

    @rule(key=KEYS, value=st.none() | VALUES)
    def put_if_absent(self, key, value):
        assert self.store.put_if_absent(key, value) == self.rows.get(key)
        if value is not None:
            self.rows.setdefault(key, value)

    @rule(key=KEYS)
    def get(self, key):
        assert self.store.get(key) == self.rows.get(key)

    @rule(start=BOUNDS, stop=BOUNDS)
    def range(self, start, stop):
        assert list(self.store.range(start, stop)) == self._expected(start, stop)

    @rule(start=BOUNDS, stop=BOUNDS)
    def open_iterator(self, start, stop):
        self.iterators.append((self.store.range(start, stop), self._expected(start, stop)))

    @precondition(lambda self: self.iterators)
    @rule()
    def an_open_iterator_shows_the_rows_of_its_opening(self):
        found, expected = self.iterators.pop(0)
        assert list(found) == expected

    @rule(step=st.integers(1, 1000), with_position=st.booleans())
    def commit(self, step, with_position):
        self.offset = (self.offset or 0) + step
        if with_position:
            self.input_offset = (self.input_offset or 0) + step
        self.store.commit({CHANGELOG: self.offset}, {INPUT: self.input_offset} if with_position else None)
        self.committed = dict(self.rows)

    @rule()
    def rollback(self):
        self.store.rollback()
        self.rows = dict(self.committed)

    @rule(times=st.integers(1, 2))
    def recover(self, times):
        for _ in range(times):
            assert self.store.recover(self.offset)
        self.rows = dict(self.committed)

    @rule(clean=st.booleans())
    def reopen(self, clean):
        self.iterators.clear()
        self.store.close(clean=clean)
        self.store = open_key_value_store(TIMESTAMPED, self.directory / "s")
        self.rows = dict(self.committed)

    @invariant()
    def staged_bytes_tell_whether_something_is_staged(self):
        assert self.store.staged_bytes >= 0
        if self.rows != self.committed:
            assert self.store.staged_bytes > 0

    @invariant()
    def offsets_are_those_of_the_last_commit(self):
        assert self.store.committed_offset(CHANGELOG) == self.offset
        assert self.store.position() == ({} if self.input_offset is None else {INPUT: self.input_offset})

    def _expected(self, start, stop):
        return [
            (key, value)
            for key, value in sorted(self.rows.items())
            if (start is None or key >= start) and (stop is None or key <= stop)
        ]

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.directory)


TransactionalStore.TestCase.settings = settings(max_examples=15, stateful_step_count=25, deadline=None, database=None)
test_t2_t4_t8_a_transactional_store_behaves_as_its_model = TransactionalStore.TestCase
