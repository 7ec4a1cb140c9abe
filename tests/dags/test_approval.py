"""The approval of a restore, answered through Airflow's REST API while the run waits."""

from __future__ import annotations

import threading
from urllib.parse import quote

import pytest
import requests

from demo.processes import wait_until
from statestore.audit import read_records
from statestore.config import load_directories
from statestore.reports import RestoreReport, RestoreRow, Status
from tests.dags.api_server import ApiServer

HEAD = {"run_id": "r", "applications": ("flight-delays",), "started_ms": 0, "finished_ms": 1}
RESTORED = RestoreReport(
    **HEAD,
    rows=(
        RestoreRow(
            application="flight-delays",
            store="aircraft",
            task="0_0",
            outcome="restored",
            mode="full",
            before=Status.MISSING,
        ),
    ),
)


def recorded() -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the actions, users, and applications of the audit records."""
    return [(found.action, found.by, found.applications) for found in read_records(load_directories().reports_dir)]


class Person:
    """Answers what waits for an answer."""

    def __init__(self, api: ApiServer, dag_id: str = "restore") -> None:
        self._url = f"{api.url}/api/v2/dags/{dag_id}/dagRuns"
        self._login = {"Authorization": f"Bearer {api.token}"}
        self.asked: list[dict] = []

    def answers(self, option: str) -> threading.Thread:
        """Wait for the next question, and choose one of its options."""
        thread = threading.Thread(target=self._answer, args=(option,), daemon=True)
        thread.start()
        return thread

    def _answer(self, option: str) -> None:
        (question,) = wait_until(self._waiting, 240, "a run to ask")
        self.asked.append(question)
        run = quote(question["task_instance"]["dag_run_id"], safe="")
        answer = f"{self._url}/{run}/taskInstances/approve/-1/hitlDetails"

        def answered() -> bool:
            try:
                found = requests.patch(answer, json={"chosen_options": [option]}, headers=self._login, timeout=120)
            except requests.RequestException:
                return False
            assert found.ok or found.status_code == 409 or found.status_code >= 500, found.text
            return found.status_code < 500  # 409: it was taken, though nobody heard

        wait_until(answered, 120, "the answer to be taken")

    def _waiting(self) -> list[dict]:
        try:
            found = requests.get(f"{self._url}/~/hitlDetails?response_received=false", headers=self._login, timeout=120)
        except requests.RequestException:
            return []
        if found.status_code >= 500:  # SQLite, which the run shares with the server, may be locked for a moment
            return []
        # The question is there a moment before the task waits, and Airflow loses an answer that comes in between.
        return [each for each in found.json()["hitl_details"] if each["task_instance"]["state"] == "awaiting_input"]


@pytest.fixture
def person(airflow_api):
    return Person(airflow_api)


@pytest.mark.long
def test_an_approved_restore_goes_on_and_says_before_what_it_would_do(person, runner, monkeypatch):
    monkeypatch.setenv("STATESTORE_RESTORE_APPROVAL", "true")
    answer = person.answers("Approve")
    states = runner.run("restore", {"application": "flight-delays", "mode": "full", "approval": False}, RESTORED)
    answer.join()
    assert "application = flight-delays, mode = full" in person.asked[-1]["body"]
    assert (states["approve"], states["check"]) == ("success", [("flight-delays/aircraft/0_0", "success")])
    assert len(runner.calls) == 1
    assert recorded() == [("approve", "admin", ("flight-delays",))]


@pytest.mark.long
def test_a_rejected_restore_starts_nothing_and_is_no_failure(person, runner):
    answer = person.answers("Reject")
    states = runner.run("restore", {"application": "flight-delays", "approval": True}, RESTORED)
    answer.join()
    assert runner.dag_run.state == "success"
    assert {name: state for name, state in states.items() if name not in ("plan", "approve")} == dict.fromkeys(
        ("spark", "rows", "check", "needs_validate", "trigger_validate"), "skipped"
    )
    assert runner.calls == []
    assert recorded() == [("reject", "admin", ("flight-delays",))]


@pytest.mark.long
def test_what_rebuilds_nothing_is_not_asked_about(runner, monkeypatch):
    monkeypatch.setenv("STATESTORE_RESTORE_APPROVAL", "true")
    states = runner.run("restore", {"application": "flight-delays", "mode": "tail"}, RESTORED)
    assert states["approve"] == "success"
    assert len(runner.calls) == 1
