"""A broker with an authorizer, a user with exactly the rights that a test grants, and the table of docs/rights.md."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from demo.processes import Processes
from statestore.kafka.rights import Right
from tests.documents import text_of
from tests.integration.broker import WAIT_S, wait_for
from tests.integration.secured_broker import USER, SecuredBroker

_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
_PRINCIPAL = f"User:{USER}"
_ALL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, _PRINCIPAL, None, AclOperation.ANY, AclPermissionType.ANY
)


class RestrictedUser:
    """The user of a secured broker with an authorizer, whose other listener has no restriction."""

    def __init__(self, processes: Processes, directory: Path) -> None:
        self.secured = SecuredBroker(
            processes,
            directory,
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users="User:ANONYMOUS",
        )
        self._admin = AdminClient({"bootstrap.servers": self.secured.plain_servers})

    def grant(self, rights: Collection[Right]) -> None:
        """Give the user these rights and no others, and wait until the broker applies them."""
        wanted = {_binding(right) for right in rights}
        self._admin.delete_acls([_ALL])[_ALL].result(WAIT_S)
        for future in self._admin.create_acls(list(wanted)).values() if wanted else ():
            future.result(WAIT_S)
        wait_for(lambda: set(self._admin.describe_acls(_ALL).result(WAIT_S)) == wanted, "the rights")


def _binding(right: Right) -> AclBinding:
    operation, allow = AclOperation[right.operation], AclPermissionType.ALLOW
    prefix = right.name.endswith("*")
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    return AclBinding(_KINDS[right.kind], right.name.rstrip("*"), pattern, _PRINCIPAL, "*", operation, allow)


def table() -> dict[str, dict[str, list[str]]]:
    """Return the operations that each feature needs, by kind of resource, as docs/operations.md lists them."""
    section = text_of("docs/operations.md").partition("### Rights of the Kafka user\n")[2]
    lines = [line for line in section.partition("\n**Kafka with quotas**")[0].splitlines() if line.startswith("|")]
    heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {
        row[0].replace("`", ""): {head: cell.split(", ") for head, cell in zip(heads[1:], row[1:], strict=True) if cell}
        for row in rows
    }
