"""The index of Data Docs that the plugin makes, from the verdicts that validations leave."""

from __future__ import annotations

import json
import os

import pytest
from statestore_ui.data_docs import index


@pytest.fixture
def validated(tmp_path):
    """Leave a verdict as a validation does, so many seconds after the first."""

    def leave(run, after_s=0, store="orders", **more):
        page = tmp_path / "validations" / f"{run} 1.html"
        told = {"application": "shop", "store": store, "verdict": "passed", "expectations": 9, "data_docs": str(page)}
        path = tmp_path / "verdicts" / f"shop.{store}" / f"{run}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**told, **more}))
        os.utime(path, (1_000_000 + after_s,) * 2)
        return path

    return leave


def test_before_the_first_validation_there_is_none(tmp_path):
    assert index(tmp_path) is None


def test_the_newest_stand_first_with_their_verdict_and_a_link_to_their_page(tmp_path, validated):
    validated("old")
    validated("new", 60, verdict="failed", failed_expectations=["expect_x"])
    page = index(tmp_path)
    assert page.index("new") < page.index("old")
    assert "<a href='validations/new%201.html'>shop/orders</a>" in page
    assert "9, failed: expect_x" in page
    assert "1970-01-12 13:47 UTC" in page


def test_plots_are_those_of_the_last_validation_of_their_store(tmp_path, validated):
    validated("old")
    validated("new", 60)
    (tmp_path / "plots" / "shop.orders").mkdir(parents=True)
    (tmp_path / "plots" / "shop.orders" / "lag.svg").touch()
    assert index(tmp_path).count("<a href='plots/shop.orders/lag.svg'>lag</a>") == 1


def test_what_verdicts_say_is_text_and_they_lead_nowhere_else(tmp_path, validated):
    evil = "<script>'\"&"
    validated("run", store="x", verdict=evil, failed_expectations=[evil], data_docs="/etc/passwd")
    validated("torn").write_text('{"application":')
    page = index(tmp_path)
    assert "<script" not in page
    assert "passwd" not in page
    assert "cannot be read" in page
