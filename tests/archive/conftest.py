"""Archives in a directory and on S3; every test of this folder holds for both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from statestore.archive.objects import ObjectStore
from tests.archive.s3 import BUCKET, environment, running_s3


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Endpoint of a server that lives as long as the run."""
    with running_s3() as endpoint:
        yield endpoint


@pytest.fixture(params=["directory", "S3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An archive of its own, with nothing in it."""
    if request.param == "directory":
        return ObjectStore(f"file://{tmp_path}/an archive")
    for name, value in environment(request.getfixturevalue("s3")).items():
        monkeypatch.setenv(name, value)
    return ObjectStore(f"s3://{BUCKET}/{uuid4().hex}/prefix")
