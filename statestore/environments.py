"""Environments: applications that have settings of their own, and the ids of the DAGs that work in each.

    STATESTORE_ENVIRONMENTS   a YAML file; all of Airflow's processes must have it:

        payments:                                     # DAGs payments.process, payments.restore, ...
          applications: [orders, invoices]
          settings:
            STATESTORE_KAFKA_CONN_ID: kafka-payments
            STATESTORE_SERVICE_ID: payments
          kafka_streams:                              # verified while they run, without a definition
            billing: {state_dir: /var/lib/kafka-streams}

    STATESTORE_DAG_PREFIX     what the ids of all DAGs begin with; nothing if not said

A DAG id is `<prefix>[<environment>.]<DAG>`. The environment without a name has all other applications, and the settings
of the process alone. While an environment is active, its settings stand in the environment variables of the process:
whatever reads a setting then reads that of the environment.

Kafka is not asked: this is read when DAG files are parsed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from statestore.config import BOOTSTRAP_SERVERS, Settings, duration_in
from statestore.errors import InputError
from statestore.model import Name
from statestore.private_config import KAFKA_CONFIG

T = TypeVar("T")

FILE = "STATESTORE_ENVIRONMENTS"
PREFIX = "STATESTORE_DAG_PREFIX"
_SERVICE_ID = "STATESTORE_SERVICE_ID"
#: Names of the DAGs, without a prefix, an environment, or what may stand behind them.
DAGS = (
    *("metastore", "process", "verify", "restore", "validate", "rewrite"),
    *("snapshot", "drill", "survey", "maintenance"),
)
#: One for all, so that the page shows all stores.
COMMON = frozenset(
    {
        *(FILE, PREFIX, "STATESTORE_REPORTS_DIR", "STATESTORE_DATA_DOCS_DIR", "STATESTORE_EVIDENCE_KEY"),
        "STATESTORE_REQUESTED_BY",
    }
)
#: What an environment may say otherwise: settings of jobs, and those that only DAGs have.
OWN = (
    frozenset(f"STATESTORE_{name.upper()}" for name in Settings.model_fields)
    | {"STATESTORE_SCHEMA_REGISTRY_URL", "STATESTORE_SCHEMA_REGISTRY_CONFIG"}
    | {KAFKA_CONFIG, "STATESTORE_KAFKA_CONN_ID", "STATESTORE_ARCHIVE_CONFIG", "STATESTORE_ARCHIVE_CONNECTION"}
    | {
        f"STATESTORE_{name}_SCHEDULE"
        for name in ("PROCESS", "VERIFY", "VERIFY_DEEP", "VALIDATE", "SNAPSHOT", "DRILL", "SURVEY", "MAINTENANCE")
    }
    | {"STATESTORE_PROCESS_SCHEDULES", "STATESTORE_VERIFY_AFTER_PROCESS", "STATESTORE_VERIFY_DEEP_SAMPLE"}
    | {"STATESTORE_EVIDENCE_KEY_FILE", "STATESTORE_EVIDENCE_CONNECTION"}
    | {"STATESTORE_VERIFY_ALERT_AT"}
    | {"STATESTORE_SPARK_JOBS", "STATESTORE_SPARK_POOL", "STATESTORE_RESTORE_POOL"}
    | {"STATESTORE_CHECK_BY", "STATESTORE_RESTORE_APPROVAL"}
    | {"STATESTORE_ALERT_NOTIFIER", "STATESTORE_ALERT_ARGUMENTS", "STATESTORE_DEADLINE_MINUTES"}
    | {"STATESTORE_JOBS_DIR", "STATESTORE_REPORTS_DAYS"}
) - COMMON
_WAYS_TO_KAFKA = frozenset({"STATESTORE_KAFKA_CONN_ID", KAFKA_CONFIG, BOOTSTRAP_SERVERS})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PREFIX_TEXT = re.compile(r"[A-Za-z0-9_.-]{0,64}")


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError(f"expected an absolute path, found {str(path)!r}")
    return path


class KafkaStreamsApplication(BaseModel):
    """A Kafka Streams application without a definition, as the file lists it.

    Attributes
    ----------
    state_dir
        Its state.dir, where the driver and the executors of the jobs see it; None: only a sidecar verifies it.
    bootstrap_servers
        Its brokers; None: those of the environment.
    shapes
        File that describes stores which their directories do not show.
    here_only
        Expect only the tasks that have a directory there, because it also runs on other machines.
    at_least_once
        It uses processing.guarantee=at_least_once.
    version
        Version of Kafka Streams that will use restored stores; None: that of the existing stores.
    verified_within_hours
        A row of a report that is older counts as not verified.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    state_dir: Annotated[Path, AfterValidator(_absolute)] | None = None
    bootstrap_servers: Annotated[str, Field(min_length=1)] | None = None
    shapes: Annotated[Path, AfterValidator(_absolute)] | None = None
    here_only: bool = False
    at_least_once: bool = False
    version: Annotated[str, Field(pattern=r"^\d+(\.\d+)+$")] | None = None
    verified_within_hours: Annotated[float, duration_in("h"), Field(gt=0, allow_inf_nan=False)] = 48.0

    @model_validator(mode="after")
    def _require_state_dir(self) -> Self:
        if self.state_dir is None and (extra := self.model_fields_set - {"state_dir", "verified_within_hours"}):
            raise ValueError(f"{sorted(extra)[0]} is of no use without state_dir, the application's state.dir")
        return self


class _Said(BaseModel):
    """An environment as the file says it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    applications: tuple[Name, ...] = ()
    settings: dict[str, str | int | float | bool] = {}
    kafka_streams: dict[Name, KafkaStreamsApplication] = {}

    @model_validator(mode="after")
    def _require_applications(self) -> Self:
        if not (self.applications or self.kafka_streams):
            raise ValueError("expected names below applications or kafka_streams, found neither")
        if both := sorted(self.kafka_streams.keys() & set(self.applications)):
            raise ValueError(
                f"{both[0]} is below applications and kafka_streams: an application has a definition or none"
            )
        return self


@dataclass(frozen=True)
class Environment:
    """Some applications, and their settings.

    Attributes
    ----------
    name
        Empty: the environment of all applications that no other one has.
    applications
        Those that it has; those that others have, where it has no name.
    settings
        Variables by their names.
    kafka_streams
        Applications without a definition, by name; `applications` has these names, too.
    """

    name: str = ""
    applications: frozenset[str] = frozenset()
    settings: Mapping[str, str] = field(default_factory=dict)
    kafka_streams: Mapping[str, KafkaStreamsApplication] = field(default_factory=dict)

    def has(self, application: str) -> bool:
        """Whether an application is one of this environment."""
        return (application in self.applications) is bool(self.name)

    def own(self, applications: Mapping[str, T]) -> dict[str, T]:
        """Return what belongs to applications of this environment."""
        return {name: found for name, found in applications.items() if self.has(name)}

    def require(self, applications: Collection[str]) -> None:
        """Refuse applications that another environment has.

        Raises
        ------
        InputError
            Naming one of them, and its environment.
        """
        for application in applications:
            if not self.has(application):
                other = environment_of(application)
                where = f"environment {other.name}" if other.name else "no environment"
                raise InputError(
                    f"application {application} belongs to {where} in the file of {FILE}: start its DAG, such as "
                    f"{other.dag_id('verify')}, instead of that of {self.name or 'the applications without one'}"
                )

    def dag_id(self, dag: str) -> str:
        """Return the id of a DAG in this environment, such as `payments.restore`."""
        return f"{dag_prefix()}{f'{self.name}.' if self.name else ''}{dag}"

    @property
    def has_definitions(self) -> bool:
        """True if applications with a definition belong to it, so that more than `verify` and `restore` has work."""
        return not self.name or not self.applications <= self.kafka_streams.keys()

    def require_undefined(self, defined: Collection[str]) -> None:
        """Refuse an application that has a definition, and is listed as one without.

        Raises
        ------
        InputError
            Naming it.
        """
        if both := sorted(self.kafka_streams.keys() & set(defined)):
            raise InputError(
                f"{FILE}: environment {self.name}: {both[0]} is below kafka_streams, and the catalogue has its "
                "definition. Move it to applications"
            )

    @property
    def has_own_files(self) -> bool:
        """Whether there is something for `maintenance` that that of all others does not see."""
        return not self.name or not self.settings.keys().isdisjoint({"STATESTORE_STATE_DIR", "STATESTORE_ARCHIVE"})

    @property
    def has_own_catalogue(self) -> bool:
        """Whether its definitions are in another catalogue than those of the environment without a name."""
        return _SERVICE_ID in self.settings

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let this process, and those that it starts, have the settings of this environment."""
        before = {name: os.environ.get(name) for name in self.settings}
        os.environ.update(self.settings)
        token = _active.set(self)
        try:
            yield
        finally:
            _active.reset(token)
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


_active: ContextVar[Environment | None] = ContextVar("environment", default=None)


def active_environment() -> Environment:
    """Return the environment that is active; the one without a name if none is."""
    return _active.get() or environments()[0]


class DagName(NamedTuple):
    """What a DAG id says.

    Attributes
    ----------
    environment
        Empty: the one without a name.
    dag
        One of `DAGS`; anything else for a DAG that is not ours.
    rest
        What stands behind it, such as `deep`, or the application of a DAG `process`.
    """

    environment: str
    dag: str
    rest: str

    @classmethod
    def parse(cls, dag_id: str) -> DagName:
        """Read the id of one of our DAGs."""
        first, _, rest = dag_id.removeprefix(dag_prefix()).partition(".")
        if first in DAGS or not rest:
            return cls("", first, rest)
        dag, _, rest = rest.partition(".")
        return cls(first, dag, rest)


def dag_prefix() -> str:
    """Return what the ids of all DAGs begin with.

    Raises
    ------
    InputError
        If Airflow would not take it.
    """
    prefix = os.environ.get(PREFIX, "").strip()
    if not _PREFIX_TEXT.fullmatch(prefix):
        raise InputError(
            f"{PREFIX}: expected at most 64 letters, digits, dashes, dots, and underscores, found {prefix!r}"
        )
    return prefix


def environments() -> list[Environment]:
    """Return all environments, the one without a name first.

    Raises
    ------
    InputError
        If the file cannot be read, is malformed, or contradicts itself.
    """
    text = os.environ.get(FILE, "").strip()
    if not text:
        return [Environment()]
    named = [_environment(str(name), found) for name, found in _read(Path(text)).items()]
    _require_apart(named)
    elsewhere = frozenset(application for each in named for application in each.applications)
    return [Environment("", elsewhere), *named]


def environment_of(application: str) -> Environment:
    """Return the environment of an application."""
    return next(each for each in reversed(environments()) if each.has(application))


def environment_of_dag(dag_id: str) -> Environment:
    """Return the environment that a DAG works in.

    Raises
    ------
    InputError
        If the file has it no longer.
    """
    name = DagName.parse(dag_id).environment
    for each in environments():
        if each.name == name:
            return each
    raise InputError(f"DAG {dag_id}: the file of {FILE} has no environment {name!r}")


def _read(path: Path) -> dict[Any, Any]:
    try:
        stat = path.stat()
        found = _parsed(path, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{FILE}: {path} cannot be read: {error}; each process of Airflow needs this file") from error
    except yaml.YAMLError as error:
        raise InputError(f"{FILE}: {path} is not YAML: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InputError(f"{FILE}: {path}: expected environments by their names, found {type(found).__name__}")
    return found


@lru_cache(maxsize=1)
def _parsed(path: Path, *_version: int) -> Any:
    """Return the content of the file; nobody changes it. The page asks for it every few seconds."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _environment(name: str, found: Any) -> Environment:
    where = f"{FILE}: environment {name!r}"
    if not _NAME.fullmatch(name) or name in DAGS:
        raise InputError(
            f"{where}: expected a name of at most 64 letters, digits, dashes and underscores, and none of "
            f"{', '.join(DAGS)}"
        )
    try:
        said = _Said.model_validate(found)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}".removeprefix(": ") for problem in error.errors()
        )
        raise InputError(f"{where}: {problems}") from error
    if common := sorted(COMMON & said.settings.keys()):
        raise InputError(f"{where}: {common[0]} is one for all environments: set it for all of Airflow")
    if unknown := sorted(said.settings.keys() - OWN):
        raise InputError(f"{where}: there is no setting {unknown[0]}; docs/operations.md, Settings, lists them")
    settings = {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in said.settings.items()
    }
    if not _WAYS_TO_KAFKA.isdisjoint(settings) and not settings.get(_SERVICE_ID):
        raise InputError(
            f"{where}: it has its own connection to Kafka, so its catalogue needs a unique name: set {_SERVICE_ID}"
        )
    return Environment(name, frozenset({*said.applications, *said.kafka_streams}), settings, said.kafka_streams)


def _require_apart(named: Collection[Environment]) -> None:
    """Refuse an application in two environments, and two catalogues of one name, which would share a backup."""
    owner: dict[str, str] = {}
    for each in named:
        for application in sorted(each.applications):
            if (other := owner.setdefault(application, each.name)) != each.name:
                raise InputError(f"{FILE}: application {application} is in two environments, {other} and {each.name}")
    ways: dict[str, tuple[str, tuple[str, ...]]] = {
        os.environ.get(_SERVICE_ID, "").strip() or "default": ("the settings of Airflow", ())
    }
    for each in named:
        way = tuple(f"{name}={each.settings[name]}" for name in sorted(_WAYS_TO_KAFKA & each.settings.keys()))
        if (service := each.settings.get(_SERVICE_ID)) is None:
            continue
        other, before = ways.setdefault(service, (f"environment {each.name}", way))
        if before != way:
            raise InputError(
                f"{FILE}: environment {each.name} has the {_SERVICE_ID} {service!r} of {other}, but another "
                "connection to Kafka: give its catalogue another name"
            )
