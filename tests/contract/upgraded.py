"""A store that was plain, and is opened as timestamped (KIP-258)."""

from __future__ import annotations

from store_under_test import StoreUnderTest

from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY, TIMESTAMPED_COLUMN_FAMILY
from statestore.model import StoreFormat
from statestore.stores.rocksdb import RocksDB
from tests.compositions import CHANGELOG, Composition

FAMILIES = (TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY)
EXPECTED = {slot: f"plain {slot}" for slot in (1, 2, 3, 7, 8)} | {13: "new"}


class Upgraded(StoreUnderTest):
    """A store in which slots 1, 2, 3, 7 and 8 were written as plain and 13 as timestamped."""

    def __init__(self, composition, home):
        plain = StoreUnderTest(Composition(composition.kind, StoreFormat.PLAIN, True, composition.transactional), home)
        for slot in (1, 2, 3, 7, 8):
            plain.put(slot, f"plain {slot}")
        plain.store.commit({CHANGELOG: 4})
        plain.close()
        super().__init__(composition, home)
        self.put(13, "new")
        self.store.commit({CHANGELOG: 5})
        self.reopen()

    def text(self, value):
        """Plain rows have an unknown timestamp."""
        if value is not None and value.value.startswith("plain"):
            assert value.timestamp == -1
            return value.value
        return super().text(value)


def families(store):
    """Rows of both column families, over all databases of a closed store."""
    new, old = {}, {}
    for directory in store.directories:
        database = RocksDB(directory, FAMILIES, read_only=True)
        new |= dict(database.scan(TIMESTAMPED_COLUMN_FAMILY))
        old |= dict(database.scan(DEFAULT_COLUMN_FAMILY))
        database.close()
    return new, old
