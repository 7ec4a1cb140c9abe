"""The routes below /statestore, protected by Airflow's login: the page and its API, Data Docs, reports, static files.

    GET /statestore/api/overview                       all applications, as the newest reports tell
    GET /statestore/api/partitions?application=&q=...  store partitions, so many at a time
    GET /statestore/api/progress                       how far running restores, snapshots and runs of process are
    GET /statestore/api/history?application=&store=    lag and findings of past verifications
    GET /statestore/api/drills?application=&store=     restores of past drills
    GET /statestore/docs/...                           Great Expectations' Data Docs
    GET /statestore/reports, /statestore/reports/...   the jobs' reports as they were written
    GET /statestore/surveys/...                        reports of surveys as pages
    GET /statestore/audit                              who restored, removed, or approved what
    GET /statestore/ui/...                             script, style and icons of the page

They read two places, directories or in object storage, write nothing, and read STATESTORE_* on each request, so that an
import never fails for a missing one. Users who may read DAGs may read this: by the browser's cookie or by a bearer
token, as everywhere in Airflow's API. Applications of an environment are shown to users who may read one of its DAGs.
A request starts runs only through Airflow's own API, with the rights of its user.
"""

from __future__ import annotations

import json
import os
from html import escape
from mimetypes import guess_type
from pathlib import Path
from typing import Annotated

from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from statestore_dags.archive_connection import LastingAccess

from statestore.audit import read_records
from statestore.config import load_directories
from statestore.environments import DagName
from statestore.errors import ArchiveAccessError, InputError, RetryError, StateStoreError
from statestore.objects.path import Location, ObjectPath
from statestore.reports import SurveyReport, read_report
from statestore.survey.page import page as survey_page
from statestore_ui.audit_page import MOST_RECORDS, audit_page
from statestore_ui.data_docs import POLICY, index, styled
from statestore_ui.drill_history import drill_points
from statestore_ui.history import Histories
from statestore_ui.overview import Overviews
from statestore_ui.partition_pages import MOST_ROWS, ORDERS, Question
from statestore_ui.report_files import Problem, ReportFiles, list_reports
from statestore_ui.report_rows import SURVEY, Head
from statestore_ui.rights import Rights, UserRights
from statestore_ui.running_work import Running

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
_OWN_FILES = Path(__file__).parent / "static"

access = LastingAccess()


def _let_in(request: Request) -> None:
    """Let this process into object storage, if that is where something lies; called by a thread, as it may wait."""
    if "/statestore/ui/" in request.url.path:  # the page's own files, also while nothing is configured
        return
    places = load_directories()
    if isinstance(places.reports_dir, ObjectPath) or isinstance(places.data_docs_dir, ObjectPath):
        access.renew()


app = FastAPI(
    title="State stores",
    dependencies=[Depends(requires_access_dag(method="GET")), Depends(_let_in)],
    # They would be served without the dependency.
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
)
overviews, running, histories = Overviews(), Running(), Histories()


# -- the API ----------------------------------------------------------------------------------------------------------


@app.get("/api/overview")
def overview(request: Request, rights: UserRights) -> Response:
    """Return all applications, as the newest report of each job tells of them.

    The answer has an ETag; with `If-None-Match` it is 304 while no report has come, gone or changed.

    Returns
    -------
    Response
        `as_of_ms`: when the newest of the runs ended. `applications`: for each, how many store partitions have which
        status and level, its lag, and when it was last verified. `problems`: files that could not be read, each with a
        `path` and a `message`; `missing` if there is no reports directory yet. `degraded`: if the last run has found
        the metastore DEGRADED, the `reason`, and when.
    """
    answer = overviews.get(_reports(), _data_docs())
    tag = answer.tag if not rights.hidden else f"{answer.tag}-{'-'.join(sorted(rights.hidden))}"
    headers = {**_HEADERS, "ETag": f'"{tag}"'}
    # A proxy that compresses makes the tag a weak one.
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(rights.overview(answer.summary, answer.findings), media_type="application/json", headers=headers)


@app.get("/api/partitions")
def partitions(
    rights: UserRights,
    application: str = "",
    store: str = "",
    task: str = "",
    level: str = "",
    q: str = "",
    by: Annotated[str, Query(pattern=f"^({'|'.join(ORDERS)})$")] = "status",
    down: bool = False,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = MOST_ROWS,
) -> Response:
    """Return store partitions, as the newest report of each job tells of them: those that are asked for, in an order.

    Parameters
    ----------
    application, store, task, level
        Exactly this one; left out: all.
    q
        Words that are part of the name or of the status.
    by, down
        What to sort by, and in which direction.

    Returns
    -------
    Response
        `total`: how many there are; `of`: how many the application has, of which `levels` counts. `rows`: `limit` of
        them from `offset` on, each with `status`, `level` (good, notice, busy, warn, bad), `word` (the status, or what
        makes it worse than that), `action` (what to do), `lag`, and what `verify`, `restore`, `validate`, `process`,
        and `drill` did with it last. What is unknown is left out. `runs`: where rows come from; rows name them by
        index. `tag`: that of the overview.
    """
    words = tuple(q.lower().split())
    question = Question(application, store, task, level, words, by, down, rights.hidden)
    answer = overviews.get(_reports(), _data_docs()).pages.get(question, offset, limit)
    return Response(answer, media_type="application/json", headers=_HEADERS)


@app.get("/api/restorable")
def restorable(
    rights: UserRights,
    application: str = "",
    store: Annotated[list[str], Query()] = [],  # noqa: B006  # FastAPI copies it
    partition: Annotated[list[int], Query()] = [],  # noqa: B006
    force: bool = False,
) -> Response:
    """Return `of`: how many store partitions a restore selects, and `restored`: how many of them it would restore."""
    pages = overviews.get(_reports(), _data_docs()).pages
    answer = pages.restorable(application, store, partition, force=force, shows=rights.shows)
    return Response(answer, media_type="application/json", headers=_HEADERS)


@app.get("/api/progress")
def progress(rights: UserRights) -> Response:
    """Return how far running restores, snapshots and runs of `process` are.

    Returns
    -------
    Response
        `work`: for each its `job`, its `applications`, its `run` (the name of the report that it will write),
        `silent_s` since it last said something, offsets `done` of `total`, `records_per_s`, `seconds_left` of reading,
        and the same for the first 200 of its `pieces` that have not `ended`, with their `phase`: store partitions, or
        tasks of `process`.
    """
    return JSONResponse(rights.progress(running.get(_reports())), headers=_HEADERS)


@app.get("/api/history")
def history(rights: UserRights, application: Annotated[str, Query(min_length=1)], store: str | None = None) -> Response:
    """Return what the verifications of a store have found; without `store`, of all the application's.

    Returns
    -------
    Response
        `points`, the oldest first: `started_ms`, `lag` of all partitions together, how many `partitions` were looked
        at, and `findings`: how many have which status, of those that are not healthy.
    """
    _require(rights.shows(application))
    return JSONResponse(histories.get(_reports(), application, store), headers=_HEADERS)


@app.get("/api/drills")
def drills(rights: UserRights, application: Annotated[str, Query(min_length=1)], store: str | None = None) -> Response:
    """Return what the drills of a store have shown; without `store`, of all the application's.

    Returns
    -------
    Response
        `points`, the oldest first: `started_ms`, `seconds` of the slowest restore, and `verdicts`: how many drills had
        which verdict.
    """
    _require(rights.shows(application))
    return JSONResponse(drill_points(_reports(), application, store), headers=_HEADERS)


# -- files ------------------------------------------------------------------------------------------------------------


@app.get("/ui/{path:path}")
async def own_files(path: str, request: Request) -> Response:
    """Serve the page's script, style and icons."""
    return await _file(_OWN_FILES, path, request)


@app.get("/docs")
def data_docs_root(request: Request) -> RedirectResponse:
    """Add the slash, which the relative links of the Data Docs need."""
    return RedirectResponse(f"{request.url.path}/")


@app.get("/docs/{path:path}")
async def data_docs(path: str, request: Request, rights: UserRights) -> Response:
    """Serve a file of the Data Docs; without a path our index of them, or a page that says how to make them."""
    root = _data_docs()
    if path in ("", "index.html"):
        found = await run_in_threadpool(index, root, rights.shows)
        if found is not None:
            return HTMLResponse(found, headers=_HEADERS)
        return _page(
            "No Data Docs yet",
            f"There are no validations in {root} yet. Start the DAG validate, or restore, which starts validate. When "
            "validate has finished, reload this page.",
        )
    _require(rights.shows_path(path.split("/")))
    response = await _file(root, path, request)
    if response.status_code != 200 or response.media_type != "text/html":
        return response
    content = Path(response.path).read_bytes() if isinstance(response, FileResponse) else bytes(response.body)
    return HTMLResponse(styled(content.decode(errors="replace"), path), headers=_HEADERS)


@app.get("/reports")
def reports(rights: UserRights) -> JSONResponse:
    """Names of the reports, newest first, for each job."""
    listed, problems = list_reports(_reports())
    if rights.hidden:
        heads = ReportFiles().heads(listed)
        listed = [file for file, head in zip(listed, heads, strict=True) if _may_see(rights, head)]
    found: dict[str, list[str]] = {}
    for file in listed:
        found.setdefault(file.job, []).append(file.name)
    if problems and not found:
        return JSONResponse({"detail": f"{problems[0].path}: {problems[0].message}"}, 503, headers=_HEADERS)
    return JSONResponse(found, headers=_HEADERS)


@app.get("/reports/{job}/{name}")
async def report(job: str, name: str, request: Request, rights: UserRights) -> Response:
    """Serve one report as the job wrote it; what else lies there, such as the metastore's backup, is no report."""
    if not name.endswith(".json"):
        return Response(status_code=404, headers=_HEADERS)
    if rights.hidden:
        listed, _ = await run_in_threadpool(list_reports, _reports())
        files = [file for file in listed if (file.job, file.path.name) == (job, name)]
        _require(all(_may_see(rights, head) for head in await run_in_threadpool(ReportFiles().heads, files)) and files)
    return await _file(_reports(), f"{job}/{name}", request)


@app.get("/surveys/{name}")
def survey(name: str, rights: UserRights) -> Response:
    """Serve the report of a survey as a page."""
    if not name.endswith(".json") or name != Path(name).name:
        return Response(status_code=404, headers=_HEADERS)
    path = _reports() / SURVEY / name
    if not path.exists():
        return _page(
            "No such survey", f"There is no report {path}. It may be too old: see STATESTORE_REPORTS_DAYS.", 404
        )
    found = read_report(path, SurveyReport)
    _require(rights.shows_environment("" if found.dag_id is None else DagName.parse(found.dag_id).environment))
    return HTMLResponse(survey_page(found), headers=_HEADERS)


@app.get("/audit")
def audit(rights: UserRights, application: str = "", accept: Annotated[str, Header()] = "") -> Response:
    """List audit records, the newest first: as a page, or as JSON, by the header Accept."""
    wanted = [application] if application else []
    records = [one for one in read_records(_reports(), wanted) if not rights.hides(one.applications)][::-1]
    if "text/html" not in accept:
        return JSONResponse({"records": [one.model_dump(mode="json") for one in records]}, headers=_HEADERS)
    return HTMLResponse(audit_page(records[:MOST_RECORDS], len(records)), headers=_HEADERS)


@app.exception_handler(InputError)
async def not_configured(request: Request, error: InputError) -> Response:
    """Say which settings the API server lacks."""
    title = "The API server is not configured for state stores"
    if "/api/" in request.url.path:
        return Response(
            json.dumps({"detail": f"{title}: {error}"}), 503, media_type="application/json", headers=_HEADERS
        )
    return _page(title, str(error), status_code=503)


@app.exception_handler(ArchiveAccessError)
@app.exception_handler(RetryError)
async def not_readable(request: Request, error: StateStoreError) -> Response:
    """Say what object storage has answered, or that it has not."""
    if "/api/" in request.url.path:
        return JSONResponse({"detail": str(error)}, 503, headers=_HEADERS)
    return _page("This cannot be read now", str(error), status_code=503)


def _may_see(rights: Rights, head: Head | Problem) -> bool:
    if isinstance(head, Problem):
        return False
    environment = "" if head.dag_id is None else DagName.parse(head.dag_id).environment
    return rights.shows_environment(environment) if head.job == SURVEY else rights.shows_report(head)


def _require(shown: object) -> None:
    """Refuse what the user may not see just as what does not exist."""
    if not shown:
        raise HTTPException(404)


def _reports() -> Location:
    return _soon(load_directories().reports_dir)


def _data_docs() -> Location:
    return _soon(load_directories().data_docs_dir)


def _soon(place: Location) -> Location:
    """A page can do without object storage that does not answer: the API server has more to do than to wait for it."""
    return place.soon() if isinstance(place, ObjectPath) else place


async def _file(root: Location, path: str, request: Request) -> Response:
    if isinstance(root, ObjectPath):
        return await run_in_threadpool(_object, root, path, request.headers.get("if-none-match", ""))
    # Starlette's: nothing outside `root` (symbolic links are followed first), 404 for what is not there, and ETags.
    files = StaticFiles(directory=root, html=True, check_dir=False)
    try:
        response = await files.get_response(path or ".", request.scope)
        refused = isinstance(response, FileResponse) and not os.access(response.path, os.R_OK)
    except HTTPException as error:
        if error.status_code != 401:  # its word for a directory that the server may not enter
            raise
        refused = True
    if refused:
        advice = f"Let the API server's user (id {os.geteuid()}) read it, then reload this page."
        return _page("This file cannot be read", f"{path} is in {root}. {advice}", status_code=500)
    response.headers.update(_HEADERS)
    return response


def _object(root: ObjectPath, path: str, known: str) -> Response:
    """Serve an object below a place; names that lead out of it lead nowhere."""
    try:
        found = root / path
    except InputError as error:
        raise HTTPException(404) from error
    try:
        stat = found.stat()
        tag = f'"{stat.st_mtime_ns:x}-{stat.st_ctime_ns:x}"'
        content = b"" if tag in known else found.read_bytes()
    except FileNotFoundError as error:
        raise HTTPException(404) from error
    headers = {**_HEADERS, "ETag": tag}
    if tag in known:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=guess_type(found.name)[0] or "application/octet-stream", headers=headers)


def _page(title: str, text: str, status_code: int = 200) -> HTMLResponse:
    body = (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title>"
        "<body style='font-family: sans-serif; max-width: 40rem; margin: 4rem auto; line-height: 1.5'>"
        f"<h1>{escape(title)}</h1><p>{escape(text)}</p></body></html>"
    )
    return HTMLResponse(body, status_code=status_code, headers=_HEADERS)
