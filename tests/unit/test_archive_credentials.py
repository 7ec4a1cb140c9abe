"""Credentials of the archive in a private file: who gets them, and what is said of a file that will not do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statestore.errors import InputError
from statestore.objects.credentials import archive_credentials
from statestore.objects.store import ObjectStore

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "canary", "AWS_ENDPOINT_URL": "http://here:1"}


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Name a private file with this content in the environment, which has no credentials."""

    def name(content: object, mode: int = 0o600) -> None:
        file = tmp_path / "credentials.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        file.chmod(mode)
        monkeypatch.setenv("STATESTORE_ARCHIVE_CONFIG", str(file))

    for variable in ("STATESTORE_ARCHIVE_CONFIG", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    return name


def test_credentials_are_those_of_the_archives_own_object_store(private) -> None:
    assert archive_credentials("s3") == {}
    private({**KEYS, "AZURE_CLIENT_SECRET": "other"})
    assert archive_credentials("s3") == KEYS
    assert archive_credentials("az") == {"AZURE_CLIENT_SECRET": "other"}
    assert archive_credentials("file") == {}


def test_credentials_reach_the_object_store_in_place_of_those_of_the_environment(private, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    private(KEYS)
    config = ObjectStore("s3://bucket/prefix")._store.config
    assert (config["access_key_id"], config["endpoint"]) == ("id", "http://here:1")


def test_an_azure_url_names_account_container_and_prefix(private) -> None:
    private({"AZURE_STORAGE_ACCOUNT_KEY": "Y2FuYXJ5"})
    store = ObjectStore("az://account/container/a/prefix")._store
    assert (store.config["account_name"], store.config["container_name"]) == ("account", "container")
    assert store.prefix == "a/prefix"
    with pytest.raises(InputError, match=r"expected az://account/container or .*, found 'az://account/'"):
        ObjectStore("az://account/")


@pytest.mark.parametrize(
    ("content", "mode", "expected"),
    [
        ({**KEYS, "AWS_SECRET": "canary"}, 0o600, "STATESTORE_ARCHIVE_CONFIG: AWS_SECRET is not one of AWS_ACCESS"),
        ({"AWS_SECRET_ACCESS_KEY": ["canary"]}, 0o600, "AWS_SECRET_ACCESS_KEY: expected a text .*, found list"),
        ("canary", 0o600, "is not JSON in UTF-8"),
        (["canary"], 0o600, "expected a JSON object of variables, found list"),
        (KEYS, 0o644, "so that others may read or change it"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_without_what_is_in_it(private, content, mode: int, expected: str) -> None:
    private(content, mode)
    with pytest.raises(InputError, match=expected) as caught:
        archive_credentials("s3")
    assert "canary" not in str(caught.value)


def test_a_session_token_of_another_key_is_refused(private, monkeypatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the environment")
    private(KEYS)
    with pytest.raises(InputError, match="belongs to another key"):
        archive_credentials("s3")
    private({**KEYS, "AWS_SESSION_TOKEN": "its own"})
    assert archive_credentials("s3")["AWS_SESSION_TOKEN"] == "its own"
