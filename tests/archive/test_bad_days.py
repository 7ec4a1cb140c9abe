"""What an object store does on bad days: a clear error, or a way around; never other bytes than were published."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from statestore.archive.archive import open_archive
from statestore.archive.fetch import fetch
from statestore.archive.snapshots import history, read_manifest
from statestore.errors import ArchiveAccessError, ArchiveUnavailableError, SnapshotError
from statestore.objects.store import ObjectStore
from tests.archive.faulty import FaultyStore, cut_off, hang, lose_the_answer, other_bytes, status
from tests.archive.s3 import BUCKET, environment
from tests.archive.snapshots import manifest, publish, written

FILES = {"CURRENT": b"MANIFEST-000005\n", "000007.sst": os.urandom(100_000)}
TIMEOUT_S = 1.5


@pytest.fixture
def faulty(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    store = FaultyStore(s3)
    with store.running() as endpoint:
        for name, value in environment(endpoint).items():
            monkeypatch.setenv(name, value)
        yield store


@pytest.fixture
def objects(faulty: FaultyStore) -> ObjectStore:
    return ObjectStore(f"s3://{BUCKET}/{uuid4().hex}", TIMEOUT_S)


@pytest.mark.short_for("503", "lost")
@pytest.mark.parametrize(
    "fault", [status(500), status(503), cut_off, lose_the_answer], ids=["500", "503", "cut off", "lost"]
)
def test_errors_that_pass_are_not_seen(faulty: FaultyStore, objects: ObjectStore, tmp_path: Path, fault) -> None:
    made, store = manifest(FILES), written(tmp_path / "store", FILES)
    faulty.fail("PUT", "/blobs/", fault, times=2)
    faulty.fail("PUT", "/stores/", fault, times=2)
    publish(objects, made, store)
    assert [found.name for found in history(objects, made.directory).usable] == [made.name]
    for part in ("/blobs/", "/stores/"):
        faulty.fail("GET", part, fault, times=2)
    found = read_manifest(objects, made.directory, made.name)
    fetch(objects, found, tmp_path / "copy", {})
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == FILES
    assert faulty.taken >= 6


@pytest.mark.short_for("blob-no answer", "manifest-500")
@pytest.mark.parametrize(
    ("part", "fault"),
    [
        pytest.param("/blobs/", status(503), id="blob-503"),
        pytest.param("/blobs/", hang, id="blob-no answer"),
        pytest.param("/stores/", status(500), id="manifest-500"),
    ],
)
def test_errors_that_stay_are_said_and_nothing_is_published(
    faulty: FaultyStore, objects: ObjectStore, tmp_path: Path, part: str, fault
) -> None:
    made, store = manifest(FILES), written(tmp_path / "store", FILES)
    faulty.fail("PUT", part, fault)
    with pytest.raises(ArchiveUnavailableError, match=r"could not be reached .*Run again"):
        publish(objects, made, store)
    faulty.heal()
    assert history(objects, made.directory).snapshots == ()
    publish(objects, made, store)
    assert [found.name for found in history(objects, made.directory).usable] == [made.name]


def test_a_denied_request_is_no_missing_snapshot(faulty: FaultyStore, objects: ObjectStore, tmp_path: Path) -> None:
    made = manifest(FILES)
    publish(objects, made, written(tmp_path / "store", FILES))
    for method in ("GET", "HEAD", "PUT"):
        faulty.fail(method, "/", status(403))
    for ask in (
        lambda: history(objects, made.directory),
        lambda: read_manifest(objects, made.directory, made.name),
        lambda: fetch(objects, made, tmp_path / "copy", {}),
        lambda: publish(objects, manifest(FILES), tmp_path / "store"),
        lambda: open_archive(objects.url, TIMEOUT_S),
    ):
        with pytest.raises((ArchiveAccessError, ArchiveUnavailableError)):
            ask()


def test_other_bytes_are_found_before_they_are_used(faulty: FaultyStore, objects: ObjectStore, tmp_path: Path) -> None:
    made = manifest(FILES)
    publish(objects, made, written(tmp_path / "store", FILES))
    faulty.fail("GET", "/blobs/", other_bytes)
    with pytest.raises(SnapshotError, match="does not have the SHA-256 that is its name"):
        fetch(objects, made, tmp_path / "copy", {})
    faulty.heal()
    faulty.fail("GET", "/stores/", other_bytes)
    with pytest.raises(SnapshotError, match="is damaged"):
        read_manifest(objects, made.directory, made.name)


def test_a_snapshot_whose_commit_was_not_answered_is_there_once(
    faulty: FaultyStore, objects: ObjectStore, tmp_path: Path
) -> None:
    made = manifest(FILES)
    faulty.fail("PUT", "/stores/", lose_the_answer, times=1)
    publish(objects, made, written(tmp_path / "store", FILES))
    assert [found.name for found in history(objects, made.directory).snapshots] == [made.name]
