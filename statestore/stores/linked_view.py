"""A directory of links to a database's files, in which RocksDB opens the database without changing its own directory.

RocksDB and rocksdict write into the directory of each database that they open, also to read: a log, and options. So the
database of another process, or one on a read-only mount, is opened in a view: a directory in temporary space, with a
copy of the MANIFEST and links to the other files.

RocksDB opens all SST files at once, and holds them: the links to them are not needed after that. It opens blob files
only when it reads a row in them, so their links are needed until the database is closed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from statestore.formats.database_files import has_rows, is_log, is_table

_MANIFEST = re.compile(r"MANIFEST-[0-9]+")
#: Where the files that a process has open have paths.
_OPEN_FILES = Path("/proc/self/fd")
#: The databases' directories, by their views.
_VIEWS: dict[str, str] = {}


@contextmanager
def linked(directory: Path) -> Iterator[Path]:
    """Yield a view of the database as it is now, which is removed when the context ends."""
    with TemporaryDirectory(prefix="statestore-") as scratch, ExitStack() as held:
        view = _link(directory, Path(scratch) / "database", held)
        _VIEWS[str(view)] = str(directory)
        try:
            yield view
        finally:
            del _VIEWS[str(view)]


def without_views(text: str) -> str:
    """Return a text that names the databases' own directories instead of the views that are in use."""
    for view, directory in _VIEWS.copy().items():
        text = text.replace(view, directory)
    return text


def _link(directory: Path, view: Path, held: ExitStack) -> Path:
    """Create a directory that RocksDB takes for the database as it is now.

    Files that RocksDB only reads are linked; nothing else may be that opening could write to.
    """
    view.mkdir()
    current = directory / "CURRENT"
    with suppress(FileNotFoundError):  # RocksDB says what is missing
        # The MANIFEST is copied before the files are listed. If a file that it names is gone by then, opening fails.
        shutil.copyfile(current, view / current.name)
        name = current.read_text(encoding="ascii", errors="replace").strip()
        if _MANIFEST.fullmatch(name):
            shutil.copyfile(directory / name, view / name)
    for path in directory.iterdir():
        if is_table(path.name) or is_log(path.name):
            (view / path.name).symlink_to(path)
        elif has_rows(path.name):  # RocksDB opens it only when it reads from it
            (view / path.name).symlink_to(_held(path, held))
    return view


def _held(path: Path, held: ExitStack) -> Path:
    """Open a file, and return a path that leads to it even after its owner has deleted it."""
    if not _OPEN_FILES.is_dir():
        return path
    return _OPEN_FILES / str(held.enter_context(path.open("rb")).fileno())
