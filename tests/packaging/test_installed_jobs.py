"""The command with jobs and suites of the installed wheel: Spark's workers and the validation find what they need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.broker import create_topic, produce, unique
from tests.packaging.environments import Installed


@pytest.mark.long
def test_the_command_processes_and_validates(complete: Installed, bootstrap_servers: str, tmp_path: Path) -> None:
    name = unique("app")
    topic = create_topic(bootstrap_servers, f"{name}-in", 1)
    produce(bootstrap_servers, topic, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    definition = tmp_path / "app.yaml"
    text = f"name: {name}\ninput_topic: {topic}\naggregations:\n  - store: totals\n    aggregate: count\n"
    definition.write_text(f"{text}stores:\n  - name: totals\n    expectations: key_value\n")
    settings = {
        "STATESTORE_BOOTSTRAP_SERVERS": bootstrap_servers,
        "STATESTORE_SERVICE_ID": unique("service"),
        "STATESTORE_STATE_DIR": str(tmp_path / "state"),
        "STATESTORE_REPORTS_DIR": str(tmp_path / "reports"),
    }
    for command in (["apply", str(definition), "--yes"], ["process"], ["validate", "--application", name]):
        done = complete.run("statestore", *command, "--json", "-", **settings)
        assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["application"], row["store"], row["verdict"]) == (name, "totals", "passed")
