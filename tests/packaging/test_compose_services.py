"""docker-compose.yml comes up: each service with its own command, environment and volumes, in the order of the file."""

from __future__ import annotations

import os
import re
import secrets
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
import requests

from demo.airflow_client import AirflowClient
from demo.flights import INPUT_TOPIC, produce_flights
from statestore.statedir.lock import locked_file
from tests.kubernetes.manifests import ROOT
from tests.otlp import receiving
from tests.packaging.composed import composition

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2_400),
    pytest.mark.skipif(os.geteuid() != 0, reason="volumes are mounted"),
]
APPLICATION = "flight-delays"
_RUN_S = 900


def filled_in(metrics_to: str) -> dict[str, str]:
    """Return `.env`, as a user fills in the example; nothing runs by time."""
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    said = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    said |= {name: secrets.token_urlsafe(24) for name, value in said.items() if re.search("PASSWORD|SECRET", name)}
    said["AIRFLOW_FERNET_KEY"] = urlsafe_b64encode(secrets.token_bytes(32)).decode()
    said |= {name: "" for name in said if name.endswith("_SCHEDULE")}
    return {**said, "OTEL_EXPORTER_OTLP_ENDPOINT": metrics_to, "OTEL_SERVICE_NAME": "stores of compose"}


def test_a_system_that_compose_describes_processes_and_verifies_and_shows_it(tmp_path: Path) -> None:
    with receiving() as collector, composition(tmp_path, variables := filled_in(collector.url)) as system:
        system.up("kafka")
        refused = system.run("definitions")
        assert refused.wait(_RUN_S) == 2, system.log(refused)
        assert INPUT_TOPIC in system.log(refused)
        produce_flights(f"{system.address['kafka']}:29092", tmp_path / "flights.json", limit=2_000)
        for name in system.services:
            if name != "postgres":
                system.up(name)

        url = f"http://{system.address['airflow-apiserver']}:8080"
        password = variables["AIRFLOW_ADMIN_PASSWORD"]
        client = AirflowClient(url, "admin", password, lambda: None)
        client.wait_for_dags(["process", "verify", "restore"], _RUN_S)
        for dag_id in ("process", "verify"):
            client.unpause(dag_id)
            run = client.wait_for_run(dag_id, client.trigger(dag_id, {"application": APPLICATION}).run_id, _RUN_S)
            assert run.state == "success", client.explain(run)
        assert (system.volume("state") / APPLICATION / "0_0").is_dir()

        login = {"username": "admin", "password": password}
        token = requests.post(f"{url}/auth/token", json=login, timeout=60).json()["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        seen = requests.get(f"{url}/statestore/api/overview", headers=headers, timeout=60).json()
        (application,) = seen["applications"]
        assert (application["application"], application["levels"]) == (APPLICATION, {"good": application["partitions"]})
        assert seen["problems"] == []
        assert {resource["service.name"] for resource in collector.resources} == {"stores of compose"}

        # Whoever applies sees whether the application runs.
        smaller = tmp_path / "smaller"
        smaller.mkdir()
        (file,) = (ROOT / "demo" / "definitions").glob("*.yaml")
        text = file.read_text(encoding="utf-8")
        cut = re.sub(r"  - store: departures\n(    .*\n)+|  - name: departures\n(    .*\n)+", "", text)
        (smaller / file.name).write_text(cut, encoding="utf-8")
        with locked_file(system.volume("state") / APPLICATION / ".lock", 10):
            refused = system.run("definitions", applications=smaller)
            assert refused.wait(_RUN_S) == 3, system.log(refused)
        assert "is in use" in system.log(refused)
