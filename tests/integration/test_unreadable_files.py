"""Files that the disk no longer gives back: a finding about their store, and not the end of a verification of many.

/proc/self/mem in the place of a file answers each read with a real EIO, and a directory in its place with EISDIR.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from statestore.durable import read_checked
from statestore.errors import DiskSpaceError, StateStoreError, StoreAccessError
from statestore.partition.spec import GLOBAL_TASK, StorePartitionSpec
from statestore.reports import Action, Status, VerifyRow
from statestore.statedir import seal as seal_module
from statestore.stores.open import open_key_value_store
from statestore.verification.check import verify, verify_many
from statestore.verification.global_stores import verify_global
from statestore.verification.options import VerifyOptions
from tests.integration.support import STORE, Application

DEPTHS = ("offsets", "scan", "deep")
EIO = os.strerror(errno.EIO)


def unreadable(path: Path) -> Path:
    """Have each read of the file fail with EIO."""
    path.unlink(missing_ok=True)
    path.symlink_to("/proc/self/mem")
    return path


def no_file(path: Path) -> Path:
    """Have a directory in the place of the file."""
    path.unlink()
    path.mkdir()
    return path


def current_manifest(spec: StorePartitionSpec) -> Path:
    return spec.live / (spec.live / "CURRENT").read_text().strip()


def rows(application: Application, depth: str) -> list[VerifyRow]:
    specs = [application.store_spec(partition) for partition in range(2)]
    return verify_many(specs, VerifyOptions(depth=depth))  # type: ignore[arg-type]


@pytest.fixture
def two(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application whose two store partitions are whole."""
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    for partition in range(2):
        application.send([(b"a", b"1"), (b"b", b"1")], partition=partition)
        assert application.run(partition).failure is None
    return application


FILES: dict[str, Callable[[StorePartitionSpec], Path]] = {
    "CURRENT": lambda spec: unreadable(spec.live / "CURRENT"),
    "the MANIFEST": lambda spec: unreadable(current_manifest(spec)),
    "IDENTITY": lambda spec: unreadable(spec.live / "IDENTITY"),
    "the checkpoint file": lambda spec: unreadable(spec.paths.checkpoint),
    "the seal": lambda spec: unreadable(spec.paths.seal(STORE)),
    "the record": lambda spec: unreadable(spec.paths.record(STORE)),
    "a directory for the MANIFEST": lambda spec: no_file(current_manifest(spec)),
}


@pytest.mark.short_for("the MANIFEST")
@pytest.mark.parametrize("file", FILES)
def test_a_file_that_cannot_be_read_is_the_finding_of_its_store_alone(two: Application, file: str) -> None:
    path = FILES[file](two.store_spec())
    for depth in DEPTHS:
        damaged, whole = rows(two, depth)
        assert (damaged.status, damaged.action, damaged.file) == (Status.CORRUPT, Action.FULL, str(path))
        assert os.strerror(errno.EISDIR if path.is_dir() else errno.EIO) in damaged.detail
        assert str(path) in damaged.detail
        assert whole.status is Status.OK


def test_a_block_that_is_read_for_its_digest_alone_is_named(two: Application) -> None:
    spec = two.store_spec()
    path = unreadable(max(spec.live.glob("*.sst")))
    seal = json.loads(read_checked(spec.paths.seal(STORE)))
    seal["sst"][path.name]["bytes"] = path.stat().st_size  # that of /proc/self/mem is no other file's
    spec.paths.seal(STORE).write_text(json.dumps(seal))
    damaged, whole = rows(two, "scan")
    assert (damaged.status, damaged.file, whole.status) == (Status.CORRUPT, str(path), Status.OK)
    assert EIO in damaged.detail


@pytest.mark.short_for("CURRENT")
@pytest.mark.parametrize("file", ["CURRENT", "the seal", "the record", "the checkpoint file"])
def test_a_store_with_a_file_that_cannot_be_read_is_restored(two: Application, file: str) -> None:
    before = two.contents()
    FILES[file](two.store_spec())
    row = two.restore()
    assert (row.before, row.mode) == (Status.CORRUPT, "full")
    assert two.contents() == before
    assert [row.status for row in rows(two, "deep")] == [Status.OK, Status.OK]


def test_a_global_store_with_a_file_that_cannot_be_read_is_corrupt(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1")])
    spec = application.store_spec(task=GLOBAL_TASK, owned=False)
    open_key_value_store(spec.store, spec.live).close()
    path = unreadable(spec.paths.checkpoint)
    row = verify_global(spec)
    assert (row.status, row.action) == (Status.CORRUPT, Action.BY_HAND)
    assert f"{EIO}: '{path}'" in row.detail


@pytest.mark.short_for("ENOSPC")
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EACCES, StoreAccessError),
        (errno.EROFS, StoreAccessError),
        (errno.ENOENT, StoreAccessError),
        (errno.EMFILE, StoreAccessError),
        (errno.ESTALE, StoreAccessError),
        (errno.ENOSPC, DiskSpaceError),
    ],
    ids=["EACCES", "EROFS", "ENOENT", "EMFILE", "ESTALE", "ENOSPC"],
)
def test_what_is_wrong_with_the_machine_and_not_with_the_file_ends_the_run(
    two: Application, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StateStoreError]
) -> None:
    # Root is kept out by no mode, and a mount cannot be lost on purpose: what opening the MANIFEST gives is made up.
    def refuse(path: Path) -> str:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(seal_module, "_sha256", refuse)
    with pytest.raises(kind, match=os.strerror(number)):
        verify(two.store_spec())
