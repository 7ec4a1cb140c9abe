"""Each feature works with the rights of docs/operations.md; without any one of them, the error names it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from demo.processes import Processes
from statestore.kafka.rights import Right
from statestore.metastore.command_topic import topic_name
from statestore.model import TaskId, input_offsets_topic, transactional_id
from tests.integration.archived import Archived
from tests.integration.broker import delete_topic
from tests.integration.command_line import Command, Ran, settings_of
from tests.integration.restricted_user import RestrictedUser, table
from tests.integration.secured_broker import configured
from tests.integration.support import STORE, register

pytestmark = pytest.mark.documents

ROWS = [(b"a", b"1"), (b"a", b"2"), (b"b", b"1")]
TABLE = table()
#: Operations that include DESCRIBE.
STRONG = {"READ", "WRITE", "DELETE"}


class Shop:
    """An application that has processed some input, and the command, as its unrestricted owner and as the user."""

    def __init__(
        self,
        user: RestrictedUser,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        directory.mkdir()
        self._user, self._directory = user, directory
        servers = user.secured.plain_servers
        self.app = Archived(servers, directory)
        settings = {**settings_of(servers, directory), "ARCHIVE": f"file://{directory}/archive"}
        self.owner = Command(monkeypatch, capfd, {**settings, "KAFKA_TIMEOUT_S": "20"})
        self.service_id = settings["SERVICE_ID"]
        self.definitions = directory / "definitions.yaml"
        self.app.process(ROWS)

    def register(self) -> None:
        """Put the application into the catalogue."""
        register(self.app.servers, self.app.definition, service_id=self.service_id)

    def lose(self) -> None:
        """Delete the store."""
        self.register()
        shutil.rmtree(self.app.store_spec().live)

    def fall_behind(self) -> None:
        """Leave a changelog to replay, and input to process."""
        self.lose()
        self.app.send([(b"c", b"1")])

    def publish(self) -> None:
        """Publish a snapshot, and delete the store."""
        self.register()
        assert self.owner(*self.of_it("snapshot", "create")).code == 0
        shutil.rmtree(self.app.store_spec().live)

    def define(self) -> None:
        """Leave a definition whose internal topics do not exist."""
        for topic in (self.app.changelog, input_offsets_topic(self.app.name)):
            delete_topic(self.app.servers, topic)
        self.definitions.write_text(self.app.definition.model_dump_json())

    def nothing(self) -> None:
        """Leave the application without a definition."""

    def of_it(self, *arguments: str) -> tuple[str, ...]:
        """Return a command about the application."""
        return *arguments, "--application", self.app.name, "--parallel", "1", "--json", "-"

    def right(self, operation: str, resource: str) -> Right:
        """Return the right to a resource of the table."""
        kind, name = {
            "input": ("topic", self.app.input),
            "output": ("topic", self.app.output),
            "changelogs": ("topic", self.app.changelog),
            "input offsets": ("topic", input_offsets_topic(self.app.name)),
            "command topic": ("topic", topic_name(self.service_id)),
            "group": ("group", self.app.name),
            "catalogue's transactional id": ("transactional id", f"statestore-metastore-{self.service_id}"),
            "transactional ids": ("transactional id", transactional_id(self.app.name, TaskId(0, 0))),
        }[resource]
        return Right(operation, kind, name)

    def run(self, feature: str, rights: Collection[tuple[str, str]]) -> Ran:
        """Run a feature as the user with these rights."""
        prepare, arguments = FEATURES[feature]
        prepare(self)
        self._user.grant([self.right(*right) for right in rights])
        with configured(self._directory / "client.json", self._user.secured.configuration()) as servers:
            return self.owner(*arguments(self), BOOTSTRAP_SERVERS=servers)


class Feature(NamedTuple):
    """The preparation of a feature, and its command."""

    prepare: Callable[[Shop], object]
    arguments: Callable[[Shop], tuple[str, ...]]


def _on_stores(prepare: Callable[[Shop], object], *arguments: str) -> Feature:
    return Feature(prepare, lambda shop: shop.of_it(*arguments))


FEATURES = {
    "process": _on_stores(Shop.fall_behind, "process"),
    "verify": _on_stores(Shop.register, "verify"),
    "verify --depth deep": _on_stores(Shop.register, "verify", "--depth", "deep"),
    "verify --live --depth deep": _on_stores(Shop.register, "verify", "--live", "--depth", "deep"),
    "verify without a definition": _on_stores(Shop.nothing, "verify"),
    "verify --depth deep without a definition": _on_stores(Shop.nothing, "verify", "--depth", "deep"),
    "restore --mode full": _on_stores(Shop.lose, "restore", "--mode", "full"),
    "restore --mode snapshot": _on_stores(Shop.publish, "restore", "--mode", "snapshot"),
    "snapshot create": _on_stores(Shop.register, "snapshot", "create"),
    "drill": _on_stores(Shop.register, "drill"),
    "drift": Feature(Shop.register, lambda _: ("drift", "--json", "-")),
    "read": Feature(Shop.register, lambda shop: ("read", STORE, "--application", shop.app.name, "--json", "-")),
    "apply, for a new application and a new catalogue": Feature(
        Shop.define, lambda shop: ("apply", str(shop.definitions), "--yes", "--json", "-")
    ),
    "list": Feature(Shop.register, lambda _: ("list", "--json", "-")),
}


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestrictedUser]:
    directory = tmp_path_factory.mktemp("restricted")
    with Processes(directory) as processes:
        yield RestrictedUser(processes, directory)


def test_the_table_has_the_features() -> None:
    assert TABLE.keys() == FEATURES.keys()


@pytest.mark.timeout(900)
@pytest.mark.short_for("list")
@pytest.mark.parametrize("feature", TABLE)
def test_the_least_rights_suffice_and_a_missing_one_is_named(
    feature: str,
    user: RestrictedUser,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    least = {(operation, resource) for resource, needed in TABLE[feature].items() for operation in needed}
    ran = Shop(user, tmp_path / "all", monkeypatch, capfd).run(feature, least)
    assert ran.code == 0, ran
    for number, missing in enumerate(sorted(least)):
        left = least - {missing}
        if missing[0] in STRONG:
            left = left | {("DESCRIBE", missing[1])}
        shop = Shop(user, tmp_path / str(number), monkeypatch, capfd)
        ran = shop.run(feature, left)
        assert ran.code != 0, f"{feature} works without {missing}"
        assert str(shop.right(*missing)) in ran.out + ran.err, (missing, ran)
