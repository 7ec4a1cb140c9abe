"""An application in a catalogue of its own, for the programs of ours that are measured."""

from __future__ import annotations

from collections.abc import Mapping

from statestore.definitions.application import ApplicationDefinition
from statestore.kafka.cluster import Cluster
from statestore.metastore.apply import carry_out, plan_definitions
from statestore.metastore.metastore import Metastore


def register(servers: str, definition: Mapping[str, object]) -> dict[str, str]:
    """Apply a definition to the catalogue of a service with its name; return the setting that names the service."""
    application = ApplicationDefinition.model_validate(definition)
    topics, metastore = Cluster(servers).topics, Metastore(Cluster(servers), application.name)
    catalogue = metastore.require_running().catalogue
    plan = plan_definitions(topics, catalogue, [application])
    for _ in carry_out(topics, metastore, catalogue, plan):
        pass
    return {"STATESTORE_SERVICE_ID": application.name}
