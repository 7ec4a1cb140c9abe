"""Objectives of applications without a definition, from a file of the environment.

STATESTORE_OBJECTIVES   a YAML file:

orders:                        # application.id
restorable_within: 15m
not_older_than: 1h
proven_every: 7d
budget: {bytes_per_day: 50000000000, parallelism: 2}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from statestore.definitions.objectives import RestoreObjectives
from statestore.errors import InputError
from statestore.model import Name

VARIABLE = "STATESTORE_OBJECTIVES"
_FILE: TypeAdapter[dict[Name, RestoreObjectives]] = TypeAdapter(dict[Name, RestoreObjectives])


def read_objectives(path: Path | None) -> Mapping[str, RestoreObjectives]:
    """Return the objectives in a file by application; nothing without a file.

    Raises
    ------
    InputError
        If it cannot be read, or is malformed.
    """
    if path is None:
        return {}
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{VARIABLE}: {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{VARIABLE}: {path} is not YAML: {error}") from error
    try:
        return _FILE.validate_python(found or {})
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'file'}: {one['msg']}" for one in error.errors())
        raise InputError(f"{VARIABLE}: {path}: {problems}") from error
