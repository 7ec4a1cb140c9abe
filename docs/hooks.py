"""Hooks of mkdocs.yml: README.md is the first page, and files outside of docs that a page links to are in the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
#: Where copies lie in the site.
COPIES = "source"
_LINK = re.compile(r'(\]\(|src="|srcset="|href=")(?!https?:|#|mailto:)([^)"#]+)')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README.md as index.md, and copies of the files of the tree that a page links to."""
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    pages["README.md"] = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in sorted({path for page, text in pages.items() for path in _linked(page, text)}):
        files.append(File.generated(config, f"{COPIES}/{path}.txt", abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, "index.md", content=pages["README.md"]))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links relative to the tree into links relative to docs."""
    source = "README.md" if page.file.src_uri == "index.md" else f"docs/{page.file.src_uri}"
    return _LINK.sub(lambda link: _relinked(source, link), markdown)


def _path(source: str, link: str) -> str:
    """Return the path in the tree that a link of a file names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _linked(page: str, text: str) -> set[str]:
    source = page if page == "README.md" else f"docs/{page}"
    paths = {_path(source, link) for _, link in _LINK.findall(text)}
    return {path for path in paths if not path.startswith("docs/") and path != "README.md" and (ROOT / path).is_file()}


def _relinked(source: str, link: re.Match[str]) -> str:
    path = _path(source, link[2])
    if path == "README.md":
        target = "index.md"
    elif path.startswith("docs/"):
        target = path.removeprefix("docs/")
    else:
        target = f"{COPIES}/{path}.txt"
    return link[1] + posixpath.relpath(target, posixpath.dirname(source.removeprefix("docs/")) or ".")
