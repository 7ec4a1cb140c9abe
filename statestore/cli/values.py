"""A key and its value, between the text of a command line and the bytes of a store."""

from __future__ import annotations

import json
from typing import Any

from statestore.definitions.fields import SerdeName
from statestore.errors import InputError
from statestore.stores.serdes import load_serde


def key_bytes(text: str, serde: SerdeName) -> bytes:
    """Read a key as its serde has it: `bytes` in hexadecimal digits, `int64` as a number, `json` as JSON, else text.

    Raises
    ------
    InputError
        If the text is no such key.
    """
    try:
        value: Any = text
        if serde == "bytes":
            value = bytes.fromhex(text)
        elif serde == "int64":
            value = int(text)
        elif serde == "json":
            value = json.loads(text)
        return load_serde(serde).serialize(value)
    except (TypeError, ValueError, RecursionError) as error:
        expected = {"bytes": "hexadecimal digits", "int64": "a number of 64 bits", "json": "JSON"}.get(serde, "text")
        raise InputError(f"key {text!r} is not {expected}, as --key-serde {serde} requires: {error}") from error


def decoded(raw: bytes, serde: SerdeName) -> Any:
    """Return a key or value as a value that JSON can express: hexadecimal for `bytes`, Python's notation for the rest.

    Raises
    ------
    InputError
        If the serde cannot decode it.
    """
    if serde == "bytes":
        return raw.hex()
    try:
        value = load_serde(serde).deserialize(raw)
    except (TypeError, ValueError) as error:
        raise InputError(f"--value-serde {serde} cannot decode a value of {len(raw)} bytes: {error}") from error
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
