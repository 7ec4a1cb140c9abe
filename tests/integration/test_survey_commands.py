"""The commands of Kafka's tools that the survey prints about settings remove the risks when they are run as printed."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from demo.kafka_jars import fetch_jars, find_java
from demo.processes import Processes
from statestore.kafka.cluster import Cluster
from statestore.reports import SurveyRisk
from statestore.survey.survey import SurveyRequest, survey
from tests.faults.brokers import joined_brokers
from tests.integration.broker import WAIT_S, wait_for
from tests.integration.planted_risks import Planted

TOOL = "kafka-configs.sh"


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_commands_that_change_settings_remove_the_risks(tmp_path: Path) -> None:
    with ExitStack() as stack:
        processes = stack.enter_context(Processes(tmp_path))
        servers, _ = stack.enter_context(joined_brokers(processes, tmp_path, 2))
        planted = Planted(servers, 3, stack)
        planted.with_settings()
        java = find_java()
        tool = tmp_path / TOOL
        jars = fetch_jars(processes, java, tmp_path / "ivy.log")
        tool.write_text(f'#!/bin/sh\nexec {java} -cp "{jars}/*" kafka.admin.ConfigCommand "$@"\n')
        tool.chmod(0o755)

        def about_settings() -> dict[tuple[str, str], SurveyRisk]:
            found = survey(SurveyRequest(Cluster(servers, WAIT_S))).risks
            return {
                (risk.subject, risk.advice.situation): risk
                for risk in found
                if risk.advice.command is not None and risk.advice.command.startswith(TOOL)
            }

        before = about_settings()
        assert len({situation for _, situation in before}) >= 9
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        for risk in before.values():
            command = ["bash", "-ec", str(risk.advice.command)]
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)
            assert ran.returncode == 0, (risk, ran)
        wait_for(lambda: not about_settings(), "the brokers to apply the settings")
