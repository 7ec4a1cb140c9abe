"""The page in Chromium, on a real API server, with reports that the test has laid there."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from statestore.advice import Situation, Target, advice
from statestore.objects.path import write_whole
from statestore.reports import Failure, RestorePoint, Status
from tests.ui import served
from tests.ui.browser import Person
from tests.ui.made_reports import Reports, drill_row, restored, validated, verify_row

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def api_server(tmp_path_factory):
    """The server of this file's tests."""
    with served.api_server(tmp_path_factory.mktemp("page")) as server:
        yield server


@pytest.fixture
def laid(api_server):
    """The reports that the server shows, empty at first."""
    directory = api_server.installation.reports_dir
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    api_server.delete_runs()
    return Reports(directory)


@pytest.fixture(params=["light"])
def person(request, browser, api_server):
    scheme, _, width = request.param.partition(" ")
    person = Person(browser, api_server.url, api_server.token, scheme, int(width or 1440))
    yield person
    person.close()
    assert person.errors == []


@pytest.fixture
def made_data_docs(api_server):
    """Data Docs of one validation, by Great Expectations itself."""
    import great_expectations as gx
    import pandas as pd
    from great_expectations.checkpoint import Checkpoint, UpdateDataDocsAction
    from great_expectations.expectations import ExpectColumnValuesToBeBetween, ExpectColumnValuesToBeInSet
    from statestore_expectations.data_docs import SITE, context_of

    directory = api_server.installation.data_docs_dir
    context = context_of(directory)
    batch = context.data_sources.add_pandas("stores").add_dataframe_asset("shop.orders")
    suite = gx.ExpectationSuite("shop.orders")
    suite.add_expectation(ExpectColumnValuesToBeBetween(column="value", min_value=0))
    suite.add_expectation(
        ExpectColumnValuesToBeInSet(column="key", value_set=[f"key-{number}" for number in range(30)])
    )
    suite = context.suites.add(suite)
    data = batch.add_batch_definition_whole_dataframe("all")
    definition = gx.ValidationDefinition(name="orders", data=data, suite=suite)
    checkpoint = Checkpoint(
        name="orders",
        validation_definitions=[context.validation_definitions.add(definition)],
        actions=[UpdateDataDocsAction(name="docs", site_names=[SITE])],
        result_format="COMPLETE",
    )
    rows = pd.DataFrame({"key": ["k" * 80, "key-1"], "value": [1, -3]})
    context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": rows})
    (page,) = directory.glob("validations/**/*.html")
    told = {"application": "shop", "store": "orders", "verdict": "failed", "expectations": 2, "data_docs": str(page)}
    verdict = directory / "verdicts" / "shop.orders" / "restore__manual__2026-11-27T10_03_09.592450_00_00-abcdef12.json"
    write_whole(verdict, json.dumps({**told, "failed_expectations": ["expect_column_values_to_be_between"]}))
    yield
    shutil.rmtree(directory)


def test_before_the_first_run_the_page_says_what_to_do(person, laid):
    page = person.open()
    expect(page.get_by_role("heading", name="No store yet")).to_be_visible()
    page.get_by_role("link", name="metastore").last.click()
    expect(page).to_have_url(f"{person.url}/dags/metastore")


def test_a_missing_directory_and_a_torn_report_are_explained(person, laid):
    laid.directory.rmdir()
    page = person.open()
    expect(page.get_by_text("There is no such directory")).to_be_visible()
    expect(page.get_by_role("heading", name="No store yet")).to_be_visible()
    laid.directory.mkdir()
    laid.verify([verify_row()], 1)
    (laid.directory / "verify" / "torn.json").write_text('{"job": "ver')
    page.reload()
    expect(page.get_by_text("verify/torn.json")).to_be_visible()
    expect(page.locator("[data-partition='shop/orders/0_0']")).to_contain_text("OK")


@pytest.mark.parametrize("person", ["light 390", "dark 1440"], indirect=True)
def test_a_degraded_metastore_is_told_with_its_reason_until_a_plan_succeeds(person, laid):
    reason = "record 7 of topic __statestore-default is no command"
    file = laid.directory / "metastore" / "degraded.json"
    write_whole(file, json.dumps({"reason": reason}))
    os.utime(file, (two_hours_ago := time.time() - 2 * 60 * 60 - 60, two_hours_ago))
    laid.verify([verify_row()], 1)
    page = person.open()
    notice = page.get_by_role("alert")
    for text in ("No job starts.", reason, "Found 2 h ago", "statestore metastore status"):
        expect(notice).to_contain_text(text)
    expect(page.locator("[data-partition='shop/orders/0_0']")).to_contain_text("OK")
    assert clipped(page) == []
    file.unlink()
    expect(notice).to_have_count(0)


def test_a_thousand_store_partitions_scroll_with_few_rows_in_the_page(person, laid):
    laid.verify([verify_row(partition) for partition in range(1_000)], 1)
    page = person.open()
    rows = page.locator("tr[data-partition]")
    expect(page.get_by_text("1,000 of 1,000 shown")).to_be_visible()
    assert rows.count() < 60
    page.locator(".ss-scroll").evaluate("node => node.scrollTo(0, node.scrollHeight)")
    expect(page.locator("[data-partition='shop/orders/0_999']")).to_be_visible()
    assert rows.count() < 60
    page.get_by_role("searchbox").fill("orders/0_77")
    expect(page.get_by_text("11 of 1,000 shown")).to_be_visible()
    assert rows.count() == 11


def test_the_worst_stand_first_and_a_chosen_one_tells_all_that_is_known(person, laid):
    for minute in range(4):
        laid.verify([verify_row(0, lag=minute), verify_row(1, Status.CORRUPT, detail="0004.sst")], minute, history=True)
    laid.validate([validated(1, "failed", failed_expectations=("expect_x",), rollback="statestore restore -r")], 9)
    laid.process([0, 1], ["orders"], 9)
    page = person.open()
    expect(page.locator("tr[data-partition]").first).to_contain_text("CORRUPT")
    page.locator("tr[data-partition] .ss-name").first.click()
    panel = page.get_by_role("complementary", name="shop/orders/0_1")
    for text in ("0004.sst", "The store must be rebuilt", "expect_x", "statestore restore -r"):
        expect(panel).to_contain_text(text)
    expect(panel.locator("svg.ss-plot circle")).to_have_count(4)
    expect(panel.locator("svg.ss-plot rect")).to_have_count(4)
    link = panel.get_by_role("link", name="verify", exact=True)
    assert link.get_attribute("href").endswith("/dags/verify/runs/scheduled__verify-00003")
    report = page.request.get(panel.get_by_role("link", name="report").first.get_attribute("href"))
    assert report.json()["run_id"] == "verify-00003"


def test_the_panel_tells_what_a_restore_from_the_last_snapshot_would_read(person, laid):
    hour_ms = 60 * 60 * 1000
    now = time.time_ns() // 1_000_000
    known = {"snapshot": "s", "committed": 1_234, "written_ms": now - 3 * hour_ms - 60_000}
    usable = RestorePoint(**known, usable=True, until_ms=now + 5 * hour_ms + 60_000, fetched=3 << 29, offsets=17)
    gone = RestorePoint(**known, detail="the archive lacks 2 of its files")
    laid.verify([verify_row(0, restore_point=usable), verify_row(1, restore_point=gone), verify_row(2)], 1)
    page = person.open()
    expect(page.locator("[data-partition='shop/orders/0_0']")).to_contain_text("3 h ago")
    page.locator("[data-partition='shop/orders/0_0'] .ss-name").click()
    panel = page.get_by_role("complementary", name="shop/orders/0_0")
    for text in ("Offset 1,234, published 3 h ago", "fetches up to 1.5 GiB and reads 17", "for another 5 h"):
        expect(panel).to_contain_text(text)
    page.locator("[data-partition='shop/orders/0_1'] .ss-name").click()
    panel = page.get_by_role("complementary", name="shop/orders/0_1")
    expect(panel).to_contain_text("No snapshot can be used.")
    expect(panel).to_contain_text("the archive lacks 2 of its files")
    page.locator("[data-partition='shop/orders/0_2'] .ss-name").click()
    panel = page.get_by_role("complementary", name="shop/orders/0_2")
    expect(panel).not_to_contain_text("restore point")


def test_a_verdict_of_before_has_no_colour_and_a_failed_one_an_action(person, laid):
    laid.verify([verify_row(0, Status.MISSING), verify_row(1), verify_row(2)], 1)
    laid.validate([validated(0), validated(1), validated(2, "failed")], 0)
    page = person.open()
    before = page.locator("[data-partition='shop/orders/0_0']")
    expect(before).to_contain_text("passed, outdated")
    expect(before.locator(".ss-text-good")).to_have_count(0)
    expect(page.locator("[data-partition='shop/orders/0_1'] .ss-text-good")).to_contain_text("passed")
    page.locator("[data-partition='shop/orders/0_2'] .ss-name").click()
    panel = page.get_by_role("complementary", name="shop/orders/0_2")
    expect(panel.locator(".ss-action")).to_contain_text("Read which expectation failed")
    expect(panel).not_to_contain_text("No action is needed")


def test_the_panel_tells_what_process_did_last(person, laid):
    figures = {"commits": 12, "commit_latency_avg_ms": 3.21, "commit_latency_max_ms": 44}
    laid.process([0], ["orders"], 1, figures=figures, poison_records=3)
    page = person.open()
    page.locator("tr[data-partition] .ss-name").click()
    panel = page.get_by_role("complementary", name="shop/orders/0_0")
    for text in ("Dead letters, last run3", "3.2 ms on average, 44 ms at most"):
        expect(panel).to_contain_text(text)


def test_what_stores_and_reports_say_is_text_and_nothing_else(person, laid):
    evil = "<img src=x onerror=\"globalThis.hacked='yes'\">"
    failure = Failure(kind=evil, message=evil)
    row = verify_row(0, Status.CORRUPT, store=evil, application=evil, detail=evil)
    laid.verify([row], 1, run=evil.replace("/", ""), history=True)
    laid.restore([restored(outcome="failed", failure=failure).model_copy(update={"store": evil})], 2)
    laid.progress("run", store=evil, next=1, end=2)
    page = person.open()
    page.locator("tr[data-partition]", has_text="CORRUPT").locator(".ss-name").click()
    expect(page.locator("svg.ss-plot, .ss-panel dl").first).to_be_visible()
    assert page.evaluate("globalThis.hacked") is None
    assert page.locator(".ss-root img").count() == 0


def test_a_running_restore_moves_and_its_rows_show_it(person, laid):
    laid.verify([verify_row(0, Status.MISSING), verify_row(1)], 1)
    laid.progress("manual__x-01234567", next=100, end=1_000, records_per_s=50.0, seconds_left=18)
    page = person.open()
    restore = page.locator(".ss-work[data-run]")
    expect(restore).to_contain_text("100 of 1,000 offsets, 50 records/s, about 18 s of reading left")
    expect(page.locator("[data-partition='shop/orders/0_0']")).to_contain_text("RESTORING 10 %")
    laid.progress("manual__x-01234567", next=900, end=1_000, records_per_s=50.0, seconds_left=2)
    expect(restore).to_contain_text("900 of 1,000 offsets")
    shutil.rmtree(laid.directory / "restore" / ".progress-manual__x-01234567")
    laid.restore([restored(0)], 2)
    expect(restore).to_have_count(0)
    expect(page.locator("[data-partition='shop/orders/0_0']")).to_contain_text("RESTORED")


def test_a_running_process_and_a_running_snapshot_move(person, laid):
    laid.task_progress("scheduled__x-01234567", first=100, next=200, end=1_100, poison_records=2)
    laid.progress("scheduled__y-01234567", job="snapshot", next=1, end=4)
    page = person.open()
    process = page.locator(".ss-work[data-job='process']")
    expect(process).to_contain_text("0 of 1 tasks done, 100 of 1,000 offsets, 2 dead letters")
    expect(page.locator(".ss-work[data-job='snapshot']")).to_contain_text("1 of 4 offsets")
    laid.task_progress("scheduled__x-01234567", first=100, next=900, end=1_100)
    expect(process).to_contain_text("800 of 1,000 offsets")


def test_nothing_is_asked_for_while_the_tab_is_hidden(person, laid):
    laid.verify([verify_row()], 1)
    page = person.open()
    expect(page.locator("tr[data-partition]")).to_have_count(1)
    asked = []
    page.on("request", lambda request: "/statestore/api/" in request.url and asked.append(request.url))
    hide = (
        "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    page.evaluate(hide, True)
    before = len(asked)
    page.wait_for_timeout(12_000)  # longer than it ever waits between two requests: only time can show that none comes
    assert len(asked) - before <= 1  # one may have been under way
    laid.verify([verify_row(status=Status.AHEAD)], 2)
    page.evaluate(hide, False)
    expect(page.locator("tr[data-partition]")).to_contain_text("AHEAD")


def test_the_form_of_a_restore_opens_filled_in_and_airflow_checks_it(person, laid, api_server):
    laid.verify([verify_row(3, Status.MISSING)], 1)
    page = person.open()
    page.get_by_role("button", name="Restore shop/orders/0_3").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Application", exact=True)).to_have_value("shop")
    expect(dialog.get_by_label("Stores", exact=True)).to_have_value("orders")
    expect(dialog.get_by_label("Partitions", exact=True)).to_have_value("3")
    dialog.get_by_label("Partitions", exact=True).fill("3, many")
    dialog.get_by_role("button", name="Start the restore").click()
    expect(dialog.get_by_role("alert")).to_contain_text("many")

    dialog.get_by_label("Partitions", exact=True).fill("[3, 4]")
    dialog.get_by_label("Rebuild healthy stores too", exact=True).check()
    dialog.get_by_role("button", name="Start the restore").click()
    run_id = dialog.get_by_role("link", name="Run manual__").inner_text().removeprefix("Run ")
    run = api_server.run("restore", run_id)
    assert run["conf"] | {"stores": ["orders"], "partitions": [3, 4], "force": True, "mode": "auto"} == run["conf"]
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator(".ss-work")).to_contain_text("restore is queued")


@pytest.mark.parametrize("dag", ["verify", "process"])
def test_a_verification_and_a_run_of_process_are_started_from_the_page(person, laid, dag):
    laid.verify([verify_row()], 1)
    page = person.open()
    page.get_by_role("button", name=f"{dag.capitalize()} shop").click()
    dialog = page.get_by_role("dialog", name=dag.capitalize())
    expect(dialog.get_by_label("Application", exact=True)).to_have_value("shop")
    dialog.get_by_role("button", name="Start").click()
    href = dialog.get_by_role("link", name="Run manual__").get_attribute("href")
    assert f"/dags/{dag}/runs/" in href


def clipped(page):
    """What is wider than the window, or than what it is in and cannot be scrolled there."""
    return page.evaluate("""() => {
        const scrolls = node => /auto|scroll/.test(getComputedStyle(node).overflowX);
        const scrolled = node => node && (scrolls(node) || scrolled(node.parentElement));
        return [...document.querySelectorAll(".ss-root, .ss-root *")].filter(node => {
            const box = node.getBoundingClientRect();
            return box.width && (box.right > innerWidth + 1 || box.left < -1) && !scrolled(node.parentElement);
        }).map(node => node.outerHTML.slice(0, 80)).concat(
            [...document.querySelectorAll(".ss-page, .ss-dialog, .ss-panel, .ss-work, .ss-applications li")]
                .filter(node => node.scrollWidth > node.clientWidth + 1).map(node => node.className));
    }""")


def test_the_advised_button_opens_the_form_that_reseeds_the_changelog(person, laid):
    step = advice(Situation.CHANGELOG_RECREATED, Target("shop", "orders", "0_0"))
    laid.verify([verify_row(0, Status.REPLACED, advice=step)], 1)
    page = person.open()
    page.locator("tr[data-partition] .ss-name").first.click()
    panel = page.get_by_role("complementary", name="shop/orders/0_0")
    expect(panel).to_contain_text(step.sentence)
    expect(panel).to_contain_text(step.command)
    panel.get_by_role("button", name="Reseed…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("What", exact=True)).to_have_value("reseed")
    expect(dialog.get_by_label("Application", exact=True)).to_have_value("shop")
    expect(dialog.get_by_label("Stores", exact=True)).to_have_value("orders")


@pytest.mark.parametrize("person", ["light 390", "dark 390", "light 1440", "dark 1440"], indirect=True)
def test_with_the_keyboard_alone_a_restore_is_started_and_nothing_is_clipped(person, laid):
    name = "an-application-with-a-name-as-long-as-they-are-with-kafka-streams"
    rows = [verify_row(0, Status.MISSING, application=name, detail="/a/path" * 40), verify_row(1, application=name)]
    laid.verify(rows, 1, history=True)
    laid.validate(
        [validated(rollback="statestore restore --rollback " * 6).model_copy(update={"application": name})], 2
    )
    laid.progress("run", application=name, store="another", next=1, end=2)
    page = person.open()
    row = page.locator("tr[data-partition] .ss-name").first
    expect(row).to_contain_text("orders/0_0")
    assert clipped(page) == []

    def tab_to(target):
        for _ in range(60):
            if target.evaluate("node => node === document.activeElement"):
                return
            page.keyboard.press("Tab")
        raise AssertionError("the keyboard does not lead there")

    tab_to(row)
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name=f"{name}/orders/0_0")
    expect(panel.get_by_role("button", name="Close")).to_be_focused()
    assert clipped(page) == []
    page.keyboard.press("Tab")
    tab_to(panel.get_by_role("button", name="Restore…"))
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Partitions", exact=True)).to_have_value("0")
    assert clipped(page) == []
    dialog.get_by_label("Partitions", exact=True).focus()
    page.keyboard.press("Enter")
    started = dialog.get_by_role("link", name="Run manual__")
    expect(started).to_be_focused()
    expect(started).to_be_in_viewport()
    assert clipped(page) == []
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.locator(".ss-work").filter(has_text="restore is queued").first).to_be_visible()
    tab_to(panel.get_by_role("button", name="Close"))
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)


# -- what needs a person first -----------------------------------------------------------------------------------------


def many_applications(laid, count):
    """Lay reports of many applications: every fifth has a damaged store with a long name, and one has a failed task."""
    store = "KSTREAM-AGGREGATE-STATE-STORE-0000000012-with-a-name-that-no-column-has-room-for-so-it-is-shortened"
    rows = []
    for number in range(count):
        more = {"application": f"application-{number:03}"}
        status = Status.CORRUPT if number % 5 == 1 else Status.OK
        rows += [verify_row(0, **more), verify_row(1, status, store=store, detail="0004.sst", **more)]
    laid.verify([*rows, verify_row(0)], 1)
    laid.process([0], ["orders"], 2, failure=Failure(kind="ProcessorError", message="no number: 'n/a'"))


def hidden(page, selector):
    """Return the elements that lie outside the window, or under something else."""
    return page.evaluate(
        """selector => [...document.querySelectorAll(selector)].filter(node => {
            const { left, right, top, bottom } = node.getBoundingClientRect();
            const [x, y] = [(left + right) / 2, (top + bottom) / 2];
            const inside = left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight;
            return !inside || !node.contains(document.elementFromPoint(x, y));
        }).map(node => node.outerHTML.slice(0, 120))""",
        selector,
    )


@pytest.mark.parametrize("person", ["light 390", "dark 390", "light 1440", "dark 1440"], indirect=True)
@pytest.mark.parametrize("count", [0, 6])
def test_the_first_finding_and_the_first_bad_row_are_in_sight(person, laid, count):
    many_applications(laid, count)
    page = person.open()
    first = page.get_by_role("region", name="What needs you first").get_by_role("listitem").first
    for text in ("TASK FAILED", "shop", "orders/0_0", "Read why the task failed"):
        expect(first).to_contain_text(text)
    row = page.locator("tr[data-partition]").first
    expect(row).to_contain_text("TASK FAILED")
    expect(row).to_be_in_viewport(ratio=0.9)
    assert hidden(page, "tr[data-partition]:first-child .ss-badge, .ss-finding .ss-badge, .ss-finding .ss-button") == []
    assert clipped(page) == []


def test_no_button_is_hidden_with_twenty_applications(person, laid):
    many_applications(laid, 19)
    page = person.open()
    expect(page.locator(".ss-applications > li")).to_have_count(20)
    assert page.locator(".ss-applications .ss-button").count() > 40
    assert hidden(page, ".ss-first .ss-button, .ss-applications .ss-button") == []


def test_a_long_store_name_hides_neither_its_task_nor_its_button(person, laid):
    many_applications(laid, 3)
    page = person.open()
    row = page.locator("tr[data-partition]", has_text="CORRUPT")
    button = row.get_by_role("button", name="Restore application-001/KSTREAM")
    expect(button).to_be_in_viewport(ratio=1)
    name = row.locator(".ss-name span")
    assert name.last.evaluate("node => node.scrollWidth <= node.clientWidth + 1")
    assert name.nth(1).evaluate("node => node.scrollWidth > node.clientWidth"), "the store is shortened instead"


def test_of_five_hundred_applications_the_most_urgent_have_cards(person, laid):
    many_applications(laid, 499)
    page = person.open()
    cards = page.get_by_role("list", name="Applications").get_by_role("listitem")
    expect(cards).to_have_count(21)
    expect(cards.first).to_contain_text("shop")
    expect(page.get_by_role("button", name="and 98 more findings")).to_be_visible()
    page.get_by_role("button", name="Show 480 more applications").click()
    expect(cards).to_have_count(500)


@pytest.mark.parametrize("person", ["light 390", "dark 1440"], indirect=True)
def test_a_finding_is_restored_with_the_keyboard_and_the_form_counts_the_stores(person, laid):
    laid.verify([verify_row(0), verify_row(1, Status.CORRUPT), verify_row(2, Status.CORRUPT)], 1)
    page = person.open()
    button = page.get_by_role("button", name="Restore (CORRUPT) shop")
    for _ in range(60):
        if button.evaluate("node => node === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("status")).to_contain_text("Restores 2 of 3 store partitions.")
    dialog.get_by_label("Rebuild healthy stores too", exact=True).check()
    expect(dialog.get_by_role("status")).to_contain_text("Restores 3 of 3 store partitions.")
    assert clipped(page) == []


def test_work_that_was_killed_is_red_and_first(person, laid):
    laid.verify([verify_row(0, Status.CORRUPT)], 1)
    path = laid.task_progress("scheduled__x-01234567", first=0, next=40, end=100)
    five_minutes_ago = time.time() - 300
    os.utime(path, (five_minutes_ago, five_minutes_ago))
    page = person.open()
    stopped = page.get_by_role("alert")
    expect(stopped).to_contain_text("process of shop stopped. No progress for 5 min, and Airflow has no run of it.")
    first = page.get_by_role("region", name="What needs you first")
    assert stopped.bounding_box()["y"] < first.bounding_box()["y"]
    stopped.get_by_role("button", name="Start process of shop again").click()
    expect(page.get_by_role("dialog").get_by_label("Application", exact=True)).to_have_value("shop")


def at_step(api_server, run_id, task, state):
    """Write into Airflow's database what the scheduler writes when a run is at a step; no scheduler runs here."""
    (database,) = api_server.installation.airflow_dir.rglob("airflow.db")
    with sqlite3.connect(database, timeout=60) as connection:
        connection.execute("UPDATE dag_run SET state = 'running' WHERE run_id = ?", (run_id,))
        connection.execute("UPDATE task_instance SET state = NULL WHERE run_id = ?", (run_id,))
        changed = connection.execute(
            "UPDATE task_instance SET state = ? WHERE run_id = ? AND task_id = ?", (state, run_id, task)
        )
        assert changed.rowcount == 1


def test_a_started_run_says_in_one_line_what_it_does_now(person, laid, api_server):
    laid.verify([verify_row(0, Status.MISSING)], 1)
    page = person.open()
    page.get_by_role("button", name="Restore shop", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Start the restore").click()
    run_id = dialog.get_by_role("link", name="Run manual__").inner_text().removeprefix("Run ")
    dialog.get_by_role("button", name="Close").click()
    line = page.locator(".ss-work", has=page.locator(f"a[href*='{quote(run_id, safe='')}']"))
    expect(line).to_contain_text("restore is queued. It starts when")
    for task, state, said in (
        ("plan", "running", "restore is making its plan"),
        ("approve", "awaiting_input", "restore waits for a person: open the run, and approve or reject it"),
        ("plan", "up_for_retry", "restore tries its step plan again in a moment"),
        ("rows", "running", "restore is collecting its results"),
    ):
        at_step(api_server, run_id, task, state)
        expect(line).to_contain_text(said)


def test_an_application_says_what_is_left_and_since_when_and_nothing_that_is_unknown(person, laid):
    laid.verify([verify_row(0, Status.CORRUPT)], 1)
    laid.process([0], ["orders"], 0)
    write_whole(laid.directory / "metastore" / "names.json", json.dumps({"bakery": ["breads"], "shop": ["orders"]}))
    page = person.open()
    cards = page.get_by_role("list", name="Applications").get_by_role("listitem")
    for text in ("1 needs action", "since ", "1 store partition, lag 0, input left to process 7"):
        expect(cards.filter(has_text="shop")).to_contain_text(text)
    never = cards.filter(has_text="bakery")
    expect(never).to_contain_text("NEVER RUN")
    expect(never).not_to_contain_text("lag")


@pytest.mark.behaviour("D4")
def test_each_broken_objective_of_a_drill_looks_different_and_has_a_plot(person, laid):
    standings = ("proven", "never proven", "proven too long ago", "too slow", "failed")
    laid.verify([verify_row(partition) for partition in range(len(standings))], 1)
    for minute in range(3):
        laid.drill([drill_row(partition, standing) for partition, standing in enumerate(standings)], minute)
    page = person.open()
    seen = set()
    for partition, standing in enumerate(standings):
        cell = page.locator(f"[data-partition='shop/orders/0_{partition}'] td").nth(7)
        said = "" if standing == "proven" else standing
        expect(cell).to_contain_text(said)
        seen.add((said, cell.locator("span").first.evaluate("node => getComputedStyle(node).color")))
    assert len(seen) == len(standings)
    assert len({colour for _, colour in seen}) == 4, "proven, never, a broken objective, and failed"
    page.locator("[data-partition='shop/orders/0_4'] .ss-name").click()
    panel = page.get_by_role("complementary", name="shop/orders/0_4")
    plot = panel.get_by_role("img", name="Restores of 3 drills")
    expect(plot).to_contain_text("slowest restore, up to 4.0 s")
    expect(plot.locator("circle")).to_have_count(3)
    expect(plot.locator("rect")).to_have_count(3)
    expect(plot.locator("g title").first).to_contain_text("1 failed")
    expect(panel.get_by_role("region", name="Restore drills")).to_contain_text("why failed")


def test_the_card_on_the_dashboard_leads_to_what_needs_action(person, laid):
    laid.verify([verify_row(0), verify_row(1, Status.MISSING), verify_row(2, Status.LAGGING)], 1)
    page = person.open("/")
    card = page.get_by_role("region", name="State stores")
    expect(card).to_contain_text("shop: 1 MISSING, 1 LAGGING")
    card.get_by_role("link", name="1 needs action").click()
    expect(page.locator("tr[data-partition]")).to_have_count(1)
    expect(page.locator("tr[data-partition]")).to_contain_text("MISSING")


@pytest.mark.parametrize(
    ("person", "is_dark"),
    [("light", False), ("dark", True), ("light 390", False), ("dark 390", True)],
    indirect=["person"],
)
def test_the_page_follows_airflow_s_theme(person, laid, is_dark):
    laid.verify([verify_row()], 1)
    page = person.open()
    expect(page.locator("tr[data-partition]")).to_have_count(1)
    lightness = """selector => {
        const canvas = document.createElement("canvas").getContext("2d");
        canvas.fillStyle = getComputedStyle(document.querySelector(selector)).color;
        canvas.fillRect(0, 0, 1, 1);
        return Math.max(...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3));
    }"""
    assert (page.evaluate(lightness, ".ss-table td") > 128) == is_dark
    assert (page.evaluate(lightness, ".ss-badge") > 128) == is_dark


@pytest.mark.parametrize("person", ["light 390", "dark 390"], indirect=True)
def test_data_docs_are_readable_on_a_phone_and_have_their_stylesheet(person, laid, api_server, made_data_docs):
    page = person.open("/statestore/docs/")
    styled = (
        "[...document.styleSheets].some(sheet => sheet.href?.endsWith('/ui/data-docs.css') && sheet.cssRules.length)"
    )
    width = "document.documentElement.scrollWidth"
    assert page.evaluate(styled)
    assert page.evaluate(width) == 390
    expect(page.get_by_text("expect_column_values_to_be_between")).to_be_visible()
    page.get_by_role("link", name="shop/orders").click()
    expect(page.get_by_text("values must be greater than or equal to 0").first).to_be_visible()
    assert page.evaluate(styled)
    assert page.evaluate(width) == 390
