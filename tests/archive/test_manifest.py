"""Manifests: what is written comes back; what was changed, moved or made up is refused."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.archive.layout import SnapshotName, StoreDirectory, snapshot_name, store_directory, time_ordered_uuid
from statestore.archive.manifest import from_bytes, to_bytes
from statestore.errors import SnapshotError
from tests.archive.snapshots import CLUSTER, file, manifest

MADE = manifest({"CURRENT": b"MANIFEST-000005\n", "000007.sst": b"rows"}, own={"interval": "60000"})
_A = hashlib.sha256(b"a").hexdigest()
PLACE = (MADE.directory, MADE.name)


def _forged(**changes: object) -> bytes:
    """A manifest with other fields and a checksum that fits them."""
    content = json.dumps({**json.loads(MADE.model_dump_json()), **changes}).encode()
    return b'{"sha256":"%s","manifest":%s}\n' % (hashlib.sha256(content).hexdigest().encode(), content)


def test_a_manifest_comes_back_as_it_was_written() -> None:
    assert from_bytes(to_bytes(MADE), *PLACE) == MADE


def test_its_place_says_whose_it_is_and_how_far_the_store_was() -> None:
    assert MADE.directory.snapshot(MADE.name) == (
        f"stores/{CLUSTER}/app/totals/0_3/00000000-00000000000000000042-{MADE.uuid}.json"
    )
    assert manifest(committed=None).name.offset == 0


@given(st.integers(0, len(to_bytes(MADE)) - 1), st.integers(1, 255))
def test_any_changed_byte_is_found(at: int, mask: int) -> None:
    data = bytearray(to_bytes(MADE))
    data[at] ^= mask
    with pytest.raises(SnapshotError):
        from_bytes(bytes(data), *PLACE)


def test_a_files_content_comes_back_from_its_manifest() -> None:
    made = MADE.model_copy(update={"files": (file("CURRENT", bytes(range(256)), inline=True),)})
    assert from_bytes(to_bytes(made), *PLACE) == made


def test_a_torn_manifest_is_refused() -> None:
    with pytest.raises(SnapshotError, match="its checksum does not match"):
        from_bytes(to_bytes(MADE)[:-10], *PLACE)


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../../x", "a//b", "", ".", "a\\b", "a\0b", "a/" * 9 + "b", "é"]
)
def test_a_path_that_could_leave_the_store_is_refused(path: str) -> None:
    files = [{"path": path, "bytes": 1, "sha256": "0" * 64}]
    with pytest.raises(SnapshotError, match="its manifest is refused: files"):
        from_bytes(_forged(files=files), *PLACE)
    with pytest.raises(SnapshotError, match="its manifest is refused: own"):
        from_bytes(_forged(own={path: "x"}), *PLACE)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"files": [{"path": "a", "bytes": 1 << 50, "sha256": "0" * 64}]}, "bytes"),
        ({"files": [{"path": "a", "bytes": -1, "sha256": "0" * 64}]}, "bytes"),
        ({"files": [{"path": "a", "bytes": 1, "sha256": "../../" + "0" * 58}]}, "sha256"),
        ({"files": [{"path": "a", "bytes": 1, "sha256": _A, "content": "Yg=="}]}, "of a does not match"),
        ({"files": [{"path": "a", "bytes": 2, "sha256": _A, "content": "YQ=="}]}, "of a does not match"),
        ({"files": [{"path": "a", "bytes": 1, "sha256": _A, "content": "?"}]}, "content"),
        ({"schema_version": 2}, "schema_version"),
        ({"application": "../other"}, "application"),
        ({"task": "0"}, "task"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_other_fields_are_refused_by_name(changes: dict[str, object], said: str) -> None:
    with pytest.raises(SnapshotError, match=said):
        from_bytes(_forged(**changes), *PLACE)


@pytest.mark.parametrize("paths", [("a", "a"), ("a", "a/b")])
def test_files_that_are_in_each_others_way_are_refused(paths: tuple[str, str]) -> None:
    files = [file(path, b"x").model_dump() for path in paths]
    with pytest.raises(SnapshotError, match="its manifest is refused"):
        from_bytes(_forged(files=files), *PLACE)


@pytest.mark.parametrize(
    "other",
    [
        (StoreDirectory(CLUSTER, MADE.store_partition._replace(application="other")), MADE.name),
        (StoreDirectory("another", MADE.store_partition), MADE.name),
        (MADE.directory, MADE.name._replace(generation=1)),
        (MADE.directory, MADE.name._replace(offset=7)),
    ],
)
def test_a_manifest_in_another_place_is_refused(other: tuple[StoreDirectory, SnapshotName]) -> None:
    with pytest.raises(SnapshotError, match="its manifest is that of"):
        from_bytes(to_bytes(MADE), *other)


@given(st.integers(0, 10**8 - 1), st.integers(0, 10**20 - 1), st.integers(0, 10**8 - 1), st.integers(0, 10**20 - 1))
def test_names_are_in_the_order_of_generation_and_offset(generation: int, offset: int, other: int, more: int) -> None:
    first, second = SnapshotName(generation, offset, "0" * 32), SnapshotName(other, more, "0" * 32)
    assert (str(first) < str(second)) == (first < second)
    assert snapshot_name(f"{first}.json") == first


def test_of_two_snapshots_at_one_offset_the_later_one_is_newer() -> None:
    uuids = [time_ordered_uuid(now_ms) for now_ms in (5, 1_795_622_130_474, 1_795_622_130_475)]
    assert uuids == sorted(uuids)
    assert all(snapshot_name(f"{SnapshotName(0, 7, uuid)}.json").uuid == uuid for uuid in uuids)


def test_a_directory_of_the_archive_names_its_store_partition() -> None:
    assert store_directory(str(MADE.directory)) == MADE.directory
    for other in ("stores/x", f"{MADE.directory}/more", "blobs/a/b/c/0_1", f"stores/{CLUSTER}/app/totals/none"):
        assert store_directory(other) is None
