"""A view of the metastore: a catalogue, the offset up to which it was read, and its certainty."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from statestore.errors import InputError
from statestore.kafka.topics import Topic
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.command_topic import CommandRecord
from statestore.metastore.commands import Command


class Health(StrEnum):
    """Whether the catalogue is known to be whole."""

    RUNNING = "RUNNING"
    DEGRADED = "DEGRADED"


class Pin(NamedTuple):
    """Names one catalogue for ever, as text `42:<digest>`.

    Attributes
    ----------
    offset
        The command topic's first offset that is not part of it.
    digest
        `Catalogue.digest`.
    """

    offset: int
    digest: str

    def __str__(self) -> str:
        return f"{self.offset}:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Pin:
        """Read `42:<digest>`.

        Raises
        ------
        InputError
            If the text is no pin.
        """
        match = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{64})", text)
        if match is None:
            raise InputError(
                f"{text!r} is not the pin of a catalogue: expected <offset>:<64 hexadecimal digits>, as a report has it"
            )
        return cls(int(match[1]), match[2])


class View(NamedTuple):
    """A catalogue, as it was read.

    Attributes
    ----------
    offset
        Next offset to read: behind the last command that is part of it. Markers of transactions are not counted, so
        that the same catalogue has the same offset whenever it is read.
    reason
        Why it is not known to be whole; empty when RUNNING.
    topic_id
        Id of the command topic; None if there is none.
    """

    catalogue: Catalogue
    offset: int
    health: Health
    reason: str
    topic_id: str | None

    @property
    def pin(self) -> Pin:
        """Name of this catalogue, for a later `pinned`."""
        return Pin(self.offset, self.catalogue.digest())


class Submitted(NamedTuple):
    """Result of a command.

    Attributes
    ----------
    command
        As it was logged; None if there was nothing to log.
    offset
        Its offset in the command topic.
    attempts
        How often it was tried, for other writers may come first.
    view
        The catalogue after it.
    warnings
        What somebody should know of: settings that were repaired, a backup that could not be written.
    """

    command: Command | None
    offset: int | None
    attempts: int
    view: View
    warnings: tuple[str, ...] = ()


class LoggedCommand(NamedTuple):
    """A record of the command topic.

    Attributes
    ----------
    timestamp
        Its record's, in ms.
    command
        None if it cannot be read.
    problem
        Why it is not part of the catalogue; empty if it is.
    """

    offset: int
    timestamp: int
    command: Command | None
    problem: str


class Compacted(NamedTuple):
    """Result of `Metastore.compact`.

    Attributes
    ----------
    offset
        Of the snapshot at which the log starts; None if there was nothing to make one of.
    deleted
        Whether there were commands before it.
    warnings
        As those of a command that was submitted.
    """

    offset: int | None
    deleted: bool
    view: View
    warnings: tuple[str, ...] = ()


class RestorePlan(NamedTuple):
    """Plan of `Metastore.restore_backup`.

    Attributes
    ----------
    saved
        The commands of the backup.
    kept
        Those that only the topic has and that follow on the backup's: they are replayed, too.
    lost
        What else is in the topic and cannot be read as commands, with the offsets.
    """

    saved: tuple[CommandRecord, ...]
    kept: tuple[CommandRecord, ...] = ()
    lost: tuple[str, ...] = ()


class Restored(NamedTuple):
    """Result of `Metastore.restore_backup`.

    Attributes
    ----------
    topic
        The new command topic.
    view
        The catalogue that it gives.
    """

    topic: Topic
    view: View
