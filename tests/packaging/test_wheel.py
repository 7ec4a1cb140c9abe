"""The wheel has packages of our own names alone, with what lies beside them in the tree inside them."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.packaging.environments import REPOSITORY

PACKAGES = {"statestore", "statestore_jobs", "statestore_expectations", "statestore_dags", "statestore_ui"}


def test_at_the_top_of_the_wheel_are_our_packages_alone(wheel: Path) -> None:
    names = {name.split("/")[0] for name in ZipFile(wheel).namelist()}
    assert names == {*PACKAGES, "statestore-0.1.0.dist-info"}


@pytest.mark.parametrize(
    "package",
    [
        "statestore",
        *(f"{room}/statestore_{room}" for room in ("jobs", "expectations", "dags")),
        "plugins/statestore_ui",
    ],
)
def test_a_package_is_in_the_wheel_with_all_of_its_files(wheel: Path, package: str) -> None:
    root = (REPOSITORY / package).parent
    files = {path for path in (REPOSITORY / package).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert files
    assert {path.relative_to(root).as_posix() for path in files} <= set(ZipFile(wheel).namelist())


@pytest.mark.parametrize(
    ("beside", "inside"),
    [
        ("jobs/*.py", "statestore_jobs/programs"),
        ("dags/*.py", "statestore_dags/dags"),
        ("expectations/suites/*.json", "statestore_expectations/suites"),
    ],
)
def test_what_lies_beside_a_package_in_the_tree_is_inside_it(wheel: Path, beside: str, inside: str) -> None:
    with ZipFile(wheel) as archive:
        found = {Path(name).name: archive.read(name) for name in archive.namelist() if str(Path(name).parent) == inside}
    expected = {path.name: path.read_bytes() for path in REPOSITORY.glob(beside)}
    assert expected
    assert found == expected
