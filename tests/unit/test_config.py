"""The settings of an installation: read from the environment when asked for, all problems named at once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from statestore import config
from statestore.archive.upload import MOST_S
from statestore.config import Settings, load_directories, load_settings
from statestore.errors import InputError
from statestore.private_config import read_kafka_config

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
        for name in (*Settings.model_fields, "kafka_config"):
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
        ("STATESTORE_SNAPSHOT_KEEP", "0"),
        ("STATESTORE_SNAPSHOT_GRACE_HOURS", "nan"),
    ],
)
def test_a_malformed_variable_is_named(environment, name, value):
    environment({**WHOLE, name: value})
    with pytest.raises(InputError, match=name):
        load_settings()


def test_the_archive_is_required_and_its_grace_period_covers_an_upload(environment):
    environment(WHOLE)
    with pytest.raises(InputError, match="Set STATESTORE_ARCHIVE"):
        load_settings().required_archive()
    environment({**WHOLE, "STATESTORE_ARCHIVE": "s3://bucket", "STATESTORE_SNAPSHOT_GRACE_HOURS": "47.9"})
    with pytest.raises(InputError, match=r"STATESTORE_SNAPSHOT_GRACE_HOURS: .*expected at least 48, found 47\.9: an"):
        load_settings()
    environment({**WHOLE, "STATESTORE_ARCHIVE": "s3://bucket", "STATESTORE_SNAPSHOT_GRACE_HOURS": "48"})
    assert load_settings().required_archive() == "s3://bucket"
    assert load_settings().snapshot_grace_hours * 3600 / 2 >= MOST_S


def test_the_settings_cannot_be_changed(environment):
    environment(WHOLE)
    with pytest.raises(ValueError, match="frozen"):
        load_settings().state_dir = Path("/elsewhere")


def test_reports_and_data_docs_may_lie_in_object_storage(environment):
    urls = {
        "STATESTORE_REPORTS_DIR": "s3://bucket/a%20prefix/",
        "STATESTORE_DATA_DOCS_DIR": "file:///data%20docs",
        "STATESTORE_METASTORE_BACKUP": "az://account/container/backup",
    }
    environment({**WHOLE, **urls})
    found = load_settings()
    assert (found.reports_dir / "verify").key == "a prefix/verify"
    assert (found.data_docs_dir, str(found.metastore_backup)) == (
        Path("/data docs"),
        urls["STATESTORE_METASTORE_BACKUP"],
    )
    for url in ("s3://user:canary@bucket/a", "s3://bucket/a?token=canary", "ftp://host/canary", "s3://b/../canary"):
        environment({**WHOLE, "STATESTORE_REPORTS_DIR": url})
        with pytest.raises(InputError, match="STATESTORE_REPORTS_DIR: ") as refused:
            load_directories()
        assert "user" not in str(refused.value)
        assert "token" not in str(refused.value)


def test_locations_of_reports_are_known_without_kafka_and_stores(environment):
    unknown = ("STATESTORE_BOOTSTRAP_SERVERS", "STATESTORE_STATE_DIR")
    environment({name: value for name, value in WHOLE.items() if name not in unknown})
    assert load_directories().reports_dir == Path("/reports")
    with pytest.raises(InputError, match="STATESTORE_BOOTSTRAP_SERVERS"):
        load_settings()


# -- the configuration of Kafka's clients -------------------------------------------------------------------------

CANARY = "canary-5f2c"


@pytest.fixture
def client_file(environment, tmp_path):
    """Write a client configuration and name it in the environment, beside the other settings given."""

    def write(content, mode=0o600, **settings):
        path = tmp_path / "client.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        path.chmod(mode)
        directories = {name: value for name, value in WHOLE.items() if name.endswith("_DIR")}
        environment({**directories, "STATESTORE_KAFKA_CONFIG": str(path), **settings})
        return path

    return write


def test_brokers_come_from_the_client_configuration_unless_the_environment_names_others(client_file):
    client_file({"bootstrap.servers": "a:1"})
    assert load_settings().bootstrap_servers == "a:1"
    client_file({"bootstrap.servers": "a:1"}, STATESTORE_BOOTSTRAP_SERVERS="b:2")
    assert load_settings().bootstrap_servers == "b:2"


def test_without_a_client_configuration_there_is_nothing_to_add(environment):
    environment({**WHOLE, "STATESTORE_KAFKA_CONFIG": ""})
    assert read_kafka_config() == {}


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604, 0o602, 0o610])
def test_a_client_configuration_that_others_may_read_or_change_is_refused(client_file, mode):
    path = client_file({"sasl.password": CANARY}, mode)
    with pytest.raises(InputError, match=rf"mode {mode:04o}.*chmod 0600 {path}"):
        read_kafka_config()


@pytest.mark.parametrize(
    ("owner", "mode", "taken"),
    [
        ("root", 0o440, True),
        ("root", 0o640, True),
        ("root", 0o444, False),
        ("root", 0o660, False),
        ("else", 0o600, False),
    ],
)
def test_a_client_configuration_of_root_may_be_read_by_a_group_and_one_of_others_not_at_all(
    client_file, monkeypatch, owner, mode, taken
):
    client_file({"sasl.username": "user"})
    uid = 0 if owner == "root" else 4_000_000_001
    # Only root could make a file that belongs to somebody else.
    monkeypatch.setattr(config.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(config.os, "fstat", lambda _: os.stat_result((0o100000 | mode, 0, 0, 1, uid, 0, 0, 0, 0, 0)))
    if taken:
        assert read_kafka_config() == {"sasl.username": "user"}
    else:
        with pytest.raises(InputError, match="STATESTORE_KAFKA_CONFIG"):
            read_kafka_config()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f'{{"sasl.password": "{CANARY}', "not JSON in UTF-8: line 1"),
        (f'["{CANARY}"]', "expected a JSON object of properties, found list"),
        ("", "not JSON"),
    ],
)
def test_what_is_no_client_configuration_is_said_without_what_is_in_it(client_file, content, expected):
    path = client_file(content)
    with pytest.raises(InputError, match=expected) as caught:
        load_settings()
    assert str(path) in str(caught.value)
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_client_configuration_that_is_not_there_is_named(client_file):
    path = client_file({})
    path.unlink()
    with pytest.raises(InputError, match=f"{path} cannot be read.*every machine"):
        read_kafka_config()
