"""Publishing a store's files and fetching them again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statestore.archive.fetch import Fetched, fetch
from statestore.archive.layout import BLOBS, blob
from statestore.archive.snapshots import history, read_manifest
from statestore.archive.upload import Uploading
from statestore.errors import InvalidStateError, SnapshotError, StoreCorruptedError
from statestore.objects.store import ObjectStore
from tests.archive.snapshots import file, manifest, publish, written

MIB = 1 << 20
FILES = {
    "CURRENT": b"MANIFEST-000005\n",
    "000007.sst": b"rows" * 100,
    "totals.60000/000009.sst": os.urandom(MIB // 8),
    "totals.60000/000010.sst": b"",
}


def _content(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.short_for("S3")
def test_what_is_published_is_fetched_byte_for_byte(objects: ObjectStore, tmp_path: Path) -> None:
    files = {**FILES, "000008.sst": os.urandom(40 * MIB)}
    made = manifest(files)
    done = publish(objects, made, written(tmp_path / "store", files))
    assert (done.files, done.bytes) == (5, made.bytes)
    added: list[int] = []
    found = read_manifest(objects, made.directory, made.name)
    assert fetch(objects, found, tmp_path / "copy", {}, added.append) == Fetched(0, made.bytes)
    assert _content(tmp_path / "copy") == files
    assert sum(added) == made.bytes


def test_a_file_that_the_manifest_has_in_itself_is_no_object_of_its_own(objects: ObjectStore, tmp_path: Path) -> None:
    files = tuple(file(path, content, inline=len(content) < MIB // 8) for path, content in FILES.items())
    made = manifest().model_copy(update={"files": files})
    done = publish(objects, made, written(tmp_path / "store", FILES))
    assert done.files == 1
    assert {found.name for found in objects.entries(BLOBS)} == made.blobs
    found = read_manifest(objects, made.directory, made.name)
    assert fetch(objects, found, tmp_path / "copy", {}) == Fetched(0, made.bytes)
    assert _content(tmp_path / "copy") == FILES


def test_what_only_a_manifest_had_in_itself_is_uploaded_where_another_one_has_not(
    objects: ObjectStore, tmp_path: Path
) -> None:
    before, now = (file("CURRENT", FILES["CURRENT"], inline=inline) for inline in (True, False))
    uploading = Uploading(objects, written(tmp_path / "store", FILES))
    uploading.upload([now], [before])
    assert objects.stat(blob(now.sha256)) is not None


def test_only_what_the_earlier_snapshot_does_not_have_is_uploaded(objects: ObjectStore, tmp_path: Path) -> None:
    first = manifest(FILES)
    publish(objects, first, written(tmp_path / "store", FILES))
    more = {**FILES, "000011.sst": b"new", "000012.sst": b"new"}
    done = publish(objects, manifest(more), written(tmp_path / "store", more), first)
    assert (done.files, done.bytes) == (1, 3)  # two files of the same bytes are one blob


def test_files_that_differ_from_the_manifest_are_not_published(objects: ObjectStore, tmp_path: Path) -> None:
    for content in (b"rowS" * 100, b"rows" * 99, b"rows" * 101):
        store = written(tmp_path / "store", {**FILES, "000007.sst": content})
        with pytest.raises(StoreCorruptedError, match=r"000007.sst has changed since .* expected 400 bytes"):
            publish(objects, manifest(FILES), store)
    assert objects.stat(blob(file("x", FILES["000007.sst"]).sha256)) is None
    assert history(objects, manifest().directory).snapshots == ()


def test_a_snapshot_that_was_written_but_not_confirmed_is_published_once(objects: ObjectStore, tmp_path: Path) -> None:
    made, store = manifest(FILES), written(tmp_path / "store", FILES)
    publish(objects, made, store)
    publish(objects, made, store)
    assert len(history(objects, made.directory).snapshots) == 1
    with pytest.raises(InvalidStateError, match="already exists with different content"):
        publish(objects, made.model_copy(update={"host": "elsewhere"}), store)


def test_blobs_that_went_with_the_earlier_snapshot_are_uploaded_again(objects: ObjectStore, tmp_path: Path) -> None:
    first, store = manifest(FILES), written(tmp_path / "store", FILES)
    publish(objects, first, store)
    objects.delete(first.directory.snapshot(first.name))  # clean-up has marked it
    for found in list(objects.entries(BLOBS)):  # and a later one has swept
        objects.delete(found.name)
    second = manifest(FILES)
    assert publish(objects, second, store, first).files == 4
    fetch(objects, second, tmp_path / "copy", {})
    assert _content(tmp_path / "copy") == FILES


def test_local_files_with_the_same_bytes_are_linked(objects: ObjectStore, tmp_path: Path) -> None:
    made, store = manifest(FILES), written(tmp_path / "store", FILES)
    publish(objects, made, store)
    local = {one.sha256: store / one.path for one in made.files}
    sst = sum(one.bytes for one in made.files if one.path.endswith(".sst"))
    assert fetch(objects, made, tmp_path / "copy", local) == Fetched(sst, made.bytes - sst)
    assert _content(tmp_path / "copy") == FILES
    big = "totals.60000/000009.sst"
    assert (tmp_path / "copy" / big).stat().st_ino == (store / big).stat().st_ino
    assert (tmp_path / "copy" / "CURRENT").stat().st_ino != (store / "CURRENT").stat().st_ino  # RocksDB writes it


def test_a_local_file_with_other_bytes_is_fetched_instead(objects: ObjectStore, tmp_path: Path) -> None:
    made, store = manifest(FILES), written(tmp_path / "store", FILES)
    publish(objects, made, store)
    wrong = written(tmp_path / "wrong", {"x.sst": b"rowS" * 100}) / "x.sst"
    digest = file("x", FILES["000007.sst"]).sha256
    for local in (wrong, tmp_path / "none", tmp_path):
        target = tmp_path / f"copy-{local.name}"
        assert fetch(objects, made, target, {digest: local}).linked == 0
        assert _content(target) == FILES


@pytest.mark.parametrize("path", ["000007.sst", "totals.60000/000009.sst"])
@pytest.mark.parametrize("damage", ["missing", "shorter", "longer", "other bytes"])
def test_a_damaged_blob_is_never_taken_for_the_file(
    objects: ObjectStore, tmp_path: Path, path: str, damage: str
) -> None:
    made = manifest(FILES)
    publish(objects, made, written(tmp_path / "store", FILES))
    content = FILES[path]
    name = blob(file("x", content).sha256)
    changed = {"shorter": content[:-1], "longer": content + b"x", "other bytes": content[:-1] + b"\xff"}
    if damage == "missing":
        objects.delete(name)
    else:
        objects.upload(name, iter([changed[damage]]))
    with pytest.raises(SnapshotError, match=name):
        fetch(objects, made, tmp_path / "copy", {})
