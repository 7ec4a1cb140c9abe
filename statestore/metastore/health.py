"""When a catalogue is not known to be whole: what the command topic must show, by itself and beside its backup.

Pure: what was found goes in, the reason comes out, empty if there is none. A record that cannot be applied is the other
reason; `replay.py` finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from statestore.errors import MetastoreDegradedError
from statestore.kafka.topics import LogRange, Topic
from statestore.metastore.backup import BackupContent
from statestore.metastore.command_topic import CommandRecord
from statestore.metastore.view import Health, View

#: Key of a snapshot's record.
SNAPSHOT_KEY = b"snapshot"
_RESTORE = "`statestore metastore restore-backup` recreates the topic from the backup"
_NO_BACKUP = "there is no backup to recreate it from: apply the definitions under another service id"


class Found(NamedTuple):
    """Facts about a command topic.

    Attributes
    ----------
    topic, log
        None if there is no topic.
    first
        From where the records were read: `start_of` the log, or behind what is known already.
    records
        All committed ones from there on.
    unreadable
        Why they could not be read; empty if they were.
    """

    name: str
    topic: Topic | None
    log: LogRange | None
    first: int
    records: Sequence[CommandRecord]
    unreadable: str = ""


def start_of(log: LogRange, backup: BackupContent | None) -> int:
    """Return the offset from which the log counts.

    A broker notes where its logs start once a minute. Killed sooner after a compaction, it has again what was deleted;
    the backup knows which snapshot stands for that.
    """
    if backup is None or not backup.records or backup.records[0].key != SNAPSHOT_KEY:
        return log.start
    return max(log.start, backup.records[0].offset)


def damage(found: Found, backup: BackupContent | None, *, unusable: bool = False) -> str:
    """Say what is wrong with the topic.

    Parameters
    ----------
    backup
        What was read of it before the topic was looked at; None if there is none.
    unusable
        Whether there is one all the same, which cannot be used.
    """
    if found.topic is None or found.log is None:
        if backup is not None:
            return (
                f"topic {found.name} is gone, id {backup.mark.topic_id} in the backup; {_RESTORE}. If you "
                "do not need the backup, delete it"
            )
        return f"topic {found.name} is gone" if unusable else ""  # else nobody has applied anything yet
    if backup is not None and backup.mark.topic_id != found.topic.topic_id:
        return (
            f"topic {found.name} was deleted and created again: its id is {found.topic.topic_id}, expected "
            f"{backup.mark.topic_id} as in the backup; {_RESTORE}. To use the new topic, delete the backup"
        )
    wrong = _damage_of_topic(found, found.topic, found.log)
    if not wrong and backup is not None:
        wrong = _difference(found, found.log, backup)
    if not wrong or unusable:
        return wrong
    return f"{wrong}; {_NO_BACKUP if backup is None else _RESTORE}"


def reason_of(of_topic: str, of_backup: str) -> str:
    """Join what is wrong with the topic and with its backup: which is to be kept depends on both."""
    if not of_backup:
        return of_topic
    if not of_topic:
        return f"{of_backup}. If the topic is right, delete the backup: the next command recreates it"
    return f"{of_topic}; and {of_backup}. Put an intact copy of the backup in its place"


def require_running(view: View) -> None:
    """Refuse to go on with a catalogue that is not known to be whole.

    Raises
    ------
    MetastoreDegradedError
        With the reason.
    """
    if view.health is not Health.RUNNING:
        raise MetastoreDegradedError(f"the metastore is DEGRADED: {view.reason}")


def _damage_of_topic(found: Found, topic: Topic, log: LogRange) -> str:
    if topic.partitions != 1:
        return (
            f"topic {found.name} has {topic.partitions} partitions, expected 1: only one partition keeps the order of "
            "commands"
        )
    if found.unreadable:
        return found.unreadable
    if log.start == 0 or found.first > log.start:
        return ""
    if not found.records:
        return f"topic {found.name} was emptied: all records before offset {log.start} were deleted"
    if found.records[0].key != SNAPSHOT_KEY:
        return (
            f"the records of {found.name} before offset {log.start} were deleted, and the first remaining one, at "
            f"offset {found.records[0].offset}, is not a snapshot of their catalogue"
        )
    return ""


def _difference(found: Found, log: LogRange, backup: BackupContent) -> str:
    """Compare the records that both have: the backup has a prefix of the log, apart from what was compacted away."""
    last = backup.mark.last
    if last is None:
        return ""
    if log.last_stable <= last and log.start <= last:
        return f"topic {found.name} was shortened: it ends at offset {log.last_stable}, the backup has offset {last}"
    ours = (record for record in found.records if record.offset <= last)
    theirs = (record for record in backup.records if record.offset >= found.first)
    for here, there in zip_longest(ours, theirs):
        if here is not None and there is not None and here.is_same(there):
            continue
        if there is not None and (here is None or there.offset < here.offset):
            return f"topic {found.name} has no record at offset {there.offset}, which the backup has"
        if here is not None:
            return f"the record of {found.name} at offset {here.offset} is not the one that the backup has"
    return ""
