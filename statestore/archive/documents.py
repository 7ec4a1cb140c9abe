"""Small JSON objects of an archive, each with its own checksum: written once, and checked when read.

Layout, in one line:

    {"sha256":"<of the content>","<kind>":<content>}
"""

from __future__ import annotations

import hashlib
import re
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from statestore.errors import SnapshotError

M = TypeVar("M", bound=BaseModel)

_DOCUMENT = re.compile(rb'\A\{"sha256":"([0-9a-f]{64})","([a-z]+)":(.*)\}\n\Z', re.DOTALL)


def to_document(content: BaseModel, kind: str) -> bytes:
    """Write a model, with a checksum of itself."""
    text = content.model_dump_json().encode()
    return b'{"sha256":"%s","%s":%s}\n' % (hashlib.sha256(text).hexdigest().encode(), kind.encode(), text)


def from_document(raw: bytes, kind: str, model: type[M], said: str) -> M:
    """Read what `to_document` wrote.

    Parameters
    ----------
    said
        What it is, for the error.

    Raises
    ------
    SnapshotError
        If it is damaged, or was written by a version that this one does not know.
    """
    found = _DOCUMENT.match(raw)
    if found is None or found[2].decode() != kind or hashlib.sha256(found[3]).hexdigest() != found[1].decode():
        raise SnapshotError(f"{said} is damaged: its checksum does not match its content")
    try:
        return model.model_validate_json(found[3])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or kind
        raise SnapshotError(f"{said} is refused: {where}: {first['msg']}") from None
