"""Options of the data sources: text from the user, checked, with errors that say what was expected."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from difflib import get_close_matches

from pydantic import ValidationError

from statestore import clock
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.kinds.known import BUILT_IN
from statestore.model import StoreFormat

#: What a user says; of kinds with a format of their own it follows from the kind.
_FORMATS = tuple(one for one in StoreFormat if one is not StoreFormat.TIMESTAMPED_IN_DEFAULT)
#: Options that say what a store is (see `described_store`).
STORE_OPTIONS = ("kind", "format", "window_size_ms", "retention_ms", "retain_duplicates")


def required(options: Mapping[str, str], name: str) -> str:
    """Return an option that must be there."""
    value = options.get(name, "").strip()
    if not value:
        raise InputError(f"option {name} is missing: add .option({name!r}, ...)")
    return value


def refuse_unknown(options: Mapping[str, str], known: Collection[str], source: str) -> None:
    """Refuse an option that the source does not have: Spark would ignore one that is misspelt."""
    for name in sorted(set(options) - set(known)):
        near = get_close_matches(name, known, 1)
        hint = f", perhaps {near[0]} is meant" if near else ""
        raise InputError(f"{source} has no option {name}{hint}; its options are: {', '.join(known)}")


def choice(options: Mapping[str, str], name: str, allowed: Collection[str], default: str) -> str:
    """Return an option that is one of some words."""
    found = options.get(name, default).strip()
    if found not in allowed:
        raise InputError(f"option {name}: expected one of {[str(one) for one in allowed]}, found {found!r}")
    return found


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Return an option that is true or false."""
    text = options.get(name)
    if text is None:
        return default
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise InputError(f"option {name}: expected true or false, found {text!r}")


def number(options: Mapping[str, str], name: str, least: int = 0) -> int | None:
    """Return an option that is a whole number; None if it is not given.

    One whose name ends in a unit may be a duration, such as `7d` (`clock.duration`).
    """
    text = options.get(name)
    if text is None:
        return None
    if (unit := name.rpartition("_")[2]) in ("ms", "s"):
        try:
            found = clock.duration(text, unit)
        except ValueError as error:
            raise InputError(f"option {name}: {error}") from error
        if found.denominator != 1 or not least <= found < 1 << 63:
            raise InputError(f"option {name}: expected a whole number of {unit} from {least}, found {text!r}")
        return int(found)
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and least <= int(digits) < 1 << 63):
        raise InputError(f"option {name}: expected a whole number from {least}, found {text!r}")
    return int(digits)


def time_ms(options: Mapping[str, str], name: str) -> int | None:
    """Return an option that is a time, in ms since the epoch; None if it is not given.

    It is given in ms, or in ISO 8601, which is in UTC if it names no offset from it.
    """
    text = options.get(name)
    if text is None:
        return None
    try:
        return clock.ms_of(text)
    except ValueError as error:
        raise InputError(
            f"option {name}: expected ms since the epoch, or ISO 8601 such as 2026-01-31T12:00:00+00:00, found {text!r}"
        ) from error


def partition_list(options: Mapping[str, str], name: str = "partitions") -> list[int] | None:
    """Return comma separated partitions, distinct and in order; None if the option is not given."""
    text = options.get(name)
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError(f"option {name}: expected partitions such as 0,1,3, found {text!r}")
    return sorted({int(part) for part in parts})


def offsets_by_partition(options: Mapping[str, str], name: str) -> dict[int, int]:
    """Return a JSON object of partition to offset; empty if the option is not given."""
    text = options.get(name)
    if text is None:
        return {}
    expected = f'option {name}: expected a JSON object of partition to offset such as {{"0": 120}}, found {text!r}'
    try:
        found = json.loads(text)
        offsets = {int(partition): offset for partition, offset in found.items()}
    except (ValueError, AttributeError) as error:
        raise InputError(expected) from error
    if not all(type(offset) is int and offset >= 0 for offset in offsets.values()):
        raise InputError(expected)
    return offsets


def store_settings(options: Mapping[str, str]) -> dict[str, object]:
    """Return what `STORE_OPTIONS` say of a store: fields of its definition, only those that are given."""
    found: dict[str, object] = {}
    if "kind" in options:
        kind = options["kind"].strip()
        found["kind"] = kind if ":" in kind else choice(options, "kind", BUILT_IN, "")
    if "format" in options:
        found["format"] = choice(options, "format", _FORMATS, "")
    for name in ("window_size_ms", "retention_ms"):
        if (value := number(options, name)) is not None:
            found[name] = value
    if "retain_duplicates" in options:
        found["retain_duplicates"] = flag(options, "retain_duplicates", False)
    return found


def defined_store(settings: Mapping[str, object]) -> StoreDefinition:
    """Return a definition of these fields.

    Raises
    ------
    InputError
        If they do not fit together.
    """
    try:
        return StoreDefinition.model_validate(settings)
    except ValidationError as error:
        problems = "; ".join(
            f"{''.join(f'{part}: ' for part in problem['loc'])}{problem['msg']}" for problem in error.errors()
        )
        raise InputError(
            f"store {settings.get('name')}: {problems}; correct the options {', '.join(STORE_OPTIONS)}"
        ) from error


def described_store(options: Mapping[str, str], name: str) -> StoreDefinition | None:
    """Return the store that `STORE_OPTIONS` describe; None if they do not say its kind.

    Raises
    ------
    InputError
        If the kind needs an option that is missing, or has no use for one that is given.
    """
    settings = store_settings(options)
    if "kind" not in settings:
        if settings:
            raise InputError(f"option {min(settings)} describes a store: add option kind, too")
        return None
    return defined_store({"name": name, **settings})
