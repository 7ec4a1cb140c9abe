"""Where things are: Kafka, the metastore, state, reports. Read from `STATESTORE_*` in the environment, never at import.

Jobs read it once on the driver and pass it to their Spark tasks, so executors need no environment of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from statestore.errors import InputError
from statestore.model import Name


class Settings(BaseSettings):
    """The settings of one installation. Each is set by `STATESTORE_<NAME>`."""

    model_config = SettingsConfigDict(env_prefix="STATESTORE_", env_ignore_empty=True, frozen=True, extra="ignore")

    bootstrap_servers: Annotated[str, Field(min_length=1, description="Kafka brokers, host:port[,host:port]")]
    state_dir: Annotated[
        Path, Field(description="Kafka Streams' state.dir: <state_dir>/<application.id>/<task id>/...")
    ]
    reports_dir: Annotated[Path, Field(description="JSON reports of the jobs, one directory per job kind")]
    data_docs_dir: Annotated[Path, Field(description="where Great Expectations writes its Data Docs")]
    service_id: Annotated[
        Name, Field(description="names the metastore: which command topic has the definitions of this installation")
    ] = "default"
    metastore_backup: Annotated[
        Path | None,
        Field(description="backup of the command topic; `<reports_dir>/metastore/<service_id>.backup` if not said"),
    ] = None
    kafka_timeout_s: Annotated[
        float, Field(gt=0, allow_inf_nan=False, description="deadline of one request to Kafka")
    ] = 30.0
    restore_run_bytes: Annotated[
        int, Field(ge=4096, description="memory bound of one sorted run during a restore, in bytes of keys and values")
    ] = 96 * 1024 * 1024
    quarantine_days: Annotated[
        float, Field(ge=0, allow_inf_nan=False, description="days after which a restore removes a store it replaced")
    ] = 7.0
    metrics_recording_level: Annotated[
        Literal["INFO", "DEBUG", "TRACE"], Field(description="store metrics go to OpenTelemetry from DEBUG on")
    ] = "INFO"


def load_settings() -> Settings:
    """Read the settings from the environment.

    Raises
    ------
    InputError
        If one is missing or malformed; the message names every such variable.
    """
    try:
        return Settings()
    except ValidationError as error:
        problems = "; ".join(
            f"STATESTORE_{str(problem['loc'][0]).upper()}: {problem['msg']}" for problem in error.errors()
        )
        raise InputError(f"the environment does not configure this installation: {problems}") from error
