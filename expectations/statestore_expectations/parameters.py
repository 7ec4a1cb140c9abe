"""Parameters: numbers that suites name and that are known when a store is validated.

In the arguments of Great Expectations' own expectations they are written `{"$PARAMETER": "live_keys"}`, in the SQL of
ours `{live_keys}`. There is no value for what a store does not have, such as the window size of a session store; a
suite that names it cannot be evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from statestore.stores.segment_starts import segment_interval_ms

#: What a suite may name.
PARAMETERS = {
    "live_keys": "rows of the changelog",
    "timestamp_min": "smallest timestamp of the changelog's rows (ms)",
    "timestamp_max": "largest timestamp of the changelog's rows (ms)",
    "partitions": "how many partitions the store has",
    "window_size_ms": "length of a window",
    "window_advance_ms": "how far a window starts after the one before; 1 if it is not known",
    "retention_ms": "how long rows are kept",
    "segment_interval_ms": "rows expire together in stretches of this length",
}


def placeholders(text: str, *others: str) -> list[str]:
    """Return the names in braces of a text.

    Raises
    ------
    ValueError
        If one is no parameter, or a brace is not paired.
    """
    try:
        found = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise ValueError(f"{error} in {text!r}; a brace of the text's own is doubled, as in {{{{3}}}}") from error
    known = [*PARAMETERS, *others]
    if unknown := [name for name in found if name not in known]:
        raise ValueError(
            f"unknown parameters {unknown} in {text!r}; there are {known}. A brace of the text's own is doubled, as in "
            "{{3}}"
        )
    return found


def filled_in(text: str, parameters: Mapping[str, int], **others: str) -> str:
    """Put the parameters' values into a text."""
    return text.format_map({**parameters, **others})


def named(argument: Any) -> Iterator[str]:
    """Yield the parameters that an argument of an expectation names in Great Expectations' way."""
    if isinstance(argument, dict):
        if "$PARAMETER" in argument:
            yield str(argument["$PARAMETER"])
        for value in argument.values():
            yield from named(value)


class Measured(NamedTuple):
    """What the changelog's rows tell.

    Attributes
    ----------
    parameters
        `live_keys`, `timestamp_min`, `timestamp_max`.
    stream_time
        Of each partition of a window or session store the largest time of a row, which decides on retention.
    """

    parameters: dict[str, int]
    stream_time: dict[int, int]


def measured(log: DataFrame) -> Measured:
    """Read the changelog's rows once."""
    time = next((name for name in ("window_start", "session_end") if name in log.columns), None)
    rows = (
        log.groupBy("partition")
        .agg(
            F.count("*").alias("keys"),
            F.min("timestamp").alias("first"),
            F.max("timestamp").alias("last"),
            (F.max(time) if time else F.lit(None)).alias("time"),
        )
        .collect()
    )
    # Great Expectations wants bounds; where the log has no live key the store has no row to compare with them.
    parameters = {
        "live_keys": sum(row.keys for row in rows),
        "timestamp_min": min((row.first for row in rows if row.first is not None), default=0),
        "timestamp_max": max((row.last for row in rows if row.last is not None), default=0),
    }
    return Measured(parameters, {row.partition: row.time for row in rows if row.time is not None})


def with_derived(parameters: Mapping[str, object]) -> dict[str, int]:
    """Return the parameters that have a value, with those that follow from them."""
    found = {name: value for name, value in parameters.items() if isinstance(value, int)}
    if "retention_ms" in found:
        found.setdefault("segment_interval_ms", segment_interval_ms(found["retention_ms"]))
    return {"window_advance_ms": 1, **found}
