"""Options that the commands share: what they work on, and how."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statestore.cli import completion
from statestore.cli.output import STANDARD_OUTPUT
from statestore.cli.parameters import DURATION, duration, with_function
from statestore.config import is_node_local
from statestore.errors import InputError
from statestore.objects.path import Location, ObjectPath, location

# Here and in the modules of the commands, what does the work is imported when it is done: help and the shell's
# completion need none of it.
if TYPE_CHECKING:
    from statestore.cli.selection import PartitionSelection
    from statestore.cli.service import Service
    from statestore.kafka.cluster import Cluster

#: A directory, or a URL of object storage.
_PLACE = "DIRECTORY|URL"
StateDir = Annotated[
    Path,
    typer.Option(
        envvar="STATESTORE_STATE_DIR",
        help="State directory of the stores (Kafka Streams' state.dir).",
        show_default=False,
    ),
]
Servers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        envvar="STATESTORE_BOOTSTRAP_SERVERS",
        help="Kafka brokers. Default: those of the file that STATESTORE_KAFKA_CONFIG names.",
        show_default=False,
    ),
]
Definitions = Annotated[
    Path | None,
    typer.Option(
        help="YAML file or directory with definitions of applications, instead of the catalogue. An application that "
        "it does not define is looked up in the state directory and the topics, in the layout of Kafka Streams.",
    ),
]
Applications = Annotated[
    list[str] | None,
    typer.Option(
        "--application",
        help="Name of an application (its application.id). May be repeated. Default: all.",
        autocompletion=completion.applications,
    ),
]
Stores = Annotated[
    list[str] | None,
    typer.Option(
        "--store",
        autocompletion=completion.stores,
        help="STORE, APPLICATION/STORE, or one of its partitions, such as APPLICATION/STORE/0_3 or STORE/3. If "
        "directories and topics do not show what the store is, add :setting=value,... Settings: kind "
        "(key-value, window, session, versioned), format (plain, timestamped, headers), retention_ms, "
        "segment_interval_ms, subtopology, changelog, global (table, processor) for a global store, and "
        "engine=in_memory for a store to skip. May be repeated. Default: all.",
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="STORE",
        help="Stores or store partitions, in the forms of --store. Default: all.",
        autocompletion=completion.stores,
        show_default=False,
    ),
]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", help="Number of a partition. May be repeated. Default: all.")
]
Changelogs = Annotated[
    list[str] | None,
    typer.Option(
        "--changelog", metavar="STORE=TOPIC", help="Changelog topic of a store, if it does not have the default name."
    ),
]
Retentions = Annotated[
    list[str] | None,
    typer.Option("--retention", metavar="STORE=DURATION", help="How long a store keeps its rows, such as 7d."),
]
Shapes = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File that describes stores without a directory: the output of `partitions --json` from a machine where "
        "they were intact, or of java/StoreShapes.java. Directories and topics take precedence.",
    ),
]
HereOnly = Annotated[
    bool,
    typer.Option(
        "--here-only",
        help="Expect only tasks that have a directory on this machine, because the application also runs on others.",
    ),
]
AtLeastOnce = Annotated[
    bool,
    typer.Option(
        "--at-least-once",
        help="The application uses processing.guarantee=at_least_once. A store that was left open then has no "
        "uncommitted rows.",
    ),
]
KafkaStreams = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION",
        help="Version of Kafka Streams, such as 4.2.0, that will use the stores. Default: that of the existing stores.",
    ),
]
Archive = Annotated[
    str,
    typer.Option(
        envvar="STATESTORE_ARCHIVE",
        help="Archive of snapshots: s3://bucket/prefix, az://account/container/prefix, gs://bucket/prefix or "
        "file:///directory. Credentials are read from the environment.",
        show_default=False,
    ),
]
ArchiveIfAny = Annotated[
    str | None,
    typer.Option(
        "--archive",
        envvar="STATESTORE_ARCHIVE",
        help="Archive of snapshots, such as s3://bucket/prefix. Default: no archive.",
        show_default=False,
    ),
]
ArchiveTimeout = Annotated[
    float,
    typer.Option(
        "--archive-timeout-s",
        envvar="STATESTORE_ARCHIVE_TIMEOUT_S",
        help="Timeout of a request to the archive.",
        parser=duration("s", above=0),
        metavar=DURATION,
    ),
]
TimeoutS = Annotated[
    float,
    typer.Option(
        "--kafka-timeout-s",
        envvar="STATESTORE_KAFKA_TIMEOUT_S",
        help="Timeout of a request to Kafka.",
        parser=duration("s", above=0),
        metavar=DURATION,
    ),
]
Parallel = Annotated[
    int,
    typer.Option(
        min=1, help="Number of parallel processes.", default_factory=lambda: os.cpu_count() or 1, show_default="cores"
    ),
]
QuarantineDays = Annotated[
    float,
    typer.Option(
        envvar="STATESTORE_QUARANTINE_DAYS",
        help="How long to keep replaced stores: 36h, or a number of days.",
        parser=duration("d"),
        metavar=DURATION,
    ),
]
RUN_BYTES = 96 * 1024 * 1024
RunBytes = Annotated[
    int,
    typer.Option(
        envvar="STATESTORE_RESTORE_RUN_BYTES",
        min=4096,
        help="Bytes of memory that each process uses to sort a part of a log.",
    ),
]
ReportsDir = Annotated[
    str | None,
    typer.Option(
        envvar="STATESTORE_REPORTS_DIR",
        metavar=_PLACE,
        help="Directory of reports, histories, progress, and the command topic's backup.",
    ),
]
ReportsDirNeeded = Annotated[
    str,
    typer.Option(
        "--reports-dir",
        envvar="STATESTORE_REPORTS_DIR",
        metavar=_PLACE,
        help="Directory of the jobs' reports.",
        show_default=False,
    ),
]
DataDocsDir = Annotated[
    str | None,
    typer.Option(
        envvar="STATESTORE_DATA_DOCS_DIR",
        metavar=_PLACE,
        help="Directory for Data Docs. Default: data-docs beside the reports.",
    ),
]
Json = Annotated[
    Path | None, typer.Option("--json", help="Also write the result as JSON to this file; - is standard output.")
]
ServiceId = Annotated[
    str,
    typer.Option(
        "--service-id",
        envvar="STATESTORE_SERVICE_ID",
        help="Name of the catalogue. It is part of the name of the command topic.",
    ),
]
Backup = Annotated[
    str | None,
    typer.Option(
        "--metastore-backup",
        envvar="STATESTORE_METASTORE_BACKUP",
        metavar="FILE|URL",
        help="Backup of the command topic. Default: metastore/<service id>.backup below --reports-dir.",
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        metavar="OFFSET",
        help="Read the catalogue as it was before the command at this offset, or at the pin of a report "
        "(OFFSET:DIGEST).",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


class Partitioner(StrEnum):
    """Partitioner of the keys."""

    KAFKA = "kafka"
    ANY = "any"


#: Settings of an installation, by the names of the variables that a job reads them from.
Installation = Mapping[str, str]


def require_settings(option: str, given: Collection[str]) -> dict[str, str]:
    """Return the settings of a repeated option NAME=VALUE, by name.

    Raises
    ------
    InputError
        If a setting is malformed.
    """
    if odd := [each for each in given if not each.partition("=")[0] or "=" not in each]:
        raise InputError(f"{option}: expected NAME=VALUE, found {odd[0]!r}")
    return {each.partition("=")[0]: each.partition("=")[2] for each in given}


def servers_of(said: str | None) -> str:
    from statestore.private_config import read_kafka_config

    if found := said or read_kafka_config().get("bootstrap.servers"):
        return str(found)
    raise InputError("--bootstrap-servers: expected host:port of Kafka's brokers, or STATESTORE_BOOTSTRAP_SERVERS")


def cluster_of(bootstrap_servers: str | None, kafka_timeout_s: float) -> Cluster:
    """Return the cluster of the options."""
    from statestore.kafka.cluster import Cluster

    return Cluster(servers_of(bootstrap_servers), kafka_timeout_s)


def _service(
    *,
    bootstrap_servers: Servers = None,
    service_id: ServiceId = "default",
    metastore_backup: Backup = None,
    reports_dir: ReportsDir = None,
    kafka_timeout_s: TimeoutS = 30.0,
) -> Service:
    from statestore.cli.service import Service
    from statestore.metastore.backup import default_path
    from statestore.model import check_name

    try:
        check_name(service_id)
    except ValueError as error:
        raise InputError(f"--service-id: {error}") from error
    backup = None if metastore_backup is None else location(metastore_backup)
    if backup is None and reports_dir is not None:
        backup = default_path(location(reports_dir), service_id)
    return Service(cluster_of(bootstrap_servers, kafka_timeout_s), service_id, backup)


def _asked(
    *,
    state_dir: StateDir,
    bootstrap_servers: Servers = None,
    definitions: Definitions = None,
    application: Applications = None,
    store: Stores = None,
    partition: Partitions = None,
    changelog: Changelogs = None,
    retention: Retentions = None,
    shapes: Shapes = None,
    here_only: HereOnly = False,
    at_least_once: AtLeastOnce = False,
    service_id: ServiceId = "default",
    metastore_backup: Backup = None,
    reports_dir: ReportsDir = None,
    kafka_timeout_s: TimeoutS = 30.0,
) -> PartitionSelection:
    from statestore.cli.selection import PartitionSelection, Where

    service = _service(
        bootstrap_servers=bootstrap_servers,
        service_id=service_id,
        metastore_backup=metastore_backup,
        reports_dir=reports_dir,
        kafka_timeout_s=kafka_timeout_s,
    )
    return PartitionSelection(
        where=Where(service.cluster, state_dir),
        service=service,
        reports_dir=None if reports_dir is None else location(reports_dir),
        definitions=definitions,
        applications=tuple(application or ()),
        numbers=tuple(partition or ()),
        changelogs=tuple(changelog or ()),
        retentions=tuple(retention or ()),
        shapes=shapes,
        here_only=here_only,
        guarantee="at_least_once" if at_least_once else "exactly_once_v2",
    ).naming(store or ())


def _installation(
    *,
    bootstrap_servers: Servers = None,
    state_dir: StateDir,
    reports_dir: ReportsDirNeeded,
    data_docs_dir: DataDocsDir = None,
    service_id: ServiceId = "default",
    metastore_backup: Backup = None,
    kafka_timeout_s: TimeoutS = 30.0,
) -> Installation:
    reports = location(reports_dir).absolute()
    settings = {
        "BOOTSTRAP_SERVERS": servers_of(bootstrap_servers),
        "STATE_DIR": state_dir.absolute(),
        "REPORTS_DIR": reports,
        "DATA_DOCS_DIR": reports.parent / "data-docs" if data_docs_dir is None else location(data_docs_dir).absolute(),
        "SERVICE_ID": service_id,
        "METASTORE_BACKUP": None if metastore_backup is None else location(metastore_backup).absolute(),
        "KAFKA_TIMEOUT_S": kafka_timeout_s,
    }
    return {f"STATESTORE_{name}": str(value) for name, value in settings.items() if value is not None}


def require_writable(*, json: Path | None = None, reports_dir: Location | None = None) -> None:
    """Refuse files that cannot be written later, before hours of work are done for them. Nothing is made.

    Raises
    ------
    InputError
        Naming the option and what is in the way.
    ArchiveUnavailableError
        If reports lie in object storage, which does not answer.
    """
    if json is not None and json != STANDARD_OUTPUT:
        if json.is_dir():
            raise InputError(f"--json: expected a file, found the directory {json}")
        _require_writable_directory("--json", json.absolute().parent)
    if isinstance(reports_dir, ObjectPath):
        reports_dir.require_bucket()
    elif reports_dir is not None:
        _require_writable_directory("--reports-dir", reports_dir.absolute())


def require_stores_here(refused: str = "Only stores in a shared state directory can be rewritten") -> None:
    """Refuse a command that takes the stores in the state directory for those of the application.

    Parameters
    ----------
    refused
        What cannot be done, or what does it.

    Raises
    ------
    InputError
        If each node has a state directory of its own.
    """
    if is_node_local():
        raise InputError(
            "STATESTORE_NODE_LOCAL_STATE is true: the stores in the state directory of a node are copies, and another "
            f"node may have newer ones. {refused}. Nothing was changed"
        )


def _require_writable_directory(option: str, directory: Path) -> None:
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if not there.is_dir():
        raise InputError(f"{option}: expected a directory, found the file {there}; name another one")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{option}: {there} cannot be written to; name another directory, or change its mode")


def with_target(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say what it works on; its first argument is what they ask for."""
    return with_function(_asked, command)


def with_service(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say whose catalogue it is about; its first argument is that service."""
    return with_function(_service, command)


def with_installation(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say where a job finds everything; its first argument is these settings."""
    return with_function(_installation, command)
