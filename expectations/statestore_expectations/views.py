"""The views for suites: a store's rows, those of its changelog, and a comparison of both.

A row's identity is its partition and key, and what its kind has between key and value: in a window store the window's
start, in a session store the session's start and end, in a versioned store the time from which a version is valid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

from statestore.schemas.serdes import VALUE_HEADER, load_decoder, registry_url, with_schema_id

#: The names under which suites find the store's rows (also `{batch}`), the changelog's, and both side by side.
STORE_VIEW, CHANGELOG_VIEW, COMPARISON_VIEW = "store", "changelog", "comparison"

#: Ends of a window and of a version, which tell no row from another.
_ENDS = ("window_end", "valid_to")
#: Numbers the values that a window store retains as duplicates.
_SEQUENCE = "sequence"
_OCCURRENCE = "occurrence"
#: A field of `value_json`: the text of a value that does not have the schema.
UNPARSABLE = "_unparsable"
#: Columns by which rules read keys and values.
READABLE = ("key_text", "value_text", "key_int64", "value_int64", "value_variant", "value_json", "value_reason")
_WRAPPED = "value_wrapped"
_NOT_SHOWN = ("value_variant", "value_json", "stream_time", _WRAPPED)
#: Whether a value is JSON. Spark's parser ignores what follows a value; what is one within an object, and also within
#: an array, has nothing behind it.
IS_JSON = f"{_WRAPPED} IS NOT NULL AND try_parse_json('[' || value_text || ']') IS NOT NULL"


def identity(frame: DataFrame) -> list[str]:
    """Columns that tell the rows of a store or a changelog apart, if it does not retain duplicates."""
    return ["partition", "key", *(name for name in _of_kind(frame) if name not in (*_ENDS, _SEQUENCE))]


def _of_kind(frame: DataFrame) -> list[str]:
    """Columns that rows have between key and value, because they are of a kind that has more in its row keys."""
    names = frame.columns
    value = min(names.index(name) for name in ("value", "store_value") if name in names)
    return names[names.index("key") + 1 : value]


def row_key(frame: DataFrame) -> list[str]:
    """Columns that no two rows of a store share: the identity, and the sequence number where there is one."""
    return [*identity(frame), *(name for name in (_SEQUENCE,) if name in frame.columns)]


def compared(store: DataFrame, log: DataFrame) -> DataFrame:
    """Put the rows of a store and of its changelog side by side: one full outer join by identity.

    Store and log number retained duplicates each in its own way. So they are compared by value: of the same value, the
    first with the first, the second with the second.

    Parameters
    ----------
    store
        Rows as the source `state_store` gives them.
    log
        Rows as the source `changelog` gives them with `latest` and, of a window or session store, `kind`.

    Returns
    -------
    DataFrame
        `partition`, `key`, the kind's times, `store_value`, `log_value`, `store_timestamp`, `log_timestamp`,
        `in_store`, `in_log`. It is read several times: persist it.
    """
    on = identity(store)
    times = [name for name in _of_kind(store) if name != _SEQUENCE]
    if _SEQUENCE in store.columns:
        on = [*on, "value", _OCCURRENCE]
        order = Window.partitionBy(*identity(store), "value").orderBy("timestamp")
        store, log = (frame.withColumn(_OCCURRENCE, F.row_number().over(order)) for frame in (store, log))
    one = store.withColumn("present", F.lit(True)).alias("one")
    other = log.withColumn("present", F.lit(True)).alias("other")
    same = [_same(name, nullable=name == "value") for name in on]
    return one.join(other, same, "full_outer").select(
        *(F.coalesce(f"one.{name}", f"other.{name}").alias(name) for name in ("partition", "key", *times)),
        *(
            F.col(f"{side}.{name}").alias(f"{prefix}_{name}")
            for name in ("value", "timestamp")
            for side, prefix in (("one", "store"), ("other", "log"))
        ),
        F.coalesce("one.present", F.lit(False)).alias("in_store"),
        F.coalesce("other.present", F.lit(False)).alias("in_log"),
    )


def _same(name: str, *, nullable: bool) -> Column:
    one, other = F.col(f"one.{name}"), F.col(f"other.{name}")
    return one.eqNullSafe(other) if nullable else one == other


def with_readable(frame: DataFrame, value_schema: str | None = None, registry_serde: str | None = None) -> DataFrame:
    """Add what rules about keys and values are written with; what is not used costs nothing.

    Parameters
    ----------
    value_schema
        Fields of JSON values (DDL), if there are such.
    registry_serde
        Serde of the values, if their schemas are in a Schema Registry: `value_text` is then the decoded value as JSON,
        and `value_reason` says why a value cannot be decoded.

    Returns
    -------
    DataFrame
        With `key_text`, `value_text` (null where the bytes are not UTF-8), `key_int64`, `value_int64` (null where they
        are not eight bytes), `value_variant` (null where the value is not JSON) and, with a schema, `value_json` (its
        fields are null where the value has none of that type).
    """
    # A plain cast takes any bytes, and invalid UTF-8 must not end the job.
    texts = {f"{name}_text": F.try_validate_utf8(F.col(name).cast("string")) for name in ("key", "value")}
    numbers = {
        f"{name}_int64": F.when(F.octet_length(name) == 8, F.conv(F.hex(name), 16, -10).cast("long"))
        for name in ("key", "value")
    }
    if registry_serde is not None:
        headers = F.col("headers") if "headers" in frame.columns else F.lit(None).cast("array<struct<key:string>>")
        found = _of_registry(registry_serde, registry_url())(F.col("value"), headers)
        texts |= {"value_text": found["text"], "value_reason": found["reason"]}
    frame = frame.withColumns(texts | numbers).withColumns(
        {
            "value_variant": F.try_parse_json("value_text"),
            _WRAPPED: F.try_parse_json(F.concat(F.lit('{"value":'), "value_text", F.lit("}"))),
        }
    )
    if value_schema is None:
        return frame
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNPARSABLE}
    return frame.withColumn("value_json", F.from_json("value_text", f"{value_schema}, {UNPARSABLE} STRING", options))


def _of_registry(serde: str, url: str) -> Callable[..., Column]:
    """Return a function of values and their headers: values as JSON text, or why they cannot be decoded."""

    def decoded(values: pa.Array, headers: pa.Array) -> pa.Array:
        decode = load_decoder(serde, url)
        rows: list[dict[str, str | None] | None] = []
        for raw, carried in zip(values.to_pylist(), headers.to_pylist(), strict=True):
            if raw is None:
                rows.append(None)
                continue
            data = with_schema_id(raw, ((one["key"], one["value"]) for one in carried or ()), VALUE_HEADER)
            try:
                rows.append({"text": json.dumps(decode(data), ensure_ascii=False), "reason": None})
            except ValueError as error:
                rows.append({"text": None, "reason": str(error)})
        return pa.array(rows, pa.struct([("text", pa.string()), ("reason", pa.string())]))

    made: Callable[..., Column] = arrow_udf(decoded, "text STRING, reason STRING", ArrowUDFType.SCALAR)
    return made


def type_of(*path: str) -> str:
    """Return the SQL for the type that a field of a JSON value has; VOID if it is null or absent."""
    steps = "".join(f"['{step}']" for step in ("value", *path))
    return f"""coalesce(schema_of_variant(variant_get({_WRAPPED}, "${steps}", "variant")), 'VOID')"""


def shown_columns(frame: DataFrame) -> list[str]:
    """Columns of a view that samples show: not what they repeat."""
    return [name for name in frame.columns if name not in _NOT_SHOWN]


@contextmanager
def shown(spark: SparkSession, views: dict[str, DataFrame]) -> Iterator[None]:
    """Have temporary views while the context lasts."""
    try:
        for name, frame in views.items():
            frame.createOrReplaceTempView(name)
        yield
    finally:
        for name in views:
            spark.catalog.dropTempView(name)
