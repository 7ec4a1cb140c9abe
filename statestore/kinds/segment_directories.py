"""Directories of segments: `<store>.<start in ms>`, with one database each."""

from __future__ import annotations

import re
from pathlib import Path

from statestore.errors import InputError

_SEGMENT = re.compile(r"(?P<store>.+)\.(?P<start>[0-9]{1,19})")


def segments_in(directory: Path) -> dict[int, Path]:
    """Return the directories of segments by their start (ms), in order.

    Raises
    ------
    InputError
        If there is another directory among them.
    """
    segments = {}
    for path in directory.iterdir():
        if path.is_dir():
            if (match := _SEGMENT.fullmatch(path.name)) is None:
                raise InputError(
                    f"{path} is not a segment of a window or session store, expected <store>.<start in ms>"
                )
            segments[int(match["start"])] = path
    return dict(sorted(segments.items()))


def segment_store(name: str) -> str | None:
    """Name of the store that a directory of this name is a segment of; None if it is none."""
    match = _SEGMENT.fullmatch(name)
    return None if match is None else match["store"]


def segment_start(name: str) -> int | None:
    """Start (ms) of the segment that has a directory of this name; None if it is none."""
    match = _SEGMENT.fullmatch(name)
    return None if match is None else int(match["start"])
