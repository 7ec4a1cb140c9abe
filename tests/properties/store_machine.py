"""A store that a machine drives: how it begins, its transactions, iterators that stay open, what always holds.

How its processes end is in `mortal_machine.py`, what is written and read in the machines of each kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from itertools import islice
from typing import Any, ClassVar

import pytest
from driven_store import UNBOUNDED, CrashingOffsets, Home, new_store
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from plain_model import Model, Rows

from statestore.errors import InvalidStateError
from statestore.formats.headers_value import AggregationWithHeaders, Headers, ValueTimestampHeaders
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.formats.value_format import ValueFormat
from statestore.model import StoreFormat
from tests.compositions import CHANGELOG, INPUT, Composition

#: Steps that were executed, and what happened in them, by composition.
EXECUTED: Counter[str] = Counter()
HAPPENED: Counter[tuple[str, str]] = Counter()

PLAIN_VALUES = st.binary(max_size=6) | st.builds(bytes, st.sampled_from([7_000, 30_000]))
TIMES = st.sampled_from([-1, 0, 1, 1_700_000_000_000])
#: How many rows an iterator gives at once, before it is left open; None: all.
AT_ONCE = st.none() | st.integers(0, 2)
_REPLAYED_AT_ONCE = 7


def step(**strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule whose executions are counted."""

    def counted(function: Callable[..., None]) -> Any:
        @wraps(function)
        def run(self: StoreMachine, **arguments: Any) -> None:
            function(self, **arguments)
            self.offset_and_position_are_those_of_the_last_commit()
            self.staged_rows_stay_within_the_bound()
            EXECUTED[str(self.composition)] += 1

        return rule(**strategies)(run)

    return counted


#: Headers of values, by turns.
HEADERS: tuple[Headers, ...] = ((), (("a", b"1"),), (("a", None), ("a", b""), ("ü", b"2" * 70)))


class StoreMachine(RuleBasedStateMachine):
    """Drives one composition against a model."""

    composition: ClassVar[Composition]
    store: Any
    model: Model

    # -- what each kind says of itself

    def new_model(self) -> Model:
        return Model(self.composition.transactional)

    def all_rows(self) -> Rows:
        """Every row in the store, by the key of its changelog record."""
        raise NotImplementedError

    def assert_rows(self) -> None:
        """Compare all rows with the model's."""
        assert self.all_rows() == self.model.rows

    def write_some(self, data: Any) -> None:
        """Write something into the store and into the model."""
        raise NotImplementedError

    def segments(self) -> set[int]:
        """Starts (ms) of the segments that the model knows."""
        return set()

    def after_opening(self) -> None:
        """Tell the store what a task would tell it."""

    def let_all_expire(self) -> None:
        """Let every row expire, where rows do."""

    # -- beginning and end

    @initialize(
        data=st.data(),
        exactly_once=st.booleans(),
        max_bytes=st.sampled_from([5_000, UNBOUNDED, 600]),
        retention_ms=st.sampled_from([1_000, 90_000, 130_000]),
        duplicates=st.sampled_from([False, False, True]),
        plain_rows=st.integers(0, 6),
    )
    def begin(self, data, exactly_once, max_bytes, retention_ms, duplicates, plain_rows):
        composition = self.composition
        self.format = composition.format
        self.retention_ms = retention_ms
        self.duplicates = duplicates and composition.kind == "window"
        self.home = Home.make(exactly_once, max_bytes)
        self.model = self.new_model()
        self.iterators: list[tuple[Iterator[Any], list[Any]]] = []
        upgraded = composition.timestamped or composition.keeps_headers
        if upgraded and composition.persistent and plain_rows:
            self.begin_with_plain_rows(data, plain_rows)
        self.open()
        self.after_opening()

    def begin_with_plain_rows(self, data: Any, count: int) -> None:
        """The store was a plain one before; its rows have neither timestamp nor headers (KIP-258, KIP-1271)."""
        self.format = StoreFormat.PLAIN
        self.open()
        for _ in range(count):
            self.write_some(data)
        self.store.commit({CHANGELOG: self.model.last_offset} if self.model.log else {})
        self.model.commit(self.model.last_offset, None)
        self.close(clean=True)
        self.format = self.composition.format
        aged = {key: self.made(value, -1) for key, value in self.model.rows.items()}
        self.model.log = [
            record._replace(value=None if record.value is None else self.made(record.value, -1))
            for record in self.model.log
        ]
        self.model.rows, self.model.committed = aged, dict(aged)
        self.model.history = [self.model.history[-1]._replace(rows=dict(aged))]
        self.happened("migration")

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close(clean=False)
            self.home.remove()

    def open(self) -> None:
        composition = replace(self.composition, format=self.format)
        self.store = new_store(composition, self.retention_ms, self.duplicates)
        self.store.log_changes_to(self.logged)
        self.expired = 0
        self.offset_at_opening = self.model.next_offset
        self.store.init(self.home.context())

    @property
    def written(self) -> bool:
        """Whether there is something that a process could lose."""
        return self.model.next_offset > self.offset_at_opening

    def close(self, *, clean: bool) -> None:
        """An iterator that is still open says that it was cut off, at the latest after a row that it held (T7)."""
        self.store.close(clean=clean)
        for rows, expected in self.iterators:
            found: list[Any] = []
            if expected:
                with pytest.raises(InvalidStateError):
                    found.extend(rows)
                assert found == expected[: len(found)]
        self.iterators.clear()

    def logged(self, key: bytes, plain: bytes | None, timestamp: int | None, headers: Headers = ()) -> None:
        self.model.record(
            key, None if plain is None else self.made(plain, -1 if timestamp is None else timestamp, headers)
        )

    def happened(self, what: str) -> None:
        HAPPENED[self.composition.kind, what] += 1

    def value(self, plain: bytes, timestamp: int) -> Any:
        return self.made(plain, timestamp, HEADERS[timestamp % len(HEADERS)])

    @property
    def layout(self) -> ValueFormat:
        """Layout of the values as the store has them now."""
        return replace(self.composition, format=self.format).layout

    def made(self, plain: bytes, timestamp: int, headers: Headers = ()) -> Any:
        """A value as the format has it."""
        layout = self.layout
        if layout.keeps_headers:
            if layout.timestamped:
                return ValueTimestampHeaders(plain, timestamp, headers)
            return AggregationWithHeaders(plain, headers)
        return ValueAndTimestamp(plain, timestamp) if layout.timestamped else plain

    def read_from_log(self, value: Any) -> Any:
        """What a log's reader makes of a value of the model."""
        layout = self.layout
        if value is None or isinstance(value, bytes):
            return value
        if layout.keeps_headers:
            return layout.stored(value[0], getattr(value, "timestamp", 0), value.headers)
        return value[0]

    # -- iterators

    def read(self, rows: Iterator[Any], expected: list[Any], at_once: int | None) -> None:
        """Compare; or begin to, and go on in a later step, when the rows are still those of now."""
        assert list(islice(rows, at_once)) == expected[:at_once]
        if at_once is not None:
            self.iterators.append((rows, expected[at_once:]))

    @precondition(lambda self: getattr(self, "iterators", None))
    @step(which=st.integers(0, 3))
    def an_open_iterator_shows_the_rows_of_its_opening(self, which):
        self.finish(which % len(self.iterators))
        self.happened("iterator finished later")

    def finish(self, which: int) -> None:
        rows, expected = self.iterators.pop(which)
        assert list(rows) == expected

    # -- transactions

    @step(with_offset=st.sampled_from([True, True, True, False]), with_position=st.booleans())
    def commit(self, with_offset, with_position):
        self.commit_now(self.model.last_offset if with_offset else None, with_position, crash_at=None)

    def commit_now(self, offset: int | None, with_position: bool, crash_at: int | None) -> Home | None:
        model = self.model
        position = model.next_offset * 2 if with_position else None
        spilled = self.home.spilled
        offsets: Any = {} if offset is None else {CHANGELOG: offset}
        if crash_at is not None and offset is not None:
            offsets = CrashingOffsets(offset, self.home, crash_at)
        self.store.commit(offsets, None if position is None else {INPUT: position})
        segments = set(self.segments())
        model.commit(offset, position, spilled=spilled)
        if spilled:
            self.happened("spilled commit")
        if segments - self.segments():
            self.happened("segments dropped")
        return getattr(offsets, "image", None)

    @step()
    def rollback(self):
        self.store.rollback()
        self.model.rollback()

    @step(times=st.integers(1, 2))
    def recover(self, times):
        above = times - 1
        offset = self.model.offset
        asked = above if offset is None else offset + above
        for _ in range(times):
            reached = self.composition.transactional and offset is not None and not above
            assert self.store.recover(asked) == reached
        self.model.rollback()

    @step()
    def sync(self):
        self.store.sync()
        self.model.history = self.model.history[-1:]

    # -- after each step

    def offset_and_position_are_those_of_the_last_commit(self) -> None:
        kept = self.composition.persistent
        assert self.store.committed_offset(CHANGELOG) == (self.model.offset if kept else None)
        assert self.store.position().get(INPUT) == (self.model.position if kept else None)

    def staged_rows_stay_within_the_bound(self) -> None:
        staged = self.store.staged_bytes
        assert staged >= 0
        if self.composition.persistent and self.composition.kind == "key-value":
            assert staged <= self.home.uncommitted_max_bytes
        if not self.composition.transactional:
            assert staged == 0
