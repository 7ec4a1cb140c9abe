"""The archive of the stores that a command works on, as the environment says what it is to them."""

from __future__ import annotations

from statestore.archive.archive import ArchiveSpec, archive_spec
from statestore.config import is_node_local
from statestore.errors import InputError
from statestore.kafka.topics import Topics


def archive_of_stores(url: str | None, timeout_s: float, topics: Topics) -> ArchiveSpec | None:
    """Say which archive is used, and whether what lies on this disk are copies of the stores that it has.

    Raises
    ------
    InputError
        If these are copies, and no archive is named.
    KafkaUnavailableError
        If the cluster does not tell its id.
    """
    node_local = is_node_local()
    if node_local and url is None:
        raise InputError(
            "STATESTORE_NODE_LOCAL_STATE is true, so the archive has the stores: expected STATESTORE_ARCHIVE or "
            "--archive, found neither. Name the archive"
        )
    return archive_spec(url, timeout_s, topics, node_local=node_local)
