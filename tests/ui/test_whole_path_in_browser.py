"""The whole path as a person sees it: a store is damaged, turns red, is restored from the page, and is green again.

All parts are real: Kafka, Airflow with its scheduler, Spark jobs, and Chromium. The pictures that the documents show
are taken here: `make screenshots` keeps them in docs/screenshots.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Page, expect

from demo.airflow import USER, Airflow
from demo.damage import delete_directory, flip_bit
from demo.flights import produce_flights
from demo.installation import Installation
from demo.kafka import Kafka
from demo.processes import Processes
from demo.registering import register
from statestore.model import TaskId
from statestore.statedir.paths import TaskPaths
from tests.integration.broker import set_quota, set_topic_config
from tests.ui.browser import Person

pytestmark = [pytest.mark.browser, pytest.mark.timeout(1_800)]

FLIGHTS = 40_000
CHANGELOG = "flight-delays-aircraft-changelog"
#: So large are the batches of a changelog, and what the broker gives in one answer; and so slowly a restore reads while
#: a person watches it: in many steps, each of a second or two.
_BATCH_BYTES, _SLOW_BYTES_PER_S = 4_096, 1_000
_RUN_S = 600
_DAGS = ["metastore", "process", "verify", "restore", "validate"]


class Place:
    """An installation with the flights of the demo, its Airflow, and a client of its API."""

    def __init__(self, processes: Processes, root: Path) -> None:
        self.installation = Installation(root)
        self.installation.create()
        settings = {"fetch.max.bytes": str(_BATCH_BYTES)}
        self.servers = Kafka(processes, self.installation.kafka_dir, settings=settings).start()
        produce_flights(self.servers, root / "flights.json", limit=FLIGHTS)
        register(processes, self.installation, self.servers)
        set_topic_config(self.servers, CHANGELOG, **{"max.message.bytes": str(_BATCH_BYTES)})
        self.airflow = Airflow(processes, self.installation, self.servers, schedules=False)
        self.client = self.airflow.start()
        self.client.wait_for_dags(_DAGS, 240)

    @property
    def token(self) -> str:
        login = {"username": USER, "password": self.airflow.password}
        return requests.post(f"{self.airflow.url}/auth/token", json=login, timeout=60).json()["access_token"]

    def api(self, method: str, path: str, **options):
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = requests.request(method, f"{self.airflow.url}/api/v2/{path}", headers=headers, timeout=60, **options)
        answer.raise_for_status()
        return answer

    def pause(self, dag_id: str, paused: bool) -> None:
        self.api("PATCH", f"dags/{dag_id}", params={"update_mask": "is_paused"}, json={"is_paused": paused})

    def run(self, dag_id: str, conf: dict | None = None):
        self.client.unpause(dag_id)
        return self.client.wait_for_run(dag_id, self.client.trigger(dag_id, conf).run_id, _RUN_S)

    def end(self, dag_id: str, run_id: str) -> str:
        return self.client.wait_for_run(dag_id, run_id, _RUN_S).state

    def damage(self) -> None:
        tasks = [TaskPaths(self.installation.state_dir, "flight-delays", TaskId(0, number)) for number in range(2)]
        delete_directory(tasks[0].store("aircraft"))
        flip_bit(tasks[1].store("aircraft"))


@pytest.fixture
def place():
    # Not pytest's own directory: the paths of an installation have to be short.
    with tempfile.TemporaryDirectory(prefix="stores-") as root, Processes(Path(root)) as processes:
        yield Place(processes, Path(root) / "installation")


def number(text: str) -> int:
    return int(text.replace(",", ""))


#: Writes another directory wherever the page names one.
_RENAME = """([from, to]) => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text; (text = texts.nextNode()); ) text.data = text.data.replaceAll(from, to);
}"""


class Pictures:
    """Takes pictures of pages, in the light and in the dark.

    Parameters
    ----------
    root
        The installation's directory, of this run alone: pictures show another one in its place.
    """

    def __init__(self, directory: Path, root: Path) -> None:
        self._directory, self._root = directory, root
        directory.mkdir(parents=True, exist_ok=True)

    def take(self, page: Page, name: str, *, dark: bool = False) -> None:
        page.evaluate(_RENAME, [str(self._root), "/var/lib/statestore"])
        assert str(self._root.parent) not in page.inner_text("body")
        page.screenshot(path=self._directory / f"{name}.png", animations="disabled")
        if dark:
            page.emulate_media(color_scheme="dark")
            expect(page.locator("html.dark")).to_have_count(1)
            page.screenshot(path=self._directory / f"{name}-dark.png", animations="disabled")
            page.emulate_media(color_scheme="light")
            expect(page.locator("html.dark")).to_have_count(0)


def row(page: Page, name: str):
    return page.locator(f"tr[data-partition='flight-delays/{name}']")


def offsets(page: Page, but: str = "0") -> str:
    """Wait until the page says another number of offsets that the restore has read, and return it."""
    said = page.locator(".ss-work .ss-offsets")
    expect(said).to_have_text(re.compile(rf"^(?!{but} of)[0-9,]+ of [0-9,]+ offsets$"), timeout=_RUN_S * 1_000)
    return said.inner_text().split()[0]


def test_a_damaged_store_turns_red_and_is_restored_from_the_page(place, browser, tmp_path):
    directory = Path(os.environ.get("STATESTORE_SCREENSHOTS") or tmp_path / "pictures")
    pictures = Pictures(directory, place.installation.root)
    place.run("process")
    place.run("verify")
    person = Person(browser, place.airflow.url, place.token)
    page = person.open()
    expect(row(page, "aircraft/0_0")).to_contain_text("OK")
    expect(page.get_by_role("button", name=re.compile("needs? work"))).to_have_count(0)

    # Verify starts restore by itself; a paused one waits, so that the person decides.
    place.pause("restore", True)
    place.damage()
    assert place.run("verify").state == "failed"
    expect(row(page, "aircraft/0_0")).to_contain_text("MISSING")
    expect(row(page, "aircraft/0_1")).to_contain_text("CORRUPT")
    expect(row(page, "aircraft/0_2")).to_contain_text("OK")
    red = row(page, "aircraft/0_1").locator(".ss-badge")
    assert "ss-bad" in red.get_attribute("class")
    row(page, "aircraft/0_1").locator(".ss-name").click()
    expect(page.locator(".ss-panel svg rect")).to_have_count(1)
    pictures.take(page, "damaged", dark=True)
    for waiting in place.client.runs("restore"):
        place.api("DELETE", f"dags/restore/dagRuns/{waiting.run_id}")
    place.pause("restore", False)

    page.get_by_role("button", name="Restore flight-delays", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Application", exact=True)).to_have_value("flight-delays")
    dialog.get_by_label("Stores", exact=True).fill("aircraft")
    dialog.get_by_label("Partitions", exact=True).fill("0, 1")
    pictures.take(page, "restore-form")
    set_quota(place.servers, "consumer_byte_rate", _SLOW_BYTES_PER_S)
    dialog.get_by_role("button", name="Start the restore").click()
    run_id = dialog.get_by_role("link", name="Run manual__").inner_text().removeprefix("Run ")
    dialog.get_by_role("button", name="Close").click()

    before = offsets(page)
    expect(page.locator("tr[data-partition]", has_text="RESTORING").first).to_be_visible()
    after = offsets(page, but=before)
    assert number(after) > number(before)
    pictures.take(page, "restoring", dark=True)
    set_quota(place.servers, "consumer_byte_rate", None)

    assert place.end("restore", run_id) == "success"
    assert place.end("validate", f"restore__{run_id}") == "success"
    for name in ("aircraft/0_0", "aircraft/0_1"):
        expect(row(page, name)).to_contain_text("RESTORED")
        expect(row(page, name)).to_contain_text("passed")
    assert place.run("verify").state == "success"
    expect(row(page, "aircraft/0_1")).to_contain_text("OK")
    expect(row(page, "aircraft/0_1").locator(".ss-badge.ss-good")).to_have_count(1)
    expect(page.get_by_role("region", name="In progress")).to_have_count(0)
    pictures.take(page, "whole-again", dark=True)

    with person.page.context.expect_page() as opened:
        row(page, "aircraft/0_1").get_by_role("link", name="passed").click()
    docs = opened.value
    expect(docs.get_by_text("flight-delays.aircraft").first).to_be_visible()
    ours = "[...document.styleSheets].some(sheet => sheet.href?.endsWith('/statestore/ui/data-docs.css'))"
    assert docs.evaluate(ours)
    pictures.take(docs, "data-docs")
    docs.get_by_role("link", name="Home").click()
    expect(docs.get_by_role("link", name="flight-delays/aircraft")).to_be_visible()
    docs.close()

    page.goto(place.airflow.url)
    expect(page.get_by_role("region", name="State stores")).to_contain_text("healthy")
    pictures.take(page, "dashboard", dark=True)
    assert person.errors == []
    person.close()
