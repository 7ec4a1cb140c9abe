"""What all tests share: one real broker, from the same code as the demo's; and which tests run when and where."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from statestore.cli.spark_jvm import SHORT, spark_jvm
from tests.session.broker import SharedBroker, running_broker, shared_broker
from tests.session.choosing import is_chosen
from tests.session.durations import Durations
from tests.session.examples import WHOLE
from tests.session.garbage import Garbage
from tests.session.memory import use_memory
from tests.session.scheduling import Order, Scheduling

# No deadline: the machine is shared, and a slow example is not a wrong one. The same examples in each run: what fails
# was changed. `make faults` draws more of them. `--hypothesis-profile=random` draws others, and twice as many again.
_COMMON = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
_DERANDOMIZE = "STATESTORE_PROPERTY_STEPS" not in os.environ
settings.register_profile("few", max_examples=WHOLE // 4, derandomize=_DERANDOMIZE, **_COMMON)
settings.register_profile("same", max_examples=WHOLE, derandomize=_DERANDOMIZE, **_COMMON)
settings.register_profile("random", max_examples=2 * WHOLE, **_COMMON)
settings.load_profile("few")

use_memory()
# No JVM of a run, brokers included, does much: compiling well and collecting in parallel cost more than they gain.
os.environ["JDK_JAVA_OPTIONS"] = f"{SHORT} {os.environ.get('JDK_JAVA_OPTIONS', '')}".strip()
os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_jvm())

_LONG = Path(__file__).parent / "faults" / "long"


def pytest_configure(config: pytest.Config) -> None:
    """Add what orders the tests, and in the process that prints the results what it needs besides."""
    if _runs_what_is_left_out(config) and config.getoption("hypothesis_profile", None) is None:
        settings.load_profile("same")
    config.pluginmanager.register(Garbage())
    config.pluginmanager.register(Order())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations())
        if config.option.dist != "no":
            config.pluginmanager.register(SharedBroker())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    """Keep together what shares something dear."""
    return Scheduling(config, log) if config.option.dist == "loadfile" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a whole directory of tests of which none is asked for: to collect them takes seconds."""
    return True if collection_path == _LONG and config.option.markexpr.startswith("not long") else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make faults` a whole directory of tests, what `short_for` does not name, and more examples."""
    cases: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        if item.path.is_relative_to(_LONG) or not _is_short(item, cases[test]) or _has_more_examples(item):
            item.add_marker(pytest.mark.long)
        cases[test] += 1


def _has_more_examples(item: pytest.Item) -> bool:
    return _runs_what_is_left_out(item.config) and is_hypothesis_test(getattr(item, "obj", None))


def _runs_what_is_left_out(config: pytest.Config) -> bool:
    return bool(config.option.markexpr.startswith("long"))


def _is_short(item: pytest.Item, case: int) -> bool:
    marker = item.get_closest_marker("short_for")
    return marker is None or is_chosen(item, marker, case)


@pytest.fixture(scope="session")
def bootstrap_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a broker that lives as long as the run; tests take names of their own for topics and groups."""
    if servers := shared_broker(request.config):
        yield servers
        return
    with running_broker(tmp_path_factory.mktemp("broker")) as servers:
        yield servers


@pytest.fixture(autouse=True)
def _environment_of_its_own() -> Iterator[None]:
    """Put the environment back that a test, or what it ran in this process (Airflow does), has changed."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)
