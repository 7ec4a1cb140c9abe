"""Functions that set RocksDB's options: between two runs, the definition names another one."""

from __future__ import annotations

from typing import Any

from rocksdict import DBCompactionStyle, DBCompressionType, SliceTransform


def blobs(store: str, options: Any) -> None:
    """Keep each value in a blob file."""
    options.set_enable_blob_files(True)
    options.set_min_blob_size(0)
    options.set_enable_blob_gc(True)


def prefixes(store: str, options: Any) -> None:
    """Index keys by their first byte."""
    options.set_prefix_extractor(SliceTransform.create_fixed_prefix(1))
    options.set_memtable_prefix_bloom_ratio(0.1)


def by_level(store: str, options: Any) -> None:
    """Compress, and compact by level, not by time as RocksDB's universal compaction does."""
    options.set_compression_type(DBCompressionType.zstd())
    options.set_compaction_style(DBCompactionStyle.level())


#: What a definition names; None: no option is changed.
OPTIONS = [None, *(f"{__name__}:{setter.__name__}" for setter in (blobs, prefixes, by_level))]
BLOBS = OPTIONS[1]
