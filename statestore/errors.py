"""The errors of the library, in one small tree by what the caller does next.

`Retry` later, `Rebuild` the store, `FixInput` before trying again, or `GiveUp` because somebody else owns the work.
Messages name what was expected, what was found, and the next step.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StateStoreError(Exception):
    """Root of every error that the library raises on purpose."""

    #: Exit code of a job or command that ends with this error.
    exit_code = 1

    @property
    def kind(self) -> str:
        """Name of the error in reports."""
        return type(self).__name__


# -- retry: nothing is wrong with the data -----------------------------------------------------------------------


class RetryError(StateStoreError):
    """The same call may succeed later; nothing was changed."""

    exit_code = 3


class KafkaUnavailableError(RetryError):
    """Kafka did not answer, or refused us, within the deadline. Never a reason to touch a store."""


class ArchiveUnavailableError(RetryError):
    """Object storage did not answer, or answered with an error of its own, within the deadline."""


class LockedError(RetryError):
    """Another process holds the lock of the application or of the task."""


class OpenTransactionError(RetryError):
    """A transaction that has not ended hides the end of a changelog from read-committed readers."""


class SupersededError(RetryError):
    """Another store has taken the place of the one that lies on this node."""


class CommitOutcomeUnknownError(RetryError):
    """A Kafka transaction was sent for commit and no answer came.

    The next run's `init_transactions` settles it and the changelog tells the outcome; the store was not touched.
    """


class EarlierTaskError(RetryError):
    """An earlier task of the application did not reach its end, so a later one was not begun."""


class TransactionTimedOutError(RetryError):
    """A transaction was not ended within its timeout, and its producer is fenced; nothing of it was committed."""


class WorkerLostError(RetryError):
    """A Python worker of Spark died at a piece of work more often than Spark allows; what it committed stays."""


class MetastoreContendedError(RetryError):
    """Other writers of the command topic came first more often than the bound allows. Nothing was written."""


# -- rebuild: this store cannot be used as it is ------------------------------------------------------------------


class RebuildError(StateStoreError):
    """The store must be rebuilt from its changelog before it is used again."""

    exit_code = 4


class StoreCorruptedError(RebuildError):
    """RocksDB cannot open the store, or a checksum failed on reading."""


class StoreUncleanError(RebuildError):
    """Without transactions, or by another program, the store was left open: it may hold rows never committed."""


class WrongStoreError(RebuildError):
    """The directory holds another store, or another partition of it."""


class StoreAheadError(RebuildError):
    """The store's committed offset is at or beyond the end of its changelog."""


class StoreBehindLogStartError(RebuildError):
    """Changelog records that the store has not seen are no longer in the log."""


class ChangelogReplacedError(RebuildError):
    """The changelog topic was deleted and created again under the same name."""


# -- fix the input ------------------------------------------------------------------------------------------------


class InputError(StateStoreError):
    """What was asked for cannot be done; nothing was changed."""

    exit_code = 2


class DefinitionError(InputError):
    """A definition file is missing, malformed or contradicts itself."""


class UnknownApplicationError(InputError):
    """No application of that name is defined."""


class UnknownStoreError(InputError):
    """The application has no store, or the store no partition, of that name."""


class UnknownFormatError(InputError):
    """The store has column families that this version does not know; it is left alone."""


class TopicMismatchError(InputError):
    """A topic is missing, or its partitions do not fit the application."""


class InvalidStateError(InputError):
    """A call that the object's state does not allow, for example a commit on a closed store."""


class InputOffsetError(InputError):
    """The consumer group's input offset is missing, or the input no longer has it, while the store has state."""


class ProcessingError(InputError):
    """The application's own code failed on a record."""


class DiskSpaceError(InputError):
    """Too little disk is free for what was asked."""


class LogCorruptedError(InputError):
    """A record batch of a log is damaged. Nothing was changed; no store is at fault."""


class StoreAccessError(InputError):
    """The operating system refuses access to the state directory. Never taken for damage."""


class ArchiveAccessError(InputError):
    """Object storage refuses access to the archive or to reports. Never taken for a missing snapshot or report."""


class SnapshotError(InputError):
    """A snapshot of the archive is missing, damaged, or another one than its name says; it was not used."""


class UnsharedStateError(InputError):
    """The driver and an executor do not see one state directory, or its file system lacks locks or hard links."""


class InvalidCommandError(InputError):
    """A command does not fit the catalogue that it is to change, or does not read back as what it is."""


class NewerCommandError(InputError):
    """A command was written by a newer version; this one must not guess what it means."""


class UnreadableCommandError(InputError):
    """A record of the command topic is no command."""


class MetastoreDegradedError(InputError):
    """The catalogue is not known to be whole: it is read, but nothing is written or built on it."""


class BackupError(InputError):
    """The backup of the command topic is missing, torn or altered."""


class MissingExtraError(InputError, ImportError):
    """What was asked for needs an extra of this package that is not installed."""


# -- give up ------------------------------------------------------------------------------------------------------


class GiveUpError(StateStoreError):
    """Somebody else owns the work now; retrying would only fence them."""

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
    """Tell whether an error is of one file alone, such as a bad sector: not of rights, space, limits or the mount."""
    return error.errno not in _NOT_OF_A_FILE


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Have errors of the operating system name the file, as those of opening do and those of reading do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def unreadable_is_damaged() -> Iterator[None]:
    """Take a file of a store that the operating system cannot read for damage of that store.

    Raises
    ------
    StoreCorruptedError
        In the place of errors that are of the file alone; others are passed on.
    """
    try:
        yield
    except OSError as error:
        if not is_damage(error):
            raise
        raise StoreCorruptedError(f"{error}: it cannot be read; check the disk, and restore the store") from error


def of_os_error(error: OSError) -> StateStoreError:
    """Say in the library's terms what the operating system refused."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskSpaceError(f"no space is left on the device: {error}; free some, then run again")
    return StoreAccessError(f"{error}; check owner, permissions and the mount of the state directory")
