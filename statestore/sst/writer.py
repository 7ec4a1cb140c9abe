"""Rows as SST files (layout.py), written straight from columns.

There is no filter: these files go to the last level, where `optimize_filters_for_hits` has RocksDB write and read none.
Nor is there, unless it is given, an identity of a database that wrote them; RocksDB keys its cache by the database that
has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa

from statestore.compiled.batches import Address, Int64s, address_of
from statestore.errors import of_os_error
from statestore.formats.varint import varint
from statestore.sst.blocks import (
    BLOCK,
    BLOCK_ROWS,
    BLOCKS,
    BUFFER_FULL,
    DELETES,
    FILE_FULL,
    FLUSHED,
    INDEX_FULL,
    INDEX_USED,
    KEY_BYTES,
    MOST_RESTARTS,
    ROOM,
    ROWS,
    STATES,
    USED,
    VALUE_BYTES,
    checksum_of,
    cut,
    fill,
)
from statestore.sst.layout import (
    BULK_LAYOUT,
    CREATOR,
    DELETED_KEYS,
    FOOTER,
    MAGIC,
    PROPERTIES,
    TRAILER_BYTES,
    U32,
    VERSION,
    XXH64,
)

FILE_BYTES = 64 << 20
_BUFFER_BYTES = 1 << 20


class SstFiles:
    """Writes rows, in key order, into SST files that do not overlap.

    Parameters
    ----------
    directory
        Where the files go: `<prefix>000001.sst` and so on.
    timestamped
        Whether a value gets its timestamp in front (8 bytes, big-endian).
    file_bytes
        Size from which on the next file is begun.
    prefix
        How the names of the files begin: where they get other names later, in the directory of their database.
    creator
        Identity of the only database that may have them; None: any may.
    """

    def __init__(
        self,
        directory: Path,
        *,
        timestamped: bool,
        file_bytes: int = FILE_BYTES,
        creator: bytes | None = None,
        prefix: str = "",
    ) -> None:
        self._directory = directory
        self._timestamped = timestamped
        self._file_bytes = file_bytes
        self._prefix = prefix
        self._creator = {} if creator is None else {CREATOR: creator}
        self._file: BinaryIO | None = None
        self._state = np.zeros(STATES, np.int64)
        self._buffer = np.empty(_BUFFER_BYTES, np.uint8)
        self._restarts = np.zeros(MOST_RESTARTS, np.int32)
        self._index = np.empty(_BUFFER_BYTES // 8, np.uint8)
        self._index_restarts = np.empty(1024, np.uint32)
        self._previous: pa.RecordBatch | None = None  # the key before a batch's first is compared where it lies
        self._last = (0, 0)
        self.files: list[Path] = []
        self.bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows with `changelog.reader.SCHEMA`; a null value becomes a delete.

        Raises
        ------
        DiskSpaceError, StoreAccessError
            If a file cannot be written.
        """
        place = address_of(batch)
        row = 0
        try:
            while row < place.rows:
                if self._file is None:
                    self._begin()
                row = self._fill(place, row)
        except OSError as error:
            raise of_os_error(error) from error
        self._previous = batch

    def finish(self) -> list[Path]:
        """End the last file; return all of them in key order. They are not yet forced to the disk."""
        try:
            if self._file is not None:
                self._end()
        except OSError as error:
            raise of_os_error(error) from error
        return self.files

    def close(self) -> None:
        """Let go of a file that was not finished."""
        if self._file is not None:
            self._file.close()

    def _begin(self) -> None:
        path = self._directory / f"{self._prefix}{len(self.files) + 1:06d}.sst"
        self._file = path.open("xb", buffering=0)
        self.files.append(path)
        self._state[:] = 0
        self._last = (0, 0)

    def _fill(self, place: Address, row: int) -> int:
        after, stop, *last = fill(
            place,
            row,
            *self._last,
            self._timestamped,
            self._file_bytes,
            *self._room,
        )
        self._last = int(last[0]), int(last[1])
        if stop == FILE_FULL:
            self._end()
        else:
            self._make_room(stop)
        return int(after)

    @property
    def _room(self) -> tuple[Any, ...]:
        """Where the loops write blocks and the index."""
        buffer, index = self._buffer, self._index
        at, index_at = buffer.ctypes.data, index.ctypes.data
        return at, len(buffer), self._restarts, index_at, len(index), self._index_restarts, self._state

    def _make_room(self, stop: int) -> None:
        room = int(self._state[ROOM])
        if stop == BUFFER_FULL:
            self._flush(room)
        elif stop == INDEX_FULL:
            self._widen_index(room)

    def _flush(self, room: int) -> None:
        """Write the blocks that are whole; what is left of the buffer then has that much room behind it."""
        assert self._file is not None
        block, used = int(self._state[BLOCK]), int(self._state[USED])
        _write(self._file, memoryview(self._buffer)[:block])  # type: ignore[arg-type]
        left = self._buffer[block:used].copy()
        if len(left) + room > len(self._buffer):
            self._buffer = np.empty(2 * (len(left) + room), np.uint8)
        self._buffer[: len(left)] = left
        self._state[[FLUSHED, USED, BLOCK]] += [block, -block, -block]

    def _widen_index(self, room: int) -> None:
        self._index = np.concatenate([self._index, np.empty(len(self._index) + room, np.uint8)])
        self._index_restarts = np.concatenate([self._index_restarts, np.empty_like(self._index_restarts)])

    def _end_block(self) -> None:
        while self._state[BLOCK_ROWS]:
            self._make_room(cut(*self._last, *(0, 0), *self._room))

    def _end(self) -> None:
        assert self._file is not None
        self._end_block()
        self._flush(0)
        state = self._state
        data_bytes = int(state[FLUSHED])
        blocks = int(state[BLOCKS])
        index = (
            self._index[: int(state[INDEX_USED])].tobytes()
            + self._index_restarts[:blocks].astype("<u4").tobytes()
            + U32.pack(blocks)
        )
        properties = _block(_properties(state, data_bytes, len(index) + TRAILER_BYTES, self._creator))
        meta = _block({PROPERTIES: varint(data_bytes) + varint(len(properties))})
        meta_at = data_bytes + len(properties) + TRAILER_BYTES
        index_at = meta_at + len(meta) + TRAILER_BYTES
        handles = varint(meta_at) + varint(len(meta)) + varint(index_at) + varint(len(index))
        footer = FOOTER.pack(XXH64, handles, VERSION, MAGIC)
        _write(self._file, b"".join([*map(_sealed, (properties, meta, index)), footer]))
        self.bytes += self._file.tell()
        self._file.close()
        self._file = None


def _write(file: BinaryIO, data: bytes | memoryview) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _properties(state: Int64s, data_bytes: int, index_bytes: int, more: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """Properties of a file as RocksDB's own SstFileWriter writes them, except for filters and creator."""
    numbers = {
        b"column.family.id": (1 << 31) - 1,  # unknown: any may take the file
        b"data.size": data_bytes,
        b"filter.size": 0,
        b"fixed.key.length": 0,
        b"format.version": VERSION,
        b"index.size": index_bytes,
        b"num.data.blocks": int(state[BLOCKS]),
        b"num.entries": int(state[ROWS]),
        b"num.filter_entries": 0,
        b"raw.key.size": int(state[KEY_BYTES]),
        b"raw.value.size": int(state[VALUE_BYTES]),
        b"tail.start.offset": data_bytes,
    }
    texts = {
        b"block.based.table.prefix.filtering": b"0",
        b"block.based.table.whole.key.filtering": b"1",
        b"external_sst_file.global_seqno": bytes(8),
        b"external_sst_file.version": U32.pack(2),
        b"merge.operator": b"nullptr",
        b"prefix.extractor.name": b"nullptr",
        b"property.collectors": b"[]",
    }
    found = texts | {name: varint(number) for name, number in numbers.items()}
    named = {b"rocksdb." + name: value for name, value in found.items()}
    return dict(sorted({**named, **BULK_LAYOUT, DELETED_KEYS: varint(int(state[DELETES])), **more}.items()))


def _block(entries: Mapping[bytes, bytes]) -> bytes:
    """A block of few entries, with a restart at each."""
    parts, restarts, at = [], [], 0
    for key, value in entries.items():
        parts.append(b"\0" + varint(len(key)) + varint(len(value)) + key + value)
        restarts.append(U32.pack(at))
        at += len(parts[-1])
    return b"".join([*parts, *restarts, U32.pack(len(restarts))])


def _sealed(block: bytes) -> bytes:
    raw = np.frombuffer(block + b"\0", np.uint8)
    return raw.tobytes() + U32.pack(int(checksum_of(raw.ctypes.data, len(block))))
