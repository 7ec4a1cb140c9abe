"""The command topic and its backup, looked at together: the catalogue they give, and whether it is known to be whole.

What was seen is remembered, so that the next look reads only what came since: if topic, log and backup are still the
same ones, and the last record that was applied is still where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple, TypeVar

from statestore.bulk.ahead import one_ahead
from statestore.errors import (
    BackupError,
    LogCorruptedError,
    RetryError,
    StateStoreError,
    StoreBehindLogStartError,
    TopicMismatchError,
    of_os_error,
)
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import Topic
from statestore.metastore.backup import BackupContent, BackupFile, Mark
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.command_topic import CommandRecord, CommandTopic
from statestore.metastore.health import Found, damage, reason_of, start_of
from statestore.metastore.replay import Folded, fold
from statestore.metastore.view import Health, View
from statestore.objects.path import Location

#: A broker that was just started, or a topic that was just created, may be told of wrongly for a moment.
_BELIEVED_AFTER_S = 1.0
_PAUSE_S = 0.05
#: Writers of the backup hold it for milliseconds, unless it is large and made anew.
_LOCK_WAIT_S = 10.0
T = TypeVar("T")


class Look(NamedTuple):
    """Result of one read of the command topic.

    Attributes
    ----------
    topic
        None if there is none.
    start, position
        From where the log counts, and up to where it was read.
    last
        The last record that was applied; None if none was.
    catalogue, offset
        What the records give, and the next offset behind those that were applied.
    reason
        Why that is not known to be whole; empty if it is.
    damaged
        Whether the topic is not as it must be: the backup was read in its place, if there is one.
    mark
        How far the backup was read; None if there is none.
    unsaved
        Records that were applied since then.
    """

    topic: Topic | None
    start: int
    position: int
    last: CommandRecord | None
    catalogue: Catalogue
    offset: int
    reason: str = ""
    damaged: bool = False
    mark: Mark | None = None
    unsaved: tuple[CommandRecord, ...] = ()

    @property
    def view(self) -> View:
        """The view that the metastore returns."""
        health = Health.DEGRADED if self.reason else Health.RUNNING
        topic_id = None if self.topic is None else self.topic.topic_id
        return View(self.catalogue, self.offset, health, self.reason, topic_id)


class CommandLog:
    """The commands of one service.

    Parameters
    ----------
    backup
        Its backup; None: there is none, and a topic that was deleted is one that never was.
    """

    def __init__(self, cluster: Cluster, service_id: str, backup: Location | None) -> None:
        self.topic = CommandTopic(cluster, service_id)
        self.backup = None if backup is None else BackupFile(backup, service_id)
        self._timeout_s = cluster.timeout_s
        self._known: Look | None = None

    def look(self, *, strict: bool = False) -> Look:
        """Read the commands up to the end of now, and bring the backup up to date. Nobody is fenced.

        Parameters
        ----------
        strict
            Fail if the backup cannot be written; else leave that to somebody who may.
        """
        began = time.monotonic()
        while True:
            found = self._while_it_changes(self._look)
            if not found.damaged or time.monotonic() - began > _BELIEVED_AFTER_S:
                break
            time.sleep(_PAUSE_S)
        try:
            return self.save(found, patient=strict) or found
        except StateStoreError:
            if strict:
                raise
            return found

    def history(self) -> tuple[Look, list[CommandRecord]]:
        """Look, and return with that the records that it was based on, also those that could not be applied."""

        def read() -> tuple[Look, list[CommandRecord]]:
            look = self.look()
            return look, self._records(look)

        return self._while_it_changes(read)

    def catch_up(self, look: Look, topic: Topic) -> Look:
        """Read on to the end of the log as it is now, when nobody else can write to it.

        The end is the high watermark: nothing below it may stay hidden by a transaction that is still open.

        Raises
        ------
        OpenTransactionError
            If such a transaction does not end in time.
        RetryError
            If the log is not the one that was looked at.
        """
        cut = f"topic {self.topic.name} was replaced, cut, or compacted since it was last read; run again"
        log = self.topic.ends() if self.topic.describe() == topic else None
        if log is None or log.high_watermark < look.position or log.start > look.position:
            raise RetryError(cut)
        self.topic.wait_until_stable(log.high_watermark, log)
        try:
            records = self.topic.read(look.position, log.high_watermark)
        except StoreBehindLogStartError as error:  # a compaction deletes after its transaction
            raise RetryError(cut) from error
        folded = fold(records, look.catalogue, look.offset)
        applied = records[: folded.applied]
        return look._replace(
            topic=topic,
            start=max(look.start, log.start),
            position=log.high_watermark,
            last=applied[-1] if applied else look.last,
            catalogue=folded.catalogue,
            offset=folded.offset,
            reason=folded.reason,
            unsaved=(*look.unsaved, *applied),
        )

    def save(self, look: Look, *, patient: bool = True) -> Look | None:
        """Write what a look has found into the backup, durably, and remember it.

        Parameters
        ----------
        patient
            Wait for another process that writes the backup.

        Returns
        -------
        Look or None
            What is remembered; None if nothing was to be saved, or the backup is another one than when it was read.

        Raises
        ------
        StateStoreError
            If the backup cannot be written.
        """
        self._known = None
        if look.damaged or look.topic is None or (look.reason and not look.unsaved):
            return None
        mark, topic_id = None, look.topic.topic_id
        if self.backup is not None:
            try:
                mark = self.backup.update(topic_id, look.start, look.unsaved, look.mark, _LOCK_WAIT_S if patient else 0)
            except OSError as error:
                raise of_os_error(error) from error
            if mark is None:  # somebody has made it anew: the next look compares it with the topic
                return None
        self._known = look._replace(mark=mark, unsaved=())
        return self._known

    def _records(self, look: Look) -> list[CommandRecord]:
        if not look.damaged:
            return self.topic.read(look.start, look.position)
        content, _ = self._read_backup()
        return [] if content is None else content.records

    def _while_it_changes(self, read: Callable[[], T]) -> T:
        """Read again where the topic was compacted or deleted this very moment."""
        began = time.monotonic()
        while True:
            try:
                return read()
            except (StoreBehindLogStartError, TopicMismatchError) as error:
                if time.monotonic() - began > self._timeout_s:
                    raise RetryError(f"{self.topic.name} changed while it was read: {error}; run again") from error
            time.sleep(_PAUSE_S)

    def _look(self) -> Look:
        found = None if self._known is None else self._look_on(self._known)
        return found or self._look_at_all()

    def _look_on(self, known: Look) -> Look | None:
        """Read what came since the last look; None if the log is not certain to be the same one."""
        if known.last is None:
            return None
        content, unusable = self._read_backup(known.mark)
        topic = self.topic.describe()
        if unusable or (content is None) != (known.mark is None) or topic is None or topic != known.topic:
            return None
        if content is not None and known.mark is not None and content.mark.is_behind(known.mark):
            return None  # an older copy was put in its place: it is to get all that it has not
        log = self.topic.ends()
        if log.start > known.start or log.last_stable < known.position:
            return None
        records, _ = self._read(known.last.offset, log.last_stable)
        since = Found(self.topic.name, topic, log, known.last.offset + 1, records[1:])
        if records[:1] != [known.last] or damage(since, content):
            return None
        folded = fold(records[1:], known.catalogue, known.offset)
        return _found(known._replace(position=log.last_stable), records[1:], folded, content)

    def _look_at_all(self) -> Look:
        # First the backup, then the topic: what the backup has by then, the topic must have.
        content, unusable = self._read_backup()
        topic = self.topic.describe()
        log = None if topic is None else self.topic.ends()
        start, end = (0, 0) if log is None else (start_of(log, content), log.last_stable)
        records, folded, unreadable = self._read_and_fold(start, end)
        seen = Found(self.topic.name, topic, log, start, records, unreadable)
        wrong = damage(seen, content, unusable=bool(unusable))
        if wrong:
            if content is not None and self.backup is not None:
                wrong += f". The backup is {self.backup.path}"
            records = [] if content is None else content.records
            folded = fold(records)
        nothing = Look(topic, start, end, None, Catalogue(), 0, damaged=bool(wrong))
        found = _found(nothing, records, folded, content)
        found = found._replace(reason=reason_of(wrong or found.reason, unusable))
        return found._replace(unsaved=()) if unusable else found

    def _read(self, start: int, end: int) -> tuple[list[CommandRecord], str]:
        """Read the topic; return why it cannot be read, if its log is damaged."""
        try:
            return self.topic.read(start, end), ""
        except LogCorruptedError as error:
            return [], str(error)

    def _read_and_fold(self, start: int, end: int) -> tuple[list[CommandRecord], Folded, str]:
        """Read the topic, folding what has come while more is on its way; return also why it cannot be read."""
        records: list[CommandRecord] = []

        def coming() -> Iterator[CommandRecord]:
            with closing(one_ahead(self.topic.batches(start, end))) as batches:
                for batch in batches:
                    records.extend(batch)
                    yield from batch

        arriving = coming()
        try:
            folded = fold(arriving)
            for _ in arriving:  # behind one that cannot be applied
                pass
        except LogCorruptedError as error:
            return [], fold(()), str(error)
        return records, folded, ""

    def _read_backup(self, after: Mark | None = None) -> tuple[BackupContent | None, str]:
        """Read the backup; return why it cannot be used, if it cannot."""
        if self.backup is None:
            return None, ""
        try:
            return self.backup.read(after), ""
        except BackupError as error:
            return None, str(error)
        except OSError as error:
            raise of_os_error(error) from error


def _found(before: Look, records: list[CommandRecord], folded: Folded, content: BackupContent | None) -> Look:
    applied = records[: folded.applied]
    return before._replace(
        last=applied[-1] if applied else before.last,
        catalogue=folded.catalogue,
        offset=folded.offset,
        reason=folded.reason,
        mark=None if content is None else content.mark,
        unsaved=tuple(applied),
    )
