"""Names of the topics that there are, where nobody can say which to ask for."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from statestore.changelog.client import client_config, until_answered


def topic_names(bootstrap_servers: str, timeout_s: float = 30.0) -> list[str]:
    """Return the names of all topics, in order.

    Raises
    ------
    KafkaUnavailableError
        If no broker answers in time.
    """
    admin = AdminClient(client_config(bootstrap_servers))
    doing = f"asking {bootstrap_servers} for topics"
    return sorted(until_answered(lambda left_s: admin.list_topics(timeout=left_s), doing, timeout_s).topics)
