"""Objects of an archive: created once, read in parts, listed, deleted; and what is said where that cannot be done."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from statestore.errors import ArchiveAccessError, ArchiveUnavailableError, InputError
from statestore.objects.store import ObjectStore
from tests.archive import azure as azurite
from tests.archive.s3 import environment

MIB = 1 << 20


def test_an_object_is_created_once_and_stays_as_it_is(objects: ObjectStore) -> None:
    assert objects.create("a/b.json", b"first")
    assert not objects.create("a/b.json", b"second")
    assert objects.read("a/b.json", 5) == b"first"


def test_an_object_of_any_size_is_uploaded_and_read_in_chunks(objects: ObjectStore) -> None:
    chunks = [bytes([number]) * (6 * MIB) for number in range(3)]
    objects.upload("blobs/x", iter(chunks))
    assert objects.stat("blobs/x").size == 18 * MIB
    assert b"".join(bytes(chunk) for chunk in objects.read_chunks("blobs/x", 18 * MIB)) == b"".join(chunks)


@pytest.mark.parametrize("size", [10, 12 * MIB])
def test_an_upload_whose_source_fails_leaves_nothing_and_raises_that_error(objects: ObjectStore, size: int) -> None:
    def source() -> Iterator[bytes]:
        yield b"x" * size
        raise OSError(5, "a bad sector")

    with pytest.raises(OSError, match="a bad sector"):
        objects.upload("blobs/x", source())
    assert objects.stat("blobs/x") is None


def test_a_directory_is_listed_with_those_below_it_and_nothing_of_its_neighbours(objects: ObjectStore) -> None:
    for name in ("a/1", "a/b/2", "ab/3"):
        objects.create(name, b"12")
    assert sorted((found.name, found.size) for found in objects.entries("a")) == [("a/1", 2), ("a/b/2", 2)]
    assert len(list(objects.entries())) == 3
    assert objects.directories() == ["a", "ab"]
    assert objects.directories("a") == ["b"]
    assert list(objects.entries("none")) == []


def test_an_object_that_nobody_has_changed_is_the_same_in_a_listing_and_by_itself(objects: ObjectStore) -> None:
    objects.create("a/b", b"1")
    objects.upload("a/c", iter([b"2" * 6 * MIB] * 3))
    assert [objects.stat(found.name) for found in objects.entries("a")] == [*objects.entries("a")]


def test_what_is_not_there_is_said_to_be_missing_and_deleting_it_is_nothing(objects: ObjectStore) -> None:
    objects.create("a", b"1")
    objects.delete("a")
    objects.delete("a")
    assert objects.stat("a") is None
    for read in (
        lambda: objects.read("a", 1),
        lambda: list(objects.read_chunks("a", 1)),
        lambda: list(objects.read_chunks("a", 0)),
    ):
        with pytest.raises(FileNotFoundError):
            read()


def test_an_object_that_is_larger_than_expected_is_not_read(objects: ObjectStore) -> None:
    objects.create("a", b"12345")
    with pytest.raises(ValueError, match="has 5 bytes, expected 4 at most"):
        objects.read("a", 4)


@pytest.mark.parametrize("size", [0, 4, 6])
def test_an_object_of_another_size_than_expected_is_not_read(objects: ObjectStore, size: int) -> None:
    objects.create("a", b"12345")
    with pytest.raises(ValueError, match=f"has 5 bytes, expected {size}"):
        list(objects.read_chunks("a", size))
    objects.create("empty", b"")
    assert b"".join(map(bytes, objects.read_chunks("empty", 0))) == b""


@pytest.mark.azure
def test_a_container_that_does_not_exist_is_said(azure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in azurite.environment(azure).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArchiveAccessError, match="bucket or container does not exist"):
        ObjectStore(f"az://{azurite.ACCOUNT}/nothing/x").create("a", b"1")
    assert ObjectStore(f"az://{azurite.ACCOUNT}/{azurite.CONTAINER}").create("right in the container", b"1")


@pytest.mark.azure
def test_a_key_that_is_not_the_accounts_is_denied_and_not_repeated(azure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = base64.b64encode(b"another key").decode()
    for name, value in {**azurite.environment(azure), "AZURE_STORAGE_ACCOUNT_KEY": wrong}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArchiveAccessError, match="access was denied") as denied:
        ObjectStore(f"az://{azurite.ACCOUNT}/{azurite.CONTAINER}/x").create("a", b"1")
    assert wrong not in str(denied.value)


def test_the_account_in_an_azure_url_is_the_one_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "another")
    opened = ObjectStore("az://account/container/a%20prefix/")
    assert opened._store.config["account_name"] == "account"
    assert opened._store.config["container_name"] == "container"
    assert opened._store.prefix == "a prefix"
    for url in ("az://account", "az://account/"):
        with pytest.raises(InputError, match="expected az://account/container"):
            ObjectStore(url)


@pytest.mark.parametrize("url", ["archive", "http://host/a", "s3:///a", "file://host/a", ""])
def test_another_url_is_refused_with_what_is_expected(url: str) -> None:
    with pytest.raises(InputError, match="expected the URL of an archive, such as s3://bucket/prefix"):
        ObjectStore(url)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(InputError, match="set them in the environment") as refused:
        ObjectStore("s3://key:secret@bucket/prefix")
    assert "secret" not in str(refused.value)
    assert "key" not in str(refused.value)


def test_a_bucket_that_does_not_exist_is_said(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(s3).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArchiveAccessError, match="bucket or container does not exist"):
        ObjectStore("s3://nobody/x").create("a", b"1")


def test_an_endpoint_that_does_not_answer_is_retried_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArchiveUnavailableError, match=r"could not be reached .*nothing was changed"):
        ObjectStore("s3://bucket/x", timeout_s=1).create("a", b"1")
