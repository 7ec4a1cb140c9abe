"""The user's acknowledgements of stores that cannot be judged, in `<state.dir>/.statestore/<application.id>/`.

    acknowledged.json    by store: the reason, and when it was acknowledged

A store that cannot be judged ends a command with an exit code other than 0. One that is acknowledged does not, and each
report shows it. An acknowledgement hides nothing else: as soon as the store can be judged, it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from statestore.durable import read_checked, with_checksum, write_durably
from statestore.errors import InputError, about
from statestore.statedir.paths import acknowledged_file


class Acknowledgement(BaseModel):
    """Acknowledgement of one store.

    Attributes
    ----------
    at_ms
        Wall clock time, ms since the epoch.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    reason: str = ""
    at_ms: int = 0

    def __str__(self) -> str:
        day = f"{datetime.fromtimestamp(self.at_ms / 1000, UTC):%Y-%m-%d}"
        return f"acknowledged on {day}" + (f": {self.reason}" if self.reason else "")


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
    stores: Mapping[str, Acknowledgement] = {}


def read_acknowledged(state_dir: Path, application: str) -> dict[str, Acknowledgement]:
    """Return the acknowledged stores of an application; none if the file is damaged, so that they are reported again.

    Raises
    ------
    InputError
        If the name cannot be that of an application.
    """
    try:
        path = acknowledged_file(state_dir, application)
    except ValueError as error:
        raise InputError(f"application {error}") from error
    try:
        with about(path):
            return dict(_File.model_validate_json(read_checked(path)).stores)
    except (FileNotFoundError, ValueError):
        return {}


def write_acknowledged(state_dir: Path, application: str, stores: Mapping[str, Acknowledgement]) -> None:
    """Replace the acknowledgements of an application, durably."""
    path = acknowledged_file(state_dir, application)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, with_checksum(_File(stores=stores).model_dump_json()), several_writers=True)
