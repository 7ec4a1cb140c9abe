"""What a found store is, from what was seen of it: names of directories, a look inside, its topic, and what is said."""

import time

import pytest

from statestore.durable import write_durably
from statestore.errors import InputError
from statestore.formats import checkpoint_file, session_key, window_key
from statestore.model import StoreDefinition, StoreFormat, TaskId, TopicPartition
from statestore.partition.spec import GLOBAL_TASK, ChangelogSpec
from statestore.statedir.paths import TaskPaths
from statestore.stores.accessor import TIMESTAMPED_COLUMN_FAMILY
from statestore.stores.rocksdb import DEFAULT_COLUMN_FAMILY, RocksDB
from statestore.verification.directories import StoreHere, applications_in, stores_in, tasks_in
from statestore.verification.discovery import _look
from statestore.verification.found import Seen, found_store
from statestore.verification.hints import Hint
from statestore.verification.look import Look, look_at_key_value, look_at_segments, store_format

HOUR = 3_600_000
DAY = 24 * HOUR
TASK = TaskId(0, 0)
PLAIN = frozenset({"default", "offsets"})
TIMESTAMPED = PLAIN | {TIMESTAMPED_COLUMN_FAMILY}
OFFSETS = frozenset({TopicPartition("app-s-changelog", 0)})
CHANGELOG = ChangelogSpec(topic="app-s-changelog", topic_id="id", delete_retention_ms=1, partitions=1)
WINDOWED = {"cleanup.policy": "compact,delete", "retention.ms": str(HOUR + DAY)}


@pytest.fixture
def seen(tmp_path):
    def make(look, config=(), *, segmented=False, here=True, changelog=CHANGELOG):
        stores = [StoreHere("s", TASK, segmented, tmp_path)] if here else []
        return Seen("app", "s", stores, look, changelog, dict(config))

    return make


def found(seen, **said):
    return found_store(seen, Hint(**said), [TASK])


def windows(spread_ms, rows=3, starts=(0, HOUR // 2), families=PLAIN):
    return Look(families, OFFSETS, rows, starts, spread_ms)


# -- what a store is


def test_a_key_value_store_has_the_format_of_its_column_families(seen):
    for families, expected in ((PLAIN, StoreFormat.PLAIN), (TIMESTAMPED, StoreFormat.TIMESTAMPED)):
        store = found(seen(Look(families, OFFSETS)))
        assert store.definition == StoreDefinition(name="s", format=expected, engine="rocksDB")
        assert store.trouble is None


@pytest.mark.parametrize("kind", ["window", "session"])
def test_a_windowed_store_is_of_the_kind_that_puts_its_rows_nearest_to_their_segments(seen, kind):
    other = {"window": "session", "session": "window"}[kind]
    store = found(seen(windows({kind: 1_000, other: 1 << 40}), WINDOWED, segmented=True))
    assert store.definition is not None
    assert (store.definition.kind, store.definition.retention_ms) == (kind, HOUR)


def test_a_retention_that_is_said_goes_before_the_topics(seen):
    look = windows({"window": 1}, starts=(0, HOUR))
    assert found(seen(look, WINDOWED, segmented=True), retention_ms=2 * HOUR).definition.retention_ms == 2 * HOUR


def test_a_store_without_a_directory_is_what_is_said_of_it(seen):
    store = found(seen(None, WINDOWED, here=False), kind="session", subtopology=0)
    assert store.definition == StoreDefinition(name="s", kind="session", retention_ms=HOUR, engine="rocksDB")
    assert store.tasks == (TASK,)
    assert store.here == frozenset()


# -- what is missing to say it


def test_a_store_without_a_directory_asks_what_it_is(seen):
    store = found(seen(None, here=False))
    assert store.trouble == "missing"
    assert "--store s:kind=key-value|window|session,format=plain|timestamped,subtopology=N" in store.problem
    assert "--store s:engine=in_memory" in store.problem


@pytest.mark.parametrize(
    "config", [{}, {"cleanup.policy": "delete", "retention.ms": "-1"}, {"cleanup.policy": "compact"}]
)
def test_a_topic_that_does_not_tell_the_retention_asks_for_it(seen, config):
    store = found(seen(windows({"window": 1}), config, segmented=True))
    assert (store.trouble, store.definition) == ("needed", None)
    assert "--retention s=MS" in store.problem


@pytest.mark.parametrize(
    ("look", "retention_ms"),
    [
        (windows({"window": 1}, starts=(0, HOUR // 3)), None),
        (windows({"window": HOUR}), None),
        (windows({"window": 1}), 7 * HOUR),
    ],
)
def test_segments_that_do_not_fit_the_retention_ask_for_the_right_one(seen, look, retention_ms):
    store = found(seen(look, WINDOWED, segmented=True), retention_ms=retention_ms)
    assert store.trouble == "needed"
    assert "does not fit a retention of" in store.problem


def test_a_windowed_store_without_rows_asks_for_its_kind(seen):
    store = found(seen(windows({"window": 0, "session": 0}, rows=0), WINDOWED, segmented=True))
    assert store.trouble == "needed"
    assert "--store s:kind=window|session" in store.problem


def test_what_is_said_and_the_directories_contradict_is_refused(seen):
    key_value, windowed = Look(PLAIN, OFFSETS), windows({"window": 1})
    for store in (
        found(seen(key_value), kind="window"),
        found(seen(key_value), subtopology=1),
        found(seen(windowed, WINDOWED, segmented=True), kind="key-value"),
        found(seen(windowed, WINDOWED, segmented=True), kind="session"),
    ):
        assert (store.trouble, store.definition) == ("needed", None)
        assert "; correct its " in store.problem


def test_a_store_that_no_task_lets_itself_be_read_asks_for_its_format(seen):
    assert "format=plain|timestamped" in found(seen(None)).problem
    assert found(seen(None), format="plain").definition.format is StoreFormat.PLAIN


# -- what is left alone


def test_a_format_that_is_not_known_is_left_alone_with_the_reason(seen):
    store = found(seen("it has the column families ['x']"))
    assert (store.trouble, store.problem) == ("unknown", "it has the column families ['x']")


def test_rows_of_neither_kind_are_left_alone(seen):
    assert found(seen(windows({}), WINDOWED, segmented=True)).trouble == "unknown"


def test_a_versioned_store_is_known_by_its_topic_unless_somebody_says_otherwise(seen):
    config = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(DAY)}
    assert found(seen(Look(PLAIN, OFFSETS), config)).trouble == "unknown"
    assert found(seen(Look(PLAIN, OFFSETS), config), format="plain").trouble is None


def test_an_unlogged_store_is_told_from_one_that_lost_its_topic(seen):
    assert found(seen(Look(PLAIN, frozenset()), changelog=None)).trouble == "unlogged"
    assert found(seen(Look(PLAIN, OFFSETS), changelog=None)).trouble is None


# -- a look inside


def write_database(directory, rows, families=(DEFAULT_COLUMN_FAMILY,)):
    database = RocksDB(directory, list(families))
    database.write({families[0]: rows}, {TopicPartition("input", 3): 7}, status=0)
    database.sync()
    database.close()


def test_a_look_tells_format_and_changelog_and_changes_nothing(tmp_path):
    write_database(tmp_path / "s", {b"k": b"v"}, (TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY))
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "s").iterdir()}
    look = look_at_key_value(tmp_path / "s")
    assert store_format(look) is StoreFormat.TIMESTAMPED
    assert look.offsets == {TopicPartition("input", 3)}
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "s").iterdir()} == before


T0 = 1_700_000_000_000 // (HOUR // 2) * (HOUR // 2)
KEYS = [b"", b"k", b"\x00" * 8, b"\xff" * 9, b"a-longer-key"]


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("kind", ["window", "session"])
def test_row_keys_tell_windows_from_sessions(tmp_path, seen, kind, segments):
    for start in [T0 + number * HOUR // 2 for number in range(segments)]:
        times = [start, start + 1, start + HOUR // 2 - 1]
        if kind == "window":
            keys = [window_key.encode(key, time) for key in KEYS for time in times]
        else:
            keys = [session_key.encode(key, time - 10, time) for key in KEYS for time in times]
        write_database(tmp_path / "s" / f"s.{start}", dict.fromkeys(keys, b"v"))
    look = look_at_segments(tmp_path / "s")
    assert found(seen(look, WINDOWED, segmented=True)).definition.kind == kind
    assert look.spread_ms[kind] == HOUR // 2 - 1
    assert look.starts == tuple(T0 + number * HOUR // 2 for number in range(segments))


def test_sequence_numbers_tell_a_store_that_retains_duplicates(tmp_path):
    write_database(tmp_path / "s" / f"s.{T0}", {window_key.encode(b"k", T0, 2): b"v"})
    assert look_at_segments(tmp_path / "s").duplicates


def test_a_store_without_offsets_in_one_task_is_told_by_another(tmp_path):
    partitions = [StoreHere("s", TaskId(0, number), False, tmp_path / f"{number}") for number in range(3)]
    for found, known in zip(
        partitions, ({}, {TopicPartition("input", 1): 7}, {TopicPartition("other", 2): 7}), strict=True
    ):
        database = RocksDB(found.directory, [DEFAULT_COLUMN_FAMILY])
        database.write({DEFAULT_COLUMN_FAMILY: {}}, known, status=0)
        database.close()
    for here, offsets in ((partitions, {TopicPartition("input", 1)}), (partitions[:1], set())):
        look = _look(tmp_path / "state", "app", here, time.monotonic() + 1)
        assert isinstance(look, Look)
        assert look.offsets == offsets


def test_a_checkpoint_file_tells_the_offset_of_the_input_that_is_said_to_be_the_changelog(tmp_path):
    here = StoreHere("s", TASK, False, tmp_path / "s")
    RocksDB(here.directory, [DEFAULT_COLUMN_FAMILY]).close()
    checkpoint = TaskPaths(tmp_path, "app", TASK).checkpoint
    orders, own = TopicPartition("orders", 0), TopicPartition("app-s-changelog", 0)
    write_durably(checkpoint, checkpoint_file.write({orders: 7, own: 3, TopicPartition("app-t-changelog", 0): 1}))
    for said, offsets in ((None, {own}), ("orders", {own, orders})):
        look = _look(tmp_path, "app", [here], time.monotonic() + 1, said)
        assert isinstance(look, Look)
        assert look.offsets == offsets


# -- names of directories


def test_stores_are_found_by_their_directories(tmp_path):
    for path in ("app/0_0/rocksdb/counts", "app/0_1/w/w.0", "app/global/rocksdb/rates", "app/0_1/w/w.60000", ".own/x"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "app" / "0_0" / ".checkpoint").touch()
    (tmp_path / "app" / "not-a-task").mkdir()
    assert applications_in(tmp_path) == ["app"]
    assert tasks_in(tmp_path, "app") == [GLOBAL_TASK, TaskId(0, 0), TaskId(0, 1)]
    stores, others = stores_in(tmp_path, "app")
    assert [(store.name, str(store.task), store.segmented) for store in stores] == [
        ("rates", "global", False),
        ("counts", "0_0", False),
        ("w", "0_1", True),
    ]
    assert others == []


def test_what_is_no_store_is_left_alone_with_the_reason(tmp_path):
    (tmp_path / "app" / "0_0" / "custom" / "data").mkdir(parents=True)
    (tmp_path / "app" / "0_0" / "rocksdb" / "_odd").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "app" / "0_0" / "rocksdb" / "linked").symlink_to(tmp_path / "elsewhere")
    stores, others = stores_in(tmp_path, "app")
    assert stores == []
    reasons = {other.path.name: other.reason for other in others}
    assert reasons["custom"] == "data in it is no segment, expected custom.<start in ms>"
    assert reasons["linked"] == "it is a symbolic link, expected a directory"
    assert "'_odd' is not a valid name" in reasons["_odd"]


@pytest.mark.parametrize("linked", ["app", "app/0_0"])
def test_a_linked_application_or_task_is_refused(tmp_path, linked):
    (tmp_path / "real" / "0_0").mkdir(parents=True)
    (tmp_path / linked).parent.mkdir(exist_ok=True)
    (tmp_path / linked).symlink_to(tmp_path / ("real" if linked == "app" else "real/0_0"))
    with pytest.raises(InputError, match="is a symbolic link"):
        stores_in(tmp_path, "app")


@pytest.mark.parametrize("name", ["../app", "a/b", "", "."])
def test_a_name_that_leaves_the_state_directory_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="not a valid name"):
        stores_in(tmp_path, name)
