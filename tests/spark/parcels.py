"""Work for Spark tasks that leaves traces; workers cannot import a test module."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel


class Row(BaseModel):
    """What came back."""

    number: int


class Parcel:
    """A spec that notes each time that a process unpacks it."""

    def __init__(self, number: int, unpacked: Path) -> None:
        self.number = number
        self.unpacked = unpacked

    def __reduce__(self) -> tuple[Any, ...]:
        return unpack, (self.number, self.unpacked)


def unpack(number: int, unpacked: Path) -> Parcel:
    """Make the parcel, and note it."""
    with unpacked.open("a", encoding="utf-8") as file:
        file.write(f"{number}\n")
    return Parcel(number, unpacked)


def number_of(parcel: Parcel) -> Row:
    """Return the parcel's number."""
    return Row(number=parcel.number)


def mark(directory: Path) -> Row:
    """Leave a file; return the pid."""
    (directory / "ran").touch()
    return Row(number=os.getpid())
