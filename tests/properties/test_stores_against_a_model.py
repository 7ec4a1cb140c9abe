"""Every composition of a store, driven at random, behaves as a plain dict with commit, rollback, crash and expiry.

3,600 steps of some compositions, and with `make faults` 20,000 of all, the same ones in each run.
`STATESTORE_PROPERTY_STEPS=1000000 pytest --timeout=0 tests/properties` drives longer, and differently each time.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from key_value_machine import KeyValueMachine
from session_machine import SessionMachine
from store_machine import EXECUTED, HAPPENED, StoreMachine
from window_machine import WindowMachine

from tests.compositions import ALL, SHORT, Composition

_SOAKING = "STATESTORE_PROPERTY_STEPS" in os.environ
#: Driven with `make test`, or as many as the environment wants.
_STEPS = int(os.environ.get("STATESTORE_PROPERTY_STEPS", "3600"))
_DRIVEN = [one for one in ALL if _SOAKING or one in SHORT]
_STEPS_OF_AN_EXAMPLE = 50
#: Some examples end early, when Hypothesis runs out of its choices for one.
_SPARE = 1.15
_MACHINES: dict[str, type[StoreMachine]] = {
    "key-value": KeyValueMachine,
    "window": WindowMachine,
    "session": SessionMachine,
}
_REACHED = {
    "key-value": {"migration", "iterator finished later", "spilled commit", "clean reopening", "crash"}
    | {"crash within a commit", "rebuilding", "task directory removed"},
}
_REACHED["window"] = _REACHED["session"] = _REACHED["key-value"] | {"segments dropped", "expired on write"}


def _shares() -> list[Any]:
    """Return compositions, each with how many steps it is driven."""
    return [
        *(pytest.param(one, _STEPS / len(_DRIVEN), id=str(one)) for one in _DRIVEN),
        *(pytest.param(one, 20_000 / len(ALL), id=f"{one}-20000", marks=pytest.mark.long) for one in ALL),
    ]


@pytest.mark.parametrize(("composition", "steps"), _shares())
def test_a_store_behaves_as_its_model(composition: Composition, steps: float) -> None:
    machine = type("Machine", (_MACHINES[composition.kind],), {"composition": composition})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=round(steps * _SPARE / _STEPS_OF_AN_EXAMPLE),
            stateful_step_count=_STEPS_OF_AN_EXAMPLE,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.counts_steps
def test_so_many_steps_were_driven_and_everything_happened_in_them() -> None:
    if len(EXECUTED) < len(_DRIVEN):
        pytest.skip("only some compositions were driven")
    assert EXECUTED.total() >= _STEPS
    for kind, events in _REACHED.items():
        assert events <= {what for of_kind, what in HAPPENED if of_kind == kind}
