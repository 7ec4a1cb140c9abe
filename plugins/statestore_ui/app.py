"""The routes below /statestore: Great Expectations' Data Docs and the jobs' JSON reports, behind Airflow's own login.

They serve the files of two directories, write nothing, and read STATESTORE_* on each request, so that an import never
fails for a missing one. Whoever may read DAGs may read these pages: by the browser's cookie or by a bearer token, as
everywhere in Airflow's API.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from statestore.config import load_settings
from statestore.errors import InputError

# Data Docs show values from the stores, on Airflow's own origin: no page of theirs may call Airflow's API.
_HEADERS = {
    "Content-Security-Policy": "connect-src 'none'; form-action 'none'; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}

app = FastAPI(
    title="State stores",
    dependencies=[Depends(requires_access_dag(method="GET"))],
    # They would be served without the dependency.
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
)


@app.get("/docs")
def data_docs_root(request: Request) -> RedirectResponse:
    """Add the slash, which the relative links of the Data Docs need."""
    return RedirectResponse(f"{request.url.path}/")


@app.get("/docs/{path:path}")
async def data_docs(path: str, request: Request) -> Response:
    """Serve a file of the Data Docs; without a path their index, or a page that says how to make them."""
    root = load_settings().data_docs_dir
    if not path and not (root / "index.html").is_file():
        return _page(
            "No Data Docs yet",
            f"Great Expectations has not written to {root} so far. Start the DAG validate, or restore, which starts "
            "it; when it has finished, reload this page.",
        )
    return await _file(root, path, request)


@app.get("/reports")
def reports() -> JSONResponse:
    """Names of the reports, newest first, for each job."""
    root = load_settings().reports_dir
    jobs = sorted(job for job in root.iterdir() if job.is_dir()) if root.is_dir() else []
    found = {job.name: [report.name for report in _newest_first(job)] for job in jobs}
    return JSONResponse({job: names for job, names in found.items() if names}, headers=_HEADERS)


@app.get("/reports/{job}/{name}")
async def report(job: str, name: str, request: Request) -> Response:
    """Serve one report as the job wrote it; what else lies there, such as the metastore's backup, is no report."""
    if not name.endswith(".json"):
        return Response(status_code=404, headers=_HEADERS)
    return await _file(load_settings().reports_dir, f"{job}/{name}", request)


@app.exception_handler(InputError)
async def not_configured(_request: Request, error: InputError) -> Response:
    """Say which settings the API server lacks."""
    return _page("The API server is not configured for state stores", str(error), status_code=503)


def _newest_first(job: Path) -> list[Path]:
    # A report may be removed between listing and asking for its age.
    aged = [(path.stat().st_mtime, path) for path in job.glob("[!.]*.json") if path.exists()]
    return [path for _, path in sorted(aged, reverse=True)]


async def _file(root: Path, path: str, request: Request) -> Response:
    # Starlette's: nothing outside `root` (symbolic links are followed first), 404 for what is not there, and ETags.
    files = StaticFiles(directory=root, html=True, check_dir=False)
    response = await files.get_response(path or ".", request.scope)
    response.headers.update(_HEADERS)
    return response


def _page(title: str, text: str, status_code: int = 200) -> HTMLResponse:
    body = (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title>"
        "<body style='font-family: sans-serif; max-width: 40rem; margin: 4rem auto; line-height: 1.5'>"
        f"<h1>{escape(title)}</h1><p>{escape(text)}</p></body></html>"
    )
    return HTMLResponse(body, status_code=status_code, headers=_HEADERS)
