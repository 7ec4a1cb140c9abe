"""Stores whose values are in blob files: sealed, published, restored, copied, and read like all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.discovery.opening import close_all, open_databases
from statestore.discovery.store_directory import StoreDirectory
from statestore.model import StoreFormat, TaskId
from statestore.reports import Status
from tests.integration import broker
from tests.integration.archived import Archived
from tests.integration.broker import T0, delete_records, set_topic_config
from tests.integration.rocksdb_settings import BLOBS, FAILING, REFUSED
from tests.integration.support import STORE, Application

LONG = b"x" * 40
ROWS = [(b"key-%03d" % number, LONG) for number in range(50)]


class WithBlobs(Archived):
    """An application that keeps the last value of each key, in blob files."""

    def __init__(self, servers: str, directory: Path) -> None:
        super().__init__(servers, directory)
        self.defined(processor="tests.integration.rocksdb_settings:keep", rocksdb_config_setter=BLOBS)
        self.process(ROWS)

    @property
    def blobs(self) -> list[Path]:
        """The live store's blob files."""
        return sorted(self.live.glob("*.blob"))

    def keys(self) -> int | None:
        """Verify the store deeply, and count its rows."""
        row = self.verify("deep")
        assert row.status is Status.OK, row
        return row.keys


@pytest.fixture
def app(bootstrap_servers: str, tmp_path: Path) -> WithBlobs:
    """An application with rows in blob files."""
    found = WithBlobs(bootstrap_servers, tmp_path)
    assert found.blobs, "the values are in blob files"
    return found


@pytest.mark.parametrize("sealed", [True, False])
def test_a_lost_blob_file_is_found_at_each_depth(app: WithBlobs, sealed: bool) -> None:
    if not sealed:
        app.store_spec().paths.seal(STORE).unlink()
    app.blobs[0].unlink()
    for depth in ("offsets", "scan", "deep"):
        assert app.verify(depth).status is Status.CORRUPT
    assert app.restored("full").keys == len(ROWS)
    assert app.keys() == len(ROWS)


def test_a_flipped_byte_in_a_blob_file_is_found_by_a_scan(app: WithBlobs) -> None:
    content = bytearray(app.blobs[0].read_bytes())
    content[len(content) // 2] ^= 1
    app.blobs[0].write_bytes(content)
    assert app.verify("scan").status is Status.CORRUPT


def test_a_snapshot_has_the_blob_files(app: WithBlobs) -> None:
    set_topic_config(app.servers, app.changelog, cleanup_policy="compact,delete", retention_ms="-1")
    delete_records(app.servers, app.changelog, app.log_end())
    app.lose_all()
    assert (app.restored("auto").mode, app.keys()) == ("snapshot", len(ROWS))
    assert app.process([(b"more", LONG)], T0 + 100).failure is None
    app.lose_all()
    assert (app.restored("auto").mode, app.keys()) == ("snapshot", len(ROWS) + 1)


def test_a_tail_is_applied_to_a_copy_with_the_blob_files(app: WithBlobs) -> None:
    files = {path: path.stat().st_ino for path in app.blobs}
    broker.produce(app.servers, app.changelog, [(b"more", (T0).to_bytes(8, "big") + LONG)])
    assert app.restored("tail").mode == "tail"
    assert files.items() & {path: path.stat().st_ino for path in app.blobs}.items(), "that with the rows is linked"
    assert app.keys() == len(ROWS) + 1


def test_rows_in_blob_files_are_read_while_their_owner_deletes_these(app: WithBlobs) -> None:
    opened = open_databases(StoreDirectory(STORE, False, app.live, app.name, TaskId(0, 0)), StoreFormat.TIMESTAMPED)
    for blob in app.blobs:
        blob.unlink()
    read = [row for one in opened for batch in one.rows() for row in batch.column(1).to_pylist()]
    close_all(opened)
    assert [value[8:] for value in read] == [LONG] * len(ROWS)


@pytest.mark.parametrize(
    ("setter", "expected"),
    [
        (REFUSED, "InputError: store counts: rocksdb_config_setter cannot use set_db_paths"),
        (FAILING, "DefinitionError: rocksdb_config_setter tests"),
    ],
)
def test_an_error_of_an_option_fails_the_task_and_names_the_store(
    bootstrap_servers: str, tmp_path: Path, setter: str, expected: str
) -> None:
    app = Application(bootstrap_servers, tmp_path)
    app.process(ROWS)
    app.defined(rocksdb_config_setter=setter)
    app.send(ROWS, timestamp=T0 + 100)
    failure = app.run().failure
    assert failure is not None
    assert f"{failure.kind}: {failure.message}".startswith(expected)
    assert f"store {STORE}" in failure.message
    app.defined(rocksdb_config_setter=None)
    app.process()
    app.assert_oracle()
