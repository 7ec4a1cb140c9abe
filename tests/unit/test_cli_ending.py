"""How the command ends: exit codes, errors for people and for programs, and what the document says of them."""

from __future__ import annotations

import json
import re
import sys

import pytest

from statestore.cli import app
from statestore.cli import exit_codes as ending
from statestore.errors import FencedError, InputError, KafkaUnavailableError, StateStoreError, StoreCorruptedError
from tests.documents import text_of

OPERATIONS = "docs/operations.md"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StateStoreError("x"), 1),
        (StoreCorruptedError("x"), 1),
        (InputError("x"), 2),
        (KafkaUnavailableError("x"), 3),
        (FencedError("x"), 5),
    ],
)
def test_an_error_ends_the_command_with_the_code_of_its_kind(error: StateStoreError, code: int) -> None:
    assert ending.exit_code(error) == code
    assert code in ending.CODES


def said(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["statestore", *arguments])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code, *capfd.readouterr()


@pytest.mark.short_for("arguments0", "arguments2")
@pytest.mark.parametrize(
    ("arguments", "kind", "expected"),
    [
        (("report", "no-such-file"), "InputError", "no report at no-such-file"),
        (("report", "--no-such-option", "x"), "UsageError", "No such option"),
        (("report",), "UsageError", "Missing argument"),
        (("no-such-command",), "UsageError", "No such command"),
    ],
)
def test_with_json_the_last_line_on_standard_error_is_the_error_for_programs(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    kind: str,
    expected: str,
) -> None:
    for option in (["--json", "-"], ["--json=-"]):
        code, out, err = said(capfd, monkeypatch, *arguments, *option)
        found = json.loads(err.splitlines()[-1])
        assert expected in found.pop("message")
        assert (code, out, found) == (2, "", {"kind": kind, "retriable": False, "exit_code": 2})
    code, out, err = said(capfd, monkeypatch, *arguments)
    assert (code, out, '"kind"' in err) == (2, "", False)
    assert expected in " ".join(err.split())


# -- the document -----------------------------------------------------------------------------------------------------


def table(heading: str) -> list[list[str]]:
    """Cells of the first table below a heading of the document, without its head."""
    text = text_of(OPERATIONS).split(f"\n{heading}\n")[1]
    rows = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)[0].splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


@pytest.mark.documents
def test_the_document_has_every_error_with_its_exit_codes_and_its_meaning() -> None:
    expected = [
        [
            f"`{error.__name__}`",
            str(ending.exit_code(error())),
            str(error.exit_code),
            " ".join((error.__doc__ or "").split("\n\n")[0].split()),
        ]
        for error in ending.errors()
    ]
    assert table("### Every error") == expected, "\n".join("| " + " | ".join(row) + " |" for row in expected)


@pytest.mark.documents
def test_the_document_has_every_exit_code_of_the_command() -> None:
    documented = {cells[0]: cells[1] for cells in table("## Exit codes")}
    assert documented == {str(code): meaning for code, meaning in ending.CODES.items()} | {
        "4": "jobs only: the store must be rebuilt; the command ends with 1 instead"
    }
