"""Serdes whose schemas are in a Schema Registry: their names, and how they are loaded with the extra `schema`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from statestore.packages import require_extra

#: Serdes that read Confluent's wire format: a byte 0, the id of the schema in four bytes, and the data.
REGISTRY_SERDES = ("avro", "protobuf", "json-schema")
URL = "STATESTORE_SCHEMA_REGISTRY_URL"
CONFIG = "STATESTORE_SCHEMA_REGISTRY_CONFIG"
#: Headers that can carry the id of a key's or a value's schema instead of the data.
KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"


def with_schema_id(data: bytes, headers: Iterable[tuple[str, bytes | None]], name: str) -> bytes:
    """Put the id of a schema that a header carries before the data; without such a header, it is there already."""
    found = next((value for header, value in headers if header == name and value is not None), b"")
    return found + data


def load_decoder(serde: str, url: str | None = None) -> Callable[[bytes], Any]:
    """Return the decoder of a serde of a Schema Registry; nothing is connected yet.

    Parameters
    ----------
    url
        Address of the registry; None: the environment's.

    Raises
    ------
    MissingExtraError
        If the extra `schema` is not installed.
    InputError
        If no registry is set, or its settings cannot be used.
    """
    require_extra("schema", f"the serde {serde}")
    from statestore.schemas.decoders import decoder_of  # only here: its libraries come with the extra

    return decoder_of(serde, url)


def registry_url(url: str | None = None) -> str:
    """Return the address of the Schema Registry: the given one, or that of the environment.

    Raises
    ------
    MissingExtraError, InputError
        As `load_decoder`.
    """
    require_extra("schema", "a Schema Registry")
    from statestore.schemas.registry import registry_settings  # only here, as above

    return str(registry_settings(url)["url"])
