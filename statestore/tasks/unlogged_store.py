"""A store of a task without a changelog (KIP-844's null offset): only its files and its snapshots have its rows.

Each commit is prepared in a file before Kafka's transaction is committed (`stores/commit_log.py`). The topic of input
offsets has the number of the last commit that changed the store. A task begins only if the store has exactly that
commit. Thus, an update is neither lost nor applied twice, and a missing or older store is not used unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from statestore import kill_switch
from statestore.archive.grown_from import beginning
from statestore.durable import remove_durably, remove_tree, write_durably
from statestore.errors import RebuildError, StoreCorruptedError
from statestore.model import TopicPartition
from statestore.partition.generations import newest_generation
from statestore.partition.last_commit import LastCommit
from statestore.statedir.context import forget_mode
from statestore.statedir.record import StoreRecord
from statestore.statedir.seal import break_seal, check_seal, forget_digests
from statestore.stores.built_in import BuiltInBytes
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

    # -- opening --------------------------------------------------------------------------------------------------

    def open(self, legacy_offset: int | None, *, read_in_full: bool) -> None:
        """Open the store if it is there. Whether a missing one may begin empty is known in `begin`."""
        paths, definition = self._spec.paths, self._spec.store
        self._is_missing = not self._spec.live.exists()
        if self._is_missing:
            return
        try:
            sealed = check_seal(paths, self._name, definition.store_kind) is not None
            if not sealed:
                forget_digests(paths, self._name)
            self._init()
            self.is_untouched = sealed
            if read_in_full:
                for _ in self.store.all():
                    pass
        except RebuildError as error:
            self.store.close(clean=False)
            self.damage = error

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
            try:
                self._inner.decide(last.number)
            except StoreCorruptedError as error:
                self._refuse_unlogged(f"cannot be used ({error})")
            self._require_committed(last)
        self.caught_up_ms = asked_ms
        self.write_record(self.known().model_copy(update={"caught_up_ms": asked_ms}))
        self.store.metrics.begin_processing()

    def _begin_empty(self, last: LastCommit | None) -> None:
        record = self.record
        had = record is not None and record.committed is not None
        why = "" if last is None else last.refuted_by(self._name, None)
        if had and not why and (last is None or not last.number):
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
        if why and self._spec.archive is not None:
            # The archive has snapshots of the store that was here before: those of this one do not follow them.
            begins = beginning(f"an accepted loss: it began empty, as {why}", newest_generation(self._spec))
            write_durably(paths.snapshot(self._name), begins)
        kill_switch.reached("store without a changelog about to begin empty")
        self._init()

    def _require_committed(self, last: LastCommit) -> None:
        why, record = last.refuted_by(self._name, self._number), self.record
        self._accepted = record.accepted if record is not None else None
        if not why:
            return
        if not (self._task.accept_loss or (self._accepted is not None and self._accepted >= last.number)):
            self._refuse_unlogged(f"is not as it was committed: {why}")
        self.has_accepted_loss = True
        self.is_untouched = False

    def _refuse_unlogged(self, what: str) -> NoReturn:
        raise RebuildError(
            f"store {self._name} of {self._spec.application} task {self._spec.task} {what}. It has no changelog "
            "(logged: false), so only a snapshot can replace it: run restore for it, which uses the newest snapshot. "
            "To begin with the store as it is, or with an empty one if it is missing, run process once with "
            "STATESTORE_ACCEPT_LOSS=true; the input is not read again"
        )

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

    # -- at work --------------------------------------------------------------------------------------------------

    def prepare(self, number: int, position: Mapping[TopicPartition, int]) -> bool:
        """Prepare the next commit, if the store was changed; return whether it was."""
        if not self._inner.has_changes:
            return False
        self._inner.prepare(number, {self.changelog: number}, position)
        return True

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
