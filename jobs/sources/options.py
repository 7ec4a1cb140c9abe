"""Options of the data sources: text from the user, checked, with errors that say what was expected."""

from __future__ import annotations

import json
from collections.abc import Mapping

from statestore.errors import InputError


def required(options: Mapping[str, str], name: str) -> str:
    """Return an option that must be there."""
    value = options.get(name, "").strip()
    if not value:
        raise InputError(f"option {name} is missing: add .option({name!r}, ...)")
    return value


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
