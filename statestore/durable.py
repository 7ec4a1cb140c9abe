"""Small-file operations: a reader finds a file as a whole, and what is durable has survived a power cut on return.

A writer fills a hidden file beside the one that it replaces:

    .<name>.partial     one writer at a time; what a killed one left is written over
    .<name>.<random>    one of several writers; whoever owns the directory removes what a killed one left

If that is longer than a file system allows, a digest takes the place of the name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

_CHECKSUM = "\nsha256 "
#: Bytes that a file name may have (NAME_MAX of Linux).
LONGEST_NAME = 255


def sync_directory(directory: Path) -> None:
    """Make renames and removals in the directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Force what is in a file to the disk; its name is its directory's matter."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: str | bytes, *, several_writers: bool = False) -> None:
    """Replace the file's content as a whole, durably.

    Parameters
    ----------
    several_writers
        Whether others may write the same file at the same time; one of them wins.
    """
    _write(path, content, several_writers=several_writers, durable=True)
    sync_directory(path.parent)


def write_all_durably(files: Mapping[Path, str | bytes]) -> None:
    """Replace the contents of files of one directory, each as a whole; all are durable on return, and none before.

    A power cut may leave any of them as it was.
    """
    for path, content in files.items():
        _write(path, content, several_writers=False, durable=True)
    for directory in {path.parent for path in files}:
        sync_directory(directory)


def write_new(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write a new file, and force what is in it to the disk; its name is its directory's matter."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        _fill(descriptor, content, durable=bool(content))
    finally:
        os.close(descriptor)


def create_durably(path: Path, content: bytes) -> bool:
    """Write a file that must not exist yet, as a whole and durably.

    Returns
    -------
    bool
        False if there is one of that name, which stays as it is.
    """
    partial = _partial(path, uuid4().hex)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_new(partial, content)
        try:
            os.link(partial, path)
        except FileExistsError:
            return False
    finally:
        partial.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def write_atomically(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """Replace the file's content as a whole, also beside other writers; a power cut may lose it or leave it empty.

    Parameters
    ----------
    mode
        Permissions of the file, less the process's umask.
    """
    _write(path, content, several_writers=True, durable=False, mode=mode)


def _write(path: Path, content: str | bytes, *, several_writers: bool, durable: bool, mode: int = 0o666) -> None:
    partial = _partial(path, uuid4().hex if several_writers else "partial")
    try:
        descriptor = _opened(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            _fill(descriptor, content.encode() if isinstance(content, str) else content, durable=durable)
        finally:
            os.close(descriptor)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _partial(path: Path, suffix: str) -> Path:
    name = f".{path.name}.{suffix}"
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = f".{_checksum(os.fsencode(path.name))}.{suffix}"
    return path.with_name(name)


def _opened(path: Path, flags: int, mode: int) -> int:
    try:
        return os.open(path, flags, mode)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, mode)


def _fill(descriptor: int, content: bytes, *, durable: bool) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    if durable:
        os.fsync(descriptor)


def with_checksum(text: str) -> str:
    """Return a text with a last line that tells whether it is as it was written."""
    return f"{text}{_CHECKSUM}{_checksum(text.encode())}\n"


def write_checked(path: Path, text: str) -> None:
    """Replace the file's content as a whole, with a checksum in its last line."""
    write_durably(path, with_checksum(text))


def read_checked(path: Path) -> bytes:
    """Return what `write_checked` wrote; a file without a checksum, as earlier versions wrote it, is taken as it is.

    Raises
    ------
    FileNotFoundError
        If it is not there.
    ValueError
        If it is not as it was written.
    """
    text, mark, checksum = path.read_bytes().rpartition(_CHECKSUM.encode())
    if not mark:
        return checksum
    if checksum != f"{_checksum(text)}\n".encode():
        raise ValueError(f"{path} is damaged: its checksum does not match its content")
    return text


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def remove_durably(path: Path) -> None:
    """Remove a file, if it is there."""
    if path.exists():
        path.unlink()
        sync_directory(path.parent)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a directory; both parents are on disk when this returns."""
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    sync_directory(target.parent)
    sync_directory(source.parent)


def remove_tree(directory: Path) -> None:
    """Remove a directory with all that is in it, if it is there."""
    if directory.exists():
        shutil.rmtree(directory)
