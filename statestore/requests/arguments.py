"""A request as job arguments: declared for argparse, written by the caller, and read by the job."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from typing import Any, TypeVar

from statestore.requests.request import Request, help_text, option, schemas

R = TypeVar("R", bound=Request)


def add_arguments(parser: ArgumentParser, kind: type[Request]) -> None:
    """Declare an argument for each field; what is not said is left to the field's default."""
    for name, schema in schemas(kind).items():
        how: dict[str, Any] = {"choices": schema.get("enum")}
        if schema["type"] == "array":
            how = {"action": "append"}
        elif schema["type"] == "boolean":
            how = {"action": "store_true"}
        said = help_text(kind, name).replace("%", "%%")
        parser.add_argument(option(kind, name), dest=name, default=SUPPRESS, help=said, **how)


def from_namespace(kind: type[R], arguments: Namespace) -> R:
    """Read the request that arguments say.

    Raises
    ------
    InputError
        If it is malformed.
    """
    said = vars(arguments)
    return kind.read({name: said[name] for name in kind.model_fields if name in said})


def argv(request: Request) -> list[str]:
    """Return arguments that say a request: each field that has not its default."""
    arguments: list[str] = []
    for name, value in request.model_dump(mode="json", exclude_defaults=True).items():
        flag = option(type(request), name)
        if isinstance(value, bool):
            arguments.append(flag)
            continue
        for text in map(str, value if isinstance(value, list) else [value]):
            # argparse would take a value that begins so for an option
            arguments += [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    return arguments
