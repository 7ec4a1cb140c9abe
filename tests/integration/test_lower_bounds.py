"""An older copy of a store's files is found, although its rows are those of an offset of its log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from statestore.cli.app import main
from statestore.formats.checkpoint_file import write
from statestore.formats.offsets import STATUS_CLOSED
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Action, Status
from statestore.requests.verify import Depth
from statestore.statedir.record import read_record, write_record
from statestore.statedir.seal import break_seal
from statestore.stores.manifest import progress_of
from statestore.stores.rocksdb import RocksDB
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration import broker
from tests.integration.kinds import STORES, changes, logged
from tests.integration.support import Application


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application whose store has all 200 records of its log; in `earlier`, its store with the first 100."""
    store = STORES["plain key-value"]
    rows = changes(store, 200, seed=1)
    found = logged(bootstrap_servers, tmp_path, store, rows[:100])
    found.restore("full")
    shutil.copytree(found.live, tmp_path / "earlier")
    broker.transaction(bootstrap_servers, found.changelog, rows[100:])
    found.restore("tail")
    return found


def unowned(application: Application, seen: StorePartitionSpec | None = None) -> StorePartitionSpec:
    """Return the store as one without a definition, as it was last verified."""
    spec = application.store_spec(owned=False)
    before, record = seen or spec, read_record(spec.paths, spec.store.name)
    return spec.model_copy(
        update={
            "progress_seen": tuple(progress_of(before.live, segmented=False).items()),
            "committed_seen": verify(application.store_spec(owned=False)).committed,
            "restored_by_seen": record.restored_by if record else None,
        }
    )


def put_back(spec: StorePartitionSpec, earlier: Path, offset: int | None) -> None:
    """Put an older copy of the database in place, with its own offset or with another one in a checkpoint file."""
    break_seal(spec.paths, spec.store.name)
    shutil.rmtree(spec.live)
    shutil.copytree(earlier, spec.live)
    if offset is not None:
        spec.paths.checkpoint.write_text(write({spec.partition: offset}), encoding="utf-8")


@pytest.mark.parametrize("depth", ["offsets", "scan", "deep"])
def test_files_from_before_their_offset_are_damage(application: Application, tmp_path: Path, depth: Depth) -> None:
    spec = unowned(application)
    committed = spec.committed_seen
    put_back(spec, tmp_path / "earlier", committed)
    without = verify(spec.model_copy(update={"progress_seen": (), "committed_seen": None}), VerifyOptions(depth))
    assert without.status is (Status.WRONG_OFFSET if depth == "deep" else Status.OK)
    found = verify(spec, VerifyOptions(depth))
    assert (found.status, found.action) == (Status.CORRUPT, Action.FULL)
    assert "an older copy of its files was put back" in found.detail


def test_bounds_of_a_store_that_a_restore_has_replaced_do_not_count(application: Application, tmp_path: Path) -> None:
    """Given a restore that was killed before its end, from a snapshot with the identity of the former database."""
    spec = unowned(application)
    put_back(spec, tmp_path / "earlier", spec.committed_seen)
    record = read_record(spec.paths, spec.store.name)
    assert record is not None
    write_record(spec.paths, spec.store.name, record.model_copy(update={"restored_by": "another"}))
    assert verify(spec, VerifyOptions("scan")).status is Status.OK


def test_an_older_copy_with_its_own_offset_lags_and_is_named(application: Application, tmp_path: Path) -> None:
    spec = unowned(application)
    put_back(spec, tmp_path / "earlier", None)
    found = verify(spec, VerifyOptions("deep"))
    assert found.status is Status.LAGGING
    assert f"it had offset {spec.committed_seen} when it was last verified" in found.detail


def test_a_database_that_was_written_since_is_as_good_as_before(application: Application) -> None:
    spec = unowned(application)
    break_seal(spec.paths, spec.store.name)
    database = RocksDB(spec.live, spec.store.values.column_families)
    database.write({}, {spec.partition: spec.committed_seen or 0}, status=STATUS_CLOSED)
    database.sync()
    database.close()
    assert verify(spec, VerifyOptions("deep")).status is Status.OK
    after = dict(progress_of(spec.live, segmented=False))[""]
    before = dict(spec.progress_seen)[""]
    assert before.is_before(after)
    assert not after.is_before(before)


def test_the_command_records_how_far_a_store_was_written(
    application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = application.store_spec()
    monkeypatch.setenv("STATESTORE_BOOTSTRAP_SERVERS", spec.cluster.servers)
    monkeypatch.setenv("STATESTORE_STATE_DIR", str(spec.state_dir))
    arguments = ["--application", spec.application, "--store", f"{spec.store.name}:kind=key-value,format=plain"]

    def verified() -> list[dict[str, Any]]:
        monkeypatch.setattr("sys.argv", ["statestore", "verify", *arguments, "--json", "-"])
        with pytest.raises(SystemExit):
            main()
        rows: list[dict[str, Any]] = json.loads(capfd.readouterr().out)["rows"]
        return rows

    [before] = verified()
    assert before["status"] == "OK", before
    put_back(spec, tmp_path / "earlier", before["committed"])
    [after] = verified()
    assert (after["status"], after["action"]) == ("CORRUPT", "full")
    assert "an older copy of its files was put back" in after["detail"]
