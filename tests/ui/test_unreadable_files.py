"""What the API server says of files behind the page's links that it cannot read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


def test_a_report_that_may_not_be_read_and_a_missing_directory_are_explained(reports):
    (reports.directory / "verify").mkdir()
    (reports.directory / "verify" / "run.json").write_text("secret")
    # In a process of its own, as Airflow reads its configuration at import. The refusal is made up: root is never
    # refused a file.
    code = (
        "import os; from fastapi.testclient import TestClient; from statestore_ui.app import app\n"
        "app.dependency_overrides = {d.dependency: lambda: None for d in app.router.dependencies}\n"
        "os.access = lambda path, mode: not str(path).endswith('run.json')\n"
        "found, missing = (TestClient(app).get(f'/reports/verify/{name}.json') for name in ('run', 'none'))\n"
        "print(missing.status_code, found.status_code, found.text)\n"
        "os.environ['STATESTORE_REPORTS_DIR'] = '/nowhere'\n"
        "print(TestClient(app).get('/reports').json()['detail'])"
    )
    directory = str(reports.directory)
    names = ("BOOTSTRAP_SERVERS", "STATE_DIR", "REPORTS_DIR", "DATA_DOCS_DIR")
    env = {**os.environ, **{f"STATESTORE_{name}": directory for name in names}, "AIRFLOW_HOME": directory}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PLUGINS,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answer, listing = done.stdout.splitlines()[-2:]
    assert listing.startswith("/nowhere: There is no such directory.")
    assert answer.startswith("404 500 ")
    assert "verify/run.json lies below" in answer
    assert "Let the API server&#x27;s user" in answer
    assert "secret" not in answer
