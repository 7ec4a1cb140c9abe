"""Records of the command topic, folded into the catalogue up to the first that cannot be understood."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from statestore.errors import InvalidCommandError, NewerCommandError, UnreadableCommandError
from statestore.garbage import garbage_waiting
from statestore.metastore.catalogue import Catalogue, Rebuild
from statestore.metastore.command_topic import CommandRecord
from statestore.metastore.commands import Command, decode, key_of

#: What makes a record no part of the catalogue, and all that come after it.
UNUSABLE = (NewerCommandError, UnreadableCommandError, InvalidCommandError)


class Folded(NamedTuple):
    """A catalogue, and how far the records went into it.

    Attributes
    ----------
    offset
        Next offset to read: behind the last record that was applied.
    applied
        How many records were applied.
    reason
        Why the others were not; empty if all were.
    """

    catalogue: Catalogue
    offset: int
    applied: int
    reason: str


def fold(records: Iterable[CommandRecord], catalogue: Catalogue | None = None, offset: int = 0) -> Folded:
    """Apply records in their order, and stop before the first that is no command of ours.

    Parameters
    ----------
    catalogue, offset
        Where to go on from.
    """
    rebuild = Rebuild(catalogue)
    applied, reason = 0, ""
    with garbage_waiting():  # commands leave none, and looking for it took 20 of 70 us a command
        for record in records:
            try:
                rebuild.apply(command_of(record))
            except UNUSABLE as error:
                reason = f"the record at offset {record.offset} cannot be applied: {error}"
                break
            applied += 1
            offset = record.offset + 1
    return Folded(rebuild.catalogue(), offset, applied, reason)


def command_of(record: CommandRecord) -> Command:
    """Read a record.

    Raises
    ------
    NewerCommandError, UnreadableCommandError
        If it is no command of a version that we know.
    """
    command = decode(record.value)
    if record.key != key_of(command):
        raise UnreadableCommandError(
            f"its key is {record.key!r:.120}; expected {key_of(command)!r:.120}, as its value says"
        )
    return command
