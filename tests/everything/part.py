"""A part of a suite: a command, the files that it tests, and the tests that it runs."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tests.everything.imports import imported
from tests.everything.tree import ROOT, files, hash_of

_TEST_FILES = ":(glob)tests/**/test_*.py"
#: Only the test files count that pytest gets, or that these import.
_OTHER_FILES = ":(exclude,glob)tests/**/test_*.py"
_NO_RESULTS = ":(exclude)tests/everything/results.json"


@dataclass(frozen=True)
class Part:
    """A part of a suite, which runs as a whole and has one result.

    Attributes
    ----------
    name
        The name of the suite, or `suite/part`.
    command
        `{seed}` in it is replaced with the seed of the run.
    paths
        Git pathspecs of the files that it tests or uses. If it runs pytest, they name no test files.
    tests
        Globs of the test files that pytest gets; empty if it does not run pytest.
    marks
        The expression of markers that pytest gets.
    without
        Test files that pytest does not get.
    deadline_s
        A run that takes longer is ended, and is red.
    """

    name: str
    command: tuple[str, ...]
    paths: tuple[str, ...]
    tests: tuple[str, ...] = ()
    marks: str = ""
    without: tuple[str, ...] = ()
    deadline_s: int = 30 * 60

    @property
    def suite(self) -> str:
        """The name of its suite."""
        return self.name.partition("/")[0]

    def is_named(self, names: Sequence[str]) -> bool:
        """Return whether one of the names is that of the part or of its suite; true without names."""
        return not names or self.name in names or self.suite in names

    def runs_file(self, test_file: str) -> bool:
        """Return whether pytest gets a test file, given by its path in the tree."""
        return test_file not in self.without and any(_matches(test_file, glob) for glob in self.tests)

    def arguments(self, seed: int) -> list[str]:
        """Return the command as a list."""
        return [argument.replace("{seed}", str(seed)) for argument in self.command]

    def shown(self, seed: int) -> str:
        """Return the command as one types it."""
        return shlex.join(self.arguments(seed))

    @property
    def scope(self) -> tuple[str, ...]:
        """Pathspecs of all files that decide on its result."""
        return (*self.paths, *(f":(glob){glob}" if glob.endswith(".py") else glob for glob in self.tests))

    def files(self, root: Path = ROOT) -> list[str]:
        """Return all files that decide on its result."""
        if not self.tests:
            return files([*self.paths, _NO_RESULTS], root)
        test_files = [root / name for name in files([_TEST_FILES], root) if self.runs_file(name)]
        imported_tests = {path for path in imported(test_files, root / "tests") if path.name.startswith("test_")}
        others = files([*self.paths, _OTHER_FILES, _NO_RESULTS], root)
        return sorted({*others, *(str(path.relative_to(root)) for path in imported_tests)})

    def tree(self, root: Path = ROOT) -> str:
        """Return the hash of these files, and of the command."""
        command = hashlib.sha256("\0".join(self.command).encode()).hexdigest()
        return hashlib.sha256(f"{command} {hash_of(self.files(root), root)}".encode()).hexdigest()[:12]


def _matches(test_file: str, glob: str) -> bool:
    """Match as a shell does for a file; a directory matches all that is below it."""
    if glob.endswith(".py"):
        return test_file.count("/") == glob.count("/") and fnmatchcase(test_file, glob)
    return test_file.startswith(f"{glob}/")
