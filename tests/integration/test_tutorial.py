"""The tutorial runs as it is written, on a Kafka and a state directory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import in_bash, to_run
from tests.session.broker import running_broker


@pytest.mark.documents
@pytest.mark.long
def test_each_step_of_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with running_broker(tmp_path / "broker") as servers:
        settings = {
            "STATESTORE_BOOTSTRAP_SERVERS": servers,
            "STATESTORE_STATE_DIR": str(tmp_path / "state"),
            "STATESTORE_REPORTS_DIR": str(tmp_path / "reports"),
            "STATESTORE_DATA_DOCS_DIR": str(tmp_path / "data_docs"),
        }
        done = in_bash("\n".join(to_run("docs/tutorial.md", "bash")), tmp_path / "work", settings, 540)
    assert done.returncode == 0, done.stderr
    rows = [line.split("│")[1:-1] for line in done.stdout.splitlines() if line.startswith("│ shop/")]
    said = [[cell.strip() for cell in row] for row in rows]
    assert [row[1:3] for row in said if row[0] == "shop/totals/0_1" and len(row) == 4] == [["anna", "1560"]]
    assert sorted(row[1::3] for row in said if row[0].startswith("shop/by-city/") and len(row) == 6) == [
        ["Bonn", "3"],
        ["Oslo", "2"],
    ]
    statuses = [row[1] for row in said if row[0] == "shop/totals/0_0" and len(row) == 8]
    assert statuses == ["OK", "MISSING", "OK"]
    assert [row[1] for row in said if row[0] in {"shop/totals", "shop/by-city"}] == ["passed"] * 3
