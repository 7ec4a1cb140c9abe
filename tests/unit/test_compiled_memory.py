"""What loops do at memory addresses: the order of bytes, what they have in common, and their hash."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.compiled.loops import compiled
from statestore.compiled.memory import compare, copy, equal, load_big_i64, move, shared_prefix, store_big_i64, xxh64

BYTES = st.lists(st.sampled_from([b"\0", b"a", b"\xff", b"eight---"]), max_size=6).map(b"".join) | st.binary(
    max_size=40
)


@compiled
def moved(target, source, size, overlapping):
    """Intrinsics are there for loops alone."""
    if overlapping:
        move(target, source, size)
    else:
        copy(target, source, size)


@compiled
def stored_and_loaded(address, number):
    store_big_i64(address, number)
    return load_big_i64(address)


def held(data):
    """The bytes in memory, and nothing readable behind them that could be taken for more of them."""
    return np.frombuffer(data + b"\x7f" * 8, np.uint8)


@given(one=BYTES, other=BYTES)
def test_bytes_at_addresses_compare_as_bytes_do(one, other):
    first, second = held(one), held(other)
    found = compare(first.ctypes.data, len(one), second.ctypes.data, len(other))
    assert (found > 0) - (found < 0) == (one > other) - (one < other)
    size = min(len(one), len(other))
    assert bool(equal(first.ctypes.data, second.ctypes.data, size)) is (one[:size] == other[:size])
    shared = shared_prefix(first.ctypes.data, second.ctypes.data, size)
    assert one[:shared] == other[:shared]
    assert shared == size or one[shared] != other[shared]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_xxh64_gives_the_published_values(data, expected):
    memory = held(data)
    assert int(xxh64(memory.ctypes.data, len(data))) == expected


@given(data=st.binary(min_size=1, max_size=200), bit=st.integers(0, 7), at=st.integers(0, 199))
def test_a_flipped_bit_gives_another_hash(data, bit, at):
    memory = held(data).copy()
    before = xxh64(memory.ctypes.data, len(data))
    memory[at % len(data)] ^= 1 << bit
    assert xxh64(memory.ctypes.data, len(data)) != before


@pytest.mark.parametrize("number", [0, 1, -1, 1 << 62, -(1 << 63)])
def test_big_endian_numbers_are_read_as_they_were_written(number):
    memory = np.zeros(9, np.uint8)
    assert stored_and_loaded(memory.ctypes.data + 1, number) == number
    assert memory[1:].tobytes() == number.to_bytes(8, "big", signed=True)


@pytest.mark.parametrize(("target", "overlapping"), [(50, False), (3, True)])
def test_bytes_are_moved_also_over_themselves(target, overlapping):
    memory = np.arange(100, dtype=np.uint8)
    address = memory.ctypes.data
    moved(address + target, address, 40, overlapping)
    assert memory[target : target + 40].tolist() == list(range(40))
