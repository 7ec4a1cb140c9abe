"""Branch nodes per code line of the rooms that decide about stores: `python tests/branches.py [room ...]`."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

LIBRARY = Path(__file__).resolve().parents[1] / "statestore"
ROOMS = ("partition", "verification", "recovery")
MOST_BRANCHES, MOST_LINES = 20, 60
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_ONE = (ast.If, ast.IfExp, ast.While, ast.ExceptHandler, ast.match_case)
_SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Size(NamedTuple):
    """Code lines without blank lines, comments, and docstrings; and the branch nodes in them."""

    lines: int
    branches: int

    @property
    def density(self) -> float:
        """Branch nodes per code line."""
        return self.branches / self.lines if self.lines else 0.0


class Function(NamedTuple):
    """A function with the functions inside it, and the file and line where it begins."""

    file: str
    line: int
    name: str
    size: Size


def branches(tree: ast.AST) -> int:
    """Count if, elif, ternary, while, except, match cases, conditions of comprehensions, and each `and` and `or`."""
    found = 0
    for node in ast.walk(tree):
        found += isinstance(node, _ONE)
        found += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        found += len(node.ifs) if isinstance(node, ast.comprehension) else 0
    return found


def code_lines(source: str, tree: ast.AST) -> set[int]:
    """Return the numbers of the lines with code."""
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            found |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, _SCOPES) and ast.get_docstring(node, clean=False) is not None:
            found -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return found


def size_of(paths: Sequence[Path]) -> Size:
    """Return the size of files."""
    sizes = [_size(path.read_text("utf-8")) for path in paths]
    return Size(sum(size.lines for size in sizes), sum(size.branches for size in sizes))


def functions(path: Path) -> Iterator[Function]:
    """Yield the functions of a file."""
    source = path.read_text("utf-8")
    tree = ast.parse(source)
    lines = code_lines(source, tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            within = sum(1 for line in lines if node.lineno <= line <= node.end_lineno)
            file = path.relative_to(LIBRARY).as_posix()
            yield Function(file, node.lineno, node.name, Size(within, branches(node)))


def files(rooms: Sequence[str] = ROOMS) -> list[Path]:
    """Return the files of rooms."""
    return [path for room in rooms for path in sorted((LIBRARY / room).rglob("*.py"))]


def large_functions(rooms: Sequence[str] = ROOMS) -> list[Function]:
    """Return the functions with more than `MOST_BRANCHES` branch nodes or more than `MOST_LINES` code lines."""
    found = [function for path in files(rooms) for function in functions(path)]
    return [one for one in found if one.size.branches > MOST_BRANCHES or one.size.lines > MOST_LINES]


def _size(source: str) -> Size:
    tree = ast.parse(source)
    return Size(len(code_lines(source, tree)), branches(tree))


def main(rooms: Sequence[str]) -> None:
    """Print a line for each room, one for all of them, and the functions that are too large."""
    rooms = rooms or ROOMS
    for name, chosen in [*((room, [room]) for room in rooms), ("together", rooms)]:
        size = size_of(files(chosen))
        print(f"{name:14} {size.lines:6} code lines {size.branches:5} branch nodes {size.density:.3f} a line")
    for function in sorted(large_functions(rooms), key=lambda one: -one.size.branches):
        where = f"{function.file}:{function.line} {function.name}"
        print(f"{function.size.branches:4} branch nodes {function.size.lines:4} lines  {where}")


if __name__ == "__main__":
    main(sys.argv[1:])
