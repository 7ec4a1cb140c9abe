"""Fields of a form from those of a request: type, bounds, default, title and description."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from statestore.requests.request import Request, schemas
from statestore_dags.suggestions import suggested_applications, suggested_stores


def field(kind: type[Request], name: str, **more: Any) -> Param:
    """Return a field of a form; what else is said of it, or said otherwise, is added to its schema.

    A list, and what has no default, may be left blank.
    """
    schema = {key: value for key, value in schemas(kind)[name].items() if key not in ("anyOf", "format", "default")}
    default = more.pop("default", kind.model_fields[name].default)
    if schema["type"] == "array":
        default = list(default)
    if schema["type"] == "array" or kind.model_fields[name].default is None:
        schema["type"] = [schema["type"], "null"]
    return Param(default, **(schema | more))


def application_field(description: str, *, without_definition: bool = False) -> Param:
    """Return the field of the one application that a form is about, or blank; see `suggested_applications`."""
    suggested = suggested_applications(without_definition=without_definition)
    return Param(None, type=["null", "string"], title="Application", description=description, **suggested)


def store_fields(kind: type[Request], description: str, *, without_definition: bool = False) -> dict[str, Param]:
    """Return the fields that name store partitions; `description` is that of the application."""
    return {
        "application": application_field(description, without_definition=without_definition),
        "stores": field(kind, "stores", **suggested_stores()),
        "partitions": field(kind, "partitions", description="Such as [0, 3]. Blank: all partitions."),
    }
