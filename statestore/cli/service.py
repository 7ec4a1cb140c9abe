"""The service whose catalogue a command reads or changes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property

from statestore.errors import InputError, MetastoreDegradedError
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import Topics
from statestore.metastore.metastore import Metastore
from statestore.metastore.view import Health, Pin, View
from statestore.objects.path import Location


@dataclass(frozen=True)
class Service:
    """Where Kafka is, and which command topic holds the catalogue.

    Attributes
    ----------
    backup
        The command topic's backup; None: there is none.
    """

    cluster: Cluster
    service_id: str = "default"
    backup: Location | None = None

    @cached_property
    def metastore(self) -> Metastore:
        """The metastore; nothing is read yet."""
        return Metastore(self.cluster, self.service_id, self.backup)

    @cached_property
    def topics(self) -> Topics:
        """Kafka client for topics."""
        return self.cluster.topics

    def view(self, at: str | None = None) -> View:
        """Read the catalogue, and say on standard error if there is more in the command topic than could be read.

        Parameters
        ----------
        at
            `42`: as it was before the command at this offset; `42:<digest>`: as a report pinned it; None: of now.
        """
        if at is None:
            found = self.metastore.view()
        elif ":" in at:
            found = self.metastore.pinned(Pin.parse(at))
        else:
            found = self.metastore.view(offset_of(at))
        if found.health is not Health.RUNNING:
            print(f"statestore: the metastore is DEGRADED: {found.reason}", file=sys.stderr)
        return found

    def certain_view(self) -> View:
        """Read the catalogue of now for work that must not go by an old one.

        Raises
        ------
        MetastoreDegradedError
            If it cannot be read to its end; the message names the way without it.
        """
        try:
            return self.metastore.require_running()
        except MetastoreDegradedError as error:
            raise MetastoreDegradedError(
                f"{error}. To use definitions from a file instead, add --definitions FILE"
            ) from error


def offset_of(at: str) -> int:
    """Return the offset that `--at` names.

    Raises
    ------
    InputError
        If it names none.
    """
    if ":" in at:
        return Pin.parse(at).offset
    if at.isascii() and at.isdigit() and len(at) < 19:
        return int(at)
    raise InputError(f"--at: expected an offset, or OFFSET:DIGEST as reports have it, found {at!r}")
