"""RocksDB's OPTIONS files: a database's column families, its memtables, and whether RocksDB changes its rows by itself.

Kafka Streams' RocksDB writes one at each opening and for each family that it makes, after the MANIFEST. A MANIFEST that
lost its end may no longer tell of a family, and RocksDB takes that for how the database is.

    OPTIONS-000009        the largest number is the newest
    [CFOptions "offsets"]
      write_buffer_size=16777216
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from statestore.formats import offsets
from statestore.formats.value_format import COLUMN_FAMILIES

#: Others may be known ones with a damaged name.
_KNOWN = {*COLUMN_FAMILIES, offsets.COLUMN_FAMILY}
_FILE = re.compile(r"OPTIONS-([0-9]{1,20})")
_FAMILY = re.compile(rb'^\[CFOptions "([^"]+)"\]', re.MULTILINE)
_MEMTABLES = re.compile(rb"^\s*(write_buffer_size|max_write_buffer_number)=(\d{1,19})\s*$", re.MULTILINE)
_CHANGES_ROWS = re.compile(
    rb"^\s*(compaction_style=kCompactionStyleFIFO|(?:compaction_filter|compaction_filter_factory|merge_operator)="
    rb"(?!nullptr\s*$)\S.*?)\s*$",
    re.MULTILINE,
)
_IN_PLACE = re.compile(rb"^\s*inplace_update_support=true\s*$", re.MULTILINE)


class Memtables(NamedTuple):
    """The memtables of a column family: their largest size (bytes), and how many there can be."""

    bytes_each: int
    number: int


def families_in_options_file(directory: Path) -> frozenset[str] | None:
    """Names of the families that we know, as noted last; None if there is no note."""
    files = {int(found[1]): path for path in directory.iterdir() if (found := _FILE.fullmatch(path.name))}
    if not files:
        return None
    names = _FAMILY.findall(files[max(files)].read_bytes())
    return frozenset(name.decode(errors="replace") for name in names) & _KNOWN


def memtables_in_options_files(directory: Path) -> Memtables | None:
    """Return the largest memtables of a database by its OPTIONS files; None if they do not limit what is in memory.

    RocksDB keeps the files of the last two openings. A change goes to one column family, so their sizes do not add up.
    """
    sizes, numbers = [0], [0]
    try:
        for content in _contents(directory):
            if _IN_PLACE.search(content):
                return None
            found = _MEMTABLES.findall(content)
            sizes += [int(value) for name, value in found if name == b"write_buffer_size"]
            numbers += [int(value) for name, value in found if name == b"max_write_buffer_number"]
    except OSError:
        return None
    return Memtables(max(sizes), max(numbers)) if max(sizes) and max(numbers) else None


def row_changes_in_options_files(directory: Path) -> str:
    """Return a setting by which RocksDB changes or deletes rows by itself; empty if there is none.

    FIFO compaction deletes the oldest files. Compaction filters and merge operators change rows, also for a TTL.
    """
    try:
        found = [match for content in _contents(directory) for match in _CHANGES_ROWS.findall(content)]
    except OSError:
        return ""
    return found[0].decode(errors="replace") if found else ""


def _contents(directory: Path) -> Iterator[bytes]:
    """Yield the OPTIONS files of a database."""
    for path in directory.iterdir():
        if _FILE.fullmatch(path.name):
            yield path.read_bytes()
