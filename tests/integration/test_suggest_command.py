"""`statestore expectations suggest`: a suite that can be used, in a file of its own, or one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from statestore_expectations.suites import load_suite

from statestore.statedir.lock import locked
from tests.integration.command_line import Ran, command_on
from tests.integration.support import STORE, Application

Run = Callable[..., Ran]


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application that has counted in one of its two partitions."""
    made = Application(bootstrap_servers, tmp_path, partitions=2)
    made.process([(b"key-%03d" % number, b"1") for number in range(50)])
    return made


@pytest.fixture
def run(application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> Run:
    """Run the command on the application, with its definition."""
    command, definitions = command_on(application, tmp_path, monkeypatch, capfd)
    return lambda *given: command("expectations", "suggest", *given, "--definitions", str(definitions))


@pytest.mark.long
def test_a_suite_is_proposed_for_a_store_that_is_in_use(application: Application, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "counts.json"

    with locked(application.store_spec().paths, 1):
        ran = run(STORE, "--out", str(out))

    assert ran.code == 0, ran.err
    assert f"`expectations: {out}`" in ran.out
    assert load_suite("proposed", [str(out)]).expectations
    assert all(one["description"] for one in json.loads(out.read_text())["expectations"])

    again = run(STORE, "--out", str(out))
    assert (again.code, "already exists" in again.err) == (2, True)


@pytest.mark.long
def test_a_store_that_cannot_be_read_ends_with_one_clear_line(application: Application, run: Run) -> None:
    (application.live / "CURRENT").write_text("MANIFEST-999999\n")
    ran = run(STORE)
    assert (ran.code, ran.out) != (0, "")
    assert ran.err.startswith("suggest: ")
    assert "MANIFEST-999999" in ran.err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["other"], "no store 'other'; the stores are: counts"),
        ([STORE, "--partition", "1"], "store counts cannot be read: it is not on disk"),
        ([STORE, "--application", "other"], "other"),
        ([STORE, "--out", "/dev/null/suite.json"], "--out: /dev/null is not a writable directory"),
    ],
)
def test_what_is_not_there_ends_with_2(run: Run, given: list[str], expected: str) -> None:
    ran = run(*given)
    assert (ran.code, expected in ran.err) == (2, True), ran.err
