"""Checks a store of bytes before it is wrapped: that its abilities are complete and consistent."""

from __future__ import annotations

from typing import Any

from statestore.errors import DefinitionError
from statestore.stores import abilities, api

#: What a store has of its own if it says one of these of itself.
_CLAIMS = {
    "transactional": ("commit", "recover"),
    "manages_offsets": ("commit", "committed_offset", "clear_offsets"),
}
#: What a store has all of its own, or nothing of.
_ABILITIES = {
    "BatchWritingStore": ("get_rows", "put_rows"),
    "UpgradableStore": ("upgrade_pending", "stored_row"),
    "StreamTimeStore": ("stream_time", "advance_stream_time", "set_back_stream_time"),
}
#: Where the methods are that a store has without any of its own.
_INHERITED = {abilities.__name__, api.__name__}


def check_store(store: Any) -> None:
    """Refuse a store that is none, or that has a part of what belongs together.

    Raises
    ------
    DefinitionError
        Naming what is missing.
    """
    if api.BytesStore not in type(store).__mro__:
        raise DefinitionError(
            f"a {type(store).__name__} is not a store; derive it from KeyValueBytesStore, WindowBytesStore, or "
            f"SessionBytesStore of {api.__name__}, or from BytesStore for a kind of your own"
        )
    who = f"store {store.name} ({type(store).__name__})"
    for claim, methods in _CLAIMS.items():
        if getattr(store, claim) and (lacks := _lacking(store, methods)):
            raise DefinitionError(
                f"{who} says that it is {claim}, but has no {lacks[0]} of its own; implement {', '.join(lacks)}, or "
                f"set {claim} = False"
            )
    for ability, methods in _ABILITIES.items():
        if (lacks := _lacking(store, methods)) and len(lacks) < len(methods):
            raise DefinitionError(
                f"{who} has a part of {ability}, but no {', '.join(lacks)} of its own; implement all of "
                f"{', '.join(methods)}, or none"
            )


def _lacking(store: object, methods: tuple[str, ...]) -> list[str]:
    return [name for name in methods if _class_with(type(store), name).__module__ in _INHERITED]


def _class_with(of: type, name: str) -> type:
    """Return the class that the stores of another have a method from."""
    return next(cls for cls in of.__mro__ if name in vars(cls))
