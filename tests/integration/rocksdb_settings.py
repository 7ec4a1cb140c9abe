"""Functions that set RocksDB's options, as definitions name them, and a processor that keeps values as they are."""

from __future__ import annotations

from typing import Any

from rocksdict import DBPath

from statestore.tasks import ProcessorContext, Record, ValueAndTimestamp

BLOBS = "tests.integration.rocksdb_settings:blobs"
REFUSED = "tests.integration.rocksdb_settings:refused"
FAILING = "tests.integration.rocksdb_settings:failing"


def blobs(store: str, options: Any) -> None:
    """Keep values of 16 bytes or more in blob files."""
    options.set_enable_blob_files(True)
    options.set_min_blob_size(16)


def refused(store: str, options: Any) -> None:
    """Keep files elsewhere, for one of two stores."""
    if store == "counts":
        options.set_db_paths([DBPath("elsewhere", 1 << 40)])


def failing(store: str, options: Any) -> None:
    """Fail, for one of two stores."""
    if store == "counts":
        raise KeyError("of the user's code")


def keep(record: Record, context: ProcessorContext) -> None:
    """Keep the last value of each key."""
    context.state_store("counts").put(record.key, ValueAndTimestamp(record.value, record.timestamp))
