"""Functions of predefined aggregations: `count`, `latest`, `sum_of`, `reduce_by`, and `aggregate`.

Records are folded in batches. The given functions must therefore be pure: they depend only on their arguments, and a
record can be passed to them more than once. An accumulator passes through its serde only at the end of a batch. A
function must not rely on the identity of an accumulator, or on properties that its serde does not keep (JSON turns a
tuple into a list, and a key of a dict into a string). A function can modify and return an accumulator; the serde must
be able to write each returned one. None deletes the result, and the next record starts with a new accumulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from statestore.errors import DefinitionError
from statestore.reference import load
from statestore.stores.serdes import BYTES, INT64, JSON, Serde

Aggregator = Callable[[bytes, Any, Any], Any]
Merger = Callable[[bytes, Any, Any], Any]


@dataclass(frozen=True)
class Aggregate:
    """How the records of a key, a window, or a session become one result.

    Attributes
    ----------
    value
        Serde that reads a record's value. None: the value is not read.
    result
        Serde that writes the result.
    initializer
        Returns the accumulator of a new result.
    aggregator
        `aggregator(key, value, accumulator)` returns the accumulator with one more record. The key is bytes.
    merger
        `merger(key, a, b)` returns the accumulator of two merged sessions. The first can be the initial accumulator.
    amount
        For a sum: returns the number that a record's value adds. None for all others.
    counts
        Whether every record adds one, regardless of its value.
    by_time
        Whether the result is the value of the record with the largest timestamp.
    """

    value: Serde[Any] | None
    result: Serde[Any]
    initializer: Callable[[], Any]
    aggregator: Aggregator
    merger: Merger | None = None
    amount: Callable[[Any], int] | None = None
    counts: bool = False
    by_time: bool = False


def count() -> Aggregate:
    """Count records; the result is an int64, as Kafka Streams writes it."""
    return Aggregate(
        value=None,
        result=INT64,
        initializer=_zero,
        aggregator=lambda _key, _value, counted: counted + 1,
        merger=lambda _key, one, other: one + other,
        counts=True,
    )


def latest() -> Aggregate:
    """Keep the value of the record with the largest timestamp; if several have it, the last one wins.

    A record that arrives late does not replace a newer value. The value is stored unchanged.
    """
    return Aggregate(
        value=BYTES, result=BYTES, initializer=_nothing, aggregator=lambda _key, value, _so_far: value, by_time=True
    )


def sum_of(of: Callable[[Any], int] | None = None, *, value: Serde[Any] = JSON) -> Aggregate:
    """Add up integers; the result is an int64. A record that makes it exceed 64 bits is poison.

    Parameters
    ----------
    of
        Returns the number in a record's value. By default, the value itself is the number.

    Examples
    --------
    >>> spent = sum_of(lambda order: order["cents"])
    """
    amount = the_value if of is None else of

    def add(_key: bytes, found: Any, total: int) -> int:
        return _within_int64(total + whole_number(amount(found)))

    def merge(_key: bytes, one: int, other: int) -> int:
        return _within_int64(one + other)

    return Aggregate(value=value, result=INT64, initializer=_zero, aggregator=add, merger=merge, amount=amount)


def reduce_by(reducer: Callable[[Any, Any], Any], *, value: Serde[Any] = BYTES) -> Aggregate:
    """Combine values of one type two at a time: `reducer(so far, value)`; the first value is the first result.

    Examples
    --------
    >>> largest = reduce_by(max, value=INT64)
    """

    def add(_key: bytes, found: Any, so_far: Any) -> Any:
        return found if so_far is None else reducer(so_far, found)

    def merge(_key: bytes, one: Any, other: Any) -> Any:
        return other if one is None else reducer(one, other)

    return Aggregate(value=value, result=value, initializer=_nothing, aggregator=add, merger=merge)


def aggregate(
    initializer: Callable[[], Any],
    aggregator: Aggregator,
    *,
    merger: Merger | None = None,
    value: Serde[Any] = BYTES,
    result: Serde[Any] = JSON,
) -> Aggregate:
    """Fold values into an accumulator of another type.

    Parameters
    ----------
    initializer
        Returns a new accumulator.
    aggregator
        `aggregator(key, value, accumulator)` returns the accumulator with the value added.
    merger
        `merger(key, a, b)` merges two accumulators into one. Sessions need it.

    Examples
    --------
    >>> longest = aggregate(int, lambda key, value, so_far: max(so_far, len(value)))
    """
    return Aggregate(value=value, result=result, initializer=initializer, aggregator=aggregator, merger=merger)


def load_aggregate(reference: str) -> Aggregate:
    """Return the aggregate that a definition names: `count`, `latest`, or a custom one as `module:attribute`.

    Raises
    ------
    DefinitionError
        If it cannot be imported, or is not an aggregate.
    """
    if reference in _PREDEFINED:
        return _PREDEFINED[reference]()
    expected = "made with count, latest, sum_of, reduce_by, or aggregate of statestore.tasks.aggregates"
    found = load(reference, "aggregate", expected)
    if not isinstance(found, Aggregate):
        raise DefinitionError(f"aggregate {reference} is a {type(found).__name__}, expected one {expected}")
    return found


def whole_number(found: Any) -> int:
    """Return what a sum adds.

    Raises
    ------
    TypeError
        If it is no int.
    """
    if not isinstance(found, int):
        raise TypeError(f"a sum adds int, found {type(found).__name__}: {found!r:.80}")
    return found


def _within_int64(total: int) -> int:
    if not -(1 << 63) <= total < 1 << 63:
        raise OverflowError(f"a sum of {total} does not fit into 64 bits")
    return total


def the_value(value: Any) -> Any:
    """The default of `sum_of`: the value itself."""
    return value


def _zero() -> int:
    return 0


def _nothing() -> None:
    return None


_PREDEFINED = {"count": count, "latest": latest}
