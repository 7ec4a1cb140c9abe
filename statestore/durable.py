"""Durable small-file operations: what has returned survives a power cut."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make renames and removals in the directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, text: str) -> None:
    """Replace the file's content as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync_directory(path.parent)


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
