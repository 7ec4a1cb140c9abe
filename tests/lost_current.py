"""A database that lost CURRENT and was created anew by another program, as RocksDB does it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from statestore.formats.value_format import value_format
from statestore.model import StoreFormat

_FAMILIES = ("default", *value_format(StoreFormat.TIMESTAMPED).column_families, "offsets")


def begin_anew(directory: Path) -> None:
    """Lose CURRENT, and let another program open the database with `create_if_missing`, as Kafka Streams does.

    RocksDB creates an empty database. Then it finds a log file of the lost one, and the opening fails.
    """
    (directory / "CURRENT").unlink()
    with pytest.raises(Exception, match="While creating a new Db"):
        opened_by_another(directory)
    assert (directory / "CURRENT").exists()


def opened_by_another(directory: Path) -> Rdict:
    """Open a database for writing, or create it, without the library."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    return Rdict(str(directory), options, column_families=dict.fromkeys(_FAMILIES, options))
