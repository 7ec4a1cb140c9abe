"""The settings of an installation: read from the environment when asked for, all problems named at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.config import Settings, load_settings
from statestore.errors import InputError

WHOLE = {
    "STATESTORE_BOOTSTRAP_SERVERS": "localhost:9092",
    "STATESTORE_STATE_DIR": "/state",
    "STATESTORE_REPORTS_DIR": "/reports",
    "STATESTORE_DATA_DOCS_DIR": "/docs",
}


@pytest.fixture
def environment(monkeypatch):
    """Set exactly these variables of ours."""

    def set_to(variables):
        for name in Settings.model_fields:
            monkeypatch.delenv(f"STATESTORE_{name.upper()}", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_to


def test_the_settings_are_those_of_the_environment(environment):
    environment({**WHOLE, "STATESTORE_RESTORE_RUN_BYTES": "8192"})
    settings = load_settings()
    assert settings.bootstrap_servers == "localhost:9092"
    assert settings.state_dir == Path("/state")
    assert (settings.kafka_timeout_s, settings.restore_run_bytes) == (30.0, 8192)
    assert (settings.service_id, settings.metastore_backup) == ("default", None)


def test_every_missing_variable_is_named(environment):
    environment({})
    with pytest.raises(InputError) as caught:
        load_settings()
    assert all(name in str(caught.value) for name in WHOLE)


@pytest.mark.parametrize("name", WHOLE)
def test_an_empty_variable_is_a_missing_one_and_not_the_current_directory(environment, name):
    environment({**WHOLE, name: ""})
    with pytest.raises(InputError, match=name):
        load_settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STATESTORE_KAFKA_TIMEOUT_S", "0"),
        ("STATESTORE_KAFKA_TIMEOUT_S", "-1"),
        ("STATESTORE_KAFKA_TIMEOUT_S", "nan"),
        ("STATESTORE_KAFKA_TIMEOUT_S", "inf"),
        ("STATESTORE_KAFKA_TIMEOUT_S", "soon"),
        ("STATESTORE_RESTORE_RUN_BYTES", "4095"),
        ("STATESTORE_RESTORE_RUN_BYTES", "1e400"),
        ("STATESTORE_RESTORE_RUN_BYTES", "96MB"),
        ("STATESTORE_SERVICE_ID", "../elsewhere"),
    ],
)
def test_a_malformed_variable_is_named(environment, name, value):
    environment({**WHOLE, name: value})
    with pytest.raises(InputError, match=name):
        load_settings()


def test_the_settings_cannot_be_changed(environment):
    environment(WHOLE)
    with pytest.raises(ValueError, match="frozen"):
        load_settings().state_dir = Path("/elsewhere")
