"""The disk of drills: never that of the live stores, unless a reserve stays free there."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import gettempdir

from statestore.errors import InputError

#: Part of a disk with live stores that drills leave free, unless a setting says how many bytes.
RESERVED_SHARE = 0.2


def drill_scratch(scratch: Path | None) -> Path:
    """Return the directory that drills build in; without one, a directory of this user among temporary files."""
    return (scratch or Path(gettempdir()) / f"statestore-drills-{os.getuid()}").absolute()


def require_apart(scratch: Path, state_dir: Path) -> None:
    """Refuse scratch space inside the state directory, or around it.

    Raises
    ------
    InputError
        With both directories.
    """
    ours, live = scratch.resolve(), state_dir.resolve()
    if ours.is_relative_to(live) or live.is_relative_to(ours):
        raise InputError(
            f"scratch space: expected a directory apart from the state directory {state_dir}, found {scratch}. Name "
            "another one with STATESTORE_DRILL_DIR"
        )


def bytes_to_keep_free(scratch: Path, state_dir: Path, reserve: int | None = None) -> int:
    """Return how many bytes drills must leave free in scratch space: 0 if no live store shares its disk.

    Parameters
    ----------
    reserve
        Bytes that stay free on a shared disk. None: `RESERVED_SHARE` of the disk.
    """
    ours, live = _existing(scratch), _existing(state_dir)
    if not _same_disk(ours, live):
        return 0
    if reserve is not None:
        return reserve
    disk = os.statvfs(ours)
    return int(disk.f_blocks * disk.f_frsize * RESERVED_SHARE)


def _existing(directory: Path) -> Path:
    return next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())


def _same_disk(one: Path, other: Path) -> bool:
    if one.stat().st_dev == other.stat().st_dev:
        return True
    # Parts of one file system, such as the subvolumes of btrfs, have different numbers and share their space.
    first, second = os.statvfs(one), os.statvfs(other)
    return (first.f_blocks, first.f_bfree, first.f_files) == (second.f_blocks, second.f_bfree, second.f_files)
