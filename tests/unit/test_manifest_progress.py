"""How far a database has been written, from its MANIFEST."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from statestore.stores.manifest import DatabaseProgress, database_progress, flushed_sequences
from statestore.stores.rocksdb import RocksDB

FAMILIES = ("default", "keyValueWithTimestamp")


def written(directory: Path, rows: int) -> None:
    database = RocksDB(directory, FAMILIES)
    for number in range(rows):
        database.write({"keyValueWithTimestamp": {b"%d" % number: b"v"}})
    database.sync()
    database.close()


def test_the_sequence_of_a_database_grows_with_its_writes(tmp_path: Path) -> None:
    seen = []
    for rows in (5, 1, 300):
        written(tmp_path / "db", rows)
        progress = database_progress(tmp_path / "db")
        assert progress is not None
        assert flushed_sequences(tmp_path / "db")["keyValueWithTimestamp"] == progress.sequence
        seen.append(progress)
    assert [found.sequence for found in seen] == [5, 6, 306]
    assert all(before.is_before(after) for before, after in itertools.pairwise(seen))
    assert not any(after.is_before(before) for before, after in itertools.pairwise(seen))


def test_another_database_is_not_an_earlier_state(tmp_path: Path) -> None:
    for name, rows in (("one", 5), ("other", 1)):
        written(tmp_path / name, rows)
    one, other = (database_progress(tmp_path / name) for name in ("one", "other"))
    assert one is not None
    assert other is not None
    assert not other.is_before(one)
    assert not DatabaseProgress("", 1, 1).is_before(DatabaseProgress("", 2, 2))


@pytest.mark.parametrize("content", [b"", b"\x00" * 6, b"\xff" * 300])
def test_a_damaged_manifest_shows_no_progress(tmp_path: Path, content: bytes) -> None:
    written(tmp_path, 1)
    manifest = tmp_path / (tmp_path / "CURRENT").read_text().strip()
    manifest.write_bytes(content)
    found = database_progress(tmp_path)
    assert found is None or found.sequence == 0
    manifest.unlink()
    assert database_progress(tmp_path) is None


def test_a_changed_bit_in_a_manifest_never_ends_in_an_error(tmp_path: Path) -> None:
    written(tmp_path, 3)
    manifest = tmp_path / (tmp_path / "CURRENT").read_text().strip()
    content = manifest.read_bytes()
    for at in range(0, 8 * len(content), 3):
        changed = bytearray(content)
        changed[at // 8] ^= 1 << at % 8
        manifest.write_bytes(changed)
        database_progress(tmp_path)
