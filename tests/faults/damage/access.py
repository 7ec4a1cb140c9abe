"""What the operating system refuses: files that may not be read, a disk that may not be written, or is full.

Verification and restore run in a process of their own, which first gives up the capabilities by which no mode keeps
root out.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from statestore.errors import StateStoreError
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import RestoreSpec, restore
from statestore.verification.check import verify
from tests.integration.broker import WAIT_S
from tests.integration.dying import give_up_capabilities, start_process


@contextmanager
def own_disk(directory: Path, size_bytes: int = 1 << 26) -> Iterator[Path]:
    """A file system of its own; the test is skipped where none can be mounted."""
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(directory)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def make_read_only(disk: Path) -> None:
    """Remount a disk of `own_disk`."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Use up all space of a disk for a while."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for piece in (1 << 20, 1 << 12, 1):
            try:
                while file.write(bytes(piece)):
                    pass
            except OSError:
                continue
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def denied(path: Path) -> Iterator[None]:
    """Take all permissions of a file or directory away for a while."""
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        yield
    finally:
        path.chmod(mode)


def verified(spec: StorePartitionSpec) -> tuple[str, str]:
    """Verify without capabilities; return the status, or the error's name, and the detail."""
    return _asked(_verify, spec)


def restored(spec: RestoreSpec) -> tuple[str, str]:
    """Restore without capabilities; return the outcome, or the failure's name, and the message."""
    return _asked(_restore, spec)


def _verify(spec: StorePartitionSpec) -> tuple[str, str]:
    try:
        row = verify(spec)
    except StateStoreError as error:
        return error.kind, str(error)
    return row.status.value, row.detail


def _restore(spec: RestoreSpec) -> tuple[str, str]:
    row = restore(spec)
    return (row.outcome, "") if row.failure is None else (row.failure.kind, row.failure.message)


def _asked(work: Callable[[Any], tuple[str, str]], spec: Any) -> tuple[str, str]:
    ours, theirs = Pipe()
    process = start_process(_without_capabilities, theirs, work, spec)
    theirs.close()
    try:
        assert ours.poll(WAIT_S), "no answer from the process without capabilities"
        answer: tuple[str, str] = ours.recv()
        return answer
    finally:
        process.kill()
        process.join(WAIT_S)


def _without_capabilities(connection: Connection, work: Callable[[Any], tuple[str, str]], spec: Any) -> None:
    give_up_capabilities()
    connection.send(work(spec))
