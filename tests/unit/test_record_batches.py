"""Record batches: what kafka-python encodes is decoded; what is damaged is an error, never a record or a crash."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from typing import NamedTuple

import cramjam
import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from numba.core import caching

from statestore.compiled.loops import compiled
from statestore.errors import LogCorruptedError
from statestore.kafka.compression import GZIP, LZ4, SNAPPY, ZSTD, Bytes
from statestore.kafka.record_batch import SLACK, AbortedTransaction, OldFormatError, delivered, first_record, split
from statestore.kafka.record_columns import SCHEMA, decode
from statestore.model import TopicPartition

PARTITION = TopicPartition("log", 3)
_HEAD = 61
_CRC_AT, _CRC_END, _ATTRIBUTES_AT = 17, 21, 21
_COMMITTED, _ABORTED = b"\0\0\0\1", b"\0\0\0\0"

Header = tuple[str, bytes | None]


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int
    offset: int


def encoded(
    rows: Iterable[Row], headers: Iterable[Header] = (), *, base: int = 0, producer: int | None = None
) -> bytes:
    """Encode a batch; offsets of rows count from its base offset."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=producer is not None,
        producer_id=-1 if producer is None else producer,
        producer_epoch=0,
        base_sequence=0,
        batch_size=10**9,
    )
    for row in rows:
        builder.append(row.offset, row.timestamp, row.key, row.value, list(headers))
    built = bytearray(builder.build())
    struct.pack_into(">q", built, 0, base)
    return bytes(built)


def changed(batch: bytes, at: int, new: bytes) -> bytes:
    """Write over a batch's bytes, and make its checksum right again."""
    built = bytearray(batch)
    built[at : at + len(new)] = new
    struct.pack_into(">I", built, _CRC_AT, google_crc32c.value(bytes(built[_CRC_END:])))
    return bytes(built)


def compressed(batch: bytes, codec: int, body: bytes) -> bytes:
    built = bytearray(batch[:_HEAD] + body)
    struct.pack_into(">i", built, 8, len(built) - 12)
    return changed(bytes(built), _ATTRIBUTES_AT, struct.pack(">h", codec))


def marker(producer: int, key: bytes, base: int) -> bytes:
    batch = encoded([Row(key, b"\0" * 6, 1, 0)], base=base, producer=producer)
    return changed(batch, _ATTRIBUTES_AT, struct.pack(">h", 0x30))


def fetched(*batches: bytes) -> Bytes:
    """Lay batches out as an answer does: with slack behind it."""
    data = b"".join(batches)
    return np.frombuffer(bytearray(data + bytes(SLACK)), np.uint8)[: len(data)]


def read(
    *batches: bytes, start: int = 0, end: int = 2**62, aborted: Iterable[AbortedTransaction] = ()
) -> list[pa.RecordBatch]:
    data = fetched(*batches)
    wanted = delivered(split(data, PARTITION), list(aborted))
    return [found.columns for found in decode(wanted, data, start, end, PARTITION)]


def rows(found: list[pa.RecordBatch]) -> list[Row]:
    for batch in found:
        assert batch.schema == SCHEMA
        batch.validate(full=True)
    return [Row(*row) for batch in found for row in zip(*batch.to_pydict().values(), strict=True)]


_BYTES = st.none() | st.binary(max_size=300)
_DRAWN = st.lists(st.tuples(_BYTES, _BYTES, st.integers(0, 2**42), st.integers(1, 50)), min_size=1, max_size=40)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=3)


def _rows_of(drawn: list[tuple[bytes | None, bytes | None, int, int]]) -> list[Row]:
    offset = -1
    result = []
    for key, value, timestamp, step in drawn:  # with compaction holes
        offset += step
        result.append(Row(key, value, timestamp, offset))
    return result


@given(_DRAWN, _HEADERS, st.integers(0, 2**50), st.data())
def test_what_another_library_encodes_is_decoded(
    drawn: list[tuple[bytes | None, bytes | None, int, int]], headers: list[Header], base: int, data: st.DataObject
) -> None:
    expected = [row._replace(offset=base + row.offset) for row in _rows_of(drawn)]
    batch = encoded(_rows_of(drawn), headers, base=base)
    assert rows(read(batch)) == expected
    start, end = (data.draw(st.integers(base - 1, expected[-1].offset + 2)) for _ in range(2))
    assert rows(read(batch, start=start, end=end)) == [row for row in expected if start <= row.offset < end]


@given(_DRAWN, st.data())
def test_first_record_is_the_first_that_is_decoded(
    drawn: list[tuple[bytes | None, bytes | None, int, int]], data: st.DataObject
) -> None:
    (batch,) = split(fetched(encoded(_rows_of(drawn), base=1_000)), PARTITION)
    offsets = [1_000 + row.offset for row in _rows_of(drawn)]
    least = data.draw(st.integers(999, offsets[-1] + 2))
    assert first_record(batch, least, PARTITION) == min((at for at in offsets if at >= least), default=None)


ROWS = [Row(b"key %d" % at, b"value" * at, 1_000_000 + at, at) for at in range(20)]
BATCH = encoded(ROWS)
_BODY = BATCH[_HEAD:]


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        (GZIP, bytes(cramjam.gzip.compress(_BODY))),
        (SNAPPY, bytes(cramjam.snappy.compress_raw(_BODY))),
        (LZ4, bytes(cramjam.lz4.compress(_BODY))),
        (ZSTD, bytes(cramjam.zstd.compress(_BODY))),
    ],
)
def test_compressed_batches_are_decoded_between_plain_ones(codec: int, body: bytes) -> None:
    small = compressed(BATCH, codec, body)
    batches = [bytearray(batch) for batch in (BATCH, small, small, BATCH)]
    for number, batch in enumerate(batches):
        struct.pack_into(">q", batch, 0, 20 * number)
    expected = [row._replace(offset=20 * number + row.offset) for number in range(4) for row in ROWS]
    assert rows(read(*map(bytes, batches))) == expected
    for length in range(len(body)):
        with pytest.raises(LogCorruptedError, match="log-3: the record batch at offset 0"):
            read(compressed(BATCH, codec, body[:length]))


def test_snappy_in_javas_frames_is_decoded() -> None:
    body = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for at in range(0, len(_BODY), 100):
        block = bytes(cramjam.snappy.compress_raw(_BODY[at : at + 100]))
        body += struct.pack(">i", len(block)) + block
    assert rows(read(compressed(BATCH, SNAPPY, body))) == ROWS
    with pytest.raises(LogCorruptedError):
        read(compressed(BATCH, SNAPPY, body[:-1]))


def test_unknown_codec_is_an_error_that_names_those_that_are_known() -> None:
    with pytest.raises(LogCorruptedError, match="codec 5 is unknown; expected none, gzip, snappy, lz4, zstd"):
        read(compressed(BATCH, 5, _BODY))


def test_every_flipped_bit_that_a_checksum_or_length_covers_is_found() -> None:
    # Base offset and leader epoch are covered by nothing: Kafka's brokers fill them in after the producer.
    for at in (*range(8, 12), *range(16, len(BATCH))):
        for bit in range(8):
            flipped = bytearray(BATCH)
            flipped[at] ^= 1 << bit
            with pytest.raises((LogCorruptedError, OldFormatError)):
                read(bytes(flipped))


def test_damage_is_named_with_partition_and_offset() -> None:
    second = bytearray(encoded(ROWS, base=100))
    second[-1] ^= 1
    with pytest.raises(LogCorruptedError, match=r"log-3: .*at offset 100 is damaged: .*CRC-32C .*expected"):
        read(BATCH, bytes(second))


def test_batch_that_is_cut_off_at_the_end_is_left_out() -> None:
    second = encoded(ROWS, base=20)
    for length in range(len(second)):
        assert rows(read(BATCH, second[:length])) == ROWS


def test_first_batch_that_is_cut_off_is_damage() -> None:
    for length in range(1, len(BATCH)):
        with pytest.raises(LogCorruptedError):
            read(BATCH[:length])


def test_offsets_that_go_back_are_damage() -> None:
    with pytest.raises(LogCorruptedError, match="expected offset 20 or later"):
        read(BATCH, encoded(ROWS, base=19))


def test_old_formats_are_told_apart() -> None:
    for magic in (0, 1):
        message = struct.pack(">qiIbb", 5, 20, 0, magic, 0) + bytes(20)
        with pytest.raises(OldFormatError, match="log-3 at offset 5"):
            read(message)


def test_batch_that_compaction_emptied_has_no_records() -> None:
    emptied = changed(BATCH[:_HEAD], 57, struct.pack(">i", 0))
    emptied = emptied[:8] + struct.pack(">i", _HEAD - 12) + emptied[12:]
    assert rows(read(emptied, encoded(ROWS, base=20))) == [row._replace(offset=20 + row.offset) for row in ROWS]


def test_records_that_contradict_their_batch_are_damage_and_never_crash() -> None:
    chosen = random.Random(7)
    refused = 0
    for _ in range(3_000):
        at = chosen.randrange(_HEAD, len(BATCH))
        new = chosen.randbytes(chosen.randrange(1, 12))[: len(BATCH) - at]
        try:
            rows(read(changed(BATCH, at, new)))  # validated by pyarrow
        except LogCorruptedError:
            refused += 1
    assert refused > 300
    with pytest.raises(LogCorruptedError, match="it does not have the 19 records that it says"):
        read(changed(BATCH, 57, struct.pack(">i", 19)))


@pytest.mark.parametrize("later", [1 << 61, (1 << 62) - 1, 1 << 62, (1 << 63) - 2])
def test_timestamps_that_are_far_apart_are_what_they_were(later: int) -> None:
    log = [Row(b"a", b"1", 1, 0), Row(b"b", b"2", later, 1)]
    assert [row.timestamp for row in rows(read(encoded(log)))] == [1, later]


def test_log_append_time_replaces_every_timestamp() -> None:
    batch = changed(BATCH, _ATTRIBUTES_AT, struct.pack(">h", 0x08))
    assert {row.timestamp for row in rows(read(batch))} == {ROWS[-1].timestamp}


def _transactional(producer: int, base: int) -> bytes:
    return encoded([Row(b"k", b"%d" % base, 1, 0)], base=base, producer=producer)


def test_r4_aborted_records_are_left_out_up_to_their_producers_marker() -> None:
    batches = [
        _transactional(7, 0),  # aborted
        _transactional(8, 1),  # committed, meanwhile
        _transactional(7, 2),  # aborted
        encoded([Row(b"k", b"3", 1, 0)], base=3),  # in no transaction
        marker(7, _ABORTED, 4),
        _transactional(7, 5),  # committed
        marker(8, _COMMITTED, 6),
        marker(7, _COMMITTED, 7),
        _transactional(7, 8),  # aborted
        marker(7, _ABORTED, 9),
    ]
    aborted = [AbortedTransaction(7, 8), AbortedTransaction(7, 0)]
    assert [row.offset for row in rows(read(*batches, aborted=aborted))] == [1, 3, 5]
    # An answer may begin in the middle of a transaction.
    assert [row.offset for row in rows(read(*batches[2:], aborted=aborted))] == [3, 5]
    assert [row.offset for row in rows(read(*batches))] == [0, 1, 2, 3, 5, 8]  # read_uncommitted: none is told


def test_marker_that_compaction_emptied_ends_nothing() -> None:
    emptied = marker(7, _ABORTED, 1)[:_HEAD]
    emptied = changed(emptied[:8] + struct.pack(">i", _HEAD - 12) + emptied[12:], 57, struct.pack(">i", 0))
    found = read(_transactional(7, 0), emptied, _transactional(7, 2), aborted=[AbortedTransaction(7, 0)])
    assert rows(found) == []


def test_loops_are_compiled_also_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])  # no directory can be written

    @compiled
    def twice(number: int) -> int:
        return 2 * number

    assert twice(21) == 42
