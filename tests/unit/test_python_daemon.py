"""Spark's Python workers are forked from a process that has what they need, and reads no archive for it."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import py4j
import pyspark
from statestore_jobs.python_daemon import without_archives

INSTALLED = Path(pyspark.__file__).parent
BESIDE = str(Path(py4j.__file__).parents[1])
OWN_ARCHIVES = [str(path) for path in sorted((INSTALLED / "python" / "lib").glob("*.zip"))]


def test_the_archives_of_the_pyspark_that_is_installed_beside_them_are_left_out() -> None:
    assert len(OWN_ARCHIVES) == 2
    assert without_archives([*OWN_ARCHIVES, "/opt/jobs", BESIDE]) == ["/opt/jobs", BESIDE]


def test_archives_of_the_user_stay(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "jobs.zip", "w"):
        pass
    path = [str(tmp_path / "jobs.zip"), str(tmp_path / "not-there.zip"), BESIDE]
    assert without_archives(path) == path


def test_another_pyspark_stays_where_it_is_the_only_one_and_where_it_has_been_put_first(tmp_path: Path) -> None:
    assert without_archives([*OWN_ARCHIVES, str(tmp_path)]) == [*OWN_ARCHIVES, str(tmp_path)]
    of_the_cluster = tmp_path / "spark" / "python" / "lib" / "pyspark.zip"
    of_the_cluster.parent.mkdir(parents=True)
    with ZipFile(of_the_cluster, "w"):
        pass
    assert without_archives([str(of_the_cluster), BESIDE]) == [str(of_the_cluster), BESIDE]
