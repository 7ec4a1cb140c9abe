"""When a catalogue is not known to be whole: what the command topic must show, by itself and beside its backup.

Pure: what was found goes in, the reason comes out, empty if there is none. A record that cannot be applied is the other
reason; `replay.py` finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from statestore.changelog.topics import LogRange, Topic
from statestore.errors import MetastoreDegradedError
from statestore.metastore.backup import Content
from statestore.metastore.command_topic import Logged
from statestore.metastore.view import Health, View

#: Key of a snapshot's record.
SNAPSHOT_KEY = b"snapshot"
_RESTORE = "`statestore metastore restore-backup` makes the topic anew from the backup"


class Found(NamedTuple):
    """What was found of a command topic.

    Attributes
    ----------
    topic, log
        None if there is no topic.
    first
        From where the records were read: the start of the log, or behind what is known already.
    records
        All committed ones from there on.
    """

    name: str
    topic: Topic | None
    log: LogRange | None
    first: int
    records: Sequence[Logged]


def damage(found: Found, backup: Content | None) -> str:
    """Say what is wrong with the topic.

    Parameters
    ----------
    backup
        What was read of it before the topic was looked at; None if there is none.
    """
    if found.topic is None or found.log is None:
        return _gone(found, backup)
    if found.topic.partitions != 1:
        return (
            f"topic {found.name} has {found.topic.partitions} partitions, expected 1: the order of commands is that of "
            f"one log; {_RESTORE}"
        )
    if backup is not None and backup.mark.topic_id != found.topic.topic_id:
        return (
            f"topic {found.name} was deleted and created again: its id is {found.topic.topic_id}, expected "
            f"{backup.mark.topic_id} as in the backup; {_RESTORE}, or delete the backup if the new topic is to be used"
        )
    ours = _damage_of_log(found, found.log)
    if backup is None:
        return f"{ours}; there is no backup: what those commands said is lost" if ours else ""
    difference = ours or _difference(found, found.log, backup)
    return f"{difference}; {_RESTORE}" if difference else ""


def require_running(view: View) -> None:
    """Refuse to go on with a catalogue that is not known to be whole.

    Raises
    ------
    MetastoreDegradedError
        With the reason.
    """
    if view.health is not Health.RUNNING:
        raise MetastoreDegradedError(f"the metastore is DEGRADED: {view.reason}")


def _gone(found: Found, backup: Content | None) -> str:
    if backup is None:
        return ""  # nobody has applied anything yet
    return (
        f"topic {found.name} is gone, id {backup.mark.topic_id} in the backup; {_RESTORE}, or delete the backup if "
        "nothing of it is needed"
    )


def _damage_of_log(found: Found, log: LogRange) -> str:
    if log.start == 0 or found.first > log.start:
        return ""
    if not found.records:
        return f"topic {found.name} was emptied: all records before offset {log.start} were deleted"
    if found.records[0].key != SNAPSHOT_KEY:
        return (
            f"the records of {found.name} before offset {log.start} were deleted, and the first one left, at offset "
            f"{found.records[0].offset}, is no snapshot of what they made"
        )
    return ""


def _difference(found: Found, log: LogRange, backup: Content) -> str:
    """Compare the records that both have: the backup has a prefix of the log, apart from what was compacted away."""
    last = backup.mark.last
    if last is None:
        return ""
    if log.last_stable <= last and log.start <= last:
        return f"topic {found.name} was shortened: it ends at offset {log.last_stable}, the backup knows offset {last}"
    ours = (record for record in found.records if record.offset <= last)
    theirs = (record for record in backup.records if record.offset >= found.first)
    for here, there in zip_longest(ours, theirs):
        if here == there:
            continue
        if there is not None and (here is None or there.offset < here.offset):
            return f"topic {found.name} has no record at offset {there.offset}, which the backup has"
        if here is not None:
            return f"the record of {found.name} at offset {here.offset} is not the one that the backup has"
    return ""
