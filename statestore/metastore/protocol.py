"""ksqlDB's protocol for writing a command, with what it leaves to its users: retries, and an answer when none came.

    look, make and validate the command     fences nobody: what is refused here never disturbs a writer
    wait for one's turn                     among all writers of the service (`writer_turns.py`)
    init_transactions                       fences every other writer of the service, ends its transaction
    begin, catch up                         to the end of the log as it is after init: nobody writes any more
    make and validate it again              on the rebuilt catalogue
    produce, flush, commit                  a writer that came later has fenced this one: nothing is visible
    close

What is wrong with the command, or catching up that takes too long, aborts. When Kafka takes the transaction away, there
is nothing to abort: the producer is closed, and after a pause drawn at random everything begins anew.

A commit that was not answered, or answered with a fence, may have happened all the same: the first answer can be lost,
and another writer come before the second. Then the log decides, once the transaction has ended: by the other writer's
init, or by one of our own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import count
from typing import NamedTuple

from statestore import kill_switch
from statestore.errors import (
    CommitOutcomeUnknownError,
    FencedError,
    InputError,
    LockedError,
    MetastoreContendedError,
    OpenTransactionError,
    RetryError,
    StateStoreError,
)
from statestore.kafka.topics import Topic
from statestore.kafka.writer import TransactionalWriter
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.command_log import CommandLog, Look
from statestore.metastore.command_topic import CommandRecord
from statestore.metastore.commands import Command, check_round_trip, key_of, stamped, this_writer
from statestore.metastore.health import require_running
from statestore.metastore.view import Submitted
from statestore.metastore.writer_turns import Turns

#: Asked for the command on a catalogue; None: there is nothing to log.
Make = Callable[[Catalogue], Command | None]

_MOST_ATTEMPTS = 50
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
#: Processes that were forked from one another would draw the same pauses, and meet again after each.
_random = random.SystemRandom()


def jittered_pause_s(attempt: int) -> float:
    """Return how long to wait after an attempt: anything up to a bound that doubles with each."""
    return _random.uniform(0, min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (attempt - 1)))


class Resolved(NamedTuple):
    """A command as it is to be logged."""

    command: Command
    value: bytes


class CommandWriter:
    """Writes commands of one service.

    Parameters
    ----------
    open_writer
        Makes a producer with the service's `transactional.id`.
    timeout_s
        No attempt is begun after so long.
    pause_s
        How long to wait after the n-th attempt that was fenced.
    now_ms
        The time, ms since 1970.
    turns
        The turns of the service's writers; None: writers only fence each other.
    """

    def __init__(
        self,
        log: CommandLog,
        open_writer: Callable[[], TransactionalWriter],
        timeout_s: float,
        pause_s: Callable[[int], float] = jittered_pause_s,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        turns: Turns | None = None,
    ) -> None:
        self._log = log
        self._open_writer = open_writer
        self._timeout_s = timeout_s
        self._pause_s = pause_s
        self._now_ms = now_ms
        self._turns = turns

    def submit(self, make: Make) -> Submitted:
        """Log a command.

        Parameters
        ----------
        make
            Asked on the catalogue as it is, and again for each attempt when nobody else can change it any more.

        Raises
        ------
        InputError
            If the command does not fit, or the metastore takes none; nothing was written.
        MetastoreContendedError
            If other writers came first too often; nothing was written.
        CommitOutcomeUnknownError
            If Kafka did not answer, and cannot be asked either.
        """
        began = time.monotonic()
        warnings: tuple[str, ...] = ()
        with ExitStack() as turn:
            for attempt in count(1):
                look = self._log.look(strict=True)
                require_running(look.view)
                if self._resolve(make, look.catalogue) is None:
                    return Submitted(None, None, attempt, look.view, warnings)
                kill_switch.reached("command made, nobody fenced")
                if attempt == 1 and self._turns is not None:
                    turn.enter_context(self._turns.taken())
                try:
                    topic, repaired = self._log.topic.ensure(look.topic)
                    warnings += repaired
                    done = self._attempt(make, look, topic)
                    return done._replace(attempts=attempt, warnings=warnings + done.warnings)
                except StateStoreError as error:
                    if not _may_pass(error):
                        raise
                    took_s = time.monotonic() - began
                    if attempt == _MOST_ATTEMPTS or took_s > self._timeout_s:
                        raise _given_up(error, self._log.topic.name, attempt, took_s) from error
                time.sleep(self._pause_s(attempt))
        raise AssertionError("unreachable")

    def _attempt(self, make: Make, look: Look, topic: Topic) -> Submitted:
        with closing(self._open_writer()) as writer:
            writer.init()
            kill_switch.reached("command writer initialized")
            writer.begin()
            try:
                now, resolved = self._decide(make, look, topic)
            except BaseException:
                writer.abort()
                raise
            if resolved is None:
                writer.abort()
                return Submitted(None, None, 1, now.view)
            logged = self._send(writer, resolved)
            kill_switch.reached("command sent, not committed")
            self._commit(writer, logged)
        kill_switch.reached("command committed, not in the backup")
        after = now._replace(
            position=logged.offset + 1,
            last=logged,
            catalogue=now.catalogue.apply(resolved.command),
            offset=logged.offset + 1,
            unsaved=(*now.unsaved, logged),
        )
        return Submitted(resolved.command, logged.offset, 1, after.view, self._saved(after))

    def _decide(self, make: Make, look: Look, topic: Topic) -> tuple[Look, Resolved | None]:
        """Catch up, and make the command on what is there now."""
        now = self._log.catch_up(look, topic)
        require_running(now.view)
        kill_switch.reached("command writer caught up")
        return now, self._resolve(make, now.catalogue)

    def _resolve(self, make: Make, catalogue: Catalogue) -> Resolved | None:
        made = make(catalogue)
        if made is None:
            return None
        command = stamped(made, catalogue.next_id, self._now_ms(), this_writer())
        catalogue.apply(command)
        return Resolved(command, check_round_trip(command))

    def _send(self, writer: TransactionalWriter, resolved: Resolved) -> CommandRecord:
        topic, partition = self._log.topic.partition
        key, timestamp = key_of(resolved.command), resolved.command.written_ms
        try:
            writer.produce(topic, key, resolved.value, timestamp, partition)
            offset = writer.flush().get(self._log.topic.partition)
            if offset is None:  # the broker refused it; librdkafka reports the reason with the commit
                writer.commit()
                raise AssertionError("a transaction without its record was committed")
        except InputError:  # it is too large
            writer.abort()
            raise
        return CommandRecord(offset, timestamp, key, resolved.value)

    def _commit(self, writer: TransactionalWriter, logged: CommandRecord) -> None:
        try:
            writer.commit()
        except StateStoreError as error:
            writer.close()
            if self._is_in_log(logged, fenced=isinstance(error, FencedError)):
                return
            if isinstance(error, CommitOutcomeUnknownError):
                raise RetryError(f"{error}; a check has shown that the command is not in the log") from error
            raise

    def _is_in_log(self, logged: CommandRecord, *, fenced: bool) -> bool:
        """Tell whether a record was committed, once its transaction has ended.

        Parameters
        ----------
        fenced
            Whether another writer's init ends it; else one of our own does.
        """
        kill_switch.reached("outcome of a commit unknown")
        try:
            if not fenced:
                with closing(self._open_writer()) as other:
                    other.init()
            self._log.topic.wait_until_stable(logged.offset + 1)
            return any(map(logged.is_same, self._log.topic.read(logged.offset, logged.offset + 1)))
        except StateStoreError as error:
            raise CommitOutcomeUnknownError(
                f"the command was sent to {self._log.topic.name}, offset {logged.offset}; Kafka did not answer its "
                f"commit, and the check for it failed as well: {error}. Once Kafka is back, `statestore history` "
                "shows the outcome"
            ) from error

    def _saved(self, after: Look) -> tuple[str, ...]:
        """Make the command visible to readers and the backup. It is committed, so no failure here is an error."""
        try:
            self._log.topic.wait_until_stable(after.offset)
            if self._log.save(after) is None:
                self._log.look(strict=True)
        except StateStoreError as error:
            return (f"the command is committed, but not yet in the backup: {error}",)
        return ()


def _may_pass(error: StateStoreError) -> bool:
    """Tell whether Kafka only refused this producer: it was fenced, or out of order, or a permission was missing."""
    if isinstance(error, CommitOutcomeUnknownError | OpenTransactionError | LockedError):
        return False
    return isinstance(error, FencedError | RetryError) or type(error) is StateStoreError


def _given_up(error: StateStoreError, topic: str, attempts: int, took_s: float) -> StateStoreError:
    if not isinstance(error, FencedError):
        return error
    return MetastoreContendedError(
        f"other writers of {topic} wrote first {attempts} times in {took_s:.1f} s; nothing was written. Run again"
    )
