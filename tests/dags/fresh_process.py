"""A process that loads the plugin, the DAG files and the plugin's pages, one after the other.

It is given a reports directory, and prints as JSON what it has loaded and what the pages answer. Nobody logs in here,
and nobody is asked to.
"""

import json
import os
import runpy
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# As Airflow does it with its folders.
sys.path += [str(REPOSITORY / "plugins"), str(REPOSITORY / "dags")]
reports = sys.argv[1]
said = {}

import state_stores  # noqa: E402, F401

said["by_plugin"] = sorted(sys.modules)

os.environ["STATESTORE_REPORTS_DIR"] = "s3://bucket/reports"  # of which forms ask nothing
for path in (REPOSITORY / "dags").glob("*.py"):
    runpy.run_path(str(path))
del os.environ["STATESTORE_REPORTS_DIR"]
said["by_dag_files"] = sorted(sys.modules)

from airflow.api_fastapi.core_api.security import get_user  # noqa: E402
from fastapi.testclient import TestClient  # noqa: E402
from statestore_ui.app import app  # noqa: E402

said["by_pages"] = sorted(sys.modules)
app.dependency_overrides = {each.dependency: lambda: None for each in app.router.dependencies}
app.dependency_overrides[get_user] = lambda: None


def ask(path: str) -> tuple[int, str]:
    """Return the status and the text of the answer."""
    answer = TestClient(app).get(path)
    return answer.status_code, answer.text


said["without_settings"] = [ask("/docs/"), ask("/api/overview")]

names = ("BOOTSTRAP_SERVERS", "STATE_DIR", "REPORTS_DIR", "DATA_DOCS_DIR")
os.environ.update({f"STATESTORE_{name}": reports for name in names})
said["missing_report"] = ask("/reports/verify/none.json")
# The refusal is made up: root is never refused a file.
os.access = lambda path, mode: not str(path).endswith("run.json")
said["unreadable_report"] = ask("/reports/verify/run.json")
os.environ["STATESTORE_REPORTS_DIR"] = "/nowhere"
said["missing_directory"] = ask("/reports")
print(json.dumps(said))
