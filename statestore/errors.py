"""The errors of the library, grouped by what the caller does next.

`Retry` later, `Rebuild` the store, fix the input (`InputError`), or `GiveUp` because another process owns the work.
Messages name what was expected, what was found, and the next step.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self


class StateStoreError(Exception):
    """Base class of all errors that the library raises deliberately."""

    #: Exit code of a job or command that ends with this error.
    exit_code = 1
    #: Offsets, topic ids, and other details that the message leaves out; reports have them.
    evidence = ""

    def with_evidence(self, evidence: str) -> Self:
        """Return the error with details for reports."""
        self.evidence = evidence
        return self

    @property
    def kind(self) -> str:
        """Name of the error in reports."""
        return type(self).__name__


# -- retry: nothing is wrong with the data -----------------------------------------------------------------------


class RetryError(StateStoreError):
    """The same call may succeed later."""

    exit_code = 3


class KafkaUnavailableError(RetryError):
    """Kafka did not answer within the deadline, or refused access. Never a reason to change a store."""


class ArchiveUnavailableError(RetryError):
    """Object storage did not answer within the deadline, or answered with a server error."""


class SchemaRegistryUnavailableError(RetryError):
    """The Schema Registry did not answer within the deadline, or refused access."""


class LockedError(RetryError):
    """Another process holds the lock of the application or of the task."""


class OpenTransactionError(RetryError):
    """A transaction that has not ended hides the end of a changelog from read-committed readers."""


class SupersededError(RetryError):
    """Another store has replaced the copy on this node."""


class CommitOutcomeUnknownError(RetryError):
    """The commit of a Kafka transaction was sent, but not answered.

    The next run's `init_transactions` ends the transaction, and the changelog then shows the outcome. The store was not
    changed.
    """


class EarlierTaskError(RetryError):
    """An earlier task of the application did not finish, so a later task was not started."""


class TransactionTimedOutError(RetryError):
    """A transaction did not end within its timeout, and its producer was fenced; nothing was committed."""


class WorkerLostError(RetryError):
    """A Python worker of Spark died more often than Spark allows; its commits remain valid."""


class MetastoreContendedError(RetryError):
    """Other writers of the command topic came first too many times. Nothing was written."""


# -- rebuild: this store cannot be used as it is ------------------------------------------------------------------


class RebuildError(StateStoreError):
    """The store must be rebuilt from its changelog before it is used again."""

    exit_code = 4


class StoreCorruptedError(RebuildError):
    """RocksDB cannot open the store, or a checksum failed during a read."""


class StoreUncleanError(RebuildError):
    """The store was left open without transactions, or by another program: it may contain uncommitted rows."""


class WrongStoreError(RebuildError):
    """The directory contains another store, or another partition of the store."""


class StoreAheadError(RebuildError):
    """The store's committed offset is at or beyond the end of its changelog."""


class StoreBehindLogStartError(RebuildError):
    """The changelog no longer contains records that the store has not applied."""


class ChangelogReplacedError(RebuildError):
    """The changelog topic was deleted and recreated with the same name."""


# -- fix the input ------------------------------------------------------------------------------------------------


class InputError(StateStoreError):
    """The request cannot succeed until the caller corrects something; a retry does not help."""

    exit_code = 2


class DefinitionError(InputError):
    """A definition file is missing, malformed, or inconsistent."""


class UnknownApplicationError(InputError):
    """No application with that name is defined."""


class UnknownStoreError(InputError):
    """The application has no store with that name, or the store has no such partition."""


class UnknownFormatError(InputError):
    """The store has column families that this version does not know; it was not changed."""


class TopicMismatchError(InputError):
    """A topic is missing, or its partitions do not fit the application."""


class InvalidStateError(InputError):
    """The object's state does not allow the call, for example a commit on a closed store."""


class InputOffsetError(InputError):
    """It is not known where a task continues in its input, or the input no longer has that offset."""


class ProcessingError(InputError):
    """The application's own code failed on a record."""


class DiskSpaceError(InputError):
    """Not enough disk space is free for the request."""


class LogCorruptedError(InputError):
    """A record batch of a log is damaged. Nothing was changed; the stores are not the cause."""


class StoreAccessError(InputError):
    """The operating system refuses access to the state directory. Never treated as damage."""


class ArchiveAccessError(InputError):
    """Object storage refuses access to the archive or to reports. Never treated as a missing snapshot or report."""


class SnapshotError(InputError):
    """A snapshot in the archive is missing, damaged, or does not match its name; it was not used."""


class UnsharedStateError(InputError):
    """The driver and an executor do not share one state directory, or its file system lacks locks or hard links."""


class InvalidCommandError(InputError):
    """A command does not fit the catalogue that it changes, or cannot be read back unchanged."""


class OtherCatalogueError(InputError):
    """The application belongs to another catalogue (service id) of the cluster. Nothing was changed."""


class NewerCommandError(InputError):
    """A command was written by a newer version, and this version does not know its meaning."""


class UnreadableCommandError(InputError):
    """A record in the command topic is not a command."""


class MetastoreDegradedError(InputError):
    """The catalogue may be incomplete: it can be read, but nothing is written or started from it."""


class BackupError(InputError):
    """The backup of the command topic is missing, incomplete, or altered."""


class EvidenceError(InputError):
    """Evidence of restore drills was changed or cut, so nothing is appended to it."""


class MissingExtraError(InputError, ImportError):
    """The request needs an extra of this package that is not installed."""


# -- say what it is ---------------------------------------------------------------------------------------------------


class NotJudgedError(StateStoreError):
    """A store was not judged or restored, because it is not known what it is. The others were."""

    exit_code = 6


# -- give up ------------------------------------------------------------------------------------------------------


class GiveUpError(StateStoreError):
    """Another process owns the work now; a retry would only fence it."""

    exit_code = 5


class FencedError(GiveUpError):
    """A later producer took over this task's `transactional.id`."""


#: What the operating system says when nothing is wrong with a file that it was asked for.
_NOT_OF_A_FILE = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS),
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
        errno.ENOENT,
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.EBUSY),
        *(errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH),
    }
)


def is_damage(error: OSError) -> bool:
    """Return whether an error concerns one file alone, such as a bad sector, and not access, space or the mount."""
    return error.errno not in _NOT_OF_A_FILE


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Add the file to errors of the operating system that do not name it, such as errors of reading."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def unreadable_is_damaged() -> Iterator[None]:
    """Treat a file of a store that the operating system cannot read as damage of the store.

    Raises
    ------
    StoreCorruptedError
        Instead of an error that concerns the file alone. Other errors are not changed.
    """
    try:
        yield
    except OSError as error:
        if not is_damage(error):
            raise
        raise StoreCorruptedError(f"{error}: it cannot be read; check the disk, and restore the store") from error


def of_os_error(error: OSError) -> InputError:
    """Return the library's error for an error of the operating system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskSpaceError(f"no space is left on the device: {error}; free some, then run again")
    return StoreAccessError(f"{error}; check the owner, permissions, and mount of the state directory")
