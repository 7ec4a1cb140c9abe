"""Progress in object storage: few requests, none of which the work waits for, and nothing after the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pydantic import BaseModel

from demo.processes import wait_until
from statestore.objects import path as object_paths
from statestore.objects.path import ObjectPath, write_whole
from statestore.progress.display import Bar, ProgressView, shown
from statestore.progress.files import ProgressFile, read_files, remove_progress
from tests.archive.counted import CountedStore
from tests.archive.s3 import BUCKET, environment

_WAIT_S = 120


class Told(BaseModel):
    name: str = "a"
    done: int = 0


VIEW = ProgressView(Told, lambda found: found.name, lambda found: Bar(found.name, found.done, 9), lambda _, of: f"{of}")


@pytest.fixture
def store(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedStore]:
    made = CountedStore(s3)
    with made.running() as address:
        for name, value in environment(address).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(object_paths, "_no_answer", {})
        yield made


@pytest.fixture
def directory(store: CountedStore) -> ObjectPath:
    return ObjectPath(f"s3://{BUCKET}/{uuid4().hex}/restore/.progress-run")


def test_of_a_thousand_changes_a_few_are_sent_and_the_last_is(directory, store) -> None:
    file = ProgressFile(directory / "a.json")
    for done in range(1_000):
        file.write(Told(done=done))
    file.end(Told(done=1_000))
    assert read_files(directory, Told) == [Told(done=1_000)]
    assert store.asked["PUT a.json"] <= 2
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_work_goes_on_and_ends_without_an_answer(directory, store, monkeypatch) -> None:
    monkeypatch.setenv("STATESTORE_ARCHIVE_TIMEOUT_S", "0.3")
    store.fail("PUT", "", lambda handler, _: handler.store.wait_for_the_end())
    file = ProgressFile(directory / "a.json")
    for done in range(1_000):
        file.write(Told(done=done))
    assert file.wanted
    file.end(Told(done=1_000))
    store.heal()
    monkeypatch.delenv("STATESTORE_ARCHIVE_TIMEOUT_S")
    assert read_files(directory, Told) == []


def test_what_has_not_changed_is_read_once(directory, store) -> None:
    for name in "abc":
        write_whole(directory / f"{name}.json", Told(name=name).model_dump_json())
    write_whole(directory / "torn.json", "{")
    known: dict = {}
    first = read_files(directory, Told, known)
    store.asked.clear()
    write_whole(directory / "b.json", Told(name="b", done=7).model_dump_json())
    second = read_files(directory, Told, known)
    assert [told.name for told in first] == ["a", "b", "c"]
    assert second[1] == Told(name="b", done=7)
    assert store.asked == {"PUT b.json": 1, "LIST": 1, "GET b.json": 1}


def test_a_driver_shows_what_others_write_and_removes_it(directory, store, capsys) -> None:
    with shown(directory, ["a"], VIEW):
        ProgressFile(directory / "a.json").end(Told(done=3))
    assert capsys.readouterr().err == "1\n"
    assert store.asked["GET a.json"] == 1
    remove_progress(directory)
    assert list(directory.glob("*")) == []


def test_where_object_storage_is_away_nothing_is_shown_and_nothing_fails(directory, store, monkeypatch, capsys) -> None:
    monkeypatch.setenv("STATESTORE_ARCHIVE_TIMEOUT_S", "0.3")
    for method in ("GET", "HEAD", "DELETE"):
        store.fail(method, "", lambda handler, _: handler.store.wait_for_the_end())
    with shown(directory, ["a"], VIEW):
        pass
    remove_progress(directory)
    assert capsys.readouterr().err == "1\n"
    wait_until(lambda: not [one for one in threading.enumerate() if one.name == "progress"], _WAIT_S, "no thread")
