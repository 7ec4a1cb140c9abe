"""Great Expectations' Data Docs in Airflow: with an index and a stylesheet of this project, and without scripts.

As they are made, the pages fetch scripts and styles from several places of the Internet, and their index is empty
without them. On Airflow's own origin such a script could do whatever the user may. So the pages get neither, and look
the same where the Internet is out of reach.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from statestore.objects.path import TROUBLE, Location, ObjectPath, below, each_at_once, listing, name_below
from statestore.reports import readable

#: What a browser lets a page of theirs do.
POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
#: Validations that the index has, the newest.
MOST = 500
_COLUMNS = ("Verdict", "Store", "Expectations", "Run", "Ended", "Plots")
_MARKS = {"passed": "text-success", "failed": "text-danger", "error": "text-warning", "not judged": "text-warning"}


class _Verdict(BaseModel):
    """A verdict file (`jobs/judging.py`), as far as the index shows it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    application: str
    store: str
    verdict: str
    expectations: int = 0
    failed_expectations: tuple[str, ...] = ()
    data_docs: str | None = None


def styled(page: str, path: str) -> str:
    """Give a page of theirs, which lies at `path`, our stylesheet."""
    link = f'<link rel="stylesheet" href="{"../" * path.count("/")}../ui/data-docs.css">'
    return page.replace("<head>", f"<head>{link}", 1)


def index(root: Location, shows: Callable[[str], bool] = lambda _: True) -> str | None:
    """Return a page of validations, the newest first, or None before the first validation.

    Parameters
    ----------
    shows
        Tells whether the validations of an application are listed.
    """
    rows = list(_rows(root, shows))
    if not rows:
        return None
    heads = "".join(f"<th>{name}" for name in _COLUMNS)
    page = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'><title>Data Docs</title></head><body>"
        f"<div class='container-fluid'><h1>Data Docs</h1><p>Results of the newest {len(rows):,} validations.</p>"
        f"<table class='index'><thead><tr>{heads}</thead><tbody>{''.join(rows)}</tbody></table></div></body></html>"
    )
    return styled(page, "")


def _rows(root: Location, shows: Callable[[str], bool]) -> Iterator[str]:
    drawn: set[str] = set()
    plots_of = _plots(root)
    newest = sorted(_files(root), key=lambda file: (file.modified_s, str(file.path)), reverse=True)[:MOST]
    for (modified_s, file, _), verdict in zip(newest, _verdicts(newest), strict=True):
        store = file.parent.name
        if not shows(store.partition(".")[0] if verdict is None else verdict.application):
            continue
        plots = "" if store in drawn else plots_of.get(store, "")
        drawn.add(store)
        ended = datetime.fromtimestamp(modified_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        cells = (*_told(root, file, verdict), escape(readable(file.stem)), ended, plots)
        named = zip(_COLUMNS, cells, strict=True)
        # What needs no name: a verdict, and the store that it is about.
        yield f"<tr>{''.join(_cell(name if at > 1 else '', cell) for at, (name, cell) in enumerate(named))}</tr>"


def _cell(name: str, content: str) -> str:
    """Return a cell, with the name of its column where a narrow window shows no heads."""
    return f"<td data-name='{name}'>{content}</td>" if name and content else f"<td>{content}</td>"


class _File(NamedTuple):
    modified_s: float
    path: Location
    changed: int


def _files(root: Location) -> Iterator[_File]:
    for path in root.glob("verdicts/*/*.json"):
        try:
            stat = path.stat()
        except OSError:
            continue  # removed since it was listed
        yield _File(stat.st_mtime, path, stat.st_ctime_ns)


#: Verdicts of object storage, where each is a request.
_known: dict[_File, _Verdict | None] = {}


def _verdicts(files: Sequence[_File]) -> list[_Verdict | None]:
    """Return what the files say; None for one that cannot be read."""
    known = dict(_known)
    news = [file for file in files if file not in known]
    found = known | dict(zip(news, each_at_once([file.path for file in news], _read), strict=True))
    _known.clear()
    _known.update({file: found[file] for file in files if isinstance(file.path, ObjectPath) and found[file]})
    return [found[file] for file in files]


def _read(path: Location) -> _Verdict | None:
    try:
        return _Verdict.model_validate_json(path.read_bytes())
    except (*TROUBLE, ValueError):
        return None


def _told(root: Location, file: Location, found: _Verdict | None) -> tuple[str, str, str]:
    if found is None:
        return "<span class='text-warning'>cannot be read</span>", escape(readable(file.parent.name)), ""
    name = escape(f"{found.application}/{found.store}")
    page = None if found.data_docs is None else name_below(found.data_docs, root.absolute())
    if page is not None:
        name = _link(page, name)
    failed = f", failed: {', '.join(found.failed_expectations)}" if found.failed_expectations else ""
    verdict = f"<span class='{_MARKS.get(found.verdict, '')}'>{escape(found.verdict)}</span>"
    return verdict, name, escape(f"{found.expectations}{failed}")


def _plots(root: Location) -> dict[str, str]:
    """Links to what was drawn of each store by its last validation."""
    links: dict[str, list[str]] = {}
    for path in sorted(listing(root, "plots/*/*.svg"), key=str):
        link = _link(below(path, root) or "", escape(readable(path.stem)))
        links.setdefault(path.parent.name, []).append(link)
    return {store: " ".join(of_store) for store, of_store in links.items()}


def _link(name: str, words: str) -> str:
    return f"<a href='{escape(quote(os.fsencode(name)), quote=True)}'>{words}</a>"
