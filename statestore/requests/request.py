"""The base of all requests: how one is read, and how what is wrong with it is said.

A field's type, default, bounds, title and text, which stands below it, are declared once, in the model of its job. From
there come the job's arguments (`arguments.py`), the command's options (`cli/options.py`) and the fields of Airflow's
form (`dags/statestore_dags/form.py`). A field that may be given several times is an option in the singular.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from statestore.errors import InputError
from statestore.model import StoreSelector

#: A field's JSON schema; of one that may be left out, that of its value.
Schema = dict[str, Any]


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


#: Names of applications or stores.
Names = Annotated[tuple[str, ...], AfterValidator(_distinct)]
Partitions = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...], AfterValidator(lambda numbers: tuple(sorted(set(numbers))))
]


class Request(BaseModel):
    """A request to a job or a command."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def read(cls, said: Mapping[str, Any], called: Mapping[str, str] | None = None, *, strict: bool = False) -> Self:
        """Read the fields of a request; None stands for one that was not said.

        Parameters
        ----------
        called
            What the fields are called where they were said, if not by their names; None: the options of a command line.
        strict
            The values are JSON, and of the right types.

        Raises
        ------
        InputError
            If a value is malformed, or fields do not fit together.
        """
        given = _with_bare_names(cls, {name: value for name, value in said.items() if value is not None}, called)
        try:
            if strict:
                return cls.model_validate_json(json.dumps(given, default=str), strict=True, context=called)
            return cls.model_validate(given, context=called)
        except ValidationError as error:
            problems = [_said(cls, dict(problem), called) for problem in error.errors()]
            raise InputError("; ".join(problems)) from error


@cache
def schemas(kind: type[Request]) -> Mapping[str, Schema]:
    """Return the JSON schemas of a request's fields."""
    found = kind.model_json_schema()["properties"]
    for name, schema in found.items():
        schema |= schema.get("anyOf", ({},))[0]
        if schema["title"] == name.replace("_", " ").title():  # pydantic's own title
            schema["title"] = name.replace("_", " ").capitalize()
        schema["description"] = " ".join(schema["description"].split())
    return dict(found)


def option(kind: type[Request], name: str) -> str:
    """Return the name of a field's option."""
    singular = name.removesuffix("s") if schemas(kind)[name]["type"] == "array" else name
    return f"--{singular.replace('_', '-')}"


def help_text(kind: type[Request], name: str) -> str:
    """Return what the help says of a field's option."""
    schema = schemas(kind)[name]
    return f"{schema['description']} May be repeated." if schema["type"] == "array" else str(schema["description"])


def called(kind: type[Request], name: str, names: Mapping[str, str] | None) -> str:
    """Return what a field is called where it was said; see `Request.read`."""
    return option(kind, name) if names is None else names.get(name, name)


def _with_bare_names(kind: type[Request], given: dict[str, Any], names: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the fields with stores by their names alone: applications and partitions named with them go to theirs.

    Raises
    ------
    InputError
        If fields cannot say it: partitions of several stores, or of a job that works on whole stores.
    """
    stores = given.get("stores")
    if not isinstance(stores, list | tuple) or not any("/" in store for store in stores if isinstance(store, str)):
        return given
    said = [StoreSelector.parse(store) for store in stores]
    field, parts = called(kind, "stores", names), sorted({part for each in said for part in each.parts})
    found = {**given, "stores": [each.store for each in said]}
    own = [each.application for each in said if each.application is not None]
    applications = list(given.get("applications") or ())
    if applications and (others := [name for name in own if name not in applications]):
        raise InputError(f"{field}: expected stores of {', '.join(applications)}, found one of {others[0]}")
    if applications or own:
        found["applications"] = list(dict.fromkeys(applications or own))
    if parts:
        if "partitions" not in kind.model_fields:
            raise InputError(f"{field}: expected whole stores, found partition {parts[0]} of {said[0].store}")
        if len({(each.application, each.store, bool(each.parts)) for each in said}) > 1:
            raise InputError(f"{field}: expected partitions of one store only, found {', '.join(map(str, said))}")
        numbers = {int(part.rpartition("_")[2]) for part in parts if part != "global"}
        found["partitions"] = sorted({*(given.get("partitions") or ()), *numbers})
    return found


def _said(kind: type[Request], problem: Schema, names: Mapping[str, str] | None) -> str:
    field, *inside = problem["loc"]
    if field not in kind.model_fields:
        raise TypeError(f"{kind.__name__} has no field {field}")
    schema = schemas(kind)[field]
    expected = _expected(schema["items"] if inside else schema)
    return f"{called(kind, field, names)}: expected {expected}, found {problem['input']!r}"


def _expected(schema: Schema) -> str:
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    bounds = {"minimum": " from {}", "exclusiveMinimum": " above {}", "maximum": " and at most {}"}
    kinds = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "array": "a list"}
    said = "".join(text.format(f"{schema[bound]:g}") for bound, text in bounds.items() if bound in schema)
    return kinds.get(schema["type"], "a text") + said
