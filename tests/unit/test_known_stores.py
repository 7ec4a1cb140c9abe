"""What is known of the stores of an application without a definition: kept here and in the archive, used with care."""

from __future__ import annotations

import dataclasses

import pytest

from statestore.archive.archive import ArchiveSpec
from statestore.definitions.store import StoreDefinition
from statestore.discovery.hints import Hint
from statestore.discovery.known_store import KnownStore, StoreProgress
from statestore.discovery.known_stores_file import keep_known, learned, read_known
from statestore.discovery.store import DiscoveredStore
from statestore.errors import InputError
from statestore.model import StoreFormat, TaskId
from statestore.partition.spec import ChangelogSpec
from statestore.statedir.paths import known_stores_file
from statestore.stores.manifest import DatabaseProgress

HOUR = 3_600_000
WINDOWS = StoreDefinition(
    name="w", kind="window", format="plain", engine="rocksDB", retention_ms=HOUR, window_size_ms=0
)
CHANGELOG = ChangelogSpec(topic="app-w-changelog", topic_id="one", delete_retention_ms=1, partitions=1)
FOUND = DiscoveredStore("app", "w", WINDOWS, CHANGELOG, (TaskId(1, 0),))


def known(store=FOUND, said=None, before=None, now_ms=5):
    return learned(before or {}, [store], [], said or {}, now_ms)


@pytest.fixture
def archive(tmp_path):
    return ArchiveSpec(url=f"file://{tmp_path}/archive", cluster="cluster")


def test_what_is_learned_of_a_store_is_its_shape_and_whose_it_is():
    [kept] = known().values()
    assert (kept.definition, kept.segment_interval_ms, kept.subtopology) == (WINDOWS, HOUR // 2, 1)
    assert (kept.changelog, kept.topic_id, kept.shown) == ("app-w-changelog", "one", True)


def test_what_a_user_has_said_is_not_taken_for_shown():
    said = DiscoveredStore("app", "w", WINDOWS, CHANGELOG, (TaskId(1, 0),), described="kind=window")
    [kept] = known(said).values()
    assert (kept.shown, kept.described) == (False, "kind=window")
    assert kept.contradiction(Hint(kind="session")) == ""
    # Also once there is a directory, which was built as somebody said; but not where it was there before.
    built = dataclasses.replace(said, shown=True)
    assert known(built, before={"w": kept})["w"].described == "kind=window"
    assert known(built)["w"].shown


def test_what_has_a_problem_now_changes_nothing_that_was_known():
    before = known()
    for trouble in ("needed", "missing", "in use", "unlogged"):
        assert known(FOUND.with_problem(trouble, "-"), before=before, now_ms=9) == before


def test_what_is_known_completes_what_is_said_and_contradicts_it():
    [kept] = known().values()
    assert kept.completed(Hint()) == Hint(
        kind="window", format=StoreFormat.PLAIN, retention_ms=HOUR, subtopology=1, changelog="app-w-changelog"
    )
    assert kept.completed(Hint(retention_ms=7)).retention_ms == 7
    assert kept.contradiction(Hint(kind="window", retention_ms=HOUR)) == ""
    # The application may have changed the retention since.
    assert kept.contradiction(Hint(kind="session", retention_ms=7)) == "kind=window, not session"


def test_stores_in_memory_are_left_out_once_they_are_named():
    [kept] = learned({}, [], [], {"m": Hint(engine="in_memory")}, 5).values()
    assert kept.completed(Hint()).engine == "in_memory"
    assert kept.completed(Hint(engine="rocksDB")).engine == "rocksDB"


@pytest.mark.parametrize("where", ["here", "archive", "both"])
def test_what_is_kept_is_read_again(tmp_path, archive, where):
    stores = known()
    keep_known(tmp_path, "app", stores, None if where == "here" else archive)
    if where == "archive":
        known_stores_file(tmp_path, "app").unlink()
    assert read_known(tmp_path, "app", None if where == "here" else archive) == stores
    assert read_known(tmp_path, "other", archive) == {}


def test_whichever_was_seen_later_counts_and_segments_are_those_of_this_disk(tmp_path, archive):
    segments = {"1_0": {"w.0": "identity"}}
    here = {"w": KnownStore(described="here", segments=segments, seen_ms=5)}
    keep_known(tmp_path, "app", {"w": KnownStore(described="old", segments={"1_0": {"w.9": "x"}}, seen_ms=4)}, archive)
    keep_known(tmp_path, "app", here)
    assert read_known(tmp_path, "app", archive) == here
    keep_known(tmp_path / "elsewhere", "app", {"w": KnownStore(described="new", seen_ms=6)}, archive)
    found = read_known(tmp_path, "app", archive)["w"]
    assert (found.described, found.segments) == ("new", segments)


def test_a_word_in_the_archive_does_not_go_before_what_a_directory_has_shown_here(tmp_path, archive):
    said = DiscoveredStore("app", "w", WINDOWS, CHANGELOG, (TaskId(1, 0),), described="kind=window")
    keep_known(tmp_path / "elsewhere", "app", known(said, now_ms=9), archive)
    keep_known(tmp_path, "app", known(now_ms=5))
    assert read_known(tmp_path, "app", archive) == known(now_ms=5)
    keep_known(tmp_path, "app", known(now_ms=7))
    assert read_known(tmp_path, "app") == known(now_ms=7), "it was seen again"


def test_what_was_damaged_says_nothing(tmp_path, archive):
    keep_known(tmp_path, "app", known(), archive)
    path = known_stores_file(tmp_path, "app")
    whole = path.read_bytes()
    for damaged in (b"", b"{", whole[: len(whole) // 2], whole.replace(b"window", b"wind0w", 1)):
        path.write_bytes(damaged)
        assert read_known(tmp_path, "app") == {}
    [kept] = (tmp_path / "archive" / "shapes").rglob("*.json")
    whole = kept.read_bytes()
    for damaged in (b"\xff", whole.replace(b'"kind":"window"', b'"kind":"session"', 1)):
        kept.write_bytes(damaged)
        assert read_known(tmp_path, "app", archive) == {}


def test_the_same_is_not_kept_twice(tmp_path, archive):
    for now_ms in (5, 6):
        keep_known(tmp_path, "app", known(now_ms=now_ms), archive)
    assert len(list((tmp_path / "archive" / "shapes").rglob("*.json"))) == 1


def test_a_name_that_leaves_the_directory_is_refused(tmp_path):
    with pytest.raises(InputError, match="not a valid name"):
        read_known(tmp_path, "../app")


def test_progress_is_kept_on_this_disk_only(tmp_path, archive):
    progress = {"1_0": StoreProgress(committed=7, databases={"": DatabaseProgress("identity", 5, 9)})}
    here = {"w": KnownStore(described="here", progress=progress, seen_ms=5)}
    keep_known(tmp_path, "app", here, archive)
    assert read_known(tmp_path, "app", archive) == here
    assert read_known(tmp_path / "elsewhere", "app", archive)["w"].progress == {}
    later = {"1_0": StoreProgress(committed=8, databases={"": DatabaseProgress("identity", 6, 9)})}
    keep_known(tmp_path, "app", {"w": here["w"].model_copy(update={"progress": later})}, archive)
    assert len(list((tmp_path / "archive" / "shapes").rglob("*.json"))) == 1
