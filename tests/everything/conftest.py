"""A git repository of a test's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


class Repository:
    """A git repository with one commit."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "--quiet")
        self.write("src/a.py", "a = 1\n")
        self.write("docs/testing.md", "text\n")
        self.write(".gitignore", "/build/\n")
        self.commit()

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *arguments], cwd=self.root, check=True)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=x")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    root = tmp_path / "repository"
    root.mkdir()
    return Repository(root)
