"""The hash of the files that a suite tests: two trees with the same hash give the same results.

The hash covers the files as they are now, committed or not, but not those that git ignores. It is computed from each
file's path, mode, and git blob id. Text that a command has written into a document does not count.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Documents with tables of results. Without this exception, a result would make its own suite stale.
WITH_RESULTS = ("docs/testing.md",)
_RESULTS = re.compile(rb"<!-- [^\n]*: written by [^\n]* -->\n.*?<!-- end of [^\n]* -->", re.DOTALL)
_DIGITS = 12


def files(paths: Sequence[str], root: Path = ROOT) -> list[str]:
    """Return the files that git pathspecs name, tracked or new, in order."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths)
    return sorted({name for name in listed.split("\0") if name and (root / name).is_file()})


def hash_of(names: Sequence[str], root: Path = ROOT) -> str:
    """Return the hash of files, given by their paths in the tree."""
    digest = hashlib.sha256()
    for name in names:
        status = (root / name).stat()
        blob = _blob(root, name, status.st_ino, status.st_mtime_ns, status.st_size)
        digest.update(f"{'x' if status.st_mode & stat.S_IXUSR else '-'} {blob} {name}\n".encode())
    return digest.hexdigest()[:_DIGITS]


def tree_hash(paths: Sequence[str], root: Path = ROOT) -> str:
    """Return the hash of the files that git pathspecs name; `unknown` without git."""
    try:
        return hash_of(files(paths, root), root)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def commit(paths: Sequence[str] = (), root: Path = ROOT) -> str:
    """Return the current commit; `unknown` without git.

    It ends in `+changes` if the files that the pathspecs name (default: all) are not as committed.
    """
    try:
        changed = _git(root, "status", "--porcelain", "--", *paths)
        return _git(root, "rev-parse", f"--short={_DIGITS}", "HEAD").strip() + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


@cache
def _blob(root: Path, name: str, *_: int) -> str:
    content = (root / name).read_bytes()
    if name in WITH_RESULTS:
        content = _RESULTS.sub(b"", content)
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _git(root: Path, *arguments: str) -> str:
    # A hook of git sets these, which would name another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
