"""The page shows the applications of an environment only to those who may read one of its DAGs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import requests
from airflow.api_fastapi.app import get_auth_manager

from statestore.audit import new_record, write_record
from statestore.reports import Status, write_report
from tests.dags.api_server import ApiServer
from tests.ui.made_reports import Reports, surveyed, verify_row

ENVIRONMENTS = "payments: {applications: [billing]}"


class Page:
    """Answers of the server after a login."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def get(self, path: str, accept: str = "*/*") -> requests.Response:
        headers = {"Authorization": f"Bearer {self._api.token}", "Accept": accept}
        return requests.get(f"{self._api.url}/statestore/{path}", headers=headers, timeout=120)

    def applications(self) -> list[str]:
        return sorted(each["application"] for each in self.get("api/overview").json()["applications"])


@pytest.fixture
def page(airflow_api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    """Two applications, one in the environment payments, with reports, Data Docs, surveys, and audit records."""
    environments = tmp_path / "environments.yaml"
    environments.write_text(ENVIRONMENTS)
    monkeypatch.setenv("STATESTORE_ENVIRONMENTS", str(environments))
    monkeypatch.setenv("STATESTORE_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    for name in ("STATE_DIR", "REPORTS_DIR", "DATA_DOCS_DIR"):
        monkeypatch.setenv(f"STATESTORE_{name}", str(tmp_path / name))
    reports = tmp_path / "REPORTS_DIR"
    made = Reports(reports)
    made.verify([verify_row(0, Status.CORRUPT, application="billing")], 1, run="billing", history=True)
    made.verify([verify_row(application="shop")], 2, run="shop", history=True)
    made.progress("billing", application="billing", phase="ended")
    write_report(reports / "survey" / "payments.json", surveyed(applications=("billing",), dag_id="payments.survey"))
    for application in ("billing", "shop"):
        write_record(reports, new_record("restore", [application]))
        doc = tmp_path / "DATA_DOCS_DIR" / "validations" / f"{application}.orders" / "run.html"
        doc.parent.mkdir(parents=True)
        doc.write_text("<html><head></head>")
        verdict = tmp_path / "DATA_DOCS_DIR" / "verdicts" / f"{application}.orders" / "run.json"
        verdict.parent.mkdir(parents=True)
        verdict.write_text(json.dumps({"application": application, "store": "orders", "verdict": "passed"}))
    return Page(airflow_api)


@pytest.fixture
def readable(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Ids of the DAGs that the user may read.

    Airflow's own SimpleAuthManager has no rights of single DAGs; those of the FAB provider and of Keycloak have, and
    answer this question.
    """
    dags: set[str] = set()
    monkeypatch.setattr(
        get_auth_manager(),
        "is_authorized_dag",
        lambda *, details=None, **_: details is None or details.id is None or details.id in dags,
    )
    return dags


def test_who_may_read_all_dags_sees_all_applications(page: Page) -> None:
    assert page.applications() == ["billing", "shop"]
    assert [found["application"] for found in page.get("api/overview").json()["findings"]] == ["billing"]
    assert page.get("api/restorable").json() == {"of": 2, "restored": 1}
    assert len(page.get("audit").json()["records"]) == 2
    assert [work["applications"] for work in page.get("api/progress").json()["work"]] == [["billing"]]


def test_an_environment_is_hidden_from_those_who_may_read_none_of_its_dags(page: Page, readable: set[str]) -> None:
    readable.add("verify")
    assert page.applications() == ["shop"]
    overview = page.get("api/overview").json()
    assert (overview["surveys"], overview["dags"]["environments"]) == ([], {})
    assert (overview["findings"], overview["more_findings"]) == ([], 0)
    assert page.get("api/restorable").json() == {"of": 1, "restored": 0}
    assert page.get("api/progress").json() == {"work": []}
    assert page.get("api/restorable?application=billing").json() == {"of": 0, "restored": 0}
    assert {row["application"] for row in page.get("api/partitions").json()["rows"]} == {"shop"}
    assert page.get("api/partitions?application=billing").json()["of"] == 0
    assert [record["applications"] for record in page.get("audit").json()["records"]] == [["shop"]]
    assert "billing" not in page.get("audit", accept="text/html").text
    assert "billing" not in page.get("docs/").text
    (report,) = page.get("reports").json()["verify"]
    assert page.get(f"reports/verify/{report}").status_code == 200
    hidden = [
        *("api/history?application=billing", "api/drills?application=billing", "surveys/payments.json"),
        *("docs/validations/billing.orders/run.html", "reports/survey/payments.json"),
    ]
    assert {path: page.get(path).status_code for path in hidden} == dict.fromkeys(hidden, 404)
    shown = ["api/history?application=shop", "docs/validations/shop.orders/run.html"]
    assert {path: page.get(path).status_code for path in shown} == dict.fromkeys(shown, 200)


def test_one_readable_dag_shows_its_environment_and_no_other(page: Page, readable: set[str]) -> None:
    readable.add("payments.verify")
    assert page.applications() == ["billing"]
    assert page.get("surveys/payments.json").status_code == 200
    assert page.get("api/history?application=shop").status_code == 404
    assert page.get("docs/validations/shop.orders/run.html").status_code == 404


def test_the_same_overview_has_another_tag_for_another_user(page: Page, readable: set[str]) -> None:
    readable.update({"verify", "payments.verify"})
    everything = page.get("api/overview").headers["ETag"]
    readable.remove("payments.verify")
    assert page.get("api/overview").headers["ETag"] != everything
