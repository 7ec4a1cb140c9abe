"""Common settings of all DAGs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore.environments import Environment, active_environment, environments
from statestore_dags.alerts import deadline, on_failure

#: Values of Airflow's `DagRunType`, which it takes as text: runs that a person or another DAG starts.
BY_HAND: Any = ("manual", "operator_triggered")
BY_HAND_OR_TIME: Any = (*BY_HAND, "scheduled")


def in_each_environment(make: Callable[[Environment], None], *, without_definitions: bool = False) -> None:
    """Make the DAGs of a file in each environment, with its settings.

    Parameters
    ----------
    without_definitions
        Also where all applications are Kafka Streams applications without a definition.
    """
    for environment in environments():
        if not (environment.has_definitions or without_definitions):
            continue
        with environment.active():
            make(environment)


def every_dag(*, runs: int = 1) -> dict[str, Any]:
    """Return arguments of a DAG: runs at a time, steps say themselves what is retried, somebody is told."""
    return {
        "max_active_runs": runs,
        "default_args": {"retries": 0},
        "tags": ["state stores", *([name] if (name := active_environment().name) else [])],
        "on_failure_callback": on_failure(),
        "deadline": deadline(),
    }
