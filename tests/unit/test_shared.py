"""The nonce that a driver leaves: who does not find it, or its lock, or no fit file system, says what is needed."""

from __future__ import annotations

import errno
import os
import re
import socket
from contextlib import contextmanager
from pathlib import Path

import pytest

from statestore.errors import StoreAccessError, UnsharedStateError
from statestore.statedir import shared
from statestore.statedir.lock import locked_file
from statestore.statedir.shared import Nonce, left_nonce, require_found, try_out

HOST = socket.gethostname()


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_a_driver_leaves_its_nonce_locked_and_takes_it_away(tmp_path):
    with left_nonce(tmp_path) as nonce:
        assert (nonce.state_dir, nonce.host) == (tmp_path, HOST)
        assert nonce.path.parent == tmp_path / ".statestore"
        assert re.fullmatch(r"shared-[0-9a-f]{32}", nonce.path.name)
        require_found(nonce)
        try_out(nonce)
        assert files(tmp_path) == [str(nonce.path.relative_to(tmp_path))]
    assert files(tmp_path) == []


def test_a_nonce_that_is_not_there_names_both_machines_and_what_to_do(tmp_path):
    nonce = Nonce(path=tmp_path / "shared-1", state_dir=tmp_path, host="driver")
    for look in (require_found, try_out):
        with pytest.raises(UnsharedStateError) as raised:
            look(nonce)
        assert str(raised.value) == (
            f"state directory {tmp_path}: {HOST} does not find shared-1 there, which the driver on driver has left "
            "there. Mount one file system at this path on the machine of the driver and on those of all executors"
        )


def test_locks_that_the_driver_holds_and_others_do_not_see_are_told(tmp_path):
    alone = tmp_path / "copy"
    alone.touch()  # the file is there, its lock is not: as on a mount whose locks are local
    with pytest.raises(UnsharedStateError) as raised:
        try_out(Nonce(path=alone, state_dir=tmp_path, host="driver"))
    assert str(raised.value) == (
        f"state directory {tmp_path}: {HOST} does not see the lock that the driver on driver holds. Put it on a file "
        "system whose locks all machines see, such as NFS 4"
    )


def test_a_file_system_without_hard_links_is_told(tmp_path, monkeypatch):
    # No such file system can be mounted without rights that tests do not have.
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with left_nonce(tmp_path) as nonce, pytest.raises(UnsharedStateError) as raised:
        try_out(nonce)
    assert str(raised.value) == (
        f"state directory {tmp_path}: {HOST} cannot make a hard link (Operation not permitted). Put it on a file "
        "system with hard links, such as NFS 4"
    )
    assert files(tmp_path) == []


@pytest.fixture
def lock_fails(monkeypatch):
    """Have locks of new files fail, as on a file system that has none; `with` what the system says then."""

    def arm(number):
        real = locked_file

        @contextmanager
        def fail(path, wait_s):
            if path.exists():
                with real(path, wait_s):
                    yield
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            raise OSError(number, os.strerror(number), str(path))
            yield

        monkeypatch.setattr(shared, "locked_file", fail)

    return arm


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_a_file_system_without_locks_is_told(tmp_path, lock_fails, number):
    lock_fails(number)
    with pytest.raises(UnsharedStateError) as raised:
        left_nonce(tmp_path).__enter__()
    said = re.escape(os.strerror(number))
    assert re.fullmatch(
        rf"state directory {tmp_path}: {HOST} cannot lock shared-[0-9a-f]{{32}} \({said}\)\. Put it on a file system "
        r"with POSIX locks, such as NFS 4",
        str(raised.value),
    )


def test_an_executor_that_cannot_lock_a_file_of_its_own_says_so(tmp_path, lock_fails):
    with left_nonce(tmp_path) as nonce:
        lock_fails(errno.ENOLCK)
        with pytest.raises(UnsharedStateError, match=rf"cannot lock {nonce.path.name}\.[0-9a-f]{{32}} "):
            try_out(nonce)


def test_a_directory_that_may_not_be_written_to_is_no_matter_of_sharing(tmp_path, lock_fails):
    lock_fails(errno.EACCES)
    with pytest.raises(StoreAccessError, match="Permission denied"):
        left_nonce(tmp_path).__enter__()


def test_the_nonce_of_a_killed_driver_goes_and_that_of_a_living_one_stays(tmp_path):
    own = tmp_path / ".statestore"
    own.mkdir()
    dead, living, other = own / "shared-dead", own / "shared-living", own / "other"
    dead.touch()
    other.touch()
    with locked_file(living, 0), left_nonce(tmp_path) as nonce:
        assert sorted(own.iterdir()) == sorted([living, nonce.path, other])
