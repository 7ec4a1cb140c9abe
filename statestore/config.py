"""Where things are: Kafka, the metastore, state, reports. Read from `STATESTORE_*` in the environment, never at import.

Jobs read it once on the driver and pass it to their Spark tasks. Only the Kafka clients' configuration and the
archive's credentials are never passed on: every process reads them from files that its environment names.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from statestore import clock
from statestore.errors import InputError
from statestore.model import Name
from statestore.objects.path import Location
from statestore.private_config import read_kafka_config

if TYPE_CHECKING:
    from statestore.kafka.cluster import Cluster

S = TypeVar("S", bound=BaseSettings)

BOOTSTRAP_SERVERS = "STATESTORE_BOOTSTRAP_SERVERS"
STATE_DIR = "STATESTORE_STATE_DIR"
#: Shortest grace period of the archive's clean-up: twice as long as an upload may take (`archive/upload.py`).
LEAST_GRACE_HOURS = 48.0


def duration_in(unit: str) -> BeforeValidator:
    """Return what reads a setting that is a number in a unit, or a duration such as `36h`; see `clock.duration`."""
    return BeforeValidator(lambda value: float(clock.duration(value, unit)) if isinstance(value, str) else value)


def as_of_dir(state_dir: Path) -> Path:
    """Return the directory, beside a state directory, in which the DAG `restore` builds stores as of a point."""
    return state_dir.with_name(f"{state_dir.name}-as-of")


class Directories(BaseSettings):
    """Locations of reports and Data Docs, which the page and alerts need."""

    model_config = SettingsConfigDict(env_prefix="STATESTORE_", env_ignore_empty=True, frozen=True, extra="ignore")

    reports_dir: Annotated[
        Location, Field(description="JSON reports of the jobs, one directory per job kind; a directory, or a URL")
    ]
    data_docs_dir: Annotated[
        Location, Field(description="where Great Expectations writes its Data Docs; a directory, or a URL")
    ]


class StateDirectory(BaseSettings):
    """The directory of the stores."""

    model_config = Directories.model_config

    state_dir: Annotated[
        Path, Field(description="Kafka Streams' state.dir: <state_dir>/<application.id>/<task id>/...")
    ]


class NodeLocalState(BaseSettings):
    """Whether each node has a state directory of its own: all that those need who name directory and archive."""

    model_config = Directories.model_config

    node_local_state: bool = False


class Settings(Directories, StateDirectory):
    """The settings of one installation. Each is set by `STATESTORE_<NAME>`."""

    bootstrap_servers: Annotated[
        str,
        Field(
            min_length=1,
            description="Kafka brokers, host:port[,host:port]; of STATESTORE_KAFKA_CONFIG if not said",
        ),
    ]
    service_id: Annotated[
        Name, Field(description="names the metastore: which command topic has the definitions of this installation")
    ] = "default"
    metastore_backup: Annotated[
        Location | None,
        Field(description="backup of the command topic; `<reports_dir>/metastore/<service_id>.backup` if not said"),
    ] = None
    kafka_timeout_s: Annotated[
        float, duration_in("s"), Field(gt=0, allow_inf_nan=False, description="deadline of one request to Kafka")
    ] = 30.0
    restore_run_bytes: Annotated[
        int, Field(ge=4096, description="memory bound of one sorted run during a restore, in bytes of keys and values")
    ] = 96 * 1024 * 1024
    quarantine_days: Annotated[
        float,
        duration_in("d"),
        Field(ge=0, allow_inf_nan=False, description="days after which a restore removes a store it replaced"),
    ] = 7.0
    accept_loss: Annotated[
        bool,
        Field(
            description="rebuild also stores whose changelog can no longer give all that they have, and remove also "
            "replaced stores by age that may be the only copy of something"
        ),
    ] = False
    archive: Annotated[
        str | None,
        Field(
            min_length=1,
            description="where snapshots of stores are kept: s3://bucket/prefix, az://account/container/prefix, "
            "gs://bucket/prefix or file:///directory; none if not said",
        ),
    ] = None
    archive_timeout_s: Annotated[
        float,
        duration_in("s"),
        Field(gt=0, allow_inf_nan=False, description="deadline of one request to the archive"),
    ] = 60.0
    node_local_state: Annotated[
        bool,
        Field(
            description="each node has a state directory of its own, with copies of stores that the archive has; "
            "otherwise all nodes must see the same one"
        ),
    ] = False
    snapshot_keep: Annotated[
        int, Field(ge=1, description="how many of the newest snapshots of a store partition clean-up keeps")
    ] = 3
    snapshot_days: Annotated[
        float,
        duration_in("d"),
        Field(ge=0, allow_inf_nan=False, description="days for which clean-up keeps each snapshot"),
    ] = 7.0
    snapshot_grace_hours: Annotated[
        float,
        duration_in("h"),
        Field(allow_inf_nan=False, description="hours for which clean-up keeps the files of a marked snapshot"),
    ] = LEAST_GRACE_HOURS
    scratch_dir: Annotated[
        Path | None,
        Field(description="where the job `snapshot` builds stores, on each executor; in `state_dir` if not said"),
    ] = None
    objectives: Annotated[
        Path | None,
        Field(description="YAML file with the objectives of applications without a definition; none if not said"),
    ] = None
    drill_dir: Annotated[
        Path | None,
        Field(description="where drills build stores, on each executor; among temporary files if not said"),
    ] = None
    drill_reserve_bytes: Annotated[
        int | None,
        Field(
            ge=0,
            description="bytes that drills leave free on a disk of live stores; a fifth of the disk if not said",
        ),
    ] = None
    evidence_dir: Annotated[
        Location | None,
        Field(description="evidence of drills: a directory, or a URL; `<reports_dir>/evidence` if not said"),
    ] = None
    metrics_recording_level: Annotated[
        Literal["INFO", "DEBUG", "TRACE"], Field(description="from DEBUG on, metrics have a value for each task")
    ] = "INFO"

    @field_validator("node_local_state")
    @classmethod
    def _require_archive(cls, node_local: bool, info: ValidationInfo) -> bool:
        if node_local and info.data.get("archive") is None:
            raise ValueError(
                "expected STATESTORE_ARCHIVE as well: the archive keeps the stores if a node is lost. Set it, or mount "
                "one state directory on all nodes"
            )
        return node_local

    @field_validator("snapshot_grace_hours")
    @classmethod
    def _require_grace(cls, hours: float) -> float:
        if (problem := short_grace(hours)) is not None:
            raise ValueError(problem)
        return hours

    @cached_property
    def cluster(self) -> Cluster:
        """The Kafka cluster; nothing is connected yet."""
        from statestore.kafka.cluster import Cluster  # DAG files, which are parsed every few seconds, need none

        return Cluster(self.bootstrap_servers, self.kafka_timeout_s)

    def required_archive(self) -> str:
        """Return the archive's URL.

        Raises
        ------
        InputError
            If there is no archive.
        """
        if self.archive is None:
            raise InputError(
                "there is no archive for snapshots. Set STATESTORE_ARCHIVE, such as s3://bucket/prefix, in the "
                "environment of this process. docs/snapshots.md lists what else an archive needs"
            )
        return self.archive


def short_grace(hours: float) -> str | None:
    """Say what is wrong with a grace period of clean-up while others may publish; None: nothing."""
    if hours >= LEAST_GRACE_HOURS:
        return None
    return (
        f"expected at least {LEAST_GRACE_HOURS:g}, found {hours:g}: an upload may take {LEAST_GRACE_HOURS / 2:g} "
        "hours, and clean-up must not remove what it relies on"
    )


def load_settings(**given: Any) -> Settings:
    """Read the settings from the environment; those that are given go first.

    Raises
    ------
    InputError
        If one is missing or malformed; the message names every such variable.
    """
    if os.environ.get(BOOTSTRAP_SERVERS) or "bootstrap_servers" in given:
        return _load(Settings, **given)
    brokers = read_kafka_config().get("bootstrap.servers")
    return _load(Settings, **({} if brokers is None else {"bootstrap_servers": brokers}), **given)


def is_node_local() -> bool:
    """Tell whether each node has a state directory of its own, with copies of stores that the archive has.

    Raises
    ------
    InputError
        As `load_settings`.
    """
    return _load(NodeLocalState).node_local_state


def load_state_dir() -> Path:
    """Return the directory of the stores.

    Raises
    ------
    InputError
        As `load_settings`.
    """
    return _load(StateDirectory).state_dir


def load_directories() -> Directories:
    """Read the locations of reports and Data Docs; no other setting is needed.

    Raises
    ------
    InputError
        As `load_settings`.
    """
    return _load(Directories)


def _load(kind: type[S], **given: Any) -> S:
    try:
        return kind(**given)
    except ValidationError as error:
        problems = "; ".join(
            f"STATESTORE_{str(problem['loc'][0]).upper()}: {problem['msg']}" for problem in error.errors()
        )
        raise InputError(f"the environment variables of this installation are invalid: {problems}") from error
