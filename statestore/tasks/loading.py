"""The user's code that an application's definition names, and how a task loads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from statestore.definitions.aggregation import AggregationDefinition
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import DefinitionError
from statestore.kinds.known import is_built_in
from statestore.stores.open import build_store
from statestore.stores.serdes import load_serde
from statestore.stores.supplied import load_config_setter
from statestore.tasks.aggregates import load_aggregate
from statestore.tasks.aggregation import require_capable
from statestore.tasks.processor import load_key, load_processor


class Named(NamedTuple):
    """One thing that a definition names.

    Attributes
    ----------
    what
        Where the definition names it, and what, such as `processor shop.orders:process`.
    load
        Loads it as a task does; raises DefinitionError.
    """

    what: str
    load: Callable[[], object]


def named_code(definition: ApplicationDefinition) -> Iterator[Named]:
    """Return each piece of the user's code that the tasks of an application load, serdes last."""
    if definition.processor is not None:
        yield Named(f"processor {definition.processor}", partial(load_processor, definition.processor))
    for item in definition.aggregations:
        if item.group_by is not None:
            yield Named(f"group_by {item.group_by}", partial(load_key, item.group_by))
        yield Named(f"aggregate {item.aggregate}", partial(_load_capable, item, definition.store(item.store)))
    if definition.rocksdb_config_setter is not None:
        what = f"rocksdb_config_setter {definition.rocksdb_config_setter}"
        yield Named(what, partial(load_config_setter, definition.rocksdb_config_setter))
    for store in definition.stores:
        if not is_built_in(store.kind):
            yield Named(f"kind {store.kind} of store {store.name}", partial(_load_kind, store))
        if store.supplier is not None:
            yield Named(f"supplier {store.supplier} of store {store.name}", partial(build_store, store))
    serdes = (name for store in definition.stores for name in (store.key_serde, store.value_serde))
    for name in dict.fromkeys(serdes):
        yield Named(f"serde {name}", partial(load_serde, name))


def _load_kind(store: StoreDefinition) -> None:
    try:
        store.store_kind.check(store)
    except ValueError as error:
        raise DefinitionError(f"store {store.name}: {error}") from error
    build_store(store)


def _load_capable(definition: AggregationDefinition, store: StoreDefinition) -> None:
    require_capable(definition, load_aggregate(definition.aggregate), store.values)
