"""Every composition of a store: {key-value, window, session} x {plain, timestamped} x engine x transactional or not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from statestore.model import StoreFormat, TopicPartition
from statestore.stores import builders, suppliers
from statestore.stores.serdes import UTF8
from statestore.stores.typed import AnyStore

STORE = "s"
CHANGELOG = TopicPartition("app-s-changelog", 0)
INPUT = TopicPartition("input", 0)
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
RETENTION = timedelta(hours=6)  # segments of three hours
WINDOW = timedelta(minutes=1)


@dataclass(frozen=True)
class Composition:
    """A kind, a format, an engine, and whether it is transactional."""

    kind: str
    format: StoreFormat
    persistent: bool
    transactional: bool

    def __str__(self) -> str:
        engine = "rocksdb" if self.persistent else "in_memory"
        return f"{self.kind}-{self.format}-{engine}-{'transactional' if self.transactional else 'direct'}"

    @property
    def timestamped(self) -> bool:
        """Whether values carry a timestamp."""
        return self.format is StoreFormat.TIMESTAMPED

    def supplier(
        self,
        name: str = STORE,
        retention: timedelta = RETENTION,
        *,
        window: timedelta = WINDOW,
        duplicates: bool = False,
    ) -> Any:
        """The supplier that KIP-844 names for it; in memory there is one for both formats."""
        kind = self.kind.replace("-", "_")
        timestamped = "timestamped_" if self.timestamped and self.persistent else ""
        make = getattr(suppliers, f"{'persistent' if self.persistent else 'in_memory'}_{timestamped}{kind}_store")
        arguments: dict[str, tuple[Any, ...]] = {
            "key-value": (),
            "window": (retention, window, duplicates),
            "session": (retention,),
        }
        return make(name, *arguments[self.kind], transactional=self.transactional)

    def build(self, supplier: Any = None, key_serde: Any = UTF8, value_serde: Any = UTF8) -> AnyStore:
        """A store from the builder of its kind and format, not yet open."""
        kind = self.kind.replace("-", "_")
        builder = getattr(builders, f"{'timestamped_' if self.timestamped else ''}{kind}_store_builder")
        store: AnyStore = builder(supplier or self.supplier(), key_serde, value_serde).build()
        return store


ALL = [
    Composition(*parts)
    for parts in product(("key-value", "window", "session"), StoreFormat, (True, False), (False, True))
]


def compositions(**fixed: object) -> pytest.MarkDecorator:
    """Run a test over the compositions with these properties, instead of over all."""
    chosen = [one for one in ALL if all(getattr(one, name) == value for name, value in fixed.items())]
    assert chosen
    return pytest.mark.parametrize("composition", chosen, ids=str)
