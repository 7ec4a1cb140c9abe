"""Airflow with the DAG bundle, the plugin and the programs of the installed wheel, where the source tree is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.dags.database import migrated_database
from tests.packaging.environments import REPOSITORY, Installed

BUNDLE = {"name": "state-stores", "classpath": "statestore_dags.bundle.StateStoresDagBundle", "kwargs": {}}
DAGS = sorted(path.stem for path in (REPOSITORY / "dags").glob("*.py"))
JOBS = sorted(path.stem for path in (REPOSITORY / "jobs").glob("*.py"))

#: One process, since each would load all of Airflow.
PROGRAM = """
import json, sys
from importlib.util import find_spec
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.plugins_manager import _get_plugins

(bundle,) = DagBundlesManager().get_all_dag_bundles()
bundle.initialize()
bag = BundleDagBag(bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
plugins, problems = _get_plugins()
print(json.dumps({
    "tree": find_spec("demo") is not None,
    "bundle": str(bundle.path),
    "dags": sorted(bag.dags),
    "problems": {**bag.import_errors, **problems},
    "programs": {
        name: dag.task_dict["spark"].partial_kwargs["application"]
        for name, dag in bag.dags.items() if "spark" in dag.task_dict
    },
    "plugins": [[plugin.name, str(plugin.source)] for plugin in plugins if plugin.name == "state_stores"],
}))
"""


def told(complete: Installed, home: Path, **settings: str) -> dict[str, Any]:
    """Return what an Airflow with one DAG bundle has loaded."""
    environment = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([BUNDLE]),
        **settings,
    }
    migrated_database(home / "airflow.db")
    done = complete.run("python", "-c", PROGRAM, **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.long
def test_airflow_finds_dags_and_plugin_of_the_installed_package(complete: Installed, tmp_path: Path) -> None:
    found = told(complete, tmp_path)
    assert not found["tree"]
    assert found["problems"] == {}
    assert found["bundle"] == str(complete.site_packages / "statestore_dags" / "dags")
    assert found["dags"] == sorted([*DAGS, "verify.deep"])
    programs = complete.site_packages / "statestore_jobs" / "programs"
    assert {name.partition(".")[0]: path for name, path in found["programs"].items()} == {
        job: str(programs / f"{job}.py") for job in JOBS
    }
    ((name, source),) = found["plugins"]
    assert (name, source.split("==")[0]) == ("state_stores", "statestore")


@pytest.mark.long
def test_a_plugins_folder_that_has_the_plugin_comes_first(complete: Installed, tmp_path: Path) -> None:
    found = told(complete, tmp_path, AIRFLOW__CORE__PLUGINS_FOLDER=str(REPOSITORY / "plugins"))
    assert found["problems"] == {}
    assert found["plugins"] == [["state_stores", "$PLUGINS_FOLDER/state_stores.py"]]


#: Runs a program without modules that others need.
WITHOUT = """
import runpy, sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(","), None))
sys.argv[:] = [sys.argv[2], "--help"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.long
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.short_for("verify")
def test_a_program_of_the_installed_package_starts_with_its_extra_alone(complete: Installed, job: str) -> None:
    program = complete.site_packages / "statestore_jobs" / "programs" / f"{job}.py"
    missing = "airflow" if job == "validate" else "airflow,great_expectations,matplotlib"
    done = complete.run("python", "-c", WITHOUT, missing, str(program))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {job} ")


@pytest.mark.long
def test_the_suites_of_the_installed_package_are_found(complete: Installed) -> None:
    program = (
        "from statestore_expectations.suites import SUITES, load_suite\nload_suite('x', ['window'])\nprint(SUITES)"
    )
    done = complete.run("python", "-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(complete.site_packages / "statestore_expectations" / "suites")
