"""Profiles the rows of a store: counts in one pass, and the fields of JSON values in another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from statestore.definitions.store import StoreDefinition
from statestore_expectations import partitioner
from statestore_expectations.views import IS_JSON, with_readable


class Pattern(NamedTuple):
    """A regular expression for texts, and how to say it."""

    regex: str
    meaning: str


#: From the narrowest on: the first that all texts match is the one.
PATTERNS = (
    Pattern("^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$", "a UUID"),
    Pattern("^[0-9]+$", "digits"),
    Pattern("^[A-Z]{3}$", "three capital letters"),
    Pattern("^[A-Z]+$", "capital letters"),
    Pattern("^[a-z]+$", "small letters"),
    Pattern("^[A-Z0-9]+$", "capital letters and digits"),
    Pattern("^[a-z0-9]+$", "small letters and digits"),
    Pattern("^[A-Za-z0-9]+$", "letters and digits"),
    Pattern("^[A-Za-z0-9_.:/@-]+$", "letters, digits and _ . : / @ -"),
    Pattern("^[^\\p{Cntrl}]+$", "printable text"),
)
#: Parts of a window's length that it may advance by.
_ADVANCES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 60)
_FIELD_NAME = re.compile(r"[\w -]+")


@dataclass(frozen=True)
class Profile:
    """What all rows have in common.

    Attributes
    ----------
    key_bytes, value_bytes
        Shortest and longest.
    key_pattern
        Of keys that are all text.
    partitions
        How many there are; `in_their_partition` tells whether all keys are where Kafka's partitioner puts them.
    timestamps
        First and last (ms) of those that are known.
    in_the_future
        Whether one is more than a day ahead of now.
    within_window
        Whether those that are known lie within their windows.
    advance_ms
        Longest part of a window's length that all windows start at a multiple of.
    longest_ms
        Length of the longest session.
    value_serde
        What all values are.
    fields
        Of JSON objects: those with the same type in all of them, absent or null in some.
    numbers
        Smallest and largest value of a store of numbers.
    """

    rows: int
    key_bytes: tuple[int, int]
    value_bytes: tuple[int, int]
    key_pattern: Pattern | None
    partitions: int
    in_their_partition: bool
    timestamps: tuple[int, int] | None
    in_the_future: bool
    within_window: bool
    advance_ms: int | None
    longest_ms: int | None
    value_serde: Literal["utf8", "int64", "json"] | None
    fields: StructType
    numbers: tuple[int, int] | None

    @property
    def value_schema(self) -> str:
        """The fields as a DDL."""
        return ", ".join(f"`{field.name}` {ddl(field.dataType)}" for field in self.fields)


@dataclass(frozen=True)
class FieldProfile:
    """A field of JSON values.

    Attributes
    ----------
    type
        As in a DDL.
    nulls
        In how many rows it is null or absent.
    numbers
        Smallest and largest; None if it is no number.
    pattern
        Of texts.
    """

    name: str
    type: str
    nulls: int
    numbers: tuple[float, float] | None
    pattern: Pattern | None


def profile(frame: DataFrame, store: StoreDefinition) -> Profile:
    """Read the rows of a store once; its highest partition tells how many there are if its definition does not."""
    partitioner.register(frame.sparkSession)
    partitions = store.partitions or _partitions(frame)
    known = F.col("timestamp") != -1
    counted: dict[str, Column] = {
        "rows": F.count("*"),
        "key_first": F.min(F.octet_length("key")),
        "key_last": F.max(F.octet_length("key")),
        "value_first": F.min(F.octet_length("value")),
        "value_last": F.max(F.octet_length("value")),
        "misplaced": _failing(f"kafka_partition(key, {partitions}) = partition"),
        "first": F.min(F.when(known, F.col("timestamp"))),
        "last": F.max(F.when(known, F.col("timestamp"))),
        "future": F.count_if(known & F.expr("timestamp > unix_millis(current_timestamp()) + 86400000")),
        "utf8": _failing("value_text IS NOT NULL"),
        "int64": _failing("value_int64 IS NOT NULL"),
        "printable": _failing(f"value_text RLIKE r'{PATTERNS[-1].regex}'"),
        "json": _failing(IS_JSON),
        "shape": F.schema_of_variant_agg("value_variant"),
        "smallest": F.min("value_int64"),
        "largest": F.max("value_int64"),
        **{f"key_{at}": _failing(f"key_text RLIKE r'{one.regex}'") for at, one in enumerate(PATTERNS)},
    }
    advances: list[int] = []
    if "window_start" in frame.columns:
        size = store.window_size_ms or 0
        advances = [size // part for part in _ADVANCES if size >= part * 1_000 and size % part == 0]
        counted |= {f"advance_{one}": _failing(f"window_start % {one} = 0") for one in advances}
        counted["outside"] = F.count_if(known & ~F.expr("timestamp BETWEEN window_start AND window_end - 1"))
    if "session_start" in frame.columns:
        counted["longest"] = F.max(F.col("session_end") - F.col("session_start"))
    row = with_readable(frame).agg(*(column.alias(name) for name, column in counted.items())).first()
    assert row is not None
    seen = row.asDict()
    serde = _serde(seen, store)
    return Profile(
        rows=seen["rows"],
        key_bytes=(seen["key_first"], seen["key_last"]),
        value_bytes=(seen["value_first"], seen["value_last"]),
        key_pattern=next((one for at, one in enumerate(PATTERNS) if not seen[f"key_{at}"]), None),
        partitions=partitions,
        in_their_partition=not seen["misplaced"],
        timestamps=None if seen["first"] is None else (seen["first"], seen["last"]),
        in_the_future=seen["future"] > 0,
        within_window=seen.get("outside") == 0,
        advance_ms=next((one for one in advances if not seen[f"advance_{one}"]), None),
        longest_ms=seen.get("longest"),
        value_serde=serde,
        fields=_fields(seen["shape"]) if serde == "json" else StructType(),
        numbers=(seen["smallest"], seen["largest"]) if serde == "int64" else None,
    )


def field_profiles(frame: DataFrame, seen: Profile) -> list[FieldProfile]:
    """Read the fields of JSON values once; the frame has them in `value_json`."""
    counted: list[Column] = []
    for at, field in enumerate(seen.fields):
        column = F.col(f"value_json.`{field.name}`")
        counted.append(F.count_if(column.isNull()).alias(f"nulls_{at}"))
        if isinstance(field.dataType, LongType | DoubleType):
            counted += [F.min(column).alias(f"first_{at}"), F.max(column).alias(f"last_{at}")]
        if isinstance(field.dataType, StringType):
            counted += [
                F.count_if(column.isNotNull() & ~column.rlike(one.regex)).alias(f"text_{at}_{number}")
                for number, one in enumerate(PATTERNS)
            ]
    row = frame.agg(*counted).first()
    assert row is not None
    return [_field_profile(at, field, row.asDict(), seen.rows) for at, field in enumerate(seen.fields)]


def _field_profile(at: int, field: StructField, found: dict[str, Any], rows: int) -> FieldProfile:
    nulls = found[f"nulls_{at}"]
    number = found.get(f"first_{at}") is not None
    text = isinstance(field.dataType, StringType) and nulls < rows
    return FieldProfile(
        name=field.name,
        type=ddl(field.dataType),
        nulls=nulls,
        numbers=(found[f"first_{at}"], found[f"last_{at}"]) if number else None,
        pattern=next((one for number, one in enumerate(PATTERNS) if text and not found[f"text_{at}_{number}"]), None),
    )


def ddl(kind: DataType) -> str:
    """Return a type as a DDL has it, with names that may have spaces."""
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'`{field.name}`: {ddl(field.dataType)}' for field in kind)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{ddl(kind.elementType)}>"
    return kind.simpleString().upper()


def _failing(condition: str) -> Column:
    return F.count_if(~F.coalesce(F.expr(condition), F.lit(False)))


def _partitions(frame: DataFrame) -> int:
    found = frame.agg(F.max("partition").alias("last")).first()
    assert found is not None
    return 1 if found["last"] is None else int(found["last"]) + 1


def _serde(seen: dict[str, Any], store: StoreDefinition) -> Literal["utf8", "int64", "json"] | None:
    """Tell what all values are; eight printable characters are text, and so is a number in digits."""
    if not seen["json"] and (str(seen["shape"]).startswith("OBJECT<") or store.value_serde == "json"):
        return "json"
    if not seen["int64"] and seen["printable"]:
        return "int64"
    return None if seen["utf8"] else "utf8"


def _fields(shape: str) -> StructType:
    """Read what `schema_of_variant_agg` says, without what has no type that can be expected."""
    found = DataType.fromDDL(re.sub(r"\bOBJECT<", "STRUCT<", shape))
    kept = _kept(found)
    return kept if isinstance(kept, StructType) else StructType()


def _kept(found: DataType) -> DataType | None:
    match found:
        case LongType() | DoubleType() | StringType() | BooleanType():
            return found
        case DecimalType() | FloatType():
            return DoubleType()
        case ArrayType():
            element = _kept(found.elementType)
            return None if element is None or isinstance(element, StructType) else ArrayType(element)
        case StructType():
            fields = [(field.name, _kept(field.dataType)) for field in found if _FIELD_NAME.fullmatch(field.name)]
            kept = StructType([StructField(name, kind) for name, kind in fields if kind is not None])
            return kept if kept.fields else None
    return None
