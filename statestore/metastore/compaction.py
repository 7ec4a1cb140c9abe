"""Compaction of the command topic: a snapshot of the catalogue, then the commands before it are deleted.

A crash in between leaves both, which is as good as either; the next compaction deletes what this one did not.
"""

from __future__ import annotations

from statestore import kill_switch
from statestore.errors import InvalidCommandError, RetryError, StoreBehindLogStartError
from statestore.metastore.command_log import CommandLog
from statestore.metastore.health import SNAPSHOT_KEY, require_running
from statestore.metastore.protocol import CommandWriter
from statestore.metastore.replay import fold
from statestore.metastore.view import Compacted, Submitted, View


def compact(log: CommandLog, writer: CommandWriter) -> Compacted:
    """Make the log start at a snapshot. Nothing happens if it already consists of one.

    Raises
    ------
    MetastoreDegradedError
        If the catalogue is not known to be whole.
    InvalidCommandError
        If the snapshot does not give the same catalogue; nothing was deleted.
    RetryError
        If another process compacts at the same time.
    """
    look = log.look(strict=True)
    require_running(look.view)
    if look.last is None:
        return Compacted(None, False, look.view)
    done = Submitted(None, None, 1, look.view)
    if look.last.key != SNAPSHOT_KEY:
        done = writer.submit(lambda catalogue: catalogue.snapshot())
        kill_switch.reached("snapshot committed, the commands before it still there")
    offset = done.view.offset - 1
    to_delete = log.topic.ends().start != offset
    if to_delete:
        _require_equal(log, offset, done.view)
        log.topic.delete_before(offset)
        log.look()  # the backup begins with the snapshot, too
    return Compacted(offset, to_delete, done.view, done.warnings)


def _require_equal(log: CommandLog, offset: int, view: View) -> None:
    """Read the snapshot back, as those will who have nothing else."""
    try:
        folded = fold(log.topic.read(offset, offset + 1))
    except StoreBehindLogStartError as error:
        raise RetryError(f"another process is compacting {log.topic.name}; run again if it is still long") from error
    if folded.reason or folded.catalogue != view.catalogue:
        raise InvalidCommandError(
            f"the snapshot at offset {offset} of {log.topic.name} does not reproduce the catalogue that was "
            f"compacted ({folded.reason or 'it gives a different one'}); nothing was deleted"
        )
