"""What the tests of the page share: its modules, as Airflow finds them, and a reports directory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ui.made_reports import Reports

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REPOSITORY = Path(__file__).resolve().parents[2]
# As Airflow does it with its folders.
sys.path += [str(REPOSITORY / "plugins"), str(REPOSITORY / "dags")]


@pytest.fixture
def reports(tmp_path: Path) -> Reports:
    (tmp_path / "reports").mkdir()
    return Reports(tmp_path / "reports")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    # Here: the other tests of this directory need neither Playwright nor a browser.
    from playwright.sync_api import sync_playwright

    from tests.ui.browser import launch

    with sync_playwright() as playwright:
        yield launch(playwright)
