"""Applications for catalogues: definitions whose topics are there, and what the log of a service has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statestore.changelog.topics import Topics
from statestore.definitions.application import ApplicationDefinition
from statestore.metastore.command_topic import topic_name
from statestore.metastore.metastore import Metastore
from statestore.model import TopicPartition
from tests.integration.broker import create_topic, unique

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


def write(directory: Path, *definitions: ApplicationDefinition) -> str:
    """Write a file of definitions, a document each, and return its path."""
    path = directory / f"{unique('applications')}.yaml"
    path.write_text("\n---\n".join(definition.model_dump_json() for definition in definitions))
    return str(path)


def commands_in(metastore: Metastore) -> list[str]:
    """Return the kinds of the commands in the log."""
    return [logged.command.kind if logged.command else "unreadable" for logged in metastore.history()]


def log_end(servers: str, service_id: str) -> int:
    """Return the end of a service's command topic: transactions that were aborted move it, too."""
    partition = TopicPartition(topic_name(service_id), 0)
    return Topics(servers, 10).log_ranges([partition])[partition].high_watermark
