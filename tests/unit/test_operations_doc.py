"""The documents on operation name every setting, status, action, DAG and command."""

from __future__ import annotations

import re

import pytest
from typer.main import get_command

from statestore.advice import Situation, Target, advice
from statestore.cli.app import app
from statestore.config import Settings
from statestore.reports import Action, Status
from tests.documents import ROOT, text_of

OPERATIONS = text_of("docs/operations.md")
pytestmark = pytest.mark.documents
#: For tests of what a kill leaves behind; nobody sets them in an installation.
_OF_TESTS = "STATESTORE_KILL_|STATESTORE_PAUSE_"


def first_cells(section: str) -> list[str]:
    """First cells of all tables of a section."""
    text = OPERATIONS.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_every_status_and_every_action_is_explained_once() -> None:
    assert sorted(first_cells("What each status means, and what to do")) == sorted([*Status, *Action])


def test_the_table_of_next_steps_has_the_sentences_and_commands_of_the_code() -> None:
    names = ("APPLICATION", "STORE", "TASK", "SNAPSHOT", "BROKERS", "TOPIC:PARTITION", "TOPIC", "VALUE", "ARCHIVE")
    target = Target(*names, "REPORTS_DIR")
    expected = []
    for situation in Situation:
        step = advice(situation, target)
        command = f"`{step.command}`" if step.command else ""
        button = f"*{step.button.capitalize()}…*" if step.button else ""
        expected.append(f"| {situation} | {step.sentence} | {command} | {button} |")
    section = OPERATIONS.split("\n### The next step\n")[1].split("\n### ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert rows[1:] == expected


def test_every_setting_that_the_code_reads_is_in_the_table_and_no_other() -> None:
    named = {f"STATESTORE_{field.upper()}" for field in Settings.model_fields}
    for room in ("dags", "plugins", "jobs", "statestore"):
        for path in (ROOT / room).rglob("*.py"):
            named |= set(re.findall(r'"(STATESTORE_[A-Z_]+[A-Z])"', path.read_text(encoding="utf-8")))
    named = {name for name in named if not re.match(_OF_TESTS, name)}
    assert sorted(first_cells("Settings")) == sorted(named)


def test_every_dag_is_in_the_table() -> None:
    assert sorted(first_cells("The DAGs")) == sorted(path.stem for path in (ROOT / "dags").glob("*.py"))


def test_every_command_is_in_a_document() -> None:
    said = "".join(text_of(f"docs/{name}") for name in ("command.md", "metastore.md"))
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert [name for name in commands if f"statestore {name}" not in said] == []
