"""Great Expectations' Data Docs as Airflow shows them: an index and a stylesheet of ours, and no scripts.

As they are made, the pages fetch scripts and styles from several places of the Internet, and their index is empty
without them. On Airflow's own origin such a script could do whatever the user may. So the pages get neither, and look
the same where the Internet is out of reach.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from statestore.reports import readable

#: What a browser lets a page of theirs do.
POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
#: Validations that the index has, the newest.
MOST = 500
_MARKS = {"passed": "text-success", "failed": "text-danger", "error": "text-warning"}


class _Verdict(BaseModel):
    """A verdict file (`jobs/judging.py`), as far as the index shows it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    application: str
    store: str
    verdict: str
    expectations: int = 0
    failed_expectations: tuple[str, ...] = ()
    data_docs: Path | None = None


def styled(page: str, path: str) -> str:
    """Give a page of theirs, which lies at `path`, our stylesheet."""
    link = f'<link rel="stylesheet" href="{"../" * path.count("/")}../ui/data-docs.css">'
    return page.replace("<head>", f"<head>{link}", 1)


def index(root: Path) -> str | None:
    """Return a page of all validations, the newest first; None if there is none yet."""
    rows = list(_rows(root))
    if not rows:
        return None
    heads = "".join(f"<th>{name}" for name in ("Verdict", "Store", "Expectations", "Run", "Ended", "Plots"))
    page = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Data Docs</title></head><body>"
        f"<div class='container-fluid'><h1>Data Docs</h1><p>What the newest {len(rows):,} validations have found.</p>"
        f"<table class='index'><thead><tr>{heads}</thead><tbody>{''.join(rows)}</tbody></table></div></body></html>"
    )
    return styled(page, "")


def _rows(root: Path) -> Iterator[str]:
    drawn: set[str] = set()
    for modified_s, file in sorted(_files(root), reverse=True)[:MOST]:
        store = file.parent.name
        plots = "" if store in drawn else _plots(root, store)
        drawn.add(store)
        ended = datetime.fromtimestamp(modified_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        cells = (*_told(root, file), escape(readable(file.stem)), ended, plots)
        yield f"<tr>{''.join(f'<td>{cell}' for cell in cells)}</tr>"


def _files(root: Path) -> Iterator[tuple[float, Path]]:
    for path in root.glob("verdicts/*/*.json"):
        try:
            yield path.stat().st_mtime, path
        except OSError:
            continue  # removed since it was listed


def _told(root: Path, file: Path) -> tuple[str, str, str]:
    try:
        found = _Verdict.model_validate_json(file.read_bytes())
    except (OSError, ValueError):
        return "<span class='text-warning'>cannot be read</span>", escape(readable(file.parent.name)), ""
    name = escape(f"{found.application}/{found.store}")
    if found.data_docs is not None and found.data_docs.is_relative_to(root.absolute()):
        name = _link(found.data_docs.relative_to(root.absolute()), name)
    failed = f", failed: {', '.join(found.failed_expectations)}" if found.failed_expectations else ""
    verdict = f"<span class='{_MARKS.get(found.verdict, '')}'>{escape(found.verdict)}</span>"
    return verdict, name, escape(f"{found.expectations}{failed}")


def _plots(root: Path, store: str) -> str:
    """Links to what was drawn of a store by its last validation."""
    return " ".join(
        _link(path.relative_to(root), escape(readable(path.stem)))
        for path in sorted((root / "plots" / store).glob("*.svg"))
    )


def _link(path: Path, words: str) -> str:
    return f"<a href='{escape(quote(os.fsencode(path.as_posix())), quote=True)}'>{words}</a>"
