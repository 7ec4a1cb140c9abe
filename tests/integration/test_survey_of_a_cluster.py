"""`statestore survey` on three brokers with applications of all kinds: it finds every planted risk, and no other."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from demo.processes import Processes
from statestore.advice import Situation
from statestore.cli import app
from tests.faults.brokers import joined_brokers
from tests.integration.planted_risks import Planted, Risk


@pytest.mark.timeout(1_800)
@pytest.mark.long
def test_every_planted_risk_is_found_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as stack:
        processes = stack.enter_context(Processes(tmp_path))
        servers, _ = stack.enter_context(joined_brokers(processes, tmp_path, 2))
        planted = Planted(servers, 3, stack)
        planted.intact()
        planted.with_settings()
        planted.with_logs_and_groups()
        page = tmp_path / "survey.html"
        arguments = ["survey", "--bootstrap-servers", servers, "--json", "-", "--html", str(page)]
        monkeypatch.setattr("sys.argv", ["statestore", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            app.main()
        report = json.loads(capfd.readouterr().out)
    found = [
        Risk(risk["application"], risk["subject"], Situation(risk["advice"]["situation"])) for risk in report["risks"]
    ]
    assert report["unread"] == []
    assert set(found) == planted.risks
    assert len(found) == len(planted.risks)
    assert len(planted.risks) >= 25
    assert len(planted.applications) >= 30
    assert ended.value.code == 1
    assert set(report["applications"]) == set(planted.applications) - {"orphan"}
    kinds = {each["name"]: each["kind"] for each in report["surveyed"]}
    assert kinds["_confluent-ksql-default_query_CTAS_T_5"] == "ksqlDB"
    assert (kinds["kv"], kinds["plain"]) == ("Kafka Streams", "unknown")
    assert next(each for each in report["surveyed"] if each["name"] == "static")["static_members"] == 1
    text = page.read_text(encoding="utf-8")
    assert all(risk["advice"]["situation"] in text for risk in report["risks"])
    assert "http" not in text.replace("https://", "http://").partition("<style>")[0]
