"""How the process of a store ends: cleanly, by a failure, by a crash at any time, or with its directory removed.

After each of these the store is opened again, checked, and brought to the end of its changelog, as a task does it.
"""

from __future__ import annotations

import pytest
from driven_store import Home
from hypothesis import strategies as st
from hypothesis.stateful import precondition
from plain_model import Commit
from store_machine import StoreMachine, step

from statestore.errors import StoreUncleanError
from tests.compositions import CHANGELOG, INPUT

_REPLAYED_AT_ONCE = 7


class MortalMachine(StoreMachine):
    """Ends processes."""

    @precondition(lambda self: self.composition.persistent and self.written)
    @step()
    def reopen(self):
        self.close(clean=True)
        self.model.rollback()
        self.model.history = self.model.history[-1:]
        self.open()
        self.after_opening()
        self.assert_rows()
        self.happened("clean reopening")

    @precondition(lambda self: self.composition.persistent and self.written and not self.refused_after_a_crash())
    @step()
    def fail_and_reopen(self):
        """The task failed, its process lives: like a crash, but RocksDB loses nothing of what was in memory."""
        self.close(clean=False)
        self.model.rollback()
        self.open()
        self.replay(self.store.committed_offset(CHANGELOG))

    @precondition(lambda self: self.written)
    @step()
    def crash(self):
        self.thrown_away(self.home.image())
        self.happened("crash")

    @precondition(lambda self: self.composition.persistent and self.written)
    @step(at_write=st.integers(0, 2), with_position=st.booleans())
    def crash_while_committing(self, at_write, with_position):
        """Kafka has committed the transaction, the store not, or not everywhere (W4, W5)."""
        image = self.commit_now(self.model.last_offset, with_position, crash_at=at_write)
        if image is not None:
            self.thrown_away(image)
            self.happened("crash within a commit")

    @precondition(lambda self: self.composition.persistent and self.written)
    @step(empty=st.booleans())
    def task_directory_is_removed(self, empty):
        """As Kafka Streams does with a corrupted task; what we keep outside of it must not pass for the store."""
        if empty:
            self.let_all_expire()
            self.commit_now(self.model.last_offset, True, crash_at=None)
        image = self.home.image()
        image.remove_task()
        self.thrown_away(image, lost=True)
        self.happened("task directory removed")

    def refused_after_a_crash(self) -> bool:
        """Under exactly once a store may have rows that were never committed, unless it is transactional (T13)."""
        return self.home.exactly_once and not self.composition.transactional and self.composition.persistent

    def thrown_away(self, image: Home, *, lost: bool = False) -> None:
        """Go on with what is on disk, if that is anything."""
        self.close(clean=False)
        self.home.remove()
        self.home = image
        if self.composition.transactional or self.home.exactly_once:
            self.model.discard()  # the Kafka transaction was aborted
        if self.refused_after_a_crash() and image.has_database:
            with pytest.raises(StoreUncleanError):
                self.open()
            image.remove()
            self.home = Home.make(image.exactly_once, image.uncommitted_max_bytes)
            self.happened("rebuilding")
            lost = True
        self.open()
        offset = self.store.committed_offset(CHANGELOG)
        self.check_what_the_crash_left(offset, lost=lost or not self.composition.persistent)
        self.replay(offset)

    def check_what_the_crash_left(self, offset: int | None, *, lost: bool) -> None:
        """The store is at one of its commits, not before what is known to be on disk (T3, K14).

        Only a commit that had spilled may be there in part, under the offset of the one before (T9). Without
        transactions, and over several segments, rows may be newer than the offset, never older.
        """
        model = self.model
        rows = self.all_rows()
        position = self.store.position().get(INPUT)
        if lost:
            assert (offset, rows, position) == (None, {}, None)
        elif (known := model.history[0].offset) is not None:
            assert offset is not None, "the offset of something that was on disk is gone"
            assert offset >= known
        if not lost and self.composition.kind == "key-value" and self.composition.transactional:
            assert model.is_a_commit(offset, rows, position) or model.may_be_partial(offset)
        model.assert_not_behind_nor_invented(offset, rows)
        model.offset, model.position = offset, position
        model.history = [Commit(offset, rows, position, False)]

    def replay(self, offset: int | None) -> None:
        """Bring the store to the end of its changelog, as a task does before it works."""
        tail = self.model.tail(offset)
        self.after_opening()
        for at in range(0, len(tail), _REPLAYED_AT_ONCE):
            _, keys, values = zip(*tail[at : at + _REPLAYED_AT_ONCE], strict=True)
            timestamps = [getattr(value, "timestamp", 0) for value in values]
            self.store.apply_changelog(keys, [self.read_from_log(value) for value in values], timestamps)
        self.after_opening()
        self.assert_rows()
        self.commit_now(self.model.last_offset, True, crash_at=None)
        self.offset_at_opening = self.model.next_offset
