"""The common part of the built-in stores of bytes, with one database or with segments."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from statestore.errors import InvalidStateError
from statestore.formats.value_format import AnyFormat, value_format
from statestore.model import TopicPartition, check_name
from statestore.stores.api import BytesStore, Offsets, StoreContext, flush_is_deprecated
from statestore.stores.commit_log import CommitLog
from statestore.stores.database import Database, DatabaseSpec
from statestore.stores.last_use import LastUse, commits_directory, last_use_file
from statestore.stores.legacy_position import migrate_position
from statestore.stores.segments import Segments
from statestore.stores.spill import remove_left_spills

T = TypeVar("T", Database, Segments)


class BuiltInBytes(BytesStore, Generic[T]):
    """A store in one format, on disk or in memory, transactional or not."""

    def __init__(self, name: str, store_format: AnyFormat, *, persistent: bool, transactional: bool) -> None:
        self.name = check_name(name)
        self.layout = value_format(store_format)
        self.format = self.layout.name
        self.persistent = self.manages_offsets = persistent
        self.transactional = transactional
        self._opened: T | None = None
        self._changelogs: frozenset[TopicPartition] | None = None
        #: Offsets of the commits since the store was opened, for `recover`: in memory, nothing else has them.
        self._reached: dict[TopicPartition, int] = {}

    def _open(self, context: StoreContext, spec: DatabaseSpec) -> T:
        """Open what is inside."""
        raise NotImplementedError

    def committed(self) -> Any:
        """Where to read without what is not committed; reading migrates nothing.

        Raises
        ------
        InvalidStateError
            If the kind of store has no such place.
        """
        raise InvalidStateError(f"store {self.name} is of a kind whose committed rows cannot be told apart")

    @property
    def is_open(self) -> bool:
        """True between `init` and `close`."""
        return self._opened is not None and not self._opened.closed

    def init(self, context: StoreContext) -> None:
        """Open the store.

        Raises
        ------
        RebuildError
            If it cannot be used as it is, also if one of its segments cannot; nothing in its directory was changed.
        UnknownFormatError
            If something lies there that is not of this store's format, or no segment of it; it is left alone.
        """
        changelogs = context.changelog_of(self.name)
        self._changelogs = None if changelogs is None else frozenset(changelogs)
        self._reached = {}
        spec = DatabaseSpec(
            store=self.name,
            format=self.layout,
            transactional=self.transactional,
            exactly_once=context.exactly_once,
            last_use=LastUse(
                last_use_file(context.own_directory, self.name),
                recording=self.transactional,
                at_least_once=not context.exactly_once,
            ),
            changelogs=self._changelogs,
            uncommitted_max_bytes=context.uncommitted_max_bytes,
            config_setter=context.config_setter,
            logged=context.logged,
        )
        if not context.read_only:
            remove_left_spills(context.own_directory, self.name)
            if not self.persistent:
                CommitLog(commits_directory(context.own_directory, self.name)).clear()
        opened = self._opened = self._open(context, spec)
        if self.persistent and not context.read_only:
            try:
                migrate_position(context.task_directory, self.name, opened.databases)
            except BaseException:
                opened.close(clean=False)
                raise

    @property
    def opened(self) -> T:
        """The database or segments of the open store.

        Raises
        ------
        InvalidStateError
            If the store is closed, or was never opened.
        """
        if self._opened is None or self._opened.closed:
            raise InvalidStateError(f"store {self.name} is closed; call init to open it")
        return self._opened

    def database_at(self, segment: int, size: int) -> Database | None:
        """Return the database for rows of a segment (its start in ms) and their size in bytes; None if it has expired.

        It is made if it is not there. What has no segments has one database for all rows.
        """
        raise NotImplementedError

    @property
    def staged_bytes(self) -> int:
        """Memory held by uncommitted rows."""
        return self.opened.staged_bytes

    @property
    def upgrade_pending(self) -> bool:
        """True if rows in an older format were found when the store was opened."""
        return any(database.upgrade_pending for database in self.opened.databases)

    def commit(self, offsets: Offsets, position: Offsets | None = None) -> None:
        """Commit everything written, with its changelog offsets: as a whole, also if it takes several writes."""
        self.opened.commit(offsets, position)
        self._reached.update(offsets)

    @property
    def has_changes(self) -> bool:
        """True if anything was written since the last commit."""
        return any(database.has_changes for database in self.opened.databases)

    def prepare(self, number: int, offsets: Offsets, position: Offsets | None = None) -> None:
        """Write what the next `commit` commits to a file, durably, for a store without a changelog.

        The next `commit` must have the same offsets and position, and nothing is written in between.

        Parameters
        ----------
        number
            Number of the commit, which no other commit of the store has.
        """
        self.opened.prepare(number, offsets, position)

    def decide(self, committed: int | None) -> None:
        """Complete the commit that was prepared before a crash if it has this number, and discard it otherwise.

        Parameters
        ----------
        committed
            Number of the last commit that Kafka has committed; None: none.
        """
        self.opened.decide(committed)

    def recover(self, changelog_offset: int | None) -> bool:
        """Discard uncommitted writes; return whether the committed rows are at a changelog offset or above it.

        False without transactions, and after a commit that failed half way. The changelog's tail does the rest.
        """
        if self.opened.half_committed:
            return False
        self.rollback()
        return self.transactional and (changelog_offset is None or self._least_offset() >= changelog_offset)

    def _least_offset(self) -> int:
        """Return the smallest committed offset of the store's changelog partitions; -1 if one has none."""
        known = self.committed_offset if self.persistent else self._reached.get
        partitions = self._changelogs
        if partitions is None:
            partitions = frozenset(one for found in self.opened.databases for one in found.offset_partitions())
        return min((-1 if (offset := known(one)) is None else offset for one in partitions), default=-1)

    def rollback(self) -> None:
        """Discard what was written since the last commit, and the stream time that it brought.

        Raises
        ------
        InvalidStateError
            If a commit failed half way.
        """
        opened = self.opened
        if opened.half_committed:
            raise InvalidStateError(
                f"store {self.name} has half of a commit, which cannot be rolled back; commit again, or close the "
                "store, open it, and replay its changelog from the committed offset"
            )
        if self.transactional:
            opened.rollback()

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Offset last committed for a changelog partition: the smallest that every database has."""
        return self.opened.committed_offset(topic_partition)

    def clear_offsets(self) -> None:
        """Forget committed offsets and position; the status stays."""
        self._reached = {}
        self.opened.clear_offsets()

    def flush(self) -> None:
        """Deprecated: does nothing."""
        flush_is_deprecated(self.name)

    def sync(self) -> None:
        """Wait until all that was committed is on disk."""
        self.opened.sync()

    def position(self) -> dict[TopicPartition, int]:
        """Input offsets committed."""
        return self.opened.position()

    def close(self, *, clean: bool = True) -> None:
        """Close the store; iterators that are still open end with an error."""
        if self._opened is not None and not self._opened.closed:
            self._opened.close(clean=clean)
