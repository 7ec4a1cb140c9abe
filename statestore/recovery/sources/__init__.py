"""The ways to get a store, one in each file. A new way is a new file: it is found here by its `SOURCE`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from statestore.partition.plan import SourceName
from statestore.recovery.sources.source import BuildSource


@cache
def all_sources() -> tuple[BuildSource, ...]:
    """Return all sources, in the order of preference between equal offers."""
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    found: list[BuildSource] = [module.SOURCE for module in modules if hasattr(module, "SOURCE")]
    return tuple(sorted(found, key=lambda source: source.order))


def source_of(name: SourceName) -> BuildSource:
    """Return a source by the name that a plan gives."""
    return next(source for source in all_sources() if source.name == name)
