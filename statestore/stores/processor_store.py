"""A store as a processor gets it: the reads and writes of its kind, and an error for everything else.

Only the task opens, commits, restores, and closes a store, together with its changelog and the input offsets. Kafka
Streams hides these methods from processors, too (`AbstractReadWriteDecorator`).

The names here are those that are allowed. A method that a store gets later is refused until its name is added. The
methods are bound once, so a call costs nothing more, or one call of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from inspect import getattr_static, ismethod, signature
from typing import Any, NoReturn

from statestore.errors import InvalidStateError
from statestore.stores.api import flush_is_deprecated
from statestore.stores.arrow import ArrowStore
from statestore.stores.typed import KeyValueStore, SessionStore, TypedStore, VersionedKeyValueStore, WindowStore
from statestore.stores.watched import Failed, fail

#: What a processor can use of every store.
COMMON = frozenset(
    {
        *("name", "format", "persistent", "transactional", "is_open", "is_empty", "expired_records"),
        *("position", "flush"),
    }
)
#: What a processor can also use, by the kind of the store.
OF_KIND: Mapping[type, frozenset[str]] = {
    KeyValueStore: frozenset(
        {
            *("get", "get_many", "range", "reverse_range", "all", "reverse_all", "prefix_scan"),
            *("put", "put_if_absent", "put_all", "delete", "delete_range"),
        }
    ),
    WindowStore: frozenset({"fetch", "fetch_between", "fetch_range", "fetch_all", "all", "put"}),
    SessionStore: frozenset(
        {
            *("fetch_session", "find_sessions", "find_sessions_range", "fetch", "fetch_range", "all"),
            *("put", "remove"),
        }
    ),
    VersionedKeyValueStore: frozenset({"get", "history", "all", "put", "delete"}),
}
_OF_COLUMNS = frozenset({"get_many", "put_many"})

_COMMIT = "To request a commit after the record, call context.commit()"
_UNDO = "To undo what a record wrote, raise an error: with a dead_letter_topic, the task undoes it"
_OPEN = "The task opens and closes its stores in each run"
_WRITE = "To write a row and log it, call put"
_INSTEAD = {
    **dict.fromkeys(("commit", "sync"), _COMMIT),
    **dict.fromkeys(("rollback", "begin_record", "undo_record", "end_record"), _UNDO),
    **dict.fromkeys(("init", "close", "recover"), _OPEN),
    **dict.fromkeys(("inner", "restore", "apply_changelog", "put_rows"), _WRITE),
}


def processor_store(store: TypedStore[Any, Any, Any], failed: Failed | None = None) -> Any:
    """Return a store as a processor gets it.

    Parameters
    ----------
    store
        The open store. Its shortcuts are used if it has taken them.
    failed
        Called with each refusal before it is raised: the caller may swallow it.
    """
    found = _restricted(store, f"store {store.name}", allowed_names(type(store)), failed)
    # The flush of a custom store may write: the task calls it in its commit.
    object.__setattr__(found, "flush", lambda: flush_is_deprecated(store.name))
    return found


def processor_columns(store: TypedStore[Any, Any, Any], failed: Failed | None = None) -> Any:
    """Return a store in columns (`ArrowStore`) as a processor gets it; see `processor_store`.

    Raises
    ------
    InputError
        If it is of another kind, or keeps headers.
    """
    return _restricted(ArrowStore(store), f"store {store.name} in columns", _OF_COLUMNS, failed)


@cache
def allowed_names(kind: type) -> frozenset[str]:
    """Return what a processor can use of a store of this class.

    Of a custom kind, these are also the public names that its author added.
    """
    added: set[str] = set()
    for part in kind.__mro__:
        if part in OF_KIND:
            added |= OF_KIND[part]
            break
        if part not in TypedStore.__mro__:
            added.update(name for name in vars(part) if not name.startswith("_"))
    return COMMON | added.difference(dir(TypedStore))


class _Restricted:
    """Shows some names of another object, and refuses its others. It holds no reference to it that has a name."""

    __slots__ = ("__read", "__refuse")
    __read: Callable[[str], Any]
    __refuse: Callable[[str], NoReturn]

    def __init__(self, read: Callable[[str], Any], refuse: Callable[[str], NoReturn]) -> None:
        object.__setattr__(self, "_Restricted__read", read)
        object.__setattr__(self, "_Restricted__refuse", refuse)

    def __setattr__(self, name: str, value: object) -> None:
        self.__refuse(name)

    def __delattr__(self, name: str) -> None:
        self.__refuse(name)

    @staticmethod
    def _reading(name: str) -> Callable[[_Restricted], Any]:
        """Return what reads an allowed attribute, which may have changed since the methods were bound."""
        return lambda restricted: restricted.__read(name)

    @staticmethod
    def _refusing(name: str) -> Callable[[_Restricted], NoReturn]:
        """Return what refuses an attribute."""
        return lambda restricted: restricted.__refuse(name)


def _restricted(hidden: Any, what: str, allowed: frozenset[str], failed: Failed | None) -> Any:
    known = frozenset(name for name in dir(hidden) if not (name.startswith("__") and name.endswith("__")))
    shown = allowed & known
    methods = frozenset(name for name in shown if callable(getattr_static(hidden, name)))

    def refuse(name: str) -> NoReturn:
        fail(_refusal(what, name, shown), failed)

    def read(name: str) -> Any:
        return getattr(hidden, name) if name in shown else refuse(name)

    found = _class_of(type(hidden).__name__, methods, shown - methods, known - shown)(read, refuse)
    for name in methods:
        object.__setattr__(found, name, _caller(getattr(hidden, name)))
    return found


def _refusal(what: str, name: str, shown: Iterable[str]) -> InvalidStateError:
    instead = f" {_INSTEAD[name]}." if name in _INSTEAD else ""
    return InvalidStateError(
        f"{what}: a processor cannot use {name!r}, which belongs to the task: only the task opens, commits, restores, "
        f"and closes a store, together with its changelog and the input offsets.{instead} A processor can use: "
        f"{', '.join(sorted(shown))}"
    )


@cache
def _class_of(name: str, methods: frozenset[str], attributes: frozenset[str], refused: frozenset[str]) -> Any:
    """Make the class that shows the objects of one class. It has no `__getattr__`, which would slow each call."""
    members: dict[str, Any] = {"__slots__": tuple(methods), "__dir__": lambda _: [*methods, *attributes]}
    members |= {attribute: property(_Restricted._reading(attribute)) for attribute in attributes}
    members |= {attribute: property(_Restricted._refusing(attribute)) for attribute in refused}
    return type(name, (_Restricted,), members)


# -- methods without their object -------------------------------------------------------------------------------------


def _caller(method: Any) -> Any:
    """Return a function that calls a method, and does not show the method's object as `__self__` does.

    The shortcuts of a store, which are called most, are no methods and cost nothing more.
    """
    if not ismethod(method):
        return method

    def call(*arguments: Any, **named: Any) -> Any:
        return method(*arguments, **named)

    call.__name__, call.__qualname__, call.__doc__ = method.__name__, method.__qualname__, method.__doc__
    vars(call)["__signature__"] = signature(method)
    return call
