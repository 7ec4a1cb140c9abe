"""What machines of window and session stores share: a dict whose rows expire.

Times are drawn around stream time, so that it goes on and segments keep expiring.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from mortal_machine import MortalMachine
from plain_model import Model, Rows, SegmentedModel
from store_machine import step

from statestore.formats.window_key import MAX_TIME
from statestore.stores.readers import IsolationLevel
from statestore.stores.views import read_only

#: Row keys are key and time in one: among these are keys that go on like another key's time.
ALL_KEYS = [b"", b"\0", b"a", b"a\0", b"a" + bytes(12), b"a" + bytes(16), b"a\x7f", b"b", b"\xff", b"\xff\xff"]
ALL_BOUNDS = [None, *ALL_KEYS]
KEYS = st.sampled_from(ALL_KEYS)
BOUNDS = st.sampled_from(ALL_BOUNDS)
#: From stream time, in ms: from what has expired long ago to what makes others expire.
AROUND = st.builds(
    lambda steps, jitter: steps * 30_000 + jitter, st.integers(-7, 2), st.sampled_from([0, 0, -1, 1, 999])
)
#: Bounds of a time: around stream time, or open.
TIME_BOUNDS = AROUND | st.sampled_from([-(2**62), 2**62])
WHICH = st.integers(0, 20)


class WindowedMachine(MortalMachine):
    """Stream time, expiry on write, and reads that retention bounds."""

    model: SegmentedModel

    def new_model(self) -> Model:
        return SegmentedModel(self.composition.transactional, self.retention_ms, self.time_of)

    @staticmethod
    def time_of(row_key: bytes) -> int:
        """Timestamp (ms) that decides on a row's segment."""
        raise NotImplementedError

    def time(self, around: int) -> int:
        return min(max(max(self.model.stream_time, 0) + around, 0), MAX_TIME)

    def all_rows(self) -> Rows:
        """Rows of all segments. Numbers of duplicates are told by row keys alone, so these are read."""
        segments = self.store.inner.opened.databases
        return {key: self.store.decode(stored) for segment in segments for key, stored in segment.rows.scan()}

    def assert_rows(self) -> None:
        """Rows that retention hides may be gone or not."""
        stream_time = self.model.stream_time
        assert self.model.visible(self.all_rows(), stream_time) == self.model.visible(self.model.rows, stream_time)

    def wrote(self, row_key: bytes, value: Any) -> None:
        """Follow the store in the model."""
        if self.model.advance(self.time_of(row_key)):
            self.model.write(row_key, value)
        else:
            self.expired += 1
            self.happened("expired on write")
        assert self.store.expired_records == self.expired

    def some_row(self, which: int) -> bytes:
        return sorted(self.model.rows)[which % len(self.model.rows)]

    def rows(self, *, committed: bool = False, backward: bool = False) -> list[tuple[bytes, Any]]:
        """What a reader should find."""
        model = self.model
        if committed and self.composition.transactional:
            found = model.visible(model.committed, model.committed_stream_time)
        else:
            found = model.visible(model.rows, model.stream_time)
        return found[::-1] if backward else found

    def segments(self) -> set[int]:
        return self.model.segments

    def view(self, committed: bool) -> Any:
        return read_only(self.store, IsolationLevel.READ_COMMITTED) if committed else self.store

    def after_opening(self) -> None:
        """Stream time is the application's, and survives (R18)."""
        self.store.inner.advance_stream_time(self.model.stream_time)

    def let_all_expire(self) -> None:
        self.advance(10 * (self.retention_ms + self.model.interval_ms))

    @step(ahead=st.sampled_from([1, 200_000]))
    def stream_time_goes_on(self, ahead):
        """With records of other stores: no write of this one."""
        self.advance(ahead)

    def advance(self, ahead: int) -> None:
        self.model.stream_time = max(self.model.stream_time, 0) + ahead
        self.model.committed_stream_time = self.model.stream_time
        self.store.inner.advance_stream_time(self.model.stream_time)


def within(key: bytes, low: bytes | None, high: bytes | None) -> bool:
    """Both ends inclusive; None is open."""
    return (low is None or key >= low) and (high is None or key <= high)
