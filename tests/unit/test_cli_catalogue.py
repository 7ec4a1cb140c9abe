"""What the commands on the catalogue show, and what `--at` and `--json` may be."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from statestore.cli.catalogue_tables import applications_table, history_rows, plan_content, plan_text
from statestore.cli.options import require_writable
from statestore.cli.output import STANDARD_OUTPUT, console, require_yes, write_content
from statestore.cli.service import offset_of
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import Command, DropStore, PutApplication, RecordTopics, stamped
from statestore.metastore.plan import make_plan
from statestore.metastore.view import Health, LoggedCommand, View

COUNTS = StoreDefinition(name="counts")
MORE = StoreDefinition(name="more", owner="[red]data-team")


def defined(*stores: StoreDefinition, commit_interval_ms: int = 1_000) -> ApplicationDefinition:
    return ApplicationDefinition(
        name="app", input_topic="in", processor="a:b", stores=stores, commit_interval_ms=commit_interval_ms
    )


def put(definition: ApplicationDefinition) -> PutApplication:
    return PutApplication(definition=definition, partitions={"in": 2})


def logged(*commands: Command | str) -> list[LoggedCommand]:
    """Commands as history has them, an offset apart for each marker; a text is why one cannot be read."""
    result = []
    for at, command in enumerate(commands):
        if isinstance(command, str):
            result.append(LoggedCommand(2 * at, 0, None, command))
        else:
            result.append(LoggedCommand(2 * at, 0, stamped(command, at + 1, 0, "me@host"), ""))
    return result


def test_history_says_what_each_command_changed() -> None:
    rows = history_rows(
        logged(
            put(defined(COUNTS)),
            RecordTopics(application="app", topics={"app-counts-changelog": "id"}),
            put(defined(COUNTS, MORE, commit_interval_ms=500)),
            DropStore(application="app", store="more"),
        )
    )
    assert [row.offset for row in rows] == [0, 2, 4, 6]
    assert rows[0][1:] == ("1970-01-01 00:00:00Z", "me@host", "app", "created")
    assert rows[1].what == "recorded 1 topic"
    assert "commit_interval_ms: 1s -> 0.5s" in rows[2].what
    assert "stores.more.owner: - -> [red]data-team" in rows[2].what
    assert rows[3].what == "dropped store more"


def test_history_goes_on_behind_a_record_that_cannot_be_read_and_applies_nothing_of_it() -> None:
    first, bad, later = logged(put(defined(COUNTS)), "no JSON", put(defined(MORE)))
    rows = history_rows([first, bad, later._replace(problem="not applied: no JSON")])
    assert [(row.application, row.what) for row in rows] == [
        ("app", "created"),
        (None, "unreadable: no JSON"),
        ("app", "not applied: no JSON"),
    ]


def test_a_plan_is_shown_sign_by_sign_and_counted() -> None:
    catalogue = Catalogue().apply(stamped(put(defined(COUNTS)), 1, 0, "me@host"))
    other = ApplicationDefinition(name="other", input_topic="in", processor="a:b", stores=(COUNTS,))
    plan = make_plan(catalogue, [(defined(COUNTS, commit_interval_ms=500), {"in": 2}), (other, {"in": 2})])
    lines = plan_text(plan).plain.splitlines()
    assert lines[:2] == ["~ change app", "    commit_interval_ms: 1s -> 0.5s"]
    assert lines[2] == "+ create other"
    assert lines[-1] == "1 to create, 1 to change, 0 unchanged"
    assert plan_content(plan)[0] == {
        "application": "app",
        "kind": "change",
        "changes": [{"path": "commit_interval_ms", "before": 1000, "after": 500}],
    }


def test_an_owner_is_shown_as_it_is_written_and_is_no_markup() -> None:
    catalogue = Catalogue().apply(stamped(put(defined(COUNTS, MORE)), 1, 0, "me@host"))
    shown = io.StringIO()
    Console(file=shown, width=300).print(applications_table(View(catalogue, 1, Health.RUNNING, "", "id")))
    assert "[red]data-team" in shown.getvalue()
    assert "1 application, 2 stores" in shown.getvalue()


@pytest.mark.parametrize(("at", "offset"), [("0", 0), ("42", 42), (f"42:{'0' * 64}", 42)])
def test_an_offset_or_a_pin_says_where_the_catalogue_is_read(at: str, offset: int) -> None:
    assert offset_of(at) == offset


@pytest.mark.parametrize("at", ["", "-1", "x", "42:", "٤٢", "9" * 19])
def test_anything_else_is_refused(at: str) -> None:
    with pytest.raises(InputError, match="expected"):
        offset_of(at)


def test_json_goes_to_a_file_or_to_standard_output_from_which_tables_then_stay_away(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_writable(json=STANDARD_OUTPUT)
    console(STANDARD_OUTPUT).print("a table")
    write_content(STANDARD_OUTPUT, {"owner": "zoë"})
    said = capfd.readouterr()
    assert (json.loads(said.out), "a table" in said.err) == ({"owner": "zoë"}, True)
    write_content(tmp_path / "new" / "content.json", {"a": 1})
    assert json.loads((tmp_path / "new" / "content.json").read_text()) == {"a": 1}


def test_where_nobody_can_be_asked_the_answer_must_be_given_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(InputError, match=r"it stays: there is no terminal to ask for confirmation\. Add --yes"):
        require_yes("Delete it?", yes=False, otherwise="it stays")
    require_yes("Delete it?", yes=True, otherwise="it stays")
