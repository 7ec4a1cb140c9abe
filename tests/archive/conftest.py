"""Archives in a directory, on S3 and on Azure; every test of this folder holds for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from statestore.objects.store import ObjectStore
from tests.archive import azure as azurite
from tests.archive.azure import running_azurite
from tests.archive.s3 import BUCKET, environment, running_s3


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Endpoint of a server that lives as long as the run."""
    with running_s3() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Endpoint of an Azurite that lives as long as the run."""
    with running_azurite(tmp_path_factory.mktemp("azurite")) as endpoint:
        yield endpoint


@pytest.fixture(params=["directory", "S3", pytest.param("Azure", marks=pytest.mark.azure)])
def objects(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An archive of its own, with nothing in it."""
    if request.param == "directory":
        return ObjectStore(f"file://{tmp_path}/an archive")
    if request.param == "Azure":
        settings = azurite.environment(request.getfixturevalue("azure"))
        url = f"az://{azurite.ACCOUNT}/{azurite.CONTAINER}/{uuid4().hex}/prefix"
    else:
        settings, url = environment(request.getfixturevalue("s3")), f"s3://{BUCKET}/{uuid4().hex}/prefix"
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return ObjectStore(url)
