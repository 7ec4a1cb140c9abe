"""Which modules of the project a test file imports, directly or through others."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.everything.tree import ROOT

#: Where packages lie that are not in the root of the tree.
_ROOMS = {
    "statestore_jobs": ROOT / "jobs",
    "statestore_expectations": ROOT / "expectations",
    "statestore_dags": ROOT / "dags",
    "statestore_ui": ROOT / "plugins",
}
_TOPS = {"tests", "statestore", "demo", "benchmarks", *_ROOMS}


def imported(files: Iterable[Path], below: Path = ROOT) -> set[Path]:
    """Return the files and all modules that they import, directly or through others, below a directory."""
    found: set[Path] = set()
    left = list(files)
    while left:
        if (path := left.pop()) not in found:
            found.add(path)
            left += (each for each in _imports(path, path.stat().st_mtime_ns) if each.is_relative_to(below))
    return found


@cache
def _imports(file: Path, _: int) -> frozenset[Path]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    paths = (_path(name, file.parent) for node in _statements(tree) for name in _names(node))
    return frozenset(path for path in paths if path)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield child
            yield from _statements(child)


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _path(name: str, directory: Path) -> Path | None:
    """Return the file of a module; pytest also finds one in the directory of the test file."""
    top, *_ = parts = name.split(".")
    base = _ROOMS.get(top, ROOT) if top in _TOPS else directory
    place = base.joinpath(*parts)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
