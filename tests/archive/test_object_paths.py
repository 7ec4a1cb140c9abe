"""A place for reports is used in one way, whether it is a directory or lies in object storage."""

from __future__ import annotations

import pickle
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import BaseModel, ValidationError

from statestore.errors import ArchiveAccessError, ArchiveUnavailableError, InputError
from statestore.objects import path as object_paths
from statestore.objects.path import (
    Location,
    ObjectPath,
    below,
    each_at_once,
    listing,
    location,
    name_below,
    read_all,
    remove_all,
    write_whole,
)
from tests.archive import azure as azurite
from tests.archive.s3 import BUCKET, environment


@pytest.fixture(params=["directory", "file URL", "S3", pytest.param("Azure", marks=pytest.mark.azure)])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A place with nothing in it."""
    if request.param == "directory":
        return location(str(tmp_path / "a place"))
    if request.param == "file URL":
        return location(f"file://{tmp_path}/a%20place")
    if request.param == "Azure":
        settings = azurite.environment(request.getfixturevalue("azure"))
        url = f"az://{azurite.ACCOUNT}/{azurite.CONTAINER}/{uuid4().hex}/a%20place"
    else:
        settings, url = environment(request.getfixturevalue("s3")), f"s3://{BUCKET}/{uuid4().hex}/a%20place"
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return location(url)


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    """A place in S3."""
    for name, value in environment(s3).items():
        monkeypatch.setenv(name, value)
    return ObjectPath(f"s3://{BUCKET}/{uuid4().hex}")


def names(paths: list[Location]) -> list[str]:
    return sorted(path.name for path in paths)


# -- one contract ------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_as_a_whole_and_written_over(place: Location) -> None:
    path = place / "verify" / "run 1%2B#é.json"
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        path.read_bytes()
    with pytest.raises(FileNotFoundError):
        path.stat()
    write_whole(path, "first")
    before = path.stat()
    write_whole(path, b"second", durable=False)
    assert (path.read_bytes(), path.exists(), path.stat().st_size) == (b"second", True, 6)
    assert (before.st_size, before.st_ctime_ns) != (path.stat().st_size, path.stat().st_ctime_ns)
    assert location(str(path)) == path
    assert (path.name, path.stem, path.suffix, path.parent.name) == ("run 1%2B#é.json", "run 1%2B#é", ".json", "verify")
    path.unlink()
    path.unlink(missing_ok=True)
    assert not path.exists()


def test_a_report_takes_the_place_of_another(place: Location) -> None:
    write_whole(place / "verify" / "a.json", "old")
    write_whole(place / "verify" / ".attempt-1" / "a.json", "new")
    (place / "verify" / ".attempt-1" / "a.json").replace(place / "verify" / "a.json")  # type: ignore[arg-type]
    assert (place / "verify" / "a.json").read_bytes() == b"new"
    assert listing(place / "verify", ".attempt-1/*") == []


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", [".parts", ".progress-1", "a.json", "b.json", "c.txt"]),
        ("*.json", ["a.json", "b.json"]),
        ("[!.]*.json", ["a.json", "b.json"]),
        (".progress-*", [".progress-1"]),
        (".parts/*.json", ["p.json"]),
        (".parts/.attempt-*", [".attempt-7"]),
        (".parts/.attempt-*/*", ["p.json"]),
        ("*/*.json", ["p.json", "q.json"]),
        ("nothing/*", []),
    ],
)
def test_patterns_find_the_same_in_both(place: Location, pattern: str, expected: list[str]) -> None:
    for name in ("a.json", "b.json", "c.txt", ".parts/p.json", ".parts/.attempt-7/p.json", ".progress-1/q.json"):
        write_whole(place / "verify" / name, name)
    write_whole(place / "verify-2" / "other.json", "of a neighbour")
    assert names(listing(place / "verify", pattern)) == expected


def test_a_directory_is_removed_with_all_in_it_and_nothing_beside_it(place: Location) -> None:
    for name in ("run/a.json", "run/deeper/b.json", "run-2/c.json"):
        write_whole(place / name, "1")
    remove_all(place / "run")
    remove_all(place / "run")
    assert not (place / "run").exists()
    assert (place / "run-2" / "c.json").exists()


def test_many_are_read_in_their_order(place: Location) -> None:
    paths = [place / f"{number}.json" for number in range(40)]
    for number, path in enumerate(paths):
        write_whole(path, str(number))
    assert read_all(paths) == [str(number).encode() for number in range(40)]
    with pytest.raises(FileNotFoundError):
        read_all([*paths, place / "missing"])
    assert list(each_at_once(paths, lambda path: path.name)) == [path.name for path in paths]


def test_places_know_what_lies_below_them(place: Location) -> None:
    assert below(place / "a" / "b.json", place) == "a/b.json"
    assert below(place, place / "a") is None
    assert name_below(str(place / "a b" / "c"), place) == "a b/c"
    assert name_below("s3://another/a/b", place) is None
    assert name_below("s3://another/../b", place) is None
    assert below(place.parent / f"{place.name}-2" / "a", place) is None


def test_a_place_survives_a_model_and_another_process(place: Location) -> None:
    class Where(BaseModel):
        place: Location | None = None

    said = Where(place=str(place / "a b")).model_dump_json()
    assert Where.model_validate_json(said, strict=True).place == place / "a b"
    assert pickle.loads(pickle.dumps(place / "a")) == place / "a"
    assert Where().place is None


# -- object storage ----------------------------------------------------------------------------------------------------


def test_a_listing_says_size_and_time_of_its_objects_without_asking_again(bucket, monkeypatch) -> None:
    write_whole(bucket / "a.json", "12345")
    (path,) = bucket.glob("*.json")
    (bucket / "a.json").unlink()
    assert path.stat().st_size == 5


def test_a_directory_is_as_young_as_its_youngest_object(bucket) -> None:
    for name in ("run/a", "run/b/c"):
        write_whole(bucket / name, "12")
    newest = max((bucket / name).stat().st_mtime_ns for name in ("run/a", "run/b/c"))
    assert ((bucket / "run").stat().st_size, (bucket / "run").stat().st_mtime_ns) == (4, newest)


def test_the_object_stores_clock_is_asked_and_nothing_stays(bucket) -> None:
    write_whole(bucket / "a", "1")
    assert bucket.now_s() >= (bucket / "a").stat().st_mtime
    assert names(listing(bucket, "*")) == ["a"]


@pytest.mark.parametrize("name", ["..", "a/../../b", "../b", "a\n", "a\0b"])
def test_a_name_that_leads_out_is_refused(bucket, name: str) -> None:
    with pytest.raises(InputError, match="expected a name below a URL of object storage"):
        bucket / name
    with pytest.raises(InputError):
        location(f"s3://{BUCKET}/{name.replace(chr(10), '%0A').replace(chr(0), '%00')}")


@pytest.mark.parametrize("url", ["s3://user:canary@bucket/a", "s3://bucket/a?token=canary", "http://bucket/a"])
def test_a_url_that_is_none_or_has_secrets_is_refused_without_them(url: str) -> None:
    class Where(BaseModel):
        place: Location

    with pytest.raises(InputError) as refused:
        location(url)
    assert "canary" not in str(refused.value)
    with pytest.raises(ValidationError, match=r"expected the URL|has credentials or options"):
        Where(place=url)


def test_a_bucket_that_is_gone_is_said_by_each_request(s3: str, monkeypatch) -> None:
    for name, value in environment(s3).items():
        monkeypatch.setenv(name, value)
    gone = ObjectPath("s3://nobody/reports")
    for ask in (
        lambda: (gone / "a.json").read_bytes(),
        lambda: (gone / "a.json").exists(),
        lambda: write_whole(gone / "a.json", "1"),
        lambda: listing(gone, "*.json"),
        gone.require_bucket,
    ):
        with pytest.raises(ArchiveAccessError, match="the bucket or container does not exist"):
            ask()


def test_who_can_do_without_an_answer_asks_once_and_then_not_for_a_while(monkeypatch) -> None:
    for name, value in environment("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STATESTORE_ARCHIVE_TIMEOUT_S", "0.5")
    place = ObjectPath(f"s3://{uuid4().hex}/reports").soon()
    monkeypatch.setattr(object_paths, "_no_answer", {})
    now = [1_000.0]
    monkeypatch.setattr(object_paths.time, "monotonic", lambda: now[0])
    asked = []

    def ask(objects):
        asked.append(objects)
        return objects.stat("a")

    for _ in range(3):
        with pytest.raises(ArchiveUnavailableError, match="could not be reached"):
            (place / "a")._ask(ask)
    assert len(asked) == 1
    now[0] += 60
    with pytest.raises(ArchiveUnavailableError):
        (place / "a")._ask(ask)
    assert len(asked) == 2
