"""A key and its value, between the text of a command line and the bytes of a store."""

from __future__ import annotations

import json
from typing import Any

from statestore.definitions.fields import SerdeName
from statestore.errors import InputError
from statestore.stores.serdes import key_of_text, load_serde


def key_bytes(text: str, serde: SerdeName) -> bytes:
    """Read a key as its serde has it; see `key_of_text`.

    Raises
    ------
    InputError
        If the text is no such key.
    """
    try:
        return key_of_text(text, serde, "--key-serde")
    except ValueError as error:
        raise InputError(f"key {error}") from error


def decoded(raw: bytes, serde: SerdeName) -> Any:
    """Return a key or value as a value that JSON can express: hexadecimal for `bytes`, Python's notation for the rest.

    Raises
    ------
    InputError
        If the serde cannot decode it.
    """
    try:
        return json_value(raw, serde)
    except (TypeError, ValueError) as error:
        raise InputError(f"--value-serde {serde} cannot decode a value of {len(raw)} bytes: {error}") from error


def json_value(raw: bytes, serde: SerdeName) -> Any:
    """Return what `decoded` does; if the serde cannot decode it, its own TypeError or ValueError is raised."""
    if serde == "bytes":
        return raw.hex()
    value = load_serde(serde).deserialize(raw)
    try:
        json.dumps(value, ensure_ascii=False).encode()  # fails for an unpaired surrogate, too
    except (TypeError, ValueError, RecursionError):
        return ascii(value)
    return value


def text_of(value: Any) -> str:
    """Return a decoded value as text: a string as it is, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def value_text(raw: bytes, serde: SerdeName) -> str:
    """Return a value as text; see `decoded`."""
    return text_of(decoded(raw, serde))
