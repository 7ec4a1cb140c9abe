"""The metastore of one service: one command topic, one catalogue. This is its interface for other rooms.

Reading fences nobody and makes no topic. Writing goes by ksqlDB's protocol (`protocol.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from statestore.config import Settings
from statestore.errors import InputError
from statestore.kafka.cluster import Cluster
from statestore.kafka.writer import TransactionalWriter
from statestore.metastore import compaction
from statestore.metastore import topic_restore as restoring
from statestore.metastore.backup import default_path
from statestore.metastore.command_log import CommandLog, Look
from statestore.metastore.command_topic import CommandRecord
from statestore.metastore.health import SNAPSHOT_KEY, require_running
from statestore.metastore.protocol import CommandWriter, Make
from statestore.metastore.replay import UNUSABLE, command_of, fold
from statestore.metastore.view import (
    Compacted,
    Health,
    LoggedCommand,
    Pin,
    Restored,
    RestorePlan,
    Submitted,
    View,
)
from statestore.metastore.writer_turns import Turns
from statestore.objects.path import Location

__all__ = [
    "Compacted",
    "Health",
    "LoggedCommand",
    "Make",
    "Metastore",
    "Pin",
    "RestorePlan",
    "Restored",
    "Submitted",
    "View",
]


class Metastore:
    """Definitions of applications and stores, rebuilt from a command topic.

    Parameters
    ----------
    cluster
        Its deadline is also that of beginning another attempt after having been fenced.
    service_id
        Names the command topic, and the `transactional.id` of those who write to it.
    backup
        File that keeps a copy of each command, against which the topic is checked. None: a topic that was deleted is
        taken for one that never was.
    turns
        Whether its writers wait for the turns of others; otherwise, they only fence each other.

    Examples
    --------
    >>> backup = Path("reports/metastore/default.backup")
    >>> metastore = Metastore(Cluster("localhost:9092"), "default", backup)  # doctest: +SKIP
    >>> metastore.view().catalogue.definitions()  # doctest: +SKIP
    """

    def __init__(
        self,
        cluster: Cluster,
        service_id: str,
        backup: Location | None = None,
        *,
        turns: bool = True,
    ) -> None:
        def open_writer() -> TransactionalWriter:
            return TransactionalWriter(cluster, f"statestore-metastore-{service_id}")

        self.service_id = service_id
        self._open_writer = open_writer
        self._log = CommandLog(cluster, service_id, backup)
        self._writer = CommandWriter(
            self._log, open_writer, cluster.timeout_s, turns=Turns(cluster, service_id) if turns else None
        )

    @classmethod
    def of(cls, settings: Settings) -> Metastore:
        """Return the metastore of an installation."""
        backup = settings.metastore_backup or default_path(settings.reports_dir, settings.service_id)
        return cls(settings.cluster, settings.service_id, backup)

    def view(self, at: int | None = None) -> View:
        """Return the catalogue as it is now; without a topic and a backup, an empty one.

        Parameters
        ----------
        at
            Return it as it was before the command at this offset. The health is that of now.

        Raises
        ------
        InputError
            If the topic has not got that far, or its commands up to there were compacted.
        KafkaUnavailableError
            If Kafka does not answer.
        """
        return self._log.look().view if at is None else _as_of(*self._log.history(), at)

    def pinned(self, pin: Pin) -> View:
        """Return the catalogue that a pin names. If it was compacted away, an equal one will do: of now, or compacted.

        Raises
        ------
        InputError
            If there is none.
        """
        look = self._log.look()
        if look.catalogue.digest() == pin.digest:
            return look.view._replace(offset=pin.offset)
        look, records = self._log.history()
        try:
            found = _as_of(look, records, pin.offset)
        except InputError as error:
            found = look.view._replace(catalogue=fold(records[:1]).catalogue)
            if found.catalogue.digest() != pin.digest:
                raise InputError(f"catalogue {pin} no longer exists: {error}. Pin the current catalogue") from error
        if found.catalogue.digest() != pin.digest:
            raise InputError(
                f"the catalogue at offset {pin.offset} has digest {found.catalogue.digest()}, expected {pin.digest}: "
                "the command topic was recreated since then, or is another topic. Pin the current catalogue"
            )
        return found._replace(offset=pin.offset)

    def require_running(self) -> View:
        """Return the catalogue of now, if it is known to be whole.

        Raises
        ------
        MetastoreDegradedError
            If it is not; the message has the reason and what to do.
        """
        view = self.view()
        require_running(view)
        return view

    def submit(self, make: Make) -> Submitted:
        """Log a command; see `CommandWriter.submit`."""
        return self._writer.submit(make)

    def history(self) -> list[LoggedCommand]:
        """Return all records of the command topic, or of the backup if the topic is damaged."""
        look, records = self._log.history()
        return [_logged(record, look) for record in records]

    def compact(self) -> Compacted:
        """Make the log start at a snapshot; see `compaction.compact`."""
        return compaction.compact(self._log, self._writer)

    def plan_restore(self) -> RestorePlan:
        """Say what `restore_backup` would do; see `restoring.plan_restore`."""
        return restoring.plan_restore(self._log)

    def restore_backup(self, plan: RestorePlan) -> Restored:
        """Make the command topic anew from the backup; see `restoring.restore_backup`. Ask before."""
        return restoring.restore_backup(self._log, self._open_writer, plan)


def _as_of(look: Look, records: Sequence[CommandRecord], at: int) -> View:
    if not 0 <= at <= max(look.position, look.offset):
        raise InputError(f"there is no offset {at} in the command topic: it ends at {look.position}")
    if records and records[0].key == SNAPSHOT_KEY and at <= records[0].offset:
        raise InputError(
            f"the commands before offset {records[0].offset} were compacted into the snapshot there: the catalogue at "
            f"offset {at} is no longer available"
        )
    folded = fold(record for record in records if record.offset < at)
    return look.view._replace(catalogue=folded.catalogue, offset=folded.offset)


def _logged(record: CommandRecord, look: Look) -> LoggedCommand:
    try:
        command = command_of(record)
    except UNUSABLE as error:
        return LoggedCommand(record.offset, record.timestamp, None, str(error))
    problem = "" if record.offset < look.offset else f"not applied: {look.reason}"
    return LoggedCommand(record.offset, record.timestamp, command, problem)
