"""Options that the commands share: what they work on, and how."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from statestore.cli.choice import Asked, Where
from statestore.cli.output import STANDARD_OUTPUT
from statestore.cli.service import Service
from statestore.errors import InputError
from statestore.metastore.backup import default_path
from statestore.model import check_name

StateDir = Annotated[
    Path, typer.Option(envvar="STATESTORE_STATE_DIR", help="Kafka Streams' state.dir.", show_default=False)
]
StateDirIfAny = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar="STATESTORE_STATE_DIR",
        help="Kafka Streams' state.dir; needed where an application loses stores, for its locks.",
        show_default=False,
    ),
]
Servers = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers", envvar="STATESTORE_BOOTSTRAP_SERVERS", help="Kafka brokers.", show_default=False
    ),
]
Definitions = Annotated[
    Path | None,
    typer.Option(
        help="YAML file or directory with definitions of applications, instead of the catalogue. An application that "
        "is not in it is looked for in the state directory and the topics, as Kafka Streams lays them out.",
    ),
]
Applications = Annotated[
    list[str] | None, typer.Option("--application", help="application.id. May be repeated; none means all.")
]
Stores = Annotated[
    list[str] | None,
    typer.Option(
        "--store",
        help="NAME, or NAME:setting=value,... where directories and topics do not tell what it is. Settings: kind "
        "(key-value, window, session), format (plain, timestamped), retention_ms, subtopology, changelog, and "
        "engine=in_memory for a store to leave out. May be repeated; none means all.",
    ),
]
Partitions = Annotated[list[int] | None, typer.Option("--partition", help="May be repeated; none means all.")]
Changelogs = Annotated[
    list[str] | None,
    typer.Option("--changelog", metavar="STORE=TOPIC", help="The store's changelog is named otherwise."),
]
Retentions = Annotated[
    list[str] | None, typer.Option("--retention", metavar="STORE=MS", help="How long the store keeps its rows.")
]
HereOnly = Annotated[
    bool,
    typer.Option(
        "--here-only", help="Only tasks that have a directory here: the application runs on other machines, too."
    ),
]
AtLeastOnce = Annotated[
    bool,
    typer.Option(
        "--at-least-once",
        help="The application's processing.guarantee is at_least_once: a store that was left open holds nothing that "
        "was never committed.",
    ),
]
TimeoutS = Annotated[
    float,
    typer.Option("--kafka-timeout-s", envvar="STATESTORE_KAFKA_TIMEOUT_S", min=0.1, help="Of one request to Kafka."),
]
Parallel = Annotated[
    int,
    typer.Option(min=1, help="Processes at a time.", default_factory=lambda: os.cpu_count() or 1, show_default="cores"),
]
RUN_BYTES = 96 * 1024 * 1024
RunBytes = Annotated[
    int,
    typer.Option(
        envvar="STATESTORE_RESTORE_RUN_BYTES",
        min=4096,
        help="Memory for the part of a log that each process sorts at a time.",
    ),
]
ReportsDir = Annotated[
    Path | None,
    typer.Option(
        envvar="STATESTORE_REPORTS_DIR",
        help="Below it are histories, progress, and the command topic's backup.",
    ),
]
Json = Annotated[Path | None, typer.Option("--json", help="Also write it as JSON to this file; - is standard output.")]
ServiceId = Annotated[
    str,
    typer.Option(
        "--service-id", envvar="STATESTORE_SERVICE_ID", help="Whose catalogue: its command topic is named after it."
    ),
]
Backup = Annotated[
    Path | None,
    typer.Option(
        "--metastore-backup",
        envvar="STATESTORE_METASTORE_BACKUP",
        help="Backup of the command topic. If not said, it is metastore/<service id>.backup below --reports-dir.",
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        metavar="OFFSET",
        help="Read the catalogue as it was before the command at this offset; or OFFSET:DIGEST, as reports pin it.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Ask nothing.")]


def _service(
    *,
    bootstrap_servers: Servers,
    service_id: ServiceId = "default",
    metastore_backup: Backup = None,
    reports_dir: ReportsDir = None,
    kafka_timeout_s: TimeoutS = 30.0,
) -> Service:
    try:
        check_name(service_id)
    except ValueError as error:
        raise InputError(f"--service-id: {error}") from error
    backup = metastore_backup
    if backup is None and reports_dir is not None:
        backup = default_path(reports_dir, service_id)
    return Service(bootstrap_servers, service_id, backup, kafka_timeout_s)


def _asked(
    *,
    state_dir: StateDir,
    bootstrap_servers: Servers,
    definitions: Definitions = None,
    application: Applications = None,
    store: Stores = None,
    partition: Partitions = None,
    changelog: Changelogs = None,
    retention: Retentions = None,
    here_only: HereOnly = False,
    at_least_once: AtLeastOnce = False,
    service_id: ServiceId = "default",
    metastore_backup: Backup = None,
    reports_dir: ReportsDir = None,
    kafka_timeout_s: TimeoutS = 30.0,
) -> Asked:
    return Asked(
        where=Where(bootstrap_servers, state_dir, kafka_timeout_s),
        service=_service(
            bootstrap_servers=bootstrap_servers,
            service_id=service_id,
            metastore_backup=metastore_backup,
            reports_dir=reports_dir,
            kafka_timeout_s=kafka_timeout_s,
        ),
        reports_dir=reports_dir,
        definitions=definitions,
        applications=tuple(application or ()),
        stores=tuple(store or ()),
        partitions=tuple(partition or ()),
        changelogs=tuple(changelog or ()),
        retentions=tuple(retention or ()),
        here_only=here_only,
        guarantee="at_least_once" if at_least_once else "exactly_once_v2",
    )


def require_writable(*, json: Path | None = None, reports_dir: Path | None = None) -> None:
    """Refuse files that cannot be written later, before hours of work are done for them. Nothing is made.

    Raises
    ------
    InputError
        Naming the option and what is in the way.
    """
    if json is not None and json != STANDARD_OUTPUT:
        if json.is_dir():
            raise InputError(f"--json: expected a file, found the directory {json}")
        _require_writable_directory("--json", json.absolute().parent)
    if reports_dir is not None:
        _require_writable_directory("--reports-dir", reports_dir.absolute())


def _require_writable_directory(option: str, directory: Path) -> None:
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if not there.is_dir():
        raise InputError(f"{option}: expected a directory, found the file {there}; name another one")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{option}: {there} cannot be written to; name another directory, or have its mode changed")


def with_target(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say what it works on; its first argument is what they ask for."""
    return _with(_asked, command)


def with_service(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say whose catalogue it is about; its first argument is that service."""
    return _with(_service, command)


def _with(gather: Callable[..., Any], command: Callable[..., None]) -> Callable[..., None]:
    shared = inspect.signature(gather, eval_str=True).parameters
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    parameters = [*(item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in own), *shared.values()]

    @wraps(command)
    def run(**given: Any) -> None:
        gathered = gather(**{name: given.pop(name) for name in shared})
        command(gathered, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {item.name: item.annotation for item in parameters}
    return run
