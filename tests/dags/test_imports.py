"""What the plugin and the DAG files load, and what the pages answer without settings or of files that they cannot read.

In a process of its own: this one has loaded much more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"confluent_kafka", "kafka", "rocksdict", "pyspark", "numba", "great_expectations", "pandas", "pyarrow"}


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> dict:
    """What `fresh_process.py` says, whose reports directory has one report."""
    directory = tmp_path_factory.mktemp("reports")
    (directory / "verify").mkdir()
    (directory / "verify" / "run.json").write_text("secret")
    env = {name: value for name, value in os.environ.items() if not name.startswith("STATESTORE_")}
    command = [sys.executable, str(Path(__file__).with_name("fresh_process.py")), str(directory)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_missing_settings_are_named(said):
    for status, text in said["without_settings"]:
        assert status == 503
        assert "The API server is not configured for state stores" in text
        assert "STATESTORE_DATA_DOCS_DIR: Field required" in text


def test_other_airflow_processes_load_the_plugin_without_its_pages(said):
    # Each task's process imports every plugin: two seconds of imports there would double many a task's time.
    assert {"fastapi", "airflow.api_fastapi.core_api.security"}.isdisjoint(said["by_plugin"])
    assert "state_stores" in said["by_plugin"]


def test_parsing_the_dag_files_imports_neither_kafka_nor_rocksdb_nor_spark_nor_a_client_of_object_storage(said):
    # The Spark provider belongs to it: 6.3.4 imports pyspark in neither its operator nor its hook.
    assert (HEAVY | {"obstore"}).isdisjoint(said["by_dag_files"])
    assert "airflow.providers.apache.spark.hooks.spark_submit" in said["by_dag_files"]


def test_the_api_server_loads_neither_kafka_nor_rocksdb_nor_spark_nor_numba(said):
    # Besides what the DAG files load, among which none of these is either.
    assert (HEAVY - {"pyarrow"}).isdisjoint(said["by_pages"])
    assert "statestore_ui.app" in said["by_pages"]


def test_a_report_that_may_not_be_read_and_a_missing_directory_are_explained(said):
    assert said["missing_report"][0] == 404
    status, text = said["unreadable_report"]
    assert status == 500
    assert "verify/run.json is in" in text
    assert "Let the API server&#x27;s user" in text
    assert "secret" not in text
    listing = json.loads(said["missing_directory"][1])["detail"]
    assert listing.startswith("/nowhere: There is no such directory.")
