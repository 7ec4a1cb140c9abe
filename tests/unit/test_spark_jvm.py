"""Options of the JVM of a local Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.cli import spark_jvm


@pytest.mark.parametrize("made", [True, False])
def test_the_archive_of_classes_is_named_only_if_it_is_there(
    made: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A JVM that is told of a file that does not exist shares no classes at all."""
    archive = tmp_path / "spark-classes.jsa"
    if made:
        archive.touch()
    monkeypatch.setattr(spark_jvm, "ARCHIVE", archive)
    options = spark_jvm.spark_jvm()
    assert options.startswith(spark_jvm.SHORT)
    assert (f"-XX:SharedArchiveFile={archive}" in options) is made
