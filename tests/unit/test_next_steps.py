"""What is left to do after a command is a command that can be typed as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from statestore.advice import Situation, Target, advice
from statestore.cli import next_steps, output
from statestore.cli.selection import Chosen
from statestore.reports import (
    Action,
    Failure,
    ProcessRow,
    RestorePlanRow,
    RestoreRow,
    Status,
    VerifyReport,
    VerifyRow,
)

CHOSEN = Chosen(("shop",), (), [], [])


def row(task: str, status: Status, action: Action, situation: Situation | None = None) -> VerifyRow:
    step = None if situation is None else advice(situation, Target("shop", "totals", task))
    return VerifyRow(application="shop", store="totals", task=task, status=status, action=action, advice=step)


@pytest.fixture
def typed(monkeypatch):
    def typed(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["statestore", *arguments])

    typed("verify")
    return typed


def commands(steps: list[next_steps.Step]) -> list[str]:
    return [command for command, _ in steps]


def test_what_a_verification_found_is_restored_where_it_was_found(typed):
    missing = row("0_1", Status.MISSING, Action.FULL, Situation.DAMAGED)
    assert next_steps.after_verify([row("0_0", Status.OK, Action.NONE)], None) == []
    assert commands(next_steps.after_verify([missing], None)) == ["statestore restore --application shop"]
    typed("verify", "shop/totals", "--state-dir=/s s", "--retention", "w=7d", "--here-only", "--store", "w:kind=window")
    assert commands(next_steps.after_verify([missing], None, named=True)) == [
        "statestore restore shop/totals/0_1 '--state-dir=/s s' --retention w=7d --here-only --store=w:kind=window"
    ]


def test_what_only_a_report_tells_is_restored_from_it(typed):
    diverged = row("0_1", Status.DIVERGED, Action.FULL, Situation.ROWS_DIFFER)
    assert commands(next_steps.after_verify([diverged], Path("/r/verify/a.json"))) == [
        "statestore restore --application shop --verify-report /r/verify/a.json"
    ]
    assert commands(next_steps.after_verify([diverged], None)) == [
        "statestore verify --application shop --depth deep --json found.json",
        "statestore restore --application shop --verify-report found.json",
    ]


def test_each_situation_has_one_step_with_its_sentence(typed):
    typed("verify", "--state-dir", "/s", "--here-only")
    rows = [
        row("0_0", Status.REPLACED, Action.BY_HAND, Situation.CHANGELOG_RECREATED),
        row("0_3", Status.REPLACED, Action.BY_HAND, Situation.CHANGELOG_RECREATED),
        row("0_1", Status.LOCKED, Action.LATER, Situation.IN_USE),
        row("0_2", Status.AHEAD, Action.BY_HAND, Situation.LOG_CUT),
        row("0_4", Status.REPARTITIONED, Action.BY_HAND, Situation.REPARTITIONED),
    ]
    steps = next_steps.after_verify(rows, None)
    assert commands(steps) == [
        "statestore rewrite reseed --application shop --store totals --state-dir /s",
        "statestore verify shop/totals/0_1 --state-dir /s --here-only",
        "statestore restore shop/totals/0_2 --accept-loss --state-dir /s --here-only",
    ]
    assert [what for _, what in steps] == [rows[at].advice.sentence for at in (0, 2, 3)]


def test_many_store_partitions_in_one_situation_are_named_by_their_application(typed):
    rows = [row(f"0_{task}", Status.AHEAD, Action.BY_HAND, Situation.LOG_CUT) for task in range(6)]
    assert commands(next_steps.after_verify(rows, None)) == [
        "statestore restore --application shop --store totals --accept-loss"
    ]


def test_a_plan_is_carried_out_by_the_same_command_and_a_restore_is_checked(typed):
    typed("restore", "--application", "shop", "--dry-run", "--bootstrap-servers", "k:1")
    where = {"application": "shop", "store": "totals", "task": "0_1"}
    assert next_steps.after_plan([RestorePlanRow(**where)]) == []
    assert commands(next_steps.after_plan([RestorePlanRow(**where, mode="full")])) == [
        "statestore restore --application shop --bootstrap-servers k:1"
    ]
    typed("restore", "--application", "shop", "--bootstrap-servers", "k:1", "--state-dir", "/s")
    restored = RestoreRow(**where, outcome="restored", mode="full")
    assert commands(next_steps.after_restore([restored], CHOSEN, None, None)) == [
        "statestore verify --application shop --bootstrap-servers k:1 --state-dir /s --depth deep"
    ]
    assert commands(next_steps.after_restore([restored], CHOSEN, None, Path("/then"))) == [
        "statestore read shop/totals --bootstrap-servers k:1 --state-dir /then"
    ]
    away = RestoreRow(**where, outcome="failed", failure=Failure(kind="LockedError", message="in use", retriable=True))
    assert commands(next_steps.after_restore([away], CHOSEN, None, None)) == [next_steps.again()]


def test_input_that_is_left_is_processed_by_the_same_command(typed):
    typed("process", "--application", "shop")
    assert next_steps.after_process([ProcessRow(application="shop", task="0_0", lag=0)]) == []
    assert commands(next_steps.after_process([ProcessRow(application="shop", task="0_0", lag=5)])) == [
        "statestore process --application shop"
    ]


def test_a_command_of_an_extra_that_is_not_installed_comes_with_its_installation(monkeypatch):
    monkeypatch.setattr("statestore.packages._is_installed", lambda module: module != "pyspark")
    command, what = next_steps.with_extra("spark", "statestore process", "process")
    assert command == "pip install 'statestore[spark]' && statestore process"
    assert what == "process; needs the extra spark"
    monkeypatch.setattr("statestore.packages._is_installed", lambda _: True)
    assert next_steps.with_extra("spark", "statestore process", "process") == ("statestore process", "process")


def test_steps_are_said_to_people_alone(capsys):
    steps = [("statestore drift", "list them")]
    output.say_next(steps, Path("-"))
    output.say_next([])
    assert capsys.readouterr() == ("", "")
    output.say_next(steps, Path("file.json"))
    assert capsys.readouterr() == ("", "Next: statestore drift  # list them\n")


def test_earlier_reports_with_the_action_by_hand_are_read():
    found = row("0_0", Status.AHEAD, Action.BY_HAND).model_dump(mode="json")
    assert found["action"] == "manual"
    head = {"run_id": "r", "applications": ["shop"], "started_ms": 1, "finished_ms": 2}
    report = VerifyReport.model_validate({**head, "rows": [{**found, "action": "by hand"}]})
    assert report.rows[0].action is Action.BY_HAND
