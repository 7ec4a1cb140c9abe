"""Applications for catalogues: definitions whose topics are there, and the command that applies them to a service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statestore.definitions.application import ApplicationDefinition
from statestore.kafka.cluster import Cluster
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.command_topic import topic_name
from statestore.metastore.metastore import Metastore
from statestore.model import TopicPartition
from tests.integration.broker import create_topic, unique
from tests.integration.command_line import Command, Ran, settings_of

#: Regroups, so that there is a repartition topic and a second subtopology.
BY_VALUE = {"store": "by-value", "group_by": "tests.integration.support:value_of"}


def defined(servers: str, *, partitions: int = 2, **fields: Any) -> ApplicationDefinition:
    """Define an application whose input and output topics are there, and nothing else of it."""
    name = unique("app")
    create_topic(servers, f"{name}-in", partitions)
    create_topic(servers, f"{name}-out", partitions)
    content = {
        "name": name,
        "input_topic": f"{name}-in",
        "output_topics": [f"{name}-out"],
        "processor": "tests.integration.support:count",
        "stores": [{"name": "counts"}],
        **fields,
    }
    return ApplicationDefinition.model_validate(content)


def changed(definition: ApplicationDefinition, **fields: Any) -> ApplicationDefinition:
    """Return the definition with other values in some fields."""
    return ApplicationDefinition.model_validate({**definition.model_dump(), **fields})


def commands_in(metastore: Metastore) -> list[str]:
    """Return the kinds of the commands in the log."""
    return [logged.command.kind if logged.command else "unreadable" for logged in metastore.history()]


def log_end(servers: str, service_id: str) -> int:
    """Return the end of a service's command topic: transactions that were aborted move it, too."""
    partition = TopicPartition(topic_name(service_id), 0)
    return Cluster(servers, 10).topics.log_ranges([partition])[partition].high_watermark


class CatalogueCommand(Command):
    """The command for a service of its own, and what that service has.

    Parameters
    ----------
    directory
        Where the state directory is, and where files of definitions are written.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], servers: str, directory: Path
    ) -> None:
        super().__init__(monkeypatch, capfd, settings_of(servers, directory))
        self.servers = servers
        self.topics = Cluster(servers, 60).topics
        self.service_id = self.settings["SERVICE_ID"]
        self.topic = topic_name(self.service_id)
        self.state_dir = Path(self.settings["STATE_DIR"])
        self._directory = directory

    def define(self, **fields: Any) -> ApplicationDefinition:
        """Define an application whose input and output topics are there."""
        return defined(self.servers, **fields)

    def file(self, *definitions: ApplicationDefinition) -> str:
        """Write a file of definitions, a document each, and return its path."""
        path = self._directory / f"{unique('applications')}.yaml"
        path.write_text("\n---\n".join(definition.model_dump_json() for definition in definitions))
        return str(path)

    def apply(self, *definitions: ApplicationDefinition) -> Ran:
        """Apply definitions, which must succeed."""
        ran = self("apply", self.file(*definitions), "--yes")
        assert ran.code == 0, ran.err
        return ran

    def applied(self, **fields: Any) -> ApplicationDefinition:
        """Define an application and apply it."""
        definition = self.define(**fields)
        self.apply(definition)
        return definition

    @property
    def metastore(self) -> Metastore:
        """A metastore that has seen nothing yet."""
        return Metastore(Cluster(self.servers, 60), self.service_id)

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue of now."""
        return self.metastore.view().catalogue

    @property
    def log_end(self) -> int:
        """End of the command topic."""
        return log_end(self.servers, self.service_id)
