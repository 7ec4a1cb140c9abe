"""What a ready-made aggregation computes: `count`, `sum_of`, `reduce_by` and `aggregate`.

Records are folded in batches. The functions given here are therefore pure: they depend on their arguments alone, and a
record may be shown to them more than once. An accumulator goes through its serde whenever a batch ends, and nowhere
else, so a function must not rely on the identity of an accumulator, nor on anything that its serde does not keep (JSON
turns a tuple into a list, a key of a dict into a text). An accumulator may be changed and returned; each one returned
must be one that the serde can write. None deletes the result, and the next record begins anew.
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
    """How records of a key, a window or a session become one result.

    Attributes
    ----------
    value
        How a record's value is read; None: it is not looked at.
    result
        How the result is written.
    initializer
        Gives the accumulator of a result that does not exist yet.
    aggregator
        `aggregator(key, value, accumulator)` gives the accumulator with one more record; the key is bytes.
    merger
        `merger(key, a, b)` gives the accumulator of two sessions that become one; the first may be the initial one.
    amount
        In a sum, what a record's value adds to it; None in all others.
    counts
        Whether every record adds one, whatever it holds.
    """

    value: Serde[Any] | None
    result: Serde[Any]
    initializer: Callable[[], Any]
    aggregator: Aggregator
    merger: Merger | None = None
    amount: Callable[[Any], int] | None = None
    counts: bool = False


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


def sum_of(of: Callable[[Any], int] | None = None, *, value: Serde[Any] = JSON) -> Aggregate:
    """Add up whole numbers; the result is an int64. A record that takes it beyond 64 bits is poison.

    Parameters
    ----------
    of
        Gives the number in a record's value; the value itself is the number if this is left out.

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
        Gives a new accumulator.
    aggregator
        `aggregator(key, value, accumulator)` returns the accumulator with the value in it.
    merger
        `merger(key, a, b)` makes one accumulator of two; sessions need it.

    Examples
    --------
    >>> longest = aggregate(int, lambda key, value, so_far: max(so_far, len(value)))
    """
    return Aggregate(value=value, result=result, initializer=initializer, aggregator=aggregator, merger=merger)


def load_aggregate(reference: str) -> Aggregate:
    """Return the aggregate that a definition names: `count`, or one of the user's as `module:attribute`.

    Raises
    ------
    DefinitionError
        If it cannot be imported, or is no aggregate.
    """
    if reference == "count":
        return count()
    expected = "made with count, sum_of, reduce_by or aggregate of statestore.tasks.aggregates"
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
    """What a sum adds if it is told nothing else."""
    return value


def _zero() -> int:
    return 0


def _nothing() -> None:
    return None
