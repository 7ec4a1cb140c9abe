"""The definition in the text of a command: stores and aggregations whose text was read before are not read again.

Most commands of a log say again what others have said, but for a store or a number:

    {"definition":{"aggregations":[{...},{...}],"commit_interval_ms":1000,...,"stores":[{...}],"uncommitted_...":0},...}
                                  -------------                                        -------

Both lists are cut out of the canonical text. They are read by themselves or remembered, and the rest is read with empty
ones. Which of them fit together is remembered, too. A text in which the cuts might not be where they seem to be, or of
which any piece does not read, is left to those who read it whole: nothing is taken here that they would refuse, and
every refusal is theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from pydantic import TypeAdapter
from pydantic_core import from_json

from statestore.definitions.aggregation import AggregationDefinition
from statestore.definitions.application import CHECKED_STORE_FIELDS, FITS_TOGETHER
from statestore.definitions.store import StoreDefinition

_BEGIN, _BEHIND_AGGREGATIONS = b'{"definition":{"aggregations":[', b'],"commit_interval_ms":'
_STORES, _BEHIND_STORES = b'"stores":[', b'],"uncommitted_max_bytes":'
#: How much is remembered, and how long its texts may be. All of it takes some 30 MB.
_STORE_TEXTS, _LONGEST_STORE = 4_096, 1_024
_LIST_TEXTS, _LONGEST_LIST = 512, 8_192
_FITTING_DEFINITIONS = 1_024
_AGGREGATIONS = TypeAdapter(tuple[AggregationDefinition, ...])
_checked_fields = attrgetter(*CHECKED_STORE_FIELDS)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Validate(Protocol[T_co]):
    """Makes a command of its fields; pydantic's `validate_python`."""

    def __call__(self, fields: dict[str, Any], /, *, context: object = None) -> T_co: ...


class _Listed(NamedTuple):
    """A list of stores or aggregations.

    Attributes
    ----------
    checked
        All of it that the checks of a definition as a whole look at: lists that have the same fit where one does.
    complete
        Each store names its engine, so the application has none to give it.
    """

    items: tuple[Any, ...]
    checked: object
    complete: bool = True


def _remembering(number: int, longest: int) -> Callable[[Callable[[bytes], T]], Callable[[bytes], T]]:
    """Cache a function's results for a limited number and size of texts."""

    def decorate(read: Callable[[bytes], T]) -> Callable[[bytes], T]:
        remembered = lru_cache(number)(read)
        return wraps(read)(lambda text: remembered(text) if len(text) <= longest else read(text))

    return decorate


#: What the checks of whole definitions looked at, of those that passed them.
_fitting: set[tuple[object, ...]] = set()


def read_in_parts(value: bytes, validate: Validate[T]) -> T | None:
    """Return the command with a definition that a text is; None: the text is to be read whole.

    Parameters
    ----------
    validate
        Makes the command of its fields; the definition's stores and aggregations are read by then.
    """
    try:
        fields = _fields(value)
        if fields is None or "kind" not in fields:  # `validate` may be that of one kind, and not miss it
            return None
        definition = fields["definition"]
        stores, aggregations = definition["stores"], definition["aggregations"]
        definition.update(stores=stores.items, aggregations=aggregations.items)
        outputs = definition.get("output_topics")
        checked = (
            definition.get("name"),
            definition.get("input_topic"),
            tuple(outputs) if isinstance(outputs, list) else outputs,
            definition.get("dead_letter_topic"),
            definition.get("processor") is None,
            stores.checked,
            aggregations.checked,
        )
        if checked in _fitting:
            return validate(fields, context=FITS_TOGETHER)
        command = validate(fields)
    except (ValueError, TypeError):  # whatever it is, those who read it whole find it, too
        return None
    listed = {store.name for store in stores.items}
    if stores.complete and all(item.store in listed for item in aggregations.items):
        if len(_fitting) >= _FITTING_DEFINITIONS:
            _fitting.clear()
        _fitting.add(checked)
    return command


def _fields(value: bytes) -> dict[str, Any] | None:
    """Read a text, the lists of its definition as `_Listed`; None if they are not to be seen."""
    lists = _lists(value)
    if lists is None:
        return None
    aggregations, stores = lists
    rest = value[: aggregations.start] + value[aggregations.stop : stores.start] + value[stores.stop :]
    fields: dict[str, Any] = from_json(rest)
    definition = fields["definition"]
    if not isinstance(definition, dict) or definition.get("aggregations") != [] or definition.get("stores") != []:
        return None
    definition.update(aggregations=_aggregations(value[aggregations]), stores=_stores(value[stores]))
    return fields


def _lists(value: bytes) -> tuple[slice, slice] | None:
    """Return what is between the brackets of both lists, if it is where it seems to be.

    Without escapes, each quotation mark begins or ends a string, so what a colon follows there is a key. If its name is
    in the text once, it is the only one.
    """
    begin, at = len(_BEGIN), value.find(b'"stores"')
    end = value.find(_BEHIND_AGGREGATIONS, begin)
    first, last = at + len(_STORES), value.rfind(_BEHIND_STORES)
    if not (value.startswith(_BEGIN) and value.startswith(_STORES, at) and begin <= end < at and first <= last):
        return None
    if b"\\" in value or value.find(b'"aggregations"', begin) >= 0 or value.find(b'"stores"', first) >= 0:
        return None
    return slice(begin, end), slice(first, last)


@_remembering(_LIST_TEXTS, _LONGEST_LIST)
def _aggregations(text: bytes) -> _Listed:
    return _Listed(_AGGREGATIONS.validate_json(b"[" + text + b"]"), text)


@_remembering(_LIST_TEXTS, _LONGEST_LIST)
def _stores(text: bytes) -> _Listed:
    if not text:
        return _Listed((), "")
    if not (text.startswith(b"{") and text.endswith(b"}")):
        raise ValueError("no list of objects")
    # If the objects are not where they are split, they do not read.
    stores = tuple([_store(b"{%b}" % fields) for fields in text[1:-1].split(b"},{")])
    complete = all("engine" in store.model_fields_set for store in stores)
    return _Listed(stores, (complete, repr([_checked_fields(store) for store in stores])), complete)


@_remembering(_STORE_TEXTS, _LONGEST_STORE)
def _store(text: bytes) -> StoreDefinition:
    return StoreDefinition.model_validate_json(text)
