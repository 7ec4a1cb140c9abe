"""The packages on top of the library: where the files that come with them lie."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def files_of(package: str, inside: str, beside: str) -> Path:
    """Return the directory of the files that come with a package, without importing it.

    Parameters
    ----------
    inside
        Where a wheel has them (`hatch_build.py`), below the package.
    beside
        Where the source tree has them, below the package's parent.
    """
    spec = find_spec(package)
    assert spec is not None, package
    assert spec.submodule_search_locations, package
    root = Path(spec.submodule_search_locations[0])
    installed = root / inside
    return (installed if installed.is_dir() else root.parent / beside).resolve()
