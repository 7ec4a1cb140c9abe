"""Blocks of the documents: those that a reader may copy are run by a test, all others are titled as examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
_BLOCK = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its heading, language, text without indentation, and whether it is titled as an example."""

    heading: str
    language: str
    text: str
    is_example: bool


def name(document: Path) -> str:
    """Return a document's path in the tree."""
    return str(document.relative_to(ROOT))


def blocks(document: str) -> list[Block]:
    """Return all blocks of a document, which is named by its path in the tree."""
    sections = re.split(r"^## (.*)\n", text_of(document), flags=re.MULTILINE)
    return [
        Block(heading, language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE), 'title="Example"' in rest)
        for heading, section in zip(["", *sections[1::2]], sections[::2], strict=True)
        for indent, language, rest, text in _BLOCK.findall(section)
    ]


def text_of(document: str) -> str:
    """Return the text of a document, which is named by its path in the tree."""
    return (ROOT / document).read_text(encoding="utf-8")


def with_generated(text: str, begin: str, end: str, generated: str) -> str:
    """Return the text of a document with generated text between two marks.

    Raises
    ------
    ValueError
        If the text does not have each mark once, in this order.
    """
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended) or begin in rest or end in before + after:
        raise ValueError(f"Expected {begin} and {end} in the document, once each and in this order.")
    return f"{before}{begin}\n{generated}\n{end}{after}"


def to_run(document: str, *languages: str, heading: str | None = None) -> list[str]:
    """Return the texts of blocks in these languages, of a document or below one heading, but for examples."""
    return [
        block.text
        for block in blocks(document)
        if block.language in languages and not block.is_example and heading in (None, block.heading)
    ]


def in_bash(
    text: str, directory: Path, settings: Mapping[str, str], timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run text in bash, which ends at the first command that fails, as a reader of an installation would.

    Parameters
    ----------
    directory
        Where it runs, and where Python finds an application's modules.
    settings
        Variables of the environment, which has no other settings of ours.
    """
    others = {name: value for name, value in os.environ.items() if not name.startswith("STATESTORE_")}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=directory,
        env={
            **others,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(directory),
            **settings,
        },
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
