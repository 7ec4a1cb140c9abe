"""Key-value stores: one row a key."""

from __future__ import annotations

from statestore.kinds.kind import StoreKind


class KeyValueKind(StoreKind):
    """A value for each key."""

    name = "key-value"
    storage = "statestore.stores.storage:KEY_VALUE"
    may_have_ttl = True
    may_be_global_table = True
    suite = "key_value"


KEY_VALUE = KeyValueKind()
