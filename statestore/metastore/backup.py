"""The backup of a command topic: a text file with its commands, in which no byte can change unnoticed.

    line 1   {"format":1,"service_id":"default","topic_id":"...","sha256":"..."}
    others   {"offset":4,"timestamp":1700000000000,"key":"application/flights","value":"{...}","sha256":"..."}

A `sha256` is that of the one before it, in hex, and of its own line without it; so lines can be neither altered nor
left out nor moved. Only a cut at the end of a line is not seen here: the topic then has more, and the backup gets it
again.

Lines are appended and synced to disk; a crash in that leaves a torn end, which the next writer cuts off. The file is
replaced as a whole when it is first made, after a compaction and after a restore. Writers hold a lock beside it,
readers need none. In object storage each write replaces it as a whole, without a lock: of two writers, the one that
knows less may be the last, and the next look at the topic adds again what is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, BinaryIO, NamedTuple

from statestore.durable import write_durably
from statestore.errors import BackupError
from statestore.metastore.command_topic import CommandRecord
from statestore.objects.path import Location, ObjectPath
from statestore.statedir.lock import locked_file

_FORMAT = 1
_DIGITS = 64
_SEAL = '{},"sha256":"{}"}}'
_SEAL_LENGTH = len(_SEAL.format("", "")) + _DIGITS


class Mark(NamedTuple):
    """How far a backup has been read.

    Attributes
    ----------
    size, lines
        Bytes and number of its whole lines.
    checksum
        Of the last of them.
    first, last
        Offsets of its first and last record; None if it has none.
    """

    topic_id: str
    size: int
    lines: int
    checksum: str
    first: int | None = None
    last: int | None = None

    def is_behind(self, other: Mark) -> bool:
        """Tell whether the backup ended before it ends at another mark."""
        return other.last is not None and (self.last is None or self.last < other.last)


class BackupContent(NamedTuple):
    """Content of a backup, or its additions since a mark.

    Attributes
    ----------
    torn
        Whether a line without an end follows the last one.
    """

    records: list[CommandRecord]
    mark: Mark
    torn: bool


def default_path(reports_dir: Location, service_id: str) -> Location:
    """Where a service's backup is if nobody has said another place."""
    return reports_dir / "metastore" / f"{service_id}.backup"


class BackupFile:
    """The backup of one service's command topic.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Location, service_id: str) -> None:
        self.path = path
        self._service_id = service_id

    def read(self, after: Mark | None = None) -> BackupContent | None:
        """Read the file, or what follows a mark; None if there is no file.

        Raises
        ------
        BackupError
            If a line was altered; the message has its number.
        """
        if after is not None and not self.continues(after):
            after = None
        records: list[CommandRecord] = []
        mark, torn = after, False
        try:
            with self._opened() as file:
                file.seek(0 if mark is None else mark.size)
                for line in file:
                    if not line.endswith(b"\n"):
                        torn = True
                        break
                    mark = self._take(line, mark, records)
        except FileNotFoundError:
            return None
        if mark is None:
            raise self._bad(1, "it is torn" if torn else "it is missing")
        return BackupContent(records, mark, torn)

    def read_whole(self) -> BackupContent:
        """Read the file for a restore: nothing may be missing.

        Raises
        ------
        BackupError
            If there is no file, or a line is torn or was altered.
        """
        content = self.read()
        if content is None:
            raise BackupError(f"backup {self.path} does not exist, so nothing can be restored from it")
        if content.torn:
            raise self._bad(
                content.mark.lines + 1,
                "it is torn: its end is missing. Its command is lost; to restore those before it, delete the line",
            )
        return content

    def continues(self, mark: Mark) -> bool:
        """Tell whether the file still begins as it was read up to a mark: its checksum stands for all before it."""
        end = _end_of(mark)
        try:
            with self._opened() as file:
                file.seek(mark.size - len(end))
                return file.read(len(end)) == end
        except FileNotFoundError:
            return False

    def update(
        self, topic_id: str, start: int, records: Sequence[CommandRecord], mark: Mark | None, wait_s: float
    ) -> Mark | None:
        """Bring the file up to date with the topic.

        Parameters
        ----------
        start
            First offset of the topic's log: records before it were compacted away.
        records
            All of the log, or those behind what the file had at `mark`.
        mark
            How far the file was read before the topic was; None if there was no file.
        wait_s
            How long to wait for another process that writes it.

        Returns
        -------
        Mark or None
            The end of the file; None if somebody has replaced it meanwhile, by another one or by an older copy.

        Raises
        ------
        LockedError
            If another process writes it for longer.
        """
        if mark is not None and not _missing(records, mark) and not _is_compacted(records, mark, start):
            return mark
        with self.held(wait_s):
            now = self.read(mark)
            if mark is None:
                return self.write(topic_id, records) if now is None else None
            if now is None or now.mark.topic_id != topic_id or now.mark.is_behind(mark):
                return None
            if _is_compacted(records, now.mark, start):
                return self.write(topic_id, records)
            return self._append(_missing(records, now.mark), now.mark)

    def write(self, topic_id: str, records: Sequence[CommandRecord]) -> Mark:
        """Replace the file as a whole. Call it while it is `held`."""
        header = {"format": _FORMAT, "service_id": self._service_id, "topic_id": topic_id}
        line, checksum = _sealed(_json(header), "")
        text, mark = _extended(records, Mark(topic_id, len(line.encode()), 1, checksum))
        if isinstance(self.path, ObjectPath):
            self.path.write_bytes((line + text).encode())
        else:
            write_durably(self.path, line + text)
        return mark

    def _opened(self) -> BinaryIO:
        return BytesIO(self.path.read_bytes()) if isinstance(self.path, ObjectPath) else self.path.open("rb")

    @contextmanager
    def held(self, wait_s: float = 0) -> Iterator[None]:
        """Keep other writers of the file away, unless it is an object; see `update`."""
        if isinstance(self.path, ObjectPath):
            yield
            return
        with locked_file(self.path.with_name(f"{self.path.name}.lock"), wait_s):
            yield

    def _append(self, records: Sequence[CommandRecord], mark: Mark) -> Mark | None:
        text, after = _extended(records, mark)
        if isinstance(self.path, ObjectPath):
            before = self.path.read_bytes()[: mark.size]
            if not before.endswith(_end_of(mark)):  # nobody is kept away: it was replaced since it was read
                return None
            self.path.write_bytes(before + text.encode())
            return after
        with self.path.open("r+b") as file:
            file.truncate(mark.size)  # a torn end
            file.seek(mark.size)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        return after

    def _take(self, line: bytes, mark: Mark | None, records: list[CommandRecord]) -> Mark:
        """Check a line, and add its record."""
        number = 1 if mark is None else mark.lines + 1
        size = len(line) + (0 if mark is None else mark.size)
        try:
            text = line.decode()
            body = text[: -_SEAL_LENGTH - 1] + "}"
            expected, checksum = _sealed(body, "" if mark is None else mark.checksum)
            if text != expected:
                raise ValueError("its checksum is not that of the lines up to it")
            fields = json.loads(body)
            if mark is None:
                return Mark(self._checked_header(fields), size, 1, checksum)
            record = CommandRecord(
                fields["offset"], fields["timestamp"], fields["key"].encode(), fields["value"].encode()
            )
        except ValueError as error:
            raise self._bad(number, f"it was altered: {error}") from error
        records.append(record)
        first = record.offset if mark.first is None else mark.first
        return Mark(mark.topic_id, size, number, checksum, first, record.offset)

    def _checked_header(self, header: dict[str, Any]) -> str:
        if header["format"] != _FORMAT:
            raise self._bad(1, f"it has format {header['format']}, expected {_FORMAT}; upgrade this installation")
        if header["service_id"] != self._service_id:
            raise self._bad(1, f"it belongs to service {header['service_id']!r}, expected {self._service_id!r}")
        topic_id: str = header["topic_id"]
        return topic_id

    def _bad(self, line: int, problem: str) -> BackupError:
        return BackupError(f"backup {self.path}, line {line}: {problem}")


def _end_of(mark: Mark) -> bytes:
    return f'"{mark.checksum}"}}\n'.encode()


def _missing(records: Sequence[CommandRecord], mark: Mark) -> list[CommandRecord]:
    return [record for record in records if mark.last is None or record.offset > mark.last]


def _is_compacted(records: Sequence[CommandRecord], mark: Mark, start: int) -> bool:
    """Tell whether the file begins before the log does, and the records are all that it should have instead."""
    if mark.first is None or mark.last is None or mark.first >= start or not records:
        return False
    return records[0].offset == start and records[-1].offset >= mark.last


def _extended(records: Sequence[CommandRecord], mark: Mark) -> tuple[str, Mark]:
    """Return the lines of records, and the mark behind them."""
    lines, checksum = [], mark.checksum
    for record in records:
        fields = record._asdict() | {"key": (record.key or b"").decode(), "value": (record.value or b"").decode()}
        line, checksum = _sealed(_json(fields), checksum)
        lines.append(line)
    if not records:
        return "", mark
    text = "".join(lines)
    first = records[0].offset if mark.first is None else mark.first
    size = mark.size + len(text.encode())
    return text, Mark(mark.topic_id, size, mark.lines + len(lines), checksum, first, records[-1].offset)


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _sealed(body: str, before: str) -> tuple[str, str]:
    """Return the line of a JSON object, with its end, and its checksum."""
    checksum = hashlib.sha256((before + body).encode()).hexdigest()
    return _SEAL.format(body[:-1], checksum) + "\n", checksum
