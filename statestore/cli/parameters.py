"""A command's options from what they are gathered into: the parameters of a function, or the fields of a request."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer

from statestore import clock
from statestore.cli import completion
from statestore.objects.path import ObjectPath
from statestore.requests.request import Request, help_text, option, schemas

#: How help calls a duration.
DURATION = "DURATION"
_UNITS = {"_ms": "ms", "_s": "s", "_days": "d"}
_COMPLETED = {"applications": completion.applications, "stores": completion.stores}


def duration(unit: str, *, above: float | None = None) -> Callable[[str | float], float]:
    """Return what reads an option that is a duration such as `36h`, or a number in a unit; see `clock.duration`.

    Parameters
    ----------
    above
        What it must be more than; None: it is 0 or more.
    """

    def parse(said: str | float) -> float:
        try:
            found = float(clock.duration(said, unit)) if isinstance(said, str) else said
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        if found < 0 or (above is not None and found <= above):
            least = "0 or more" if above is None else f"more than {above:g}"
            raise typer.BadParameter(f"expected {least}, found {said}")
        return found

    return parse


def with_function(gather: Callable[..., Any], command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each parameter of a function; its first argument is what the function returns."""
    return _with(gather, _parameters(gather), command)


def with_request(
    kind: type[Request], *, without: Collection[str] = (), variables: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each field of a request; its first argument is the request.

    What else is gathered for it is the second one, so this decorator is the inner one.

    Parameters
    ----------
    without
        Fields that the command has no option for.
    variables
        Environment variables that fields may be set by.
    """
    options = {
        option(kind, field).removeprefix("--").replace("-", "_"): field
        for field in kind.model_fields
        if field not in without
    }

    def gather(**given: Any) -> Request:
        return kind.read({options[name]: value for name, value in given.items()})

    parameters = [_option(kind, field, name, (variables or {}).get(field)) for name, field in options.items()]
    return lambda command: _with(gather, parameters, command, ahead=1)


def _option(kind: type[Request], field: str, name: str, variable: str | None) -> inspect.Parameter:
    schema, declared = schemas(kind)[field], kind.model_fields[field]
    several = schema["type"] == "array"
    unit = next((unit for end, unit in _UNITS.items() if field.endswith(end)), None)
    said = typer.Option(
        option(kind, field),  # typer would add a --no-... to what may be switched on
        help=help_text(kind, field),
        min=None if unit else schema.get("minimum"),
        envvar=variable,
        parser=None if unit is None else duration(unit),
        metavar=None if unit is None else DURATION,
        autocompletion=_COMPLETED.get(field),
    )
    annotation = list[str] | None if several else declared.annotation
    if ObjectPath in _kinds(annotation):  # a path or a URL, which the request reads
        annotation = str | None
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if several else declared.default,
        annotation=Annotated[annotation, said],
    )


def _kinds(annotation: Any) -> set[Any]:
    return {annotation}.union(*map(_kinds, get_args(annotation)))


def _with(
    gather: Callable[..., Any],
    shared: Sequence[inspect.Parameter],
    command: Callable[..., None],
    ahead: int | None = None,
) -> Callable[..., None]:
    first, *own = _parameters(command)
    own = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in own]
    parameters = [*own[:ahead], *shared, *(own[ahead:] if ahead else ())]

    @wraps(command)
    def run(**given: Any) -> None:
        gathered = gather(**{item.name: given.pop(item.name) for item in shared})
        command(**{first.name: gathered}, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {item.name: item.annotation for item in parameters}
    return run


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    # The names that are not there before the work begins stand for what is gathered, which is no option.
    hints = get_type_hints(function, localns={"PartitionSelection": object, "Service": object}, include_extras=True)
    return [item.replace(annotation=hints[item.name]) for item in inspect.signature(function).parameters.values()]
