"""A store of a task without a changelog (KIP-844's null offset): only its files and its snapshots have its rows.

Each commit is prepared in a file before Kafka's transaction is committed (`stores/commit_log.py`). The topic of input
offsets has the number of the last commit that changed the store. A task begins only if the store has exactly that
commit. Thus, an update is neither lost nor applied twice, and a missing or older store is not used unnoticed.

A number is the time (ms), or one more than the last number if that is greater. So an attempt that was aborted, or that
ran on another copy of the store, has other numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from statestore import clock, kill_switch
from statestore.advice import Situation, advice, message
from statestore.archive.grown_from import beginning
from statestore.durable import remove_durably, remove_tree, write_durably
from statestore.errors import RebuildError, StoreCorruptedError
from statestore.model import TopicPartition
from statestore.partition.advice import target_of
from statestore.partition.generations import newest_generation
from statestore.partition.last_commit import LastCommit
from statestore.statedir.context import forget_mode
from statestore.statedir.record import StoreRecord
from statestore.statedir.seal import break_seal, forget_digests
from statestore.stores.built_in import BuiltInBytes
from statestore.stores.commit_log import prepared_commits
from statestore.tasks.task_store import TaskStore


class UnloggedTaskStore(TaskStore):
    """A store of a task without a changelog, under the task's lock.

    Attributes
    ----------
    has_accepted_loss
        True if the store is not what the last commit names, and a user accepts that. The next commit names what it has.
    """

    has_accepted_loss = False
    _is_missing = False
    _accepted: int | None = None
    #: No later commit has a number that is not greater.
    _greatest = 0

    # -- opening --------------------------------------------------------------------------------------------------

    def open(self, legacy_offset: int | None, *, read_in_full: bool) -> None:
        """Open the store if it is there. Whether a missing one may begin empty is known in `begin`."""
        self._is_missing = not self._spec.live.exists()
        if not self._is_missing:
            super().open(None, read_in_full=read_in_full)

    def begin(self, last: LastCommit | None, asked_ms: int) -> None:
        """Complete or discard the prepared commit, and require that the store has what the task has committed.

        Parameters
        ----------
        last
            The task's last commit; None: the caller keeps none, as in a test.
        asked_ms
            Time of the brokers before it was asked for.

        Raises
        ------
        RebuildError
            If the store is damaged, missing, or not as it was committed.
        """
        if self.damage is not None:
            self._refuse_unlogged(f"cannot be used ({self.damage})")
        if self._is_missing:
            self._begin_empty(last)
        elif last is not None:
            self._settle(last)
        self._greatest = max(self._number or 0, 0 if last is None else last.expected(self._name))
        self.caught_up_ms = asked_ms
        self.write_record(self.known().model_copy(update={"caught_up_ms": asked_ms}))
        self.store.metrics.begin_processing()

    def _begin_empty(self, last: LastCommit | None) -> None:
        record = self.record
        had = record is not None and record.committed is not None
        why = "" if last is None else last.refuted_by(self._name, None)
        if had and not why and (last is None or not last.unlogged):
            why = f"it had commit {record.committed}" if record is not None else ""
        paths = self._spec.paths
        if why:
            if not self._task.accept_loss:
                self._refuse_unlogged(f"is missing: {self._spec.live} does not exist, and {why}")
            self.has_accepted_loss = True
        # Whatever is left belongs to the store that was here before.
        break_seal(paths, self._name)
        forget_digests(paths, self._name)
        forget_mode(paths, self._name)
        remove_tree(paths.commits(self._name))
        remove_tree(paths.segments(self._name))
        for left in (paths.snapshot(self._name), paths.record(self._name)):
            remove_durably(left)
        if why and self._spec.home.offers_snapshots:
            # The archive has snapshots of the store that was here before: those of this one do not follow them.
            begins = beginning(f"an accepted loss: it began empty, as {why}", newest_generation(self._spec))
            write_durably(paths.snapshot(self._name), begins)
        kill_switch.reached("store without a changelog about to begin empty")
        self._init()

    def _settle(self, last: LastCommit) -> None:
        """Complete or discard the prepared commit. If neither is certain, keep it, unless a user accepts a loss."""
        record, expected = self.record, last.expected(self._name)
        self._accepted = record.accepted if record is not None else None
        prepared = prepared_commits(self._spec.paths.commits(self._name))
        number = expected if expected in prepared else self._number
        if why := last.refuted_by(self._name, number):
            if not (self._task.accept_loss or self._accepted == expected):
                self._refuse_unlogged(f"is not as it was committed: {why}")
            self.has_accepted_loss = True
            self.is_untouched = False
        else:
            self._accepted = None  # it is as it was committed again
        try:
            self._inner.decide(number)
        except StoreCorruptedError as error:
            self._refuse_unlogged(f"cannot be used ({error})")

    def _refuse_unlogged(self, what: str) -> NoReturn:
        found = Situation.UNLOGGED_LOST if self._spec.home.offers_snapshots else Situation.UNLOGGED_LOST_ALONE
        step = self._with_snapshots(advice(found, target_of(self._spec)))
        raise RebuildError(message(str(self._spec.store_partition), step)).with_evidence(what)

    @property
    def _inner(self) -> BuiltInBytes:  # type: ignore[type-arg]
        inner = self.store.inner
        assert isinstance(inner, BuiltInBytes), "a supplier's store has a changelog"
        return inner

    @property
    def _number(self) -> int | None:
        """Number of the last commit that changed the store; None: none has."""
        found = self.store.committed_offset(self.changelog)
        return None if found is None or found < 0 else found

    # -- commits --------------------------------------------------------------------------------------------------

    def prepare(self, position: Mapping[TopicPartition, int]) -> int | None:
        """Prepare the next commit; return its number, or None if the store was not changed."""
        if not self._inner.has_changes:
            return None
        self._greatest = max(clock.now_ms(), self._greatest + 1)
        self._inner.prepare(self._greatest, {self.changelog: self._greatest}, position)
        return self._greatest

    def note_commit(self) -> None:
        """Forget an accepted loss: the last commit names what the store has, so a later loss is another one."""
        if self._accepted is not None:
            self._accepted = None
            self.write_record(self.known())

    # -- closing --------------------------------------------------------------------------------------------------

    def known(self) -> StoreRecord:
        """Return what is known of the open store."""
        return StoreRecord(
            topic_id=self._task.offsets_id,
            caught_up_ms=self._changelogs.now_ms(),
            committed=self._number,
            stream_time=self.stream_time,
            accepted=self._accepted,
        )
