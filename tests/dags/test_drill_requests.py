"""Requests of the DAG `drill`: its form, and the applications that its schedule covers."""

from __future__ import annotations

from typing import Any

import pytest
from statestore_dags.arguments import drill_requests

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.objectives import RestoreObjectives
from statestore.errors import InputError


def defined(**objectives: Any) -> dict[str, ApplicationDefinition]:
    return {
        name: ApplicationDefinition.model_validate(
            {
                "name": name,
                "input_topic": "orders",
                "processor": "m:f",
                "stores": [{"name": "totals"}],
                "objectives": objectives.get(name),
            }
        )
        for name in ("bakery", "shop")
    }


def test_the_schedule_covers_applications_with_objectives() -> None:
    applications = defined(shop=RestoreObjectives(proven_every=1))
    assert list(drill_requests({}, applications, by_time=True)) == ["shop"]
    assert list(drill_requests({}, applications, by_time=False)) == ["shop"]
    assert drill_requests({}, defined(), by_time=True) == {}
    assert list(drill_requests({}, defined(), by_time=False)) == ["bakery", "shop"]


def test_a_form_names_what_exists() -> None:
    (request,) = drill_requests(
        {"application": "shop", "stores": ["totals"], "limit": 2, "mode": "full"}, defined(), by_time=False
    ).values()
    assert (request.applications, request.stores, request.limit, request.mode) == (("shop",), ("totals",), 2, "full")
    with pytest.raises(InputError, match="no store"):
        drill_requests({"application": "shop", "stores": ["other"]}, defined(), by_time=False)
    with pytest.raises(InputError, match="choose the one"):
        drill_requests({"stores": ["totals"]}, defined(), by_time=False)
