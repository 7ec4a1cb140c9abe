"""Definitions and commands that the tests of the metastore's pure half begin with."""

from __future__ import annotations

from typing import Any

from statestore.definitions.application import ApplicationDefinition
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import Command, PutApplication, stamped
from statestore.metastore.evolution import partitions_of

WHO = "anna@host"
ORDERS: dict[str, Any] = {
    "name": "orders",
    "input_topic": "placed",
    "output_topics": ["checked"],
    "processor": "shop:check",
    "aggregations": [
        {"store": "spent", "output_topic": "totals"},
        {"store": "by-city", "group_by": "shop:city", "windows": {"size_ms": 60_000}},
        {"store": "visits", "group_by": "shop:visitor", "partitions": 2, "sessions": {"gap_ms": 1_000}},
    ],
    "stores": [
        {"name": "customers", "owner": "shop team"},
        {"name": "seen", "kind": "window", "retention_ms": 9_000, "window_size_ms": 1_000, "format": "plain"},
        {"name": "by-city", "kind": "window", "retention_ms": 90_000, "window_size_ms": 60_000},
    ],
}


def simple(name: str = "app", *stores: dict[str, Any] | str, **fields: Any) -> ApplicationDefinition:
    """An application with a processor and these stores; `s` if none is named."""
    listed = [{"name": store} if isinstance(store, str) else store for store in stores or ("s",)]
    return ApplicationDefinition.model_validate(
        {"name": name, "input_topic": "in", "processor": "module:process", "stores": listed, **fields}
    )


def orders(**fields: Any) -> ApplicationDefinition:
    """The sample with everything in it."""
    return ApplicationDefinition.model_validate({**ORDERS, **fields})


def put(definition: ApplicationDefinition, of_input: int = 4) -> PutApplication:
    """The command that defines it, over an input of so many partitions."""
    return PutApplication(definition=definition, partitions=partitions_of(definition, of_input))


def after(catalogue: Catalogue, *commands: Command) -> Catalogue:
    """The catalogue after the commands, each stamped with the next id."""
    for command in commands:
        catalogue = catalogue.apply(stamped(command, catalogue.next_id, 1_000 * catalogue.next_id, WHO))
    return catalogue
