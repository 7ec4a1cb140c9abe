"""Recreates the command topic from its backup. It deletes the existing topic: plan and confirm first.

A command that can be read is never lost on the way. What the topic has and the backup has not is replayed behind the
backup's commands where it follows on them; where it does not, or is of a newer version, nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from statestore import kill_switch
from statestore.errors import (
    BackupError,
    InputError,
    InvalidCommandError,
    LogCorruptedError,
    NewerCommandError,
    RetryError,
    UnreadableCommandError,
)
from statestore.kafka.writer import TransactionalWriter
from statestore.metastore.backup import BackupContent, BackupFile
from statestore.metastore.catalogue import Catalogue, Rebuild
from statestore.metastore.command_log import CommandLog
from statestore.metastore.command_topic import CommandRecord
from statestore.metastore.health import start_of
from statestore.metastore.replay import command_of, fold
from statestore.metastore.view import Restored, RestorePlan

_LOCK_WAIT_S = 10.0
_MOST_SHOWN = 10


def plan_restore(log: CommandLog) -> RestorePlan:
    """Say what a restore would do. Nothing is changed.

    Raises
    ------
    BackupError
        If there is no backup, or it is torn or altered.
    NewerCommandError
        If the topic has a command of a newer version that the backup has not.
    InputError
        If the topic is whole, or has commands that the backup has not and that do not follow on it.
    """
    backup = _required(log)
    _usable(backup)
    if not log.look().reason:
        raise InputError(
            f"topic {log.topic.name} has everything that the backup {backup.path} has: there is nothing to restore"
        )
    return _planned(log, backup)


def restore_backup(log: CommandLog, open_writer: Callable[[], TransactionalWriter], plan: RestorePlan) -> Restored:
    """Delete the topic, make it anew, and replay the commands of a plan into it, in one transaction.

    Killed at any point, it can be run again: the backup has all of them until all is done. Commands get new offsets.

    Raises
    ------
    RetryError
        If topic or backup are no longer what the plan was made of; nothing was changed.
    """
    backup = _required(log)
    with backup.held(_LOCK_WAIT_S), closing(open_writer()) as writer:
        writer.init()  # who writes now is fenced
        if log.topic.describe() is not None:
            log.topic.wait_until_stable(log.topic.ends().high_watermark)
        if _planned(log, backup) != plan:
            raise RetryError(f"{log.topic.name} or its backup has changed since the restore was planned; run again")
        if plan.kept:
            backup.write(backup.read_whole().mark.topic_id, _in_one(plan))
            kill_switch.reached("all commands in the backup, the topic still there")
        topic = log.topic.recreate()
        kill_switch.reached("command topic recreated, empty")
        if records := [*plan.saved, *plan.kept]:
            writer.begin()
            name, partition = log.topic.partition
            for record in records:
                writer.produce(name, record.key, record.value, record.timestamp, partition)
            writer.flush()
            writer.commit()
        ends = log.topic.ends()
        log.topic.wait_until_stable(ends.high_watermark, ends)
        replayed = log.topic.read(ends.start, ends.high_watermark)
        if fold(replayed).catalogue != fold(records).catalogue:
            raise BackupError(
                f"after the restore, {log.topic.name} has {len(replayed)} commands, the backup {len(records)}, and its "
                "catalogue differs: another process writes to it. The backup was not changed; run again"
            )
        kill_switch.reached("commands replayed, the backup still of the old topic")
        backup.write(topic.topic_id, replayed)
    return Restored(topic, log.look().view)


def _required(log: CommandLog) -> BackupFile:
    if log.backup is None:
        raise BackupError("there is no backup of the command topic: set STATESTORE_METASTORE_BACKUP to its file")
    return log.backup


def _usable(backup: BackupFile) -> tuple[BackupContent, Catalogue]:
    content = backup.read_whole()
    folded = fold(content.records)
    if folded.reason:
        raise BackupError(f"backup {backup.path} cannot be restored by this installation: {folded.reason}")
    return content, folded.catalogue


def _planned(log: CommandLog, backup: BackupFile) -> RestorePlan:
    content, catalogue = _usable(backup)
    records, unreadable = _of_topic(log, content)
    saved = {(record.key, record.value) for record in content.records}  # a restore gives them other offsets
    more = [record for record in records if (record.key, record.value) not in saved]
    kept, lost = _sorted_out(more, catalogue, log.topic.name)
    return RestorePlan(tuple(content.records), tuple(kept), (*lost, *unreadable))


def _of_topic(log: CommandLog, content: BackupContent) -> tuple[list[CommandRecord], list[str]]:
    """Read the topic that is to be deleted, at least from where the backup ends; say what cannot be read."""
    topic = log.topic.describe()
    if topic is None:
        return [], []
    ends = log.topic.ends()
    if topic.topic_id != content.mark.topic_id:
        return log.topic.read(ends.start, ends.last_stable), []
    start = start_of(ends, content)
    try:
        return log.topic.read(start, ends.last_stable), []
    except LogCorruptedError:
        start = max(start, content.records[-1].offset + 1 if content.records else 0)
    try:
        return log.topic.read(start, ends.last_stable), []
    except LogCorruptedError as error:
        return [], [f"offsets {start} to {ends.last_stable - 1}: {error}"]


def _sorted_out(
    records: list[CommandRecord], catalogue: Catalogue, topic: str
) -> tuple[list[CommandRecord], list[str]]:
    """Tell the commands that follow on a catalogue from records that are none."""
    rebuild = Rebuild(catalogue)
    kept: list[CommandRecord] = []
    lost: list[str] = []
    strays: list[str] = []
    for record in records:
        try:
            rebuild.apply(command_of(record))
        except NewerCommandError as error:
            raise NewerCommandError(
                f"the record at offset {record.offset} of {topic} would be lost, so nothing was deleted: {error}"
            ) from error
        except UnreadableCommandError as error:
            lost.append(f"offset {record.offset}: {error}")
        except InvalidCommandError as error:
            strays.append(f"offset {record.offset}: {error}")
        else:
            kept.append(record)
    if strays:
        more = "" if len(strays) <= _MOST_SHOWN else f"; and {len(strays) - _MOST_SHOWN} more"
        raise InputError(
            f"topic {topic} has commands that are not in the backup and do not continue it. Nothing was deleted. "
            "Check that this is the topic of the backup. If the commands are not needed, delete the topic and run "
            f"again. {'; '.join(strays[:_MOST_SHOWN])}{more}"
        )
    return kept, lost


def _in_one(plan: RestorePlan) -> list[CommandRecord]:
    """Return all commands of a plan in one log. A topic that was made anew has lower offsets than the backup."""
    records = list(plan.saved)
    for record in plan.kept:
        behind = records[-1].offset + 1 if records else 0
        records.append(record._replace(offset=max(record.offset, behind)))
    return records
