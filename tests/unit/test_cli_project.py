"""`statestore init`: the project runs as it is, and nothing is written over."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

import pytest
import yaml

from statestore.cli.project import make_project
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InputError

SETTINGS = {"STATESTORE_BOOTSTRAP_SERVERS": "localhost:9092", "STATESTORE_STATE_DIR": "/var/it is/state"}


def test_a_project_passes_its_own_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    made = make_project(tmp_path / "shop", "passes-1", SETTINGS)
    assert sorted(path.name for path in made.made) == [
        *("environment.sh", "passes-1.yaml", "passes_1.py", "send_passes_1.py", "test_passes_1.py"),
    ]
    definition = ApplicationDefinition.model_validate(yaml.safe_load((made.directory / "passes-1.yaml").read_text()))
    assert (definition.name, definition.processor) == ("passes-1", "passes_1:process")
    ran = unittest.TestResult()
    unittest.TestLoader().discover(str(made.directory)).run(ran)
    assert (ran.testsRun, ran.errors, ran.failures) == (2, [], [])


def test_a_shell_has_its_settings_and_finds_its_code(tmp_path: Path) -> None:
    made = make_project(tmp_path / "a shop", "sourced", SETTINGS)
    script = f". '{made.environment}'; echo $STATESTORE_STATE_DIR; echo $PYTHONPATH"
    environment = {**os.environ, "PYTHONPATH": "/before"}
    said = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["/var/it is/state", f"{made.directory}:/before"]


def test_a_directory_takes_a_second_project_and_keeps_its_settings(tmp_path: Path) -> None:
    first = make_project(tmp_path, "first", SETTINGS)
    first.environment.write_text("mine")
    second = make_project(tmp_path, "second", SETTINGS)
    assert second.environment not in second.made
    assert second.environment.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/b", "--name: 'a/b' is not a valid name"),
        ("1st", "--name: expected a name that starts with a letter"),
        ("class", "--name: expected a name that starts with a letter and is not a Python keyword"),
        ("statestore", "--name: Python has a module statestore already"),
    ],
)
def test_a_name_that_cannot_be_a_module_is_refused(tmp_path: Path, name: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        make_project(tmp_path / "new", name, SETTINGS)
    assert not (tmp_path / "new").exists()


def test_no_file_is_written_over_and_none_is_written_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("mine")
    with pytest.raises(InputError, match=r"has mine\.py already\. Nothing was written"):
        make_project(tmp_path, "mine", SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
