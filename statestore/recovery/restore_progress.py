"""The progress of a restore: a file for each store partition, and for each range that is read separately."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Self

from pydantic import BaseModel, ConfigDict

from statestore.objects.path import Location
from statestore.partition.spec import StorePartitionSpec
from statestore.progress.display import Bar, ProgressView
from statestore.progress.files import ProgressFile


class RestoreProgress(BaseModel):
    """How far one store partition, or one range of its log, is.

    Attributes
    ----------
    part
        Which range, as `2/4`; empty: the store partition.
    phase
        `verifying`, `fetching`, `reading`, `building`, `checking` or `ended`.
    start, next, end
        Changelog offsets: the first, the next to read, and where reading ends.
    records
        Records read in this attempt.
    seconds_left
        Of reading; None before anything was read.
    fetched_bytes, snapshot_bytes
        Of a snapshot, while it is fetched: how much is there, and how much there is to be.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    application: str
    store: str
    task: str
    part: str = ""
    phase: str
    start: int = 0
    next: int = 0
    end: int = 0
    records: int = 0
    records_per_s: float = 0.0
    seconds_left: float | None = None
    fetched_bytes: int = 0
    snapshot_bytes: int = 0

    @property
    def label(self) -> str:
        """`<application>/<store>/<task>`, and the range."""
        return progress_label(f"{self.application}/{self.store}/{self.task}", self.part)


#: Reading so few offsets, and building a store of them, takes less time than a look at how far it is.
_BRIEF = 50_000
#: Time between two looks at the free space of a disk that must not fill up.
_LOOKS_EVERY_S = 0.5


def progress_label(store_partition: object, part: str = "") -> str:
    """Name a store partition, or a range of it."""
    return f"{store_partition} {part}".strip()


class RestoreProgressWriter:
    """Writes the progress file of a restore now and then, and at the start of each phase.

    Parameters
    ----------
    directory
        Where the file goes; None: nowhere.
    keep_free
        Called now and then while the disk fills up; raises DiskSpaceError to end the restore.
    """

    def __init__(
        self,
        store: StorePartitionSpec,
        directory: Location | None,
        part: str = "",
        keep_free: Callable[[], None] | None = None,
    ) -> None:
        name = "-".join([store.application, store.store.name, str(store.task), *part.split("/")]).rstrip("-")
        self._file = ProgressFile(directory / f"{name}.json" if directory else None)
        self._last = RestoreProgress(
            application=store.application, store=store.store.name, task=str(store.task), part=part, phase="verifying"
        )
        self._began = time.monotonic()
        self._offsets = 0
        self._fetching = threading.Lock()
        self._brief = False
        self._since = self._began
        self._room = keep_free
        self._looked = self._began
        #: Seconds of each phase that has ended.
        self.phase_seconds: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._file.write(self._last)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.end(self._last.model_copy(update={"phase": "ended"}))

    def end_phase(self) -> None:
        """Add the time since the phase began to its seconds."""
        now, phase = time.monotonic(), self._last.phase
        self.phase_seconds[phase] = round(self.phase_seconds.get(phase, 0.0) + now - self._since, 3)
        self._since = now

    def _look_at_disk(self) -> None:
        if self._room is not None and (now := time.monotonic()) - self._looked >= _LOOKS_EVERY_S:
            self._looked = now
            self._room()

    def phase(self, name: str) -> None:
        """Say what is being done now; of what is brief, now and then."""
        self._change(phase=name)

    def reading(self, start: int, end: int) -> None:
        """Say what is to be read."""
        self._began, self._offsets = time.monotonic(), 0
        self._change(phase="reading", start=start, next=start, end=end)
        self._brief = end - start <= _BRIEF  # what was said stays, if a log keeps its reader waiting after all

    def fetching(self, bytes_: int) -> None:
        """Say that a snapshot of so many bytes is fetched."""
        self._change(phase="fetching", fetched_bytes=0, snapshot_bytes=bytes_)

    def fetched(self, bytes_: int) -> None:
        """Say that so many bytes have come; called from several threads."""
        with self._fetching:
            self._look_at_disk()
            self._last = self._last.model_copy(update={"fetched_bytes": self._last.fetched_bytes + bytes_})
            if self._file.due:
                self._change()

    def resumed(self, offsets: int) -> None:
        """Say that some offsets were read by an earlier attempt: they tell nothing of the rate."""
        self._last = self._last.model_copy(update={"next": self._last.next + offsets})

    def read(self, offsets: int, records: int) -> None:
        """Say that some offsets with so many records were read; most calls cost a look at the clock."""
        self._look_at_disk()
        self._offsets += offsets
        last = self._last
        self._last = last.model_copy(update={"next": last.next + offsets, "records": last.records + records})
        if self._file.due:
            seconds = max(time.monotonic() - self._began, 1e-6)
            left = (self._last.end - self._last.next) * seconds / self._offsets if self._offsets else None
            self._change(records_per_s=round(self._last.records / seconds, 1), seconds_left=left and round(left, 1))

    def _change(self, **changes: object) -> None:
        if "phase" in changes:
            self.end_phase()
        self._last = self._last.model_copy(update=changes)
        if not self._brief or self._file.due:
            self._file.write(self._last)


def _bar(found: RestoreProgress) -> Bar:
    if found.phase == "fetching":
        return Bar(f"{found.label} fetching, MiB", found.fetched_bytes >> 20, -(-found.snapshot_bytes >> 20) or None)
    rate = f", {found.records_per_s:,.0f} records/s" if found.phase == "reading" and found.records_per_s else ""
    total = found.end - found.start
    return Bar(f"{found.label} {found.phase}{rate}", found.next - found.start, total or None)


def _line(parts: Collection[RestoreProgress], expected: int) -> str:
    ended = sum(found.phase == "ended" for found in parts)
    records = sum(found.records for found in parts)
    to_fetch = sum(found.snapshot_bytes - found.fetched_bytes for found in parts if found.phase == "fetching")
    left = [found.seconds_left for found in parts if found.phase == "reading" and found.seconds_left is not None]
    return (
        f"restore: {ended} of {expected} ended, {records} records read, "
        f"{sum(found.end - found.next for found in parts if found.phase == 'reading')} offsets left to read"
        + (f", {max(left):.0f} s to go" if left else "")
        + (f", {to_fetch >> 20} MiB left to fetch" if to_fetch else "")
    )


#: A bar for each store partition, or each range.
RESTORES = ProgressView(RestoreProgress, lambda found: found.label, _bar, _line)
