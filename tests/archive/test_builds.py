"""What machines that build one store leave for each other: committed once, checked when read, and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.archive import upload
from statestore.archive.builds import (
    KeyRangeMerged,
    LogRangeRead,
    SegmentBlobs,
    create,
    expired_builds,
    listed_builds,
    put_piece,
    read_key_range,
    read_log_range,
    remove_build,
)
from statestore.archive.documents import to_document
from statestore.archive.fetch import fetch_files
from statestore.archive.layout import BuildDirectory, blob, build_directory
from statestore.archive.manifest import SnapshotFile, StoredFile
from statestore.archive.server_time import server_time_ms
from statestore.archive.upload import MOST_S, Uploading, put_files, put_lately
from statestore.errors import SnapshotError
from statestore.model import StorePartition, TaskId
from statestore.objects.store import ObjectStore
from tests.archive.snapshots import CLUSTER, file, manifest, written

TOTALS = StorePartition("app", "totals", TaskId(0, 3))
BUILD = BuildDirectory(CLUSTER, TOTALS, "1" * 32)
OTHER = BUILD._replace(uuid="2" * 32)
READ = LogRangeRead(
    build=BUILD.uuid,
    partition=3,
    start=10,
    end=20,
    records=9,
    skipped=1,
    last_offset=18,
    stream_time=-1,
    position=(),
    pieces=(None,),
)
MERGED = KeyRangeMerged(build=BUILD.uuid, number=1, rows=2, digest="0" * 32, segments=())


def test_names_of_objects_are_those_of_one_build_and_of_no_other_place() -> None:
    place = f"builds/{CLUSTER}/app/totals/0_3/{BUILD.uuid}"
    assert BUILD.plan == f"{place}/plan.json"
    assert BUILD.log_range(3, 10) == f"{place}/range-00000003-00000000000000000010.json"
    assert BUILD.key_range(1) == f"{place}/keys-00000001.json"
    assert BUILD.piece("a" * 64) == f"{place}/pieces/{'a' * 64}"
    for name in (BUILD.plan, BUILD.log_range(0, 0), BUILD.piece("a" * 64)):
        assert build_directory(name) == BUILD
    for name in (
        "format.json",
        place,
        f"stores/{CLUSTER}/app/totals/0_3/{BUILD.uuid}/plan.json",
        f"builds/{CLUSTER}/app/totals/zero/{BUILD.uuid}/plan.json",
        f"builds/{CLUSTER}/../totals/0_3/{BUILD.uuid}/plan.json",
        f"builds/{CLUSTER}/app/totals/0_3/{BUILD.uuid}0/plan.json",
    ):
        assert build_directory(name) is None
    for digest in ("a" * 63, "../" + "a" * 61, "A" * 64):
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            BUILD.piece(digest)


def test_what_is_committed_first_counts(objects: ObjectStore) -> None:
    name = BUILD.log_range(3, 10)
    assert read_log_range(objects, BUILD, 3, 10) is None
    assert create(objects, name, READ)
    assert not create(objects, name, READ.model_copy(update={"records": 8}))
    assert read_log_range(objects, BUILD, 3, 10) == READ
    create(objects, BUILD.key_range(1), MERGED)
    assert read_key_range(objects, BUILD, 1) == MERGED


@pytest.mark.parametrize(
    "content",
    [
        to_document(READ, "build").replace(b'"records":9', b'"records":8'),
        to_document(READ, "build")[:-5],
        to_document(READ, "manifest"),
        to_document(READ.model_copy(update={"build": OTHER.uuid}), "build"),
        to_document(READ.model_copy(update={"start": 11}), "build"),
        to_document(READ.model_copy(update={"partition": 2}), "build"),
        to_document(READ.model_copy(update={"records": -1}), "build"),
        to_document(READ.model_copy(update={"schema_version": 2}), "build"),
        to_document(MERGED, "build"),
        b"",
        bytes(17 << 20),
    ],
    ids=[
        "other",
        "cut off",
        "a manifest",
        "build",
        "start",
        "partition",
        "negative",
        "newer",
        "keys",
        "empty",
        "large",
    ],
)
def test_what_is_not_as_it_was_committed_is_refused(objects: ObjectStore, content: bytes) -> None:
    objects.upload(BUILD.log_range(3, 10), [content])
    with pytest.raises(SnapshotError):
        read_log_range(objects, BUILD, 3, 10)


def test_files_of_a_range_of_keys_are_named_by_digest_and_each_segment_once(objects: ObjectStore) -> None:
    segment = SegmentBlobs(segment=60_000, files=(StoredFile(bytes=1, sha256="a" * 64),))
    for segments in ((segment, segment), (segment, segment.model_copy(update={"segment": 0}))):
        create(objects, BUILD.key_range(1), MERGED.model_copy(update={"segments": segments}))
        with pytest.raises(SnapshotError, match="its segments are not in order"):
            read_key_range(objects, BUILD, 1)
        objects.delete(BUILD.key_range(1))
    outside = segment.model_copy(update={"files": (StoredFile.model_construct(bytes=1, sha256="../../pins/all"),)})
    create(objects, BUILD.key_range(1), MERGED.model_copy(update={"segments": (outside,)}))
    with pytest.raises(SnapshotError, match="sha256"):
        read_key_range(objects, BUILD, 1)


def test_a_piece_is_fetched_only_with_the_bytes_of_its_digest(objects: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "piece").write_bytes(b"rows" * 100)
    piece = put_piece(objects, BUILD, tmp_path / "piece", 7)
    assert (piece.bytes, piece.row_bytes) == (400, 7)
    wanted = SnapshotFile(path="0.arrow", bytes=piece.bytes, sha256=piece.sha256)
    came: list[int] = []
    fetch_files(objects, tmp_path / "right", [wanted], BUILD.piece, came.append)
    assert (tmp_path / "right" / "0.arrow").read_bytes() == b"rows" * 100
    assert sum(came) == 400
    for number, content in enumerate((b"rowS" * 100, b"rows" * 99)):
        objects.upload(BUILD.piece(piece.sha256), [content])
        with pytest.raises(SnapshotError, match=r"does not have the SHA-256|has 396 bytes"):
            fetch_files(objects, tmp_path / f"wrong {number}", [wanted], BUILD.piece, came.append)
    with pytest.raises(SnapshotError, match="does not exist"):
        fetch_files(objects, tmp_path / "gone", [wanted], OTHER.piece, came.append)


def test_a_build_is_listed_with_all_of_it_and_removed_with_nothing_left(objects: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "piece").write_bytes(b"rows")
    for build in (BUILD, OTHER):
        create(objects, build.plan, MERGED)
        put_piece(objects, build, tmp_path / "piece", 4)
    create(objects, BUILD.key_range(1), MERGED)
    newest, oldest = listed_builds(objects, CLUSTER, TOTALS)
    assert (newest.directory, oldest.directory) == (OTHER, BUILD)
    assert len(oldest.names) == 3
    assert listed_builds(objects, CLUSTER, TOTALS._replace(store="other")) == []
    remove_build(objects, oldest)
    assert [one.directory for one in listed_builds(objects, CLUSTER, TOTALS)] == [OTHER]


def test_a_build_is_used_while_clean_up_takes_nothing_of_it_and_goes_later(objects: ObjectStore) -> None:
    create(objects, BUILD.key_range(1), MERGED)
    now_ms, most_ms = server_time_ms(objects), int(MOST_S * 1000)
    (found,) = listed_builds(objects, CLUSTER, TOTALS)
    assert not found.usable(now_ms), "nobody has begun it"
    create(objects, BUILD.plan, MERGED)
    (found,) = listed_builds(objects, CLUSTER, TOTALS)
    begun_ms = next(one.modified_ms for one in found.objects if one.name == BUILD.plan)
    assert found.usable(begun_ms + most_ms - 1)
    assert not found.usable(begun_ms + most_ms)
    last_ms = max(one.modified_ms for one in found.objects)
    assert list(expired_builds(objects, 1_000, last_ms + 999)) == []
    assert list(expired_builds(objects, 1_000, last_ms + 1_000)) == [found]


@pytest.mark.parametrize("later_s", [0, MOST_S])
def test_what_was_uploaded_while_the_store_was_built_is_uploaded_once_while_it_is_young(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: float
) -> None:
    files = {"000007.sst": b"merged", "000008.sst": b"gone by now", "CURRENT": b"MANIFEST-000005\n"}
    store = written(tmp_path / "store", files)
    merged, gone = (file(name, files[name]) for name in ("000007.sst", "000008.sst"))
    put_files(objects, store, [merged, gone])
    objects.delete(blob(gone.sha256))
    now_ms = server_time_ms(objects)
    monkeypatch.setattr(upload, "server_time_ms", lambda _: now_ms + int(later_s * 1000) + 1_000)
    made, uploading = manifest(files), Uploading(objects, store)
    uploading.upload(made.files, put_lately(objects, made.files, {merged.sha256, gone.sha256}))
    done = uploading.publish(made)
    assert done.files == (3 if later_s else 2)
    assert objects.stat(blob(gone.sha256)) is not None
