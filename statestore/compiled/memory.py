"""Loads, stores, comparisons and hashes at memory addresses, for the loops over Arrow buffers that numba compiles.

An address is an integer. Whoever calls keeps alive what lies there, and answers for the bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from statestore.compiled.loops import compiled, inlined

_BYTE = ir.IntType(8)
#: A number in a compiled loop: 64 bits, to Python an int or one of numpy's.
Int = Any


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _loads(name: str, result: Any, bits: int, *, swap: bool = False) -> Any:
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            found = builder.load(_pointer(builder, arguments[0], bits), align=1)
            return builder.bswap(found) if swap else found

        return result(types.int64), generate

    load.__name__ = load.__qualname__ = name
    return intrinsic(load)


def _stores(name: str, kind: Any, bits: int, *, swap: bool = False) -> Any:
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.bswap(arguments[1]) if swap else arguments[1]
            builder.store(value, _pointer(builder, arguments[0], bits), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, kind), generate

    store.__name__ = store.__qualname__ = name
    return intrinsic(store)


load_u8 = _loads("load_u8", types.uint8, 8)
load_i32 = _loads("load_i32", types.int32, 32)
load_u32 = _loads("load_u32", types.uint32, 32)
load_i64 = _loads("load_i64", types.int64, 64)
load_u64 = _loads("load_u64", types.uint64, 64)
load_big_u64 = _loads("load_big_u64", types.uint64, 64, swap=True)
load_big_i64 = _loads("load_big_i64", types.int64, 64, swap=True)
store_u8 = _stores("store_u8", types.uint8, 8)
store_i32 = _stores("store_i32", types.int32, 32)
store_u32 = _stores("store_u32", types.uint32, 32)
store_i64 = _stores("store_i64", types.int64, 64)
store_big_i64 = _stores("store_big_i64", types.int64, 64, swap=True)


def _copies(name: str, generator: Any) -> Any:
    def transfer(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            target, source = (_pointer(builder, address, 8) for address in arguments[:2])
            generator(builder, target, source, arguments[2], 1, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    transfer.__name__ = transfer.__qualname__ = name
    return intrinsic(transfer)


def _prefetch(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, word = _BYTE.as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        get_or_insert: Any = cgutils.get_or_insert_function
        function = get_or_insert(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [_pointer(builder, arguments[0], 8), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


#: Copies (target, source, bytes) between places that do not overlap, or may.
copy: Any = _copies("copy", cgutils.raw_memcpy)
move: Any = _copies("move", cgutils.raw_memmove)
#: Has the processor fetch the cache line of an address that will soon be read.
prefetch: Any = intrinsic(_prefetch)


@inlined
def is_null(valid: Int, shift: Int, row: Int) -> bool:
    """True if Arrow's bitmap (0: there is none) says that a row is null."""
    return bool(valid != 0 and (load_u8(valid + ((row + shift) >> 3)) >> np.uint8((row + shift) & 7)) & 1 == 0)


@inlined
def shared_prefix(one: Int, other: Int, size: Int) -> Int:
    """How many of the first bytes at both addresses are the same, at most `size`."""
    at = 0
    while at + 8 <= size and load_u64(one + at) == load_u64(other + at):
        at += 8
    while at < size and load_u8(one + at) == load_u8(other + at):
        at += 1
    return at


@inlined
def equal(one: Int, other: Int, size: Int) -> Int:
    """True if the bytes at both addresses are the same."""
    return shared_prefix(one, other, size) == size


@inlined
def compare(one: Int, one_size: Int, other: Int, other_size: Int) -> Int:
    """Below, at or above 0 where the first bytes come before, are the same as, or come after the others."""
    size = min(one_size, other_size)
    at = shared_prefix(one, other, size)
    if at < size:
        return np.int64(load_u8(one + at)) - np.int64(load_u8(other + at))
    return one_size - other_size


_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


@compiled
def _rotated(value: Int, by: Int) -> Int:
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))


@compiled
def _round(lane: Int, value: Int) -> Int:
    return _rotated(lane + value * _P2, 31) * _P1


@compiled
def xxh64(address: Int, size: Int) -> Int:
    """XXH64 of the bytes at an address, with seed 0."""
    end = address + size
    if size >= 32:
        one, two, three, four = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
        while address + 32 <= end:
            one = _round(one, load_u64(address))
            two = _round(two, load_u64(address + 8))
            three = _round(three, load_u64(address + 16))
            four = _round(four, load_u64(address + 24))
            address += 32
        result = _rotated(one, 1) + _rotated(two, 7) + _rotated(three, 12) + _rotated(four, 18)
        for lane in (one, two, three, four):
            result = (result ^ _round(np.uint64(0), lane)) * _P1 + _P4
    else:
        result = _P5
    result += np.uint64(size)
    while address + 8 <= end:
        result = _rotated(result ^ _round(np.uint64(0), load_u64(address)), 27) * _P1 + _P4
        address += 8
    if address + 4 <= end:
        result = _rotated(result ^ (np.uint64(load_u32(address)) * _P1), 23) * _P2 + _P3
        address += 4
    while address < end:
        result = _rotated(result ^ (np.uint64(load_u8(address)) * _P5), 11) * _P1
        address += 1
    return mixed(result)


@compiled
def mixed(value: Int) -> Int:
    """Spread every bit of a number over all of them (XXH64's last step)."""
    value = (value ^ (value >> np.uint64(33))) * _P2
    value = (value ^ (value >> np.uint64(29))) * _P3
    return value ^ (value >> np.uint64(32))
