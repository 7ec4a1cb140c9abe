"""Where the command would write at its end is looked at before it begins."""

from __future__ import annotations

import os

import pytest

from statestore.cli.options import require_writable
from statestore.errors import InputError


def test_directories_that_can_be_made_are_accepted_and_not_made(tmp_path):
    require_writable(json=tmp_path / "new" / "report.json", reports_dir=tmp_path / "reports" / "of" / "mine")
    require_writable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        ("json", "file/report.json", "--json: expected a directory, found the file .*file;"),
        ("json", "", "--json: expected a file, found the directory"),
        ("reports_dir", "file", "--reports-dir: expected a directory, found the file .*file;"),
        ("reports_dir", "file/reports/deeper", "--reports-dir: expected a directory, found the file .*file;"),
    ],
)
def test_a_place_that_cannot_be_written_to_is_refused(tmp_path, option, name, message):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=message):
        require_writable(**{option: tmp_path / name})


def test_a_directory_of_somebody_else_is_refused(tmp_path, monkeypatch):
    # Root may write everywhere, so the system is not asked.
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path or not mode & os.W_OK)
    for place in ({"json": tmp_path / "report.json"}, {"reports_dir": tmp_path / "reports"}):
        with pytest.raises(InputError, match="cannot be written to"):
            require_writable(**place)
