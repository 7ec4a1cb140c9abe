"""The ids and their behaviours (behaviours.toml), and which of them may still be unproven (pending.toml).

A file that contradicts itself, or names an id that the other does not know, is an error that says where.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BEHAVIOURS_FILE = "behaviours.toml"
PENDING_FILE = "pending.toml"
_ID = re.compile(r"[A-Z][1-9][0-9]*")


class CatalogueError(ValueError):
    """A file of the catalogue, or a test's marker, that must be corrected by hand."""


@dataclass(frozen=True)
class Catalogue:
    """What is to be proven.

    Attributes
    ----------
    behaviours
        One line for each id, in the order of the file.
    pending
        The part that is to bring a test, for each id that may be without one.
    """

    behaviours: Mapping[str, str]
    pending: Mapping[str, str]


def load_catalogue(directory: Path) -> Catalogue:
    """Read both files of the directory.

    Raises
    ------
    CatalogueError
        If a file cannot be read, an id is malformed, there twice or without its line, or a pending one is unknown.
    """
    behaviours: dict[str, str] = {}
    for section, lines in _read(directory / BEHAVIOURS_FILE).items():
        if not isinstance(lines, dict):
            raise CatalogueError(f"{BEHAVIOURS_FILE}: {section} is outside of a section; put it into a [section]")
        for name, line in lines.items():
            if not _ID.fullmatch(name) or not isinstance(line, str) or not line.strip():
                raise CatalogueError(f"{BEHAVIOURS_FILE}: {name!r}: expected an id such as K14 with one line of text")
            if name in behaviours:
                raise CatalogueError(f"{BEHAVIOURS_FILE}: {name} is there twice; an id has one meaning")
            behaviours[name] = line

    pending: dict[str, str] = {}
    for part, names in _read(directory / PENDING_FILE).items():
        if not isinstance(names, list):
            raise CatalogueError(f"{PENDING_FILE}: {part}: expected a list of ids")
        for name in names:
            if name not in behaviours:
                raise CatalogueError(f"{PENDING_FILE}: {name!r} is not in {BEHAVIOURS_FILE}")
            if name in pending:
                raise CatalogueError(f"{PENDING_FILE}: {name} is there twice; one part brings it")
            pending[name] = part
    return Catalogue(behaviours, pending)


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogueError(f"{path}: {error}") from error
