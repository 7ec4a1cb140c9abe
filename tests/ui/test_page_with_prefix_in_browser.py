"""The page in Chromium where DAG ids have a prefix, and an application has an environment of its own."""

from __future__ import annotations

import shutil

import pytest
from playwright.sync_api import expect

from statestore.reports import Status
from tests.ui import served
from tests.ui.browser import Person
from tests.ui.made_reports import Reports, verify_row

pytestmark = pytest.mark.browser
PREFIX = "stores."
ENVIRONMENTS = "payments:\n  applications: [shop]\n"
IDS = {"bank": PREFIX, "shop": f"{PREFIX}payments."}


@pytest.fixture(scope="module")
def api_server(tmp_path_factory):
    """A server whose DAGs have other ids."""
    file = tmp_path_factory.mktemp("settings") / "environments.yaml"
    file.write_text(ENVIRONMENTS)
    settings = {"STATESTORE_DAG_PREFIX": PREFIX, "STATESTORE_ENVIRONMENTS": str(file)}
    with served.api_server(tmp_path_factory.mktemp("page"), **settings) as server:
        yield server


@pytest.fixture
def directory(api_server):
    """The reports directory, empty."""
    shutil.rmtree(api_server.installation.reports_dir, ignore_errors=True)
    api_server.installation.reports_dir.mkdir()
    return api_server.installation.reports_dir


@pytest.fixture
def person(browser, api_server):
    person = Person(browser, api_server.url, api_server.token)
    yield person
    person.close()
    assert person.errors == []


def test_before_the_first_run_the_links_lead_to_the_dags_with_the_prefix(person, directory):
    page = person.open()
    for dag in ("process", "verify", "metastore"):
        link = page.get_by_role("link", name=f"{PREFIX}{dag}", exact=True)
        assert link.get_attribute("href").endswith(f"/dags/{PREFIX}{dag}")
    link.click()
    expect(page).to_have_url(f"{person.url}/dags/{PREFIX}metastore")
    expect(page.get_by_role("heading", name=f"{PREFIX}metastore")).to_be_visible()


@pytest.mark.parametrize("application", IDS)
@pytest.mark.parametrize("dag", ["restore", "verify", "process"])
def test_buttons_start_the_dag_of_the_application(person, directory, api_server, application, dag):
    Reports(directory, IDS[application]).verify([verify_row(2, Status.MISSING, application=application)], 1)
    page = person.open()
    page.get_by_role("button", name=f"{dag.capitalize()} {application}", exact=True).click()
    dialog = page.get_by_role("dialog")
    dag_id = f"{IDS[application]}{dag}"
    expect(dialog).to_contain_text(f"Starts the DAG {dag_id}.")
    expect(dialog.get_by_label("Application", exact=True)).to_have_value(application)
    dialog.get_by_role("button", name="Start").click()
    started = dialog.get_by_role("link", name="Run manual__")
    run_id = started.inner_text().removeprefix("Run ")
    assert api_server.run(dag_id, run_id)["conf"]["application"] == application
    dialog.get_by_role("button", name="Close").click()
    work = page.get_by_role("region", name="In progress")
    expect(work.get_by_role("link", name=dag_id, exact=True).first).to_be_visible()


@pytest.mark.parametrize("application", IDS)
def test_runs_are_those_of_the_dags_with_the_prefix(person, directory, application):
    Reports(directory, IDS[application]).verify([verify_row(2, application=application)], 1)
    page = person.open()
    page.locator("tr[data-partition] .ss-name").click()
    panel = page.get_by_role("complementary", name=f"{application}/orders/0_2")
    link = panel.get_by_role("link", name="verify", exact=True)
    assert link.get_attribute("href").endswith(f"/dags/{IDS[application]}verify/runs/scheduled__verify-00001")
