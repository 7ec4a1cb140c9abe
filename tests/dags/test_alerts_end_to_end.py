"""Alerts of a whole Airflow: its scheduler finds a run late, its DAG processor a run failed, and a notifier is told."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from demo.airflow import Airflow
from demo.airflow_client import AirflowClient
from demo.installation import Installation
from demo.processes import Processes, wait_until
from tests.integration.broker import NO_BROKER

#: Of one run; Airflow's own processes take most of it.
_TOLD_S = 240
_NOTIFIER = """\
from airflow.sdk.bases.notifier import BaseNotifier

class FileNotifier(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, path, text, **arguments):
        super().__init__(**arguments)
        self.path, self.text = path, text

    def notify(self, context):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(self.text + "\\n")
"""


class AlertingAirflow(Airflow):
    """An Airflow whose Kafka is away, and that tells a file of runs that fail or are late."""

    def __init__(self, processes: Processes, installation: Installation) -> None:
        super().__init__(processes, installation, NO_BROKER, schedules=False)
        self._directory = installation.root
        self.told = installation.root / "told"

    def environment(self, port: int, keys: dict[str, str]) -> dict[str, str]:
        """Add the alerts."""
        (self._directory / "notifying.py").write_text(_NOTIFIER)
        arguments = {"path": str(self.told), "text": "{{ statestore }}"}
        environment = super().environment(port, keys)
        return environment | {
            "PYTHONPATH": f"{self._directory}:{environment.get('PYTHONPATH', '')}",
            "STATESTORE_ALERT_NOTIFIER": "notifying.FileNotifier",
            "STATESTORE_ALERT_ARGUMENTS": json.dumps(arguments),
            "STATESTORE_DEADLINE_MINUTES": "0.05",
            "STATESTORE_KAFKA_TIMEOUT_S": "3600",  # runs go on for as long as the tests do
        }

    def told_of(self, beginning: str) -> list[str]:
        """Lines with this beginning that the notifier was told."""
        self.check()
        lines = self.told.read_text(encoding="utf-8").splitlines() if self.told.exists() else []
        return [line for line in lines if line.startswith(beginning)]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AlertingAirflow, AirflowClient]]:
    installation = Installation(tmp_path_factory.mktemp("alerting"))
    with Processes(installation.root) as processes:
        airflow = AlertingAirflow(processes, installation)
        client = airflow.start()
        client.wait_for_dags(["metastore", "process"], _TOLD_S)
        yield airflow, client


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_run_that_has_not_ended_by_its_deadline_is_told_once_while_it_goes_on(airflow) -> None:
    airflow, client = airflow
    late = "run {} of DAG process is late: it has not ended by "
    client.unpause("process")
    client.trigger("process", run_id="first")
    wait_until(lambda: airflow.told_of(late.format("first")), _TOLD_S, "a late run to be told")
    run = client.run("process", "first")
    assert run is not None
    assert not run.ended
    # The next run is told after it: by then, the first would have been told twice.
    client.trigger("process", run_id="next")
    wait_until(lambda: airflow.told_of(late.format("next")), _TOLD_S, "the next late run to be told")
    assert len(airflow.told_of(late.format("first"))) == 1


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_run_that_has_failed_is_told_with_its_reason(airflow) -> None:
    airflow, client = airflow
    client.trigger("metastore", {"definitions": "- 3"}, "failing")
    client.wait_for_run("metastore", "failing", _TOLD_S)
    failed = "run failing of DAG metastore failed before it had a report; the log of its first red step says why"
    wait_until(lambda: airflow.told_of(failed), _TOLD_S, "the failed run to be told")
