"""Which column families a closed database had when its options were written down last: RocksDB's OPTIONS files.

Kafka Streams' RocksDB writes one at each opening and for each family that it makes, after the MANIFEST. A MANIFEST that
lost its end may no longer tell of a family, and RocksDB takes that for how the database is.

    OPTIONS-000009        the largest number is the newest
    [CFOptions "offsets"]
"""

from __future__ import annotations

import re
from pathlib import Path

from statestore.formats import offsets
from statestore.formats.value_format import COLUMN_FAMILIES

#: Others may be known ones with a damaged name.
_KNOWN = {*COLUMN_FAMILIES, offsets.COLUMN_FAMILY}
_FILE = re.compile(r"OPTIONS-([0-9]{1,20})")
_FAMILY = re.compile(rb'^\[CFOptions "([^"]+)"\]', re.MULTILINE)


def families_in_options_file(directory: Path) -> frozenset[str] | None:
    """Names of the families that we know, as noted last; None if there is no note."""
    files = {int(found[1]): path for path in directory.iterdir() if (found := _FILE.fullmatch(path.name))}
    if not files:
        return None
    names = _FAMILY.findall(files[max(files)].read_bytes())
    return frozenset(name.decode(errors="replace") for name in names) & _KNOWN
