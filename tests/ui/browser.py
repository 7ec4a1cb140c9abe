"""Chromium for the tests of the page: which one, and how a test gets in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW_TO_GET_IT = (
    "Chromium is needed and was not found. Install it (Debian and Ubuntu: apt-get install chromium), or let Playwright "
    "fetch one for this user alone (.venv/bin/playwright install chromium), or name one with STATESTORE_CHROMIUM=/path."
)
#: How long to wait for what is to come; a machine that is busy takes seconds for a page of Airflow's.
WAIT_MS = 90_000
expect.set_options(timeout=WAIT_MS)


def find_chromium(playwright: Playwright) -> str:
    """Path of the browser. Without one the whole run fails, at once: a skipped proof proves nothing."""
    if named := os.environ.get("STATESTORE_CHROMIUM"):
        if not Path(named).is_file():
            pytest.exit(f"STATESTORE_CHROMIUM names {named}, which is not there. {HOW_TO_GET_IT}", 1)
        return named
    for found in (*map(shutil.which, NAMES), playwright.chromium.executable_path):
        if found and Path(found).is_file():
            return found
    pytest.exit(HOW_TO_GET_IT, 1)


def launch(playwright: Playwright) -> Browser:
    # Root, as whom containers run, gets no sandbox; only our own pages are opened.
    return playwright.chromium.launch(executable_path=find_chromium(playwright), args=["--no-sandbox"])


class Person:
    """Somebody who is logged in and looks at Airflow."""

    def __init__(self, browser: Browser, url: str, token: str, scheme: str = "light", width: int = 1440) -> None:
        self.url = url
        self._context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 900}, locale="en-GB", timezone_id="UTC"
        )
        self._context.set_default_timeout(WAIT_MS)
        self._context.add_cookies([{"name": "_token", "value": token, "url": url}])
        self.page: Page = self._context.new_page()
        #: What went wrong in the page, in its own words.
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def open(self, path: str = "/plugin/state-stores") -> Page:
        self.page.goto(f"{self.url}{path}")
        return self.page

    def close(self) -> None:
        self._context.close()
