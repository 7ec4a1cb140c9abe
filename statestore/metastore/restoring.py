"""Making the command topic anew from its backup. The topic that is there is deleted: ask before you call it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from statestore import kill_switch
from statestore.changelog.writer import TransactionalWriter
from statestore.errors import BackupError, InputError
from statestore.metastore.backup import BackupFile
from statestore.metastore.command_log import CommandLog
from statestore.metastore.command_topic import Logged
from statestore.metastore.replay import Folded, fold
from statestore.metastore.view import Restored

_LOCK_WAIT_S = 10.0


def restore_backup(log: CommandLog, open_writer: Callable[[], TransactionalWriter]) -> Restored:
    """Delete the topic, make it anew, and replay the backup into it, in one transaction.

    Killed at any point, it can be run again: the backup is the same until all is done. Commands get new offsets.

    Raises
    ------
    BackupError
        If there is no backup, or it is torn or altered; nothing was changed.
    InputError
        If the topic is whole; nothing was changed.
    """
    if log.backup is None:
        raise BackupError("there is no backup of the command topic: set STATESTORE_METASTORE_BACKUP to its file")
    records, folded = _require_usable(log.backup)
    look = log.look()
    if not look.reason:
        raise InputError(
            f"topic {log.topic.name} has all that the backup {log.backup.path} has: there is nothing to restore"
        )
    with log.backup.held(_LOCK_WAIT_S):
        records, folded = _require_usable(log.backup)  # nobody changes it any more
        with closing(open_writer()) as writer:
            writer.init()  # who writes now is fenced
            topic = log.topic.recreate()
            kill_switch.reached("command topic recreated, empty")
            if records:
                writer.begin()
                name, partition = log.topic.partition
                for record in records:
                    writer.produce(name, record.key, record.value, record.timestamp, partition)
                writer.flush()
                writer.commit()
        ends = log.topic.ends()
        log.topic.wait_until_stable(ends.high_watermark, ends)
        replayed = log.topic.read(ends.start, ends.high_watermark)
        if fold(replayed).catalogue != folded.catalogue:
            raise BackupError(
                f"restored, {log.topic.name} has {len(replayed)} commands, the backup {len(records)}, and it gives "
                "another catalogue: somebody else writes to it. The backup is as it was; run again"
            )
        kill_switch.reached("commands replayed, the backup still of the old topic")
        log.backup.write(topic.topic_id, replayed)
    return Restored(topic, len(replayed), log.look().view)


def _require_usable(backup: BackupFile) -> tuple[list[Logged], Folded]:
    records = backup.read_whole().records
    folded = fold(records)
    if folded.reason:
        raise BackupError(f"backup {backup.path} cannot be restored by this installation: {folded.reason}")
    return records, folded
