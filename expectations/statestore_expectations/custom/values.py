"""Values are what their serde writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Literal

from great_expectations.compatibility import pydantic
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructType

from statestore.schemas.serdes import REGISTRY_SERDES
from statestore_expectations.custom.rows import RowsExpectation, Rule
from statestore_expectations.views import IS_JSON, UNPARSABLE, type_of

_PLAIN = {
    "utf8": "value_text IS NOT NULL",
    "int64": "value_int64 IS NOT NULL",
    **dict.fromkeys(("json", *REGISTRY_SERDES), IS_JSON),  # a registry serde is decoded to JSON text
}


class ExpectStoreValuesToParse(RowsExpectation):
    """Expect each value to be what a serde writes.

    Parameters
    ----------
    serde
        `utf8`, `int64` (eight bytes), `json`, or `avro`, `protobuf`, or `json-schema` of a Schema Registry.
    value_schema
        Fields of an object (JSON, or a serde of a Schema Registry), as a DDL such as `flights BIGINT NOT NULL,
        last_airport STRING`. A field that is not `NOT NULL` may be null or absent, and there may be fields that are not
        named. Whole numbers must be written as such, within their type; elements of arrays of strings may be of any
        type. With a schema, the rules of the suite can name the fields: `value_json.flights`.
    mostly
        Share of the rows that has to pass: 1 if not said.
    """

    success_keys: ClassVar[tuple[str, ...]] = ("serde", "value_schema", "mostly")
    serde: Literal["utf8", "int64", "json", "avro", "protobuf", "json-schema"]
    value_schema: str | None = None

    @pydantic.validator("value_schema")
    def _only_json_has_a_schema(cls, value_schema: str | None, values: dict[str, object]) -> str | None:
        if value_schema is not None and values.get("serde") not in ("json", *REGISTRY_SERDES):
            raise ValueError(
                f"value_schema is for serde json, {', '.join(REGISTRY_SERDES)}; found serde {values.get('serde')}"
            )
        return value_schema

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the schema."""
        try:
            self.rule()
        except (PySparkException, ValueError) as error:
            yield f"value_schema {self.value_schema!r}: {str(error).strip().splitlines()[0]}"

    def rule(self) -> Rule:
        """Return the rule; the columns that it reads are made by `statestore_expectations.views.with_readable`."""
        if self.value_schema is None:
            return Rule(_PLAIN[self.serde])
        parsed = [_PLAIN["json"], "value_json IS NOT NULL", f"value_json.{UNPARSABLE} IS NULL"]
        schema = StructType.fromDDL(self.value_schema)
        if not isinstance(schema, StructType):
            raise ValueError("expected the names and types of an object's fields")
        return Rule(" AND ".join([*parsed, *_rules(schema, "value_json")]))


def _rules(schema: StructType, column: str, *path: str) -> Iterator[str]:
    """Yield what Spark's JSON parser leaves open: it takes anything for text, and an absent field for null."""
    for field in schema:
        if not re.fullmatch(r"[\w -]+", field.name):
            raise ValueError(f"a field {field.name!r} cannot be checked; expected letters, digits, _, -, and spaces")
        inner, within = f"{column}.`{field.name}`", (*path, field.name)
        if not field.nullable:
            yield f"{inner} IS NOT NULL"
        if isinstance(field.dataType, StringType):
            yield f"{type_of(*within)} IN ('STRING', 'VOID')"
        if isinstance(field.dataType, StructType):
            rules = " AND ".join(_rules(field.dataType, inner, *within)) or "true"
            yield f"({inner} IS NULL OR ({rules}))"
