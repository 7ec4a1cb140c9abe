"""Proposes a suite for a store from the rows that it has.

A proposal is a start, to be read and changed by somebody who knows the data. It is conservative: it holds for all rows
that were seen, ranges are ten times as wide, and each expectation says what was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore_expectations.profile import FieldProfile, Profile, field_profiles, profile
from statestore_expectations.views import with_readable

Proposal = dict[str, Any]

_DAY_MS = 24 * 60 * 60 * 1000
#: A range is this much wider than what was seen.
_WIDER = 10
#: Fewer keys than this may lie in their partitions by chance.
_KEYS_TELL = 20
#: A field that is null more often than this is not expected to be there.
_OFTEN_NULL = 0.4
_INT64_MAX = (1 << 63) - 1


def suggest(frame: DataFrame, store: StoreDefinition) -> dict[str, Any]:
    """Profile a store's rows and propose a suite, to be run with the one of the store's kind.

    Parameters
    ----------
    frame
        Rows as the source `state_store` gives them, keys and values as bytes. It is read two or three times and
        persisted for that.
    store
        Its definition.

    Returns
    -------
    dict
        A suite as JSON has it; `statestore_expectations.suites.load_suite` reads its file.

    Raises
    ------
    InputError
        If there is no row to learn from.
    """
    frame = frame.persist(StorageLevel.DISK_ONLY)
    try:
        seen = profile(frame, store)
        if not seen.rows:
            raise InputError(f"store {store.name} has no row: nothing can be learned from it; suggest when it has some")
        fields = field_profiles(with_readable(frame, seen.value_schema), seen) if seen.fields else []
    finally:
        frame.unpersist()
    return {
        "name": store.name,
        "meta": {
            "notes": f"Proposed from {seen.rows} rows of the {store.kind} store {store.name}. Read each expectation: "
            "it holds for what was seen, which need not be all that is right."
        },
        "expectations": [
            {
                "type": "expect_table_row_count_to_be_between",
                "kwargs": {"min_value": 1},
                "description": f"the store has a row; seen: {seen.rows}",
            },
            *_of_keys(seen),
            *_of_times(seen, store),
            *_of_values(seen, fields),
        ],
    }


def _rule(description: str, condition: str, **kwargs: Any) -> Proposal:
    # Braces are for parameters, so those of a pattern are doubled.
    condition = condition.replace("{", "{{").replace("}", "}}")
    return {
        "type": "expect_store_rows_to_satisfy",
        "kwargs": {"condition": condition, **kwargs},
        "description": description,
    }


def _of_keys(seen: Profile) -> Iterator[Proposal]:
    first, last = seen.key_bytes
    if seen.key_pattern is not None:
        pattern = seen.key_pattern
        yield _rule(
            f"a key is {pattern.meaning}; seen: all, {_range(first, last)} bytes", f"key_text RLIKE r'{pattern.regex}'"
        )
    if first == last and seen.rows > 1:
        yield _rule(f"a key has {first} bytes; seen: all", f"octet_length(key) = {first}")
    if seen.in_their_partition and seen.rows >= _KEYS_TELL:
        yield {
            "type": "expect_store_keys_to_be_in_their_partition",
            "kwargs": {"partitions": {"$PARAMETER": "partitions"}},
            "description": f"a key is in the partition of Kafka's default partitioner; seen: all, of {seen.partitions}",
        }


def _of_times(seen: Profile, store: StoreDefinition) -> Iterator[Proposal]:
    if seen.timestamps is not None:
        first, last = seen.timestamps
        earliest = max(first - 365 * _DAY_MS, 0)
        said = f"seen: {first} to {last}"
        yield _rule(f"a timestamp is not a year before the first; {said}", f"timestamp >= {earliest}", where=_KNOWN)
        if not seen.in_the_future:
            tomorrow = f"timestamp <= unix_millis(current_timestamp()) + {_DAY_MS}"
            yield _rule(f"a timestamp is not a day in the future; {said}", tomorrow, where=_KNOWN)
        if seen.within_window:
            within = "timestamp BETWEEN window_start AND window_end - 1"
            yield _rule(f"a timestamp is within its window; {said}", within, where=_KNOWN)
    if seen.advance_ms is not None:
        yield _rule(
            f"a window starts at a multiple of {seen.advance_ms} ms; seen: all, and none of a longer time",
            f"window_start % {seen.advance_ms} = 0",
        )
    if seen.longest_ms:
        yield _rule(
            f"a session is not {_WIDER} times as long as the longest; seen: up to {seen.longest_ms} ms",
            f"session_end - session_start <= {_WIDER * seen.longest_ms}",
        )


def _of_values(seen: Profile, fields: list[FieldProfile]) -> Iterator[Proposal]:
    if seen.value_serde is None:
        return
    parse: Proposal = {
        "type": "expect_store_values_to_parse",
        "kwargs": {"serde": seen.value_serde},
        "description": f"a value is {seen.value_serde}; seen: all, {_range(*seen.value_bytes)} bytes",
    }
    if fields:
        found = ", ".join(f"{one.name}{'' if one.nulls == 0 else ' (or null)'}" for one in fields)
        parse["kwargs"]["value_schema"] = ", ".join(
            f"`{one.name}` {one.type}{' NOT NULL' if one.nulls == 0 else ''}" for one in fields
        )
        parse["description"] = f"a value is a JSON object; seen in all, with the same types: {found}"
    yield parse
    if seen.numbers is not None:
        yield from _within("the value", "value_int64", *seen.numbers, {})
    for one in fields:
        yield from _of_field(one, seen.rows)


def _of_field(field: FieldProfile, rows: int) -> Iterator[Proposal]:
    column = f"value_json.`{field.name}`"
    where = {"where": f"{column} IS NOT NULL"} if field.nulls else {}
    share = field.nulls / rows
    if 0 < share <= _OFTEN_NULL:
        yield _rule(
            f"{field.name} is seldom null or absent; seen: {field.nulls} of {rows}",
            f"{column} IS NOT NULL",
            mostly=round(1 - 2 * share, 6),
        )
    if field.numbers is not None:
        yield from _within(field.name, column, *field.numbers, where)
    if field.pattern is not None:
        meaning = f"{field.name} is {field.pattern.meaning}; seen: all"
        yield _rule(meaning, f"{column} RLIKE r'{field.pattern.regex}'", **where)


def _within(name: str, column: str, first: float, last: float, where: dict[str, str]) -> Iterator[Proposal]:
    """Expect numbers in a range that begins or ends at 0 where none was seen beyond."""
    lower, upper = min(_WIDER * first, 0), max(_WIDER * last, 0)
    if lower == upper or max(-lower, upper) > _INT64_MAX:
        return
    yield _rule(
        f"{name} is between {lower} and {upper}; seen: {_range(first, last)}",
        f"{column} BETWEEN {lower} AND {upper}",
        **where,
    )


def _range(first: float, last: float) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


_KNOWN = "timestamp <> -1"
