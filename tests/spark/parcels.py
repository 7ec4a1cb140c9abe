"""Work for Spark tasks that leaves traces; workers cannot import a test module."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from statestore.recovery import many
from statestore.recovery.snapshot_building import SnapshotSpec, make_snapshot
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.task_cleanup import CleaningSpec, clean_task
from statestore.statedir.lock import locked_file


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


def die_at_2(parcel: Parcel) -> Row:
    """End the worker as the kernel ends one that takes too much memory."""
    if parcel.number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return Row(number=parcel.number)


def die_once_at_2(parcel: Parcel) -> Row:
    """Do so the first time."""
    if parcel.number == 2 and parcel.unpacked.read_text(encoding="utf-8").split().count("2") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return Row(number=parcel.number)


def restore_or_die(specs: Sequence[RestoreSpec]) -> BaseModel:
    """Restore the stores of task 0_0; end the worker at any other."""
    if str(specs[0].store.task) != "0_0":
        os.kill(os.getpid(), signal.SIGKILL)
    return many._restore_tasks(specs)


def clean_or_die(spec: CleaningSpec) -> BaseModel:
    """Tidy up task 0_0; end the worker at any other."""
    if str(spec.paths.task) != "0_0":
        os.kill(os.getpid(), signal.SIGKILL)
    return clean_task(spec)


def publish_or_die(spec: SnapshotSpec) -> BaseModel:
    """Make the snapshot of task 0_0; end the worker at any other."""
    if str(spec.store.task) != "0_0":
        os.kill(os.getpid(), signal.SIGKILL)
    return make_snapshot(spec)


def mark(directory: Path) -> Row:
    """Leave a file; return the pid."""
    (directory / "ran").touch()
    return Row(number=os.getpid())


def alone_for_long(parcel: Parcel) -> Row:
    """Hold a lock for long, and note each time that this was done to the end."""
    if parcel.number == 1:
        with locked_file(parcel.unpacked.with_name("lock"), 5):
            time.sleep(20)  # what is copied is what takes long
            with parcel.unpacked.with_name("done").open("a", encoding="utf-8") as file:
                file.write("done\n")
    return Row(number=parcel.number)
