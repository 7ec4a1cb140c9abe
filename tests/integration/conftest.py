"""What several of these files begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from statestore.definitions.store import StoreDefinition
from statestore.metastore import command_log
from tests.engines import SHORT, with_each_engine
from tests.faults.own_broker import OwnBroker, own_broker_in
from tests.integration.archived import Archived
from tests.integration.broker import Row
from tests.integration.catalogued import CatalogueCommand
from tests.integration.commands import Service, put
from tests.integration.log_reading import WAYS, choose
from tests.integration.support import STORE, Application

INPUT: list[Row] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"b", None)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run files that ask for it with each engine."""
    with_each_engine(metafunc)


@pytest.fixture
def application(request: pytest.FixtureRequest, bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application whose topics are empty."""
    store = StoreDefinition(name=STORE, engine=getattr(request, "param", SHORT))
    return Application(bootstrap_servers, tmp_path, stores=(store,))


@pytest.fixture
def whole(application: Application) -> Application:
    """An application that has processed `INPUT`."""
    application.process(INPUT)
    return application


@pytest.fixture
def service(bootstrap_servers: str, tmp_path: Path) -> Service:
    """A service without a command."""
    return Service(bootstrap_servers, tmp_path)


@pytest.fixture
def two_applications(service: Service) -> None:
    """The service has the applications flights and weather."""
    service.submit(put("flights"), put("weather"))


@pytest.fixture
def command(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> CatalogueCommand:
    """The command, for a service of its own."""
    return CatalogueCommand(monkeypatch, capfd, bootstrap_servers, tmp_path)


@pytest.fixture
def believed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage of a command topic is looked at for less long before it is believed."""
    monkeypatch.setattr(command_log, "_BELIEVED_AFTER_S", 0.1)


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnBroker]:
    """A broker that the tests of a file may pause and kill."""
    with own_broker_in(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way of the log reader."""
    choose(request.param, monkeypatch)
    return str(request.param)


@pytest.fixture
def archived(bootstrap_servers: str, tmp_path: Path) -> Archived:
    """An application whose snapshots are in a directory."""
    return Archived(bootstrap_servers, tmp_path)
