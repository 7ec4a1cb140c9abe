"""What needs an extra that is not installed says which; tests/packaging does it where none is."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore import packages
from tests.integration.command_line import Command


@pytest.mark.parametrize(
    ("arguments", "extra", "missing"),
    [
        (("process",), "spark", "pyspark"),
        (("maintain",), "spark", "pyspark"),
        (("validate", "--application", "shop"), "validate", "great_expectations"),
        (("expectations", "suggest", "totals"), "validate", "great_expectations"),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: tuple[str, ...],
    extra: str,
    missing: str,
) -> None:
    # An environment without extras takes a minute to make; here they are installed, so they are only said not to be.
    monkeypatch.setattr(packages, "_is_installed", lambda module: module != missing)
    settings = {
        "BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "STATE_DIR": str(tmp_path / "state"),
        "REPORTS_DIR": str(tmp_path / "reports"),
    }
    ran = Command(monkeypatch, capfd, settings)(*arguments)
    assert ran.code == 2
    assert ran.err.startswith("statestore: MissingExtraError: ")
    assert missing in ran.err
    assert f"Run: pip install 'statestore[{extra}]'" in ran.err
    assert len(ran.err.splitlines()) == 1
