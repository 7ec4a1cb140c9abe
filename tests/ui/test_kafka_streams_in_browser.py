"""The page in Chromium with Kafka Streams applications that have no definition: an environment lists them."""

from __future__ import annotations

import shutil

import pytest
from playwright.sync_api import expect

from statestore.advice import Situation, Target, advice
from statestore.reports import Contents, Status
from tests.ui import served
from tests.ui.browser import Person
from tests.ui.made_reports import Reports, verify_row

pytestmark = pytest.mark.browser
ENVIRONMENTS = """\
streams:
  kafka_streams:
    billing: {state_dir: /var/lib/kafka-streams, verified_within_hours: 1000000}
    ledger: {verified_within_hours: 1000000}
"""


@pytest.fixture(scope="module")
def api_server(tmp_path_factory):
    """A server whose environment lists two applications."""
    file = tmp_path_factory.mktemp("settings") / "environments.yaml"
    file.write_text(ENVIRONMENTS)
    with served.api_server(tmp_path_factory.mktemp("page"), STATESTORE_ENVIRONMENTS=str(file)) as server:
        yield server


@pytest.fixture
def reports(api_server):
    """The reports directory, empty."""
    directory = api_server.installation.reports_dir
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return Reports(directory, "streams.")


@pytest.fixture
def page(browser, api_server, reports):
    person = Person(browser, api_server.url, api_server.token)
    yield person.open
    person.close()
    assert person.errors == []


def test_applications_that_no_report_names_are_not_verified(page):
    found = page()
    expect(found.locator("tr[data-partition]")).to_have_count(2)
    expect(found.locator("tr[data-partition]").get_by_text("NOT VERIFIED", exact=True)).to_have_count(2)
    cards = found.get_by_role("list", name="Applications")
    expect(cards.get_by_text("no store reported yet")).to_have_count(2)
    expect(cards.get_by_text("lag")).to_have_count(0)
    expect(found.get_by_role("button", name="Verify billing", exact=True)).to_be_visible()
    for name in ("Restore billing", "Process billing", "Verify ledger"):
        expect(found.get_by_role("button", name=name, exact=True)).to_have_count(0)


def test_a_running_application_is_verified_and_not_restored(page, reports, api_server):
    proof = Contents(store_rows=1, offsets=((5, 5),))
    risk = "a kill now would lose data"
    reports.verify([verify_row(0, Status.PROVEN, application="billing", live=True, contents=proof)], 1)
    rows = [
        verify_row(0, Status.IN_USE, application="billing", live=True),
        verify_row(1, Status.PROVEN, application="billing", live=True, contents=proof, kill_risk=risk),
    ]
    reports.verify(rows, 2)
    found = page()
    expect(found.get_by_role("button", name="Restore billing", exact=True)).to_have_count(0)
    expect(found.locator("tr[data-partition]").get_by_text("KILL RISK", exact=True)).to_be_visible()
    found.get_by_title("billing/orders/0_0", exact=True).click()
    panel = found.get_by_role("complementary", name="billing/orders/0_0")
    expect(panel).to_contain_text("Rows last proven")
    expect(panel.get_by_role("button", name="Restore…")).to_have_count(0)
    panel.get_by_role("button", name="Verify…").click()
    dialog = found.get_by_role("dialog")
    expect(dialog).to_contain_text("Starts the DAG streams.verify.")
    dialog.get_by_role("button", name="Start").click()
    started = dialog.get_by_role("link", name="Run manual__")
    run_id = started.inner_text().removeprefix("Run ")
    assert api_server.run("streams.verify", run_id)["conf"]["application"] == "billing"


def test_a_stopped_application_is_restored_with_the_form(page, reports):
    step = advice(Situation.DAMAGED, Target("billing", "orders", "0_0"))
    reports.verify([verify_row(0, Status.CORRUPT, application="billing", advice=step)], 1)
    found = page()
    found.get_by_role("button", name="Restore billing/orders/0_0", exact=True).click()
    dialog = found.get_by_role("dialog")
    expect(dialog).to_contain_text("Starts the DAG streams.restore.")
    expect(dialog.get_by_label("Application", exact=True)).to_have_value("billing")
    expect(dialog.get_by_label("Stores", exact=True)).to_have_value("orders")
