"""Every composition of a store: {key-value, window, session} x format x engine x transactional or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from statestore.formats.value_format import ValueFormat
from statestore.kinds.known import BUILT_IN
from statestore.model import StoreFormat, TopicPartition
from statestore.stores import builders, suppliers
from statestore.stores.serdes import UTF8
from statestore.stores.typed import AnyStore

#: Formats that stores of every kind can have.
FORMATS = (StoreFormat.PLAIN, StoreFormat.TIMESTAMPED, StoreFormat.HEADERS)
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
        return self.layout.timestamped

    @property
    def keeps_headers(self) -> bool:
        """Whether values carry headers."""
        return self.layout.keeps_headers

    @property
    def layout(self) -> ValueFormat:
        """Layout of the values."""
        return BUILT_IN[self.kind].value_format(self.format)

    def supplier(
        self,
        name: str = STORE,
        retention: timedelta = RETENTION,
        *,
        window: timedelta = WINDOW,
        duplicates: bool = False,
    ) -> Any:
        """The supplier that KIP-844 and KIP-1271 name for it; in memory there is one for all formats."""
        kind = self.kind.replace("-", "_")
        timestamped = "timestamped_" if self.timestamped and self.persistent else ""
        with_headers = "_with_headers" if self.layout.keeps_headers and self.persistent else ""
        engine = "persistent" if self.persistent else "in_memory"
        make = getattr(suppliers, f"{engine}_{timestamped}{kind}_store{with_headers}")
        arguments: dict[str, tuple[Any, ...]] = {
            "key-value": (),
            "window": (retention, window, duplicates),
            "session": (retention,),
        }
        return make(name, *arguments[self.kind], transactional=self.transactional)

    def build(self, supplier: Any = None, key_serde: Any = UTF8, value_serde: Any = UTF8) -> AnyStore:
        """A store from the builder of its kind and format, not yet open."""
        kind = self.kind.replace("-", "_")
        timestamped, with_headers = "timestamped_" * self.timestamped, "_with_headers" * self.layout.keeps_headers
        builder = getattr(builders, f"{timestamped}{kind}_store{with_headers}_builder")
        store: AnyStore = builder(supplier or self.supplier(), key_serde, value_serde).build()
        return store


ALL = [
    Composition(*parts) for parts in product(("key-value", "window", "session"), FORMATS, (True, False), (False, True))
]


#: Those of `make test`: of each kind one on disk with transactions, one without, and one in memory.
SHORT = {
    *(Composition(kind, StoreFormat.TIMESTAMPED, True, True) for kind in ("key-value", "window", "session")),
    *(Composition(kind, StoreFormat.PLAIN, True, False) for kind in ("key-value", "window", "session")),
    Composition("key-value", StoreFormat.PLAIN, False, True),
    Composition("window", StoreFormat.TIMESTAMPED, False, False),
    Composition("session", StoreFormat.TIMESTAMPED, False, True),
    Composition("window", StoreFormat.HEADERS, True, True),
}


def gated(chosen: Iterable[Composition]) -> list[Any]:
    """Mark as long what others tell as well; each kind that is chosen keeps one composition at least."""
    chosen = list(chosen)
    short = SHORT.intersection(chosen)
    for kind in {one.kind for one in chosen}.difference(one.kind for one in short):
        short.add(next(one for one in chosen if one.kind == kind))
    return [one if one in short else pytest.param(one, marks=pytest.mark.long) for one in chosen]


def compositions(**fixed: object) -> pytest.MarkDecorator:
    """Run a test over the compositions with these properties, instead of over all."""
    chosen = [one for one in ALL if all(getattr(one, name) == value for name, value in fixed.items())]
    assert chosen
    return pytest.mark.parametrize("composition", gated(chosen), ids=str)
