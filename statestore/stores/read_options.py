"""Options of reads in key order."""

from __future__ import annotations

from rocksdict import ReadOptions


def in_key_order(stop: bytes | None = None) -> ReadOptions:
    """Return options to read all rows up to a key.

    A user may set a prefix extractor. Without total order, an iterator would then miss rows whose keys have another
    prefix than the one that it was positioned with.

    Parameters
    ----------
    stop
        First key that is not read; RocksDB reads it where it is in memory, so the caller holds it.
    """
    options = ReadOptions()
    options.set_total_order_seek(True)
    # rocksdict's set_iterate_lower_bound sets the upper one, so there is no start here.
    if stop is not None:
        options.set_iterate_upper_bound(stop)
    return options
