"""The options of RocksDB: Kafka Streams' defaults, and those that correctness requires.

A user may change the options of a store (Kafka Streams: `RocksDBConfigSetter`), but not those that the offsets in the
store rely on: the column families are flushed together, and stored bytes are never unpickled.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rocksdict import BlockBasedOptions, Cache, DBCompactionStyle, DBCompressionType, Options, Rdict

from statestore.errors import InputError, StateStoreError
from statestore.sst.layout import VERSION as SST_VERSION

_MIB = 1 << 20
_LOG_FILE_BYTES = _MIB
_BLOCK_BYTES = 4096
_BLOOM_BITS_PER_KEY = 10
#: RocksDB begins a new MANIFEST when one has grown to 1 GiB, which would look like another's opening (`last_use.py`).
#: Each opening writes it anew.
_MANIFEST_FILE_BYTES = (1 << 64) - 1

#: In RocksDB's file of options.
_FIFO = "compaction_style=kCompactionStyleFIFO"

#: From here on, opening the files beside each other is worth the threads.
_MANY_SST_FILES = 64


class Memory(NamedTuple):
    """Memory of one database: each of its memtables, how many there may be, and its block cache (bytes)."""

    write_buffer_bytes: int = 16 * _MIB
    write_buffers: int = 3
    cache_bytes: int = 50 * _MIB


#: Called with a store's name and its options before it is opened; the options are rocksdict's.
ConfigSetter = Callable[[str, Any], None]


def options(
    store: str = "", config_setter: ConfigSetter | None = None, memory: Memory | None = None, *, sst_files: int = 0
) -> Options:
    """Options of a database and of all its column families; made anew for each opening.

    Options shared by two openings would share the block cache, and a cached block hides damage on disk.

    Parameters
    ----------
    sst_files
        How many files an opening will find.
    """
    memory = memory or Memory()
    result = Options(raw_mode=True)
    result.set_write_buffer_size(memory.write_buffer_bytes)
    result.set_max_write_buffer_number(memory.write_buffers)
    result.set_compression_type(DBCompressionType.none())
    result.set_compaction_style(DBCompactionStyle.universal())
    result.set_optimize_filters_for_hits(True)
    result.set_max_log_file_size(_LOG_FILE_BYTES)
    result.set_keep_log_file_num(2)
    if sst_files < _MANY_SST_FILES:  # RocksDB begins 16 threads for each column family, however little there is to open
        result.set_max_file_opening_threads(1)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(memory.cache_bytes))
    table.set_block_size(_BLOCK_BYTES)
    table.set_format_version(SST_VERSION)
    table.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
    result.set_block_based_table_factory(table)
    if config_setter is not None:
        _set_by_user(store, config_setter, result)
    result.create_if_missing(True)
    result.create_missing_column_families(True)
    result.set_atomic_flush(True)
    result.set_paranoid_checks(True)
    result.set_max_manifest_file_size(_MANIFEST_FILE_BYTES)
    return result


def _set_by_user(store: str, config_setter: ConfigSetter, options: Options) -> None:
    try:
        config_setter(store, _Guarded(store, options))
    except StateStoreError:
        raise
    except Exception as error:  # it is the user's code
        raise InputError(f"store {store}: rocksdb_config_setter failed: {type(error).__name__}: {error}") from error


#: Options that cannot be supported, and why.
_REFUSED = {
    **dict.fromkeys(
        ("set_db_paths", "set_env"), "all files of a store are in its directory, from which it is sealed and copied"
    ),
    **dict.fromkeys(
        ("set_plain_table_factory", "set_cuckoo_table_factory"),
        "rows are read in key order, and files are checked block by block; use set_block_based_table_factory",
    ),
    "set_fifo_compaction_options": "RocksDB would delete rows that the changelog still has",
    "set_inplace_update_support": "an iterator would read rows that were written after it was opened",
    "set_error_if_exists": "a store is opened again in each run",
}


class _Guarded:
    """Options as a user may set them.

    A setting that cannot be supported is refused; one that would break the store is overruled with a warning.
    """

    _ON = ("set_atomic_flush", "set_paranoid_checks", "create_if_missing", "create_missing_column_families")
    _MANIFEST = "set_max_manifest_file_size"

    def __init__(self, store: str, wrapped: Options) -> None:
        self._store = store
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        if name in _REFUSED:
            raise InputError(f"store {self._store}: rocksdb_config_setter cannot use {name}: {_REFUSED[name]}")
        if name == "set_compaction_style":
            return self._set_compaction_style
        if name not in (*self._ON, self._MANIFEST):
            return getattr(self._wrapped, name)

        def overrule(value: object) -> None:
            if name == self._MANIFEST:
                why = "a new MANIFEST must mean that the store was opened anew"
            elif not value:
                why = "offsets and rows must reach the disk together and be checked when they are read"
            else:
                return
            warnings.warn(f"store {self._store}: {name}({value}) is overruled; {why}", stacklevel=2)

        return overrule

    def _set_compaction_style(self, style: DBCompactionStyle) -> None:
        if _is_fifo(style):
            raise InputError(
                f"store {self._store}: rocksdb_config_setter cannot use FIFO compaction: RocksDB would delete rows "
                "that the changelog still has; use universal or level compaction"
            )
        self._wrapped.set_compaction_style(style)


def _is_fifo(style: DBCompactionStyle) -> bool:
    """Return whether a compaction style is FIFO, by what RocksDB writes down of it: styles cannot be compared."""
    asked = options()
    asked.set_compaction_style(style)
    with TemporaryDirectory(prefix="statestore-") as directory:
        Rdict(directory, options=asked).close()
        return any(_FIFO in path.read_text(encoding="utf-8") for path in Path(directory).glob("OPTIONS-*"))
