"""Environments that a user may see: the user may read at least one DAG of each.

Without named environments, a user who may read DAGs sees all applications.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from fastapi import Depends

from statestore.environments import DAGS, Environment, environment_of, environments
from statestore_ui.application_summaries import sent
from statestore_ui.report_rows import Head


class Rights(NamedTuple):
    """Environments that are hidden from a user.

    Attributes
    ----------
    hidden
        Names of environments; the environment without a name is the empty one.
    """

    hidden: frozenset[str] = frozenset()

    def shows(self, application: str) -> bool:
        """Return whether the user may see an application."""
        return not self.hidden or environment_of(application).name not in self.hidden

    def shows_environment(self, name: str) -> bool:
        """Return whether the user may see an environment."""
        return name not in self.hidden

    def hides(self, applications: Iterable[str]) -> frozenset[str]:
        """Return those applications that the user may not see."""
        return frozenset(name for name in set(applications) if not self.shows(name))

    def overview(self, summary: bytes, findings: Sequence[Mapping[str, Any]]) -> bytes:
        """Return an overview without the applications that the user may not see.

        Parameters
        ----------
        findings
            All findings, of which the summary has the first ones.
        """
        if not self.hidden:
            return summary
        told = json.loads(summary)
        hidden = self.hides(each["application"] for each in told["applications"])
        told["applications"] = [each for each in told["applications"] if each["application"] not in hidden]
        told |= sent([each for each in findings if each["application"] not in hidden])
        told["surveys"] = [each for each in told["surveys"] if each["environment"] not in self.hidden]
        dags = told["dags"]
        dags["environments"] = {
            name: environment for name, environment in dags["environments"].items() if environment not in self.hidden
        }
        return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()

    def progress(self, told: dict[str, Any]) -> dict[str, Any]:
        """Return running work without that of applications that may not be seen."""
        if not self.hidden:
            return told
        work = [each for each in told["work"] if not self.hides(each["applications"])]
        return {**told, "work": work}

    def shows_report(self, head: Head) -> bool:
        """Return whether all applications of a report may be seen."""
        return not self.hides(head.applications)

    def shows_path(self, parts: Iterable[str]) -> bool:
        """Return whether a path of the Data Docs is of an application that may be seen.

        Directories of a store are named `<application>.<store>`. Other paths are of applications without an
        environment.
        """
        known = [(name, each.name) for each in environments() for name in (*each.applications, *each.kafka_streams)]
        owners = {environment for part in parts for name, environment in known if f"{part}.".startswith(f"{name}.")}
        return not (owners or {""}) & self.hidden


def _rights_of(user: GetUserDep) -> Rights:
    named = environments()
    if len(named) == 1:
        return Rights()
    return Rights(frozenset(each.name for each in named if not _may_read(each, user)))


def _may_read(environment: Environment, user: Any) -> bool:
    dags = [environment.dag_id(dag) for dag in DAGS]
    teams = DagModel.get_dag_id_to_team_name_mapping(dags)
    manager = get_auth_manager()
    return any(
        manager.is_authorized_dag(method="GET", details=DagDetails(id=dag, team_name=teams.get(dag)), user=user)
        for dag in dags
    )


UserRights = Annotated[Rights, Depends(_rights_of)]
