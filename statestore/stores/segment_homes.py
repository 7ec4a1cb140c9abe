"""The location of the segments of a windowed store: directories of RocksDB, or memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from statestore import kill_switch
from statestore.durable import remove_durably, rename_durably, write_durably
from statestore.errors import StoreCorruptedError, UnknownFormatError, WrongStoreError
from statestore.formats import checkpoint_file
from statestore.formats.database_files import files_with_rows
from statestore.model import TopicPartition
from statestore.stores.commit_log import CommitLog
from statestore.stores.database import (
    Database,
    DatabaseSpec,
    LookedAt,
    Place,
    check_on_disk,
    finish_commits,
    open_in_memory,
    open_on_disk,
)
from statestore.stores.segment_starts import left_over_segments
from statestore.stores.spill import segment_spill_directory


class Kept(NamedTuple):
    """Offsets and position, which without any segment have no other place."""

    offsets: Mapping[TopicPartition, int] = {}
    position: Mapping[TopicPartition, int] = {}


_NOTHING = Kept()


class SegmentHome(Protocol):
    """Where segments are kept.

    Attributes
    ----------
    commits
        Where commits are written before they are applied; None: their rows are not staged, or not on disk.
    """

    commits: CommitLog | None

    def name(self, start: int) -> str:
        """Return the name of a segment in its store."""

    def open_all(self) -> dict[int, Database]:
        """Open the segments that are there; return them by their starts (ms)."""

    def make(self, start: int, kept: Kept) -> Database:
        """Make a segment that begins with these offsets and position, on disk where it lies on disk."""

    def drop(self, start: int) -> None:
        """Remove a closed segment."""

    def load(self) -> Kept:
        """Facts that are kept for a store without segments."""

    def save(self, kept: Kept) -> None:
        """Keep offsets and position while there is no segment."""

    def leave_empty(self, kept: Kept) -> None:
        """Leave a store without segments so that it can be told from a lost one."""


class DiskHome:
    """Segments as directories of RocksDB.

    Parameters
    ----------
    own_directory
        Ours for the store, on the same file system: for segments on their way out, for the secondary databases of large
        transactions, and for offsets while there is no segment. Nothing but segments may lie beside segments.
    commits
        Where the store's commits are written before they are applied.
    interval_ms
        Length of a segment; kept in our directory, since segments of another length would hide rows.
    without_left_over
        As `without_left_over_segments` of the store's context.
    opening
        Called when all segments are found fit to be opened, before the first is.
    """

    def __init__(
        self,
        spec: DatabaseSpec,
        directory: Path,
        own_directory: Path,
        interval_ms: int,
        commits: CommitLog,
        *,
        without_left_over: bool,
        opening: Callable[[], None],
        read_only: bool,
    ) -> None:
        self.commits = commits if spec.transactional and not read_only else None
        self._commits = commits
        self._spec = spec
        self._directory = directory
        self._own = own_directory
        self._interval_ms = interval_ms
        self._without_left_over = without_left_over
        self._opening = opening
        self._read_only = read_only

    def open_all(self) -> dict[int, Database]:
        """Open the segments that are there; return them by their starts (ms)."""
        starts = self._existing()
        # All before the first is opened, which would already change it.
        looked_at = {start: check_on_disk(self._spec, self.name(start), self._directory_of(start)) for start in starts}
        self._check_none_lost(looked_at)
        unborn = self._unborn(looked_at)
        starts = [start for start in starts if start not in unborn]
        known = self._check_interval(starts)
        usable = self._are(self._spec.last_use.is_as_recorded, looked_at)
        if not self._read_only:
            self._opening()
            # Of a store that is gone as a whole, nothing that was recorded holds for what is begun in its place.
            for name in self._moved() if self._directory.exists() else self._spec.last_use.databases:
                self._spec.last_use.dropped(name)
            shutil.rmtree(self._expired(), ignore_errors=True)  # left by a crash
            for start in unborn:
                self.drop(start)
            if known != str(self._interval_ms):
                write_durably(self._own / "interval", str(self._interval_ms))
        opened = self._open({start: looked_at[start] for start in starts})
        if not self._read_only:
            finish_commits(self._commits, {self.name(start): one for start, one in opened.items()}, usable=usable)
        return opened

    def _existing(self) -> list[int]:
        prefix = f"{self._spec.store}."
        starts = []
        for path in self._directory.iterdir() if self._directory.exists() else ():
            text = path.name.removeprefix(prefix)
            if not path.name.startswith(prefix) or not (text.isascii() and text.isdigit()):
                raise UnknownFormatError(
                    f"{path} is not a segment of store {self._spec.store}, expected {prefix}<start in ms>: the "
                    f"directory "
                    "is another store's, or older than Kafka Streams 2.3; it was not changed"
                )
            starts.append(int(text))
        left_over = left_over_segments(starts, self._interval_ms) if self._without_left_over else []
        return sorted(set(starts).difference(left_over))

    def _check_none_lost(self, looked_at: Mapping[int, LookedAt]) -> None:
        """Refuse a store that lacks a segment that we left in it, unless somebody else has had it since.

        Where all is gone, it is the store that is lost.
        """
        last_use = self._spec.last_use
        lost = last_use.databases - {self.name(start) for start in looked_at} - self._moved()
        if lost and self._directory.exists() and self._are(last_use.is_as_recorded, looked_at):
            raise StoreCorruptedError(
                f"store {self._spec.store} has lost {', '.join(str(self._directory / name) for name in sorted(lost))}: "
                "it existed when the store was last open here, and had not expired; restore the store from its "
                "changelog"
            )

    def _unborn(self, looked_at: Mapping[int, LookedAt]) -> set[int]:
        """Segments that we were killed over while we made them: they have no offset, which would cost a rebuild.

        Whoever else made one may have had rows in it, in memory, that the offsets of the other segments speak of.
        """
        unborn = {start for start, found in looked_at.items() if self._is_unborn(start, found)}
        return unborn if self._are(self._spec.last_use.was_ours, looked_at) else set()

    def _are(self, ours: Callable[[str, Path, int], bool], looked_at: Mapping[int, LookedAt]) -> bool:
        """Whether all segments are ours, by one of the judgements of `LastUse`, but for those that were only begun."""
        return all(
            self._is_unborn(start, found) or ours(self.name(start), self._directory_of(start), found.sequence or 0)
            for start, found in looked_at.items()
        )

    def _is_unborn(self, start: int, found: LookedAt) -> bool:
        if found.sequence or files_with_rows(self._directory_of(start)):
            return False
        # RocksDB's own files were there before the segment was recorded: if they are gone, somebody removed them.
        return found.sequence == 0 or self.name(start) not in self._spec.last_use.databases

    def _check_interval(self, starts: list[int]) -> str | None:
        path = self._own / "interval"
        known = path.read_text(encoding="utf-8", errors="backslashreplace") if path.exists() else None  # any damage
        odd = [start for start in starts if start % self._interval_ms]
        # Kafka Streams does not record the length: a different one here predates a change of the retention.
        other = known not in (None, str(self._interval_ms)) and not self._without_left_over
        if starts and (odd or other):
            raise WrongStoreError(
                f"{self._directory} has segments of {known or 'another length'} ms, the retention of store "
                f"{self._spec.store} makes it {self._interval_ms}: the retention was changed; give it the old one, or "
                "restore the store from its changelog"
            )
        return known

    def make(self, start: int, kept: Kept) -> Database:
        """Make a segment that begins with these offsets and position, on disk."""
        return self._open({start: LookedAt()}, kept)[start]

    def _open(self, looked_at: Mapping[int, LookedAt], kept: Kept = _NOTHING) -> dict[int, Database]:
        if not looked_at:
            return {}
        opened = open_on_disk(
            self._spec,
            {
                self.name(start): Place(self._directory_of(start), segment_spill_directory(self._own, start))
                for start in looked_at
            },
            {self.name(start): found for start, found in looked_at.items()},
            kept.offsets,
            kept.position,
            read_only=self._read_only,
        )
        return {start: opened[self.name(start)] for start in looked_at}

    def name(self, start: int) -> str:
        """Return the name of a segment in its store, which is that of its directory."""
        return f"{self._spec.store}.{start}"

    def _directory_of(self, start: int) -> Path:
        return self._directory / self.name(start)

    def drop(self, start: int) -> None:
        """Remove a closed segment: first from its place, at once; a crash while its files go leaves no half of it."""
        gone = self._expired() / str(start)
        rename_durably(self._directory_of(start), gone)
        kill_switch.reached("expired segment moved")
        self._spec.last_use.dropped(self.name(start))
        shutil.rmtree(gone)
        shutil.rmtree(segment_spill_directory(self._own, start), ignore_errors=True)

    def load(self) -> Kept:
        """Facts that are kept for a store without segments; nothing if the store was removed."""
        if not self._directory.exists():
            return Kept()
        try:
            return Kept(self._read("offsets"), self._read("position"))
        except StoreCorruptedError:
            return Kept()  # without offsets the store is rebuilt

    def _read(self, name: str) -> dict[TopicPartition, int]:
        path = self._own / name
        found = checkpoint_file.read(path) if path.exists() else {}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def save(self, kept: Kept) -> None:
        """Keep offsets and position while there is no segment; none: nothing is known."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for name, entries in kept._asdict().items():
            if entries:
                write_durably(self._own / name, checkpoint_file.write(entries))
            else:
                remove_durably(self._own / name)

    def leave_empty(self, kept: Kept) -> None:
        """Leave an empty segment with the offsets.

        Kafka Streams has no other place for them, and takes a store without any offset for a corrupted task.
        """
        if not self._read_only and self._spec.changelogs:
            self.make(0, kept).close(clean=True)

    def _moved(self) -> set[str]:
        """Segments that we were killed over while we removed them."""
        return {self.name(int(path.name)) for path in self._expired().glob("*")}

    def _expired(self) -> Path:
        return self._own / "expired"


class MemoryHome:
    """Segments in memory."""

    def __init__(self, spec: DatabaseSpec) -> None:
        self.commits: CommitLog | None = None
        self._spec = spec

    def name(self, start: int) -> str:
        """Return the name of a segment in its store."""
        return f"{self._spec.store}.{start}"

    def open_all(self) -> dict[int, Database]:
        """None: memory starts empty."""
        return {}

    def make(self, start: int, kept: Kept) -> Database:
        """Make a segment."""
        made = open_in_memory(self._spec)
        made.commit(*kept)
        return made

    def drop(self, start: int) -> None:
        """Nothing is left of a closed one."""

    def load(self) -> Kept:
        """Nothing: in-memory stores do not manage offsets."""
        return Kept()

    def save(self, kept: Kept) -> None:
        """Nothing is kept."""

    def leave_empty(self, kept: Kept) -> None:
        """Nothing to leave."""
