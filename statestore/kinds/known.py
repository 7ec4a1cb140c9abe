"""Kinds by the names that definitions give them."""

from __future__ import annotations

from functools import cache

from statestore.errors import DefinitionError
from statestore.kinds.key_value import KEY_VALUE
from statestore.kinds.kind import StoreKind
from statestore.kinds.session import SESSION
from statestore.kinds.time_ordered import (
    INDEXED_TIME_ORDERED_WINDOW,
    TIME_ORDERED_BUFFER,
    TIME_ORDERED_SESSION,
    TIME_ORDERED_WINDOW,
)
from statestore.kinds.versioned import VERSIONED
from statestore.kinds.window import WINDOW
from statestore.reference import load

#: Kinds that only Kafka Streams' DSL makes.
OF_THE_DSL: tuple[StoreKind, ...] = (
    TIME_ORDERED_WINDOW,
    INDEXED_TIME_ORDERED_WINDOW,
    TIME_ORDERED_SESSION,
    TIME_ORDERED_BUFFER,
)
BUILT_IN: dict[str, StoreKind] = {kind.name: kind for kind in (KEY_VALUE, WINDOW, SESSION, VERSIONED, *OF_THE_DSL)}
#: Names of the kinds whose stores can do without a changelog.
UNLOGGED = tuple(kind.name for kind in (KEY_VALUE, WINDOW, SESSION))


def may_be_unlogged(name: str) -> bool:
    """Return whether stores of a kind can do without a changelog."""
    return name in UNLOGGED


def built_in(name: str) -> StoreKind | None:
    """Return a built-in kind by its name; None for a kind of a user, whose code is not loaded."""
    return BUILT_IN.get(name)


def is_built_in(name: str) -> bool:
    """Return whether a kind needs no code of a user."""
    return name in BUILT_IN


@cache
def kind_of(name: str) -> StoreKind:
    """Return a kind: one of ours by its name, or a user's own by `module:attribute`.

    Raises
    ------
    DefinitionError
        If it cannot be loaded, or is none.
    """
    if (known := built_in(name)) is not None:
        return known
    found = load(name, "kind", f"a StoreKind, or one of {', '.join(BUILT_IN)}")
    if not isinstance(found, StoreKind):
        raise DefinitionError(f"kind {name} is {found!r:.120}, expected a StoreKind; see docs/extending.md")
    return found
