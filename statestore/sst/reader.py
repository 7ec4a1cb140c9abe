"""Rows of the SST files that the bulk path writes, straight from their bytes and without RocksDB: ten times as fast.

Every block is checked (layout.py). A file that is laid out otherwise, such as one that RocksDB has
written or compacted, is refused, and RocksDB has to read the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.compiled.batches import Bools, Bytes, Int64s
from statestore.compiled.loops import compiled
from statestore.compiled.memory import Int, copy, load_i64, load_u8, load_u32, store_i32
from statestore.sst.blocks import checksum_of
from statestore.sst.layout import (
    BULK_LAYOUT,
    DELETE,
    FOOTER,
    KIND_BYTES,
    MAGIC,
    PROPERTIES,
    PUT,
    TRAILER_BYTES,
    VERSION,
    XXH64,
    OtherLayoutError,
    entries,
    varints,
)

_BLOCKS_A_BATCH, _BLOCKS_OF_KEYS = 64, 512
_BATCH_BYTES = 4 << 20
_NO_DELETES = np.empty(0, np.bool_)


def rows_of(path: Path, schema: pa.Schema, *, blocks: int = _BLOCKS_A_BATCH) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows in key order, as batches with a schema of two binary columns: key and value.

    Parameters
    ----------
    blocks
        As of `rows_in`.

    Raises
    ------
    OtherLayoutError
        Also after the first batches.
    """
    with _opened(path) as file:
        yield from rows_in(file, schema, blocks=blocks)


def rows_in(file: BinaryIO, schema: pa.Schema, *, blocks: int = _BLOCKS_A_BATCH) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an open file as `rows_of` does.

    Parameters
    ----------
    blocks
        Data blocks of a batch at most, each of about 4 KiB.

    Raises
    ------
    OtherLayoutError
        Also after the first batches.
    """
    for part in _parts(file, blocks):
        yield _batch(part, schema)


def keys_of(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield a file's keys in order, as batches with a second column: null where the key is deleted, else empty.

    All is checked as in `rows_of`, values too.

    Raises
    ------
    OtherLayoutError
        Also after the first batches.
    """
    with _opened(path) as file:
        for blocks in _parts(file, _BLOCKS_OF_KEYS):
            yield _keys(blocks)


def key_range(path: Path) -> tuple[bytes, bytes]:
    """Return a file's first key and its last; what is read for that is checked as in `rows_of`.

    Raises
    ------
    OtherLayoutError
        Also if the file has no rows.
    """
    with _opened(path) as file:
        offsets, sizes = _blocks(file)
        if not len(offsets):
            raise OtherLayoutError(f"{path}: no rows")
        first, last = (_keys(_read_blocks(file, offsets[at:], sizes[at:], 1)).column(0) for at in (0, -1))
    return first[0].as_py(), last[-1].as_py()


class _Blocks(NamedTuple):
    """Data blocks that follow each other: their bytes, and where in them each block is."""

    raw: Bytes
    offsets: Int64s
    sizes: Int64s


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise OtherLayoutError(f"{path}: {error}") from error


def _parts(file: BinaryIO, most: int) -> Iterator[_Blocks]:
    offsets, sizes = _blocks(file)
    first = 0
    while first < len(offsets):
        within = int(np.searchsorted(offsets, offsets[first] + _BATCH_BYTES))
        count = max(1, min(most, within - first))
        yield _read_blocks(file, offsets[first:], sizes[first:], count)
        first += count


def _read_blocks(file: BinaryIO, offsets: Int64s, sizes: Int64s, count: int) -> _Blocks:
    """Read so many of the blocks that lie there, at most all."""
    offsets, sizes = offsets[:count], sizes[:count]
    begin, end = int(offsets[0]), int(offsets[-1] + sizes[-1] + TRAILER_BYTES)
    return _Blocks(np.frombuffer(_read(file, begin, end - begin), np.uint8), offsets - begin, sizes)


def _blocks(file: BinaryIO) -> tuple[Int64s, Int64s]:
    """Where the data blocks are: their offsets and sizes."""
    length = file.seek(0, 2)
    if length < FOOTER.size:
        raise OtherLayoutError(f"{length} bytes")
    checksum, handles, version, magic = FOOTER.unpack(_read(file, length - FOOTER.size, FOOTER.size))
    if (checksum, version, magic) != (XXH64, VERSION, MAGIC):
        raise OtherLayoutError(f"checksum {checksum}, version {version}, magic {magic:x}")
    (meta_at, meta_size, index_at, index_size), _ = varints(handles, 0, 4)
    meta = entries(_checked(file, meta_at, meta_size))
    if list(meta) != [PROPERTIES]:
        raise OtherLayoutError(f"meta blocks {sorted(meta)}")
    (at, size), _ = varints(meta[PROPERTIES], 0, 2)
    properties = entries(_checked(file, at, size))
    if other := {name for name, value in BULK_LAYOUT.items() if properties.get(name) != value}:
        raise OtherLayoutError(f"properties {sorted(other)}")
    index = np.frombuffer(_checked(file, index_at, index_size), np.uint8)
    count = int(np.frombuffer(index[-4:].tobytes(), "<u4")[0])
    offsets, sizes = np.empty(count, np.int64), np.empty(count, np.int64)
    if not _read_index(index.ctypes.data, len(index) - 4 - 4 * count, offsets, sizes):
        raise OtherLayoutError("index")
    if count and int((offsets + sizes).max()) + TRAILER_BYTES > length:
        raise OtherLayoutError("a block beyond the file")
    return offsets, sizes


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    if at < 0:
        raise OtherLayoutError(f"byte {at}")
    try:
        file.seek(at)
        found = file.read(size)
    except OSError as error:
        raise OtherLayoutError(f"{size} bytes at {at}: {error}") from error
    if len(found) < size:
        raise OtherLayoutError(f"{len(found)} bytes at {at}, expected {size}")
    return found


def _checked(file: BinaryIO, at: int, size: int) -> bytes:
    raw = np.frombuffer(_read(file, at, size + TRAILER_BYTES), np.uint8)
    if not _is_whole(raw.ctypes.data, size):
        raise OtherLayoutError(f"block at {at}")
    return raw[:size].tobytes()


def _batch(blocks: _Blocks, schema: pa.Schema) -> pa.RecordBatch:
    raw, offsets, sizes = blocks
    rows, deletes, key_bytes, value_bytes = _measure(raw.ctypes.data, offsets, sizes)
    if rows < 0 or deletes:
        raise OtherLayoutError("a data block")
    key_ends, value_ends = np.zeros(rows + 1, np.int32), np.zeros(rows + 1, np.int32)
    keys, values = np.empty(max(key_bytes, 1), np.uint8), np.empty(max(value_bytes, 1), np.uint8)
    _fill(
        raw.ctypes.data,
        offsets,
        sizes,
        True,
        key_ends.ctypes.data,
        keys.ctypes.data,
        value_ends.ctypes.data,
        values.ctypes.data,
        _NO_DELETES,
    )
    columns = [
        pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(found)])
        for ends, found in ((key_ends, keys), (value_ends, values))
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _keys(blocks: _Blocks) -> pa.RecordBatch:
    raw, offsets, sizes = blocks
    rows, deletes, key_bytes, _ = _measure(raw.ctypes.data, offsets, sizes)
    if rows < 0:
        raise OtherLayoutError("a data block")
    key_ends, value_ends = np.zeros(rows + 1, np.int32), np.zeros(rows + 1, np.int32)
    keys, deleted = np.empty(max(key_bytes, 1), np.uint8), np.zeros(rows, np.bool_)
    _fill(raw.ctypes.data, offsets, sizes, False, key_ends.ctypes.data, keys.ctypes.data, 0, 0, deleted)
    valid = pa.py_buffer(np.packbits(~deleted, bitorder="little")) if deletes else None
    columns = [
        pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(key_ends), pa.py_buffer(keys)]),
        pa.Array.from_buffers(pa.binary(), rows, [valid, pa.py_buffer(value_ends), pa.py_buffer(b"")]),
    ]
    return pa.RecordBatch.from_arrays(columns, ["key", "value"])


# -- loops, compiled --------------------------------------------------------------------------------------------------


@compiled
def _is_whole(block: Int, size: Int) -> bool:
    """True if a block has its checksum, and is not compressed."""
    return bool(load_u8(block + size) == 0 and checksum_of(block, size) == np.uint64(load_u32(block + size + 1)))


@compiled
def _varint(at: Int, end: Int) -> tuple[Int, Int]:
    """Read a varint; return it (-1 if it does not end) and where it ends."""
    number = np.int64(0)
    shift = 0
    while at < end and shift < 63:
        byte = np.int64(load_u8(at))
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
    return np.int64(-1), at


@compiled
def _read_index(index: Int, size: Int, offsets: Int64s, sizes: Int64s) -> bool:
    at, end = index, index + size
    for block in range(len(offsets)):
        shared, at = _varint(at, end)
        own, at = _varint(at, end)
        if shared != 0 or own < 0:
            return False
        offset, at = _varint(at + own, end)
        length, at = _varint(at, end)
        if offset < 0 or length < 4:
            return False
        offsets[block], sizes[block] = offset, length
    return bool(at == end)


@compiled
def _entries_end(block: Int, size: Int) -> Int:
    restarts = np.int64(load_u32(block + size - 4))
    return block + size - 4 - 4 * restarts if restarts < size // 4 else np.int64(-1)


@compiled
def _measure(data: Int, offsets: Int64s, sizes: Int64s) -> tuple[Int, Int, Int, Int]:
    """Check blocks; return their rows, the deletes among them, and the bytes of keys and values.

    If they are not laid out so, -1 rows.
    """
    odd = np.int64(-1), np.int64(0), np.int64(0), np.int64(0)
    rows: Int = np.int64(0)
    deletes: Int = np.int64(0)
    key_bytes: Int = np.int64(0)
    value_bytes: Int = np.int64(0)
    for block in range(len(offsets)):
        start = data + offsets[block]
        if not _is_whole(start, sizes[block]):
            return odd
        at, end = start, _entries_end(start, sizes[block])
        before: Int = np.int64(0)
        if end < at:
            return odd
        while at < end:
            shared, at = _varint(at, end)
            own, at = _varint(at, end)
            size, at = _varint(at, end)
            if shared < 0 or shared > before or own < KIND_BYTES or size < 0 or at + own + size > end:
                return odd
            kind = load_i64(at + own - KIND_BYTES)
            if kind == DELETE and size == 0:
                deletes += 1
            elif kind != PUT:
                return odd
            before = shared + own - KIND_BYTES
            key_bytes += before
            value_bytes += size
            rows += 1
            at += own + size
    return rows, deletes, key_bytes, value_bytes


@compiled
def _fill(
    data: Int,
    offsets: Int64s,
    sizes: Int64s,
    with_values: bool,
    key_ends: Int,
    keys: Int,
    value_ends: Int,
    values: Int,
    deleted: Bools,
) -> None:
    """Lay out the rows of checked blocks as columns: keys and values, or keys and which of them are deleted."""
    rows: Int = np.int64(0)
    key_at: Int = np.int64(0)
    value_at: Int = np.int64(0)
    for block in range(len(offsets)):
        at = data + offsets[block]
        end = _entries_end(at, sizes[block])
        before = key_at
        while at < end:
            shared, at = _varint(at, end)
            own, at = _varint(at, end)
            size, at = _varint(at, end)
            copy(keys + key_at, keys + before, shared)
            copy(keys + key_at + shared, at, own - 8)
            before = key_at
            key_at += shared + own - 8
            if with_values:
                copy(values + value_at, at + own, size)
                value_at += size
                store_i32(value_ends + 4 * (rows + 1), np.int32(value_at))
            else:
                deleted[rows] = load_i64(at + own - KIND_BYTES) == DELETE
            at += own + size
            rows += 1
            store_i32(key_ends + 4 * rows, np.int32(key_at))
