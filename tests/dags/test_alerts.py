"""Alerts outside the UI: runs that fail and runs that are late, through real notifiers."""

from __future__ import annotations

import email
import json
from email.policy import default
from types import SimpleNamespace

import pytest
from airflow.sdk.bases.notifier import BaseNotifier
from statestore_dags.alerts import problem

from statestore.reports import Action, DrillReport, DrillRow, Status, VerifyReport, VerifyRow
from tests.dags.mail import mail_server

HEAD = {"run_id": "r", "applications": ("flight-delays",), "started_ms": 0, "finished_ms": 1}


class FileNotifier(BaseNotifier):
    """Writes what it is to say into a file."""

    template_fields = ("text",)

    def __init__(self, path: str, text: str, **kwargs) -> None:
        super().__init__(**kwargs)
        self.path, self.text = path, text

    def notify(self, context) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(self.text + "\n")


@pytest.fixture
def told(monkeypatch, tmp_path):
    """File in which the notifier above writes."""
    arguments = {"path": str(tmp_path / "told"), "text": "{{ statestore }}"}
    monkeypatch.setenv("STATESTORE_ALERT_NOTIFIER", f"{__name__}.FileNotifier")
    monkeypatch.setenv("STATESTORE_ALERT_ARGUMENTS", json.dumps(arguments))
    return tmp_path / "told"


def damaged(*tasks):
    rows = [
        VerifyRow(application="flight-delays", store="aircraft", task=task, status=Status.CORRUPT, action=Action.FULL)
        for task in tasks
    ]
    whole = VerifyRow(application="flight-delays", store="x", task="0_0", status=Status.OK, action=Action.NONE)
    return VerifyReport(**HEAD, rows=(*rows, whole))


@pytest.fixture
def tell(runner, load_dags):
    """Do what Airflow's DAG processor does when the last run has failed; `dag.test` has no whole DAG for callbacks."""
    import structlog
    from airflow.callbacks.callback_requests import DagCallbackRequest
    from airflow.dag_processing.processor import _execute_dag_callbacks

    def call():
        run = runner.dag_run
        request = DagCallbackRequest(
            filepath="verify.py",
            bundle_name="dags-folder",
            bundle_version=None,
            dag_id=run.dag_id,
            run_id=run.run_id,
            is_failure_callback=True,
            msg="task_failure",
        )
        _execute_dag_callbacks(SimpleNamespace(dags=load_dags(run.dag_id)), request, structlog.get_logger())

    return call


@pytest.mark.long
def test_a_run_that_fails_sends_one_mail_that_names_what_is_wrong(runner, tell, monkeypatch):
    runner.run("verify", report=damaged("0_0", "0_1"))
    with mail_server() as server:
        connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": server.port}
        connection["extra"] = {"disable_ssl": True, "disable_tls": True}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
        monkeypatch.setenv("STATESTORE_ALERT_NOTIFIER", "airflow.providers.smtp.notifications.smtp.SmtpNotifier")
        arguments = {"from_email": "a@example.org", "to": "b@example.org", "subject": "{{ dag.dag_id }}"}
        arguments["html_content"] = "{{ statestore }}"
        monkeypatch.setenv("STATESTORE_ALERT_ARGUMENTS", json.dumps(arguments))
        tell()
    (mail,) = server.mails
    message = email.message_from_string(mail, policy=default)
    assert (message["To"], message["Subject"]) == ("b@example.org", "verify")
    said = message.get_body().get_content()
    assert "2 of 3 rows" in said
    assert "flight-delays/aircraft/0_1: CORRUPT, action: full" in said


#: Standing of a store partition with a broken objective, and the words of its detail.
BROKEN = {
    "never proven": "no drill has proven it",
    "proven too long ago": "the last proof is 8 d old, the objective is 7 d",
    "too slow": "the restore took 16 min, the objective is 15 min",
    "failed": "it could not be restored",
}


@pytest.mark.long
@pytest.mark.behaviour("D4")
def test_an_alert_names_each_broken_objective_of_a_drill(runner, told, tell):
    rows = [
        DrillRow(application="shop", store="orders", task=f"0_{number}", standing=standing, detail=detail)
        for number, (standing, detail) in enumerate([*BROKEN.items(), ("proven", "")])
    ]
    runner.run("drill", report=DrillReport(**{**HEAD, "applications": ("shop",)}, rows=tuple(rows)))
    tell()
    text = told.read_text()
    assert "4 of 5 rows" in text
    for number, (standing, detail) in enumerate(BROKEN.items()):
        assert f"shop/orders/0_{number}: {standing}. {detail}" in text
    assert "shop/orders/0_4" not in text


def test_a_run_that_fails_without_a_report_says_so(runner, told, tell):
    runner.run("verify", {"application": "nope"})
    tell()
    assert "failed before it had a report; the log of its first red step says why" in told.read_text()


def test_a_run_that_is_late_is_told_by_the_executor(load_dags, told, tmp_path, monkeypatch):
    import structlog
    from airflow.sdk.execution_time.callback_supervisor import execute_callback

    dag = load_dags("restore", STATESTORE_DEADLINE_MINUTES="5")["restore"]
    # As Airflow's scheduler hands it to the executor when the deadline is missed.
    late = {"dag_run": {"dag_id": "restore", "dag_run_id": "by-hand"}, "deadline": {"deadline_time": "12:00"}}
    callback = dag.deadline[0].callback.serialize()
    done, why = execute_callback(
        callback["path"], {**callback["kwargs"], "context": late}, "restore.py", None, structlog.get_logger()
    )
    assert done, why
    assert told.read_text() == "run by-hand of DAG restore is late: it has not ended by 12:00\n"


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("nowhere.Notifier", "", "STATESTORE_ALERT_NOTIFIER: expected the import path of a notifier, found 'nowhere.N"),
        ("notifier", "", "STATESTORE_ALERT_NOTIFIER: expected the import path of a notifier, found 'notifier'"),
        ("pathlib.Path", "", "STATESTORE_ALERT_NOTIFIER: expected a subclass of BaseNotifier, found 'pathlib.Path'"),
        (f"{__name__}.FileNotifier", "{", "STATESTORE_ALERT_ARGUMENTS: expected a JSON object"),
        (f"{__name__}.FileNotifier", "[]", "STATESTORE_ALERT_ARGUMENTS: expected a JSON object, found list"),
        (f"{__name__}.FileNotifier", '{"to": 1}', "STATESTORE_ALERT_ARGUMENTS: .* refuses them"),
    ],
)
def test_a_notifier_that_cannot_be_used_is_a_clear_message(monkeypatch, path, arguments, message):
    monkeypatch.setenv("STATESTORE_ALERT_NOTIFIER", path)
    monkeypatch.setenv("STATESTORE_ALERT_ARGUMENTS", arguments)
    with pytest.raises(AssertionError, match=message):
        assert problem() is None
