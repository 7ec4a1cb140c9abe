"""DAG `survey` in a real Airflow on a real broker: it writes a report, and shows the risks of each application."""

from __future__ import annotations

import pytest
from statestore_dags.row_summaries import row_to_dict

from statestore.reports import SurveyReport, read_report
from tests.dags.runner import Runner
from tests.integration.broker import NO_BROKER, create_topic, unique
from tests.ui.made_reports import surveyed


@pytest.mark.long
def test_a_survey_is_reported_and_each_risk_fails_a_mapped_task(
    airflow_home, installation, load_dags, bootstrap_servers
):
    name = unique("surveyed")
    create_topic(bootstrap_servers, f"{name}-totals-changelog", config={"cleanup.policy": "delete"})
    runner = Runner(installation, load_dags)
    states = runner.run("survey")
    assert states["survey"] == "success"
    assert ("(cluster)", "failed") in states["check"]
    (path,) = (installation / "reports" / "survey").glob("*.json")
    report = read_report(path, SurveyReport)
    assert (report.dag_id, report.dag_run_id) == ("survey", runner.dag_run.run_id)
    assert path.name.startswith(report.run_id)
    assert "changelog deleted by age" in {
        risk.advice.situation for risk in report.risks if risk.subject == f"{name}-totals-changelog"
    }
    assert report.left_out.keys() == {"snapshots"}, "the reports directory was looked at"


def test_a_survey_without_an_answer_leaves_no_report(airflow_home, installation, load_dags, monkeypatch):
    monkeypatch.setenv("STATESTORE_BOOTSTRAP_SERVERS", NO_BROKER)
    monkeypatch.setenv("STATESTORE_KAFKA_TIMEOUT_S", "1")
    states = Runner(installation, load_dags).run("survey")
    assert (states["survey"], states["check"]) == ("failed", "upstream_failed")
    assert not [*(installation / "reports").glob("survey/*.json")]


@pytest.mark.parametrize(
    ("row", "health", "words"),
    [
        (surveyed("shop").rows[1], "failed", ["shop", "1 of 3", "Next: echo add"]),
        (surveyed("shop").rows[0], "healthy", ["(cluster)", "risks: 0"]),
        (surveyed("", unread=1).rows[0], "failed", ["(cluster)", "not read: bytes of topic 0. refused"]),
        (surveyed().rows[1], "healthy", ["shop"]),
    ],
)  # fmt: skip
def test_a_mapped_task_shows_each_risk_with_its_command(row, health, words):
    shown = row_to_dict(row)
    assert shown["health"] == health
    assert [word for word in words if word not in f"{shown['label']}: {shown['headline']}"] == []
