"""What a discovered store is: from the names of directories, the shape of one, its topic, and what is said."""

import dataclasses
import errno
import struct
from contextlib import nullcontext
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from statestore.definitions.store import StoreDefinition
from statestore.discovery import older_versions
from statestore.discovery.applications import _shape
from statestore.discovery.changelogs import COMPACTION_LAG, changelog_configs
from statestore.discovery.directories import applications_in, stores_in, tasks_in, unusable_applications
from statestore.discovery.hints import Hint
from statestore.discovery.known_store import KnownStore
from statestore.discovery.older_versions import has_offsets_beside, shown_layout
from statestore.discovery.row_keys import VersionedRows
from statestore.discovery.shape import StoreShape, shape_of
from statestore.discovery.store import StoreEvidence, discovered_store
from statestore.discovery.store_directory import LiveStore
from statestore.durable import write_durably
from statestore.errors import InputError, UnknownFormatError
from statestore.formats import checkpoint_file, session_key, window_key
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY, TIMESTAMPED_COLUMN_FAMILY
from statestore.model import StoreFormat, TaskId, TopicPartition
from statestore.partition.spec import GLOBAL_TASK, ChangelogSpec
from statestore.statedir.paths import TaskPaths
from statestore.stores.rocksdb import RocksDB

HOUR = 3_600_000
T0 = 1_700_000_000_000 // (HOUR // 2) * (HOUR // 2)
DAY = 24 * HOUR
TASK = TaskId(0, 0)
LOOKED_AT = Path("/state/app/0_0/s")
PLAIN = frozenset({"default", "offsets"})
TIMESTAMPED = PLAIN | {TIMESTAMPED_COLUMN_FAMILY}
OFFSETS = {TopicPartition("app-s-changelog", 0): 7}
CHANGELOG = ChangelogSpec(topic="app-s-changelog", topic_id="id", delete_retention_ms=1, partitions=1)
WINDOWED = {"cleanup.policy": "compact,delete", "retention.ms": str(HOUR + DAY)}


def live_store(directory, task=TASK, *, segmented=False, state_dir=Path("/state")):
    return LiveStore("s", segmented, directory, "app", task, state_dir)


@pytest.fixture
def evidence(tmp_path):
    def make(shape, config=(), *, segmented=False, here=True, changelog=CHANGELOG):
        stores = [live_store(tmp_path, segmented=segmented)] if here else []
        return StoreEvidence("app", "s", stores, shape, changelog, dict(config))

    return make


def found(evidence, **said):
    return discovered_store(evidence, Hint(**said), [TASK])


def key_value(families, offsets=OFFSETS):
    return StoreShape(LOOKED_AT, families, offsets)


def windows(spread_ms, rows=3, starts=(0, HOUR // 2), families=PLAIN):
    return StoreShape(LOOKED_AT, families, OFFSETS, rows, starts, spread_ms)


# -- what a store is


def test_a_key_value_store_has_the_format_of_its_column_families(evidence):
    for families, expected in ((PLAIN, StoreFormat.PLAIN), (TIMESTAMPED, StoreFormat.TIMESTAMPED)):
        store = found(evidence(key_value(families)))
        assert store.definition == StoreDefinition(name="s", format=expected, engine="rocksDB")
        assert store.trouble is None


@pytest.mark.parametrize("kind", ["window", "session"])
def test_a_windowed_store_is_of_the_kind_that_puts_its_rows_nearest_to_their_segments(evidence, kind):
    other = {"window": "session", "session": "window"}[kind]
    store = found(evidence(windows({kind: 1_000, other: 1 << 40}), WINDOWED, segmented=True))
    assert store.definition is not None
    assert (store.definition.kind, store.definition.retention_ms) == (kind, HOUR)


@pytest.mark.parametrize(
    ("behind", "overlapping", "trouble"),
    [(3, False, None), (3, True, None), (9, True, "needed"), (None, True, None), (None, False, "needed")],
)
def test_segments_of_another_length_are_left_over_if_they_are_behind(evidence, behind, overlapping, trouble):
    starts = (0, HOUR // 2, 4 * HOUR)
    offsets = {} if behind is None else {0: 9, HOUR // 2: behind, 4 * HOUR: 9}
    shape = windows({"window": 1}, starts=starts)._replace(overlapping=overlapping, segment_offsets=offsets)
    store = found(evidence(shape, WINDOWED, segmented=True), retention_ms=8 * HOUR)
    assert store.trouble == trouble


@pytest.mark.parametrize(
    ("newest", "overlapping", "said", "expected"),
    [
        (12 * HOUR, True, True, None),  # all rows of the longer segment have expired
        (4 * HOUR + HOUR // 2, True, True, "were made with a longer retention"),
        (12 * HOUR, False, True, "does not fit a retention of"),
        (12 * HOUR, True, False, "does not fit a retention of"),
    ],
)
def test_a_shorter_retention_is_asked_about_only_if_rows_may_be_lost(evidence, newest, overlapping, said, expected):
    """Given a segment of 4 h that is left from a retention of 8 h, which is now 1 h."""
    starts, last = (0, newest), {"window": 4 * HOUR - 1}
    shape = windows(last, starts=starts)._replace(
        overlapping=overlapping, segment_spreads_ms={0: last, newest: {"window": 5}}
    )
    how = {"retention_ms": HOUR} if said else {}
    store = found(evidence(shape, WINDOWED, segmented=True), kind="window", **how)
    assert store.trouble == (None if expected is None else "needed")
    assert (expected or "") in store.problem


def test_a_retention_that_is_said_goes_before_the_topics(evidence):
    shape = windows({"window": 1}, starts=(0, HOUR))
    assert found(evidence(shape, WINDOWED, segmented=True), retention_ms=2 * HOUR).definition.retention_ms == 2 * HOUR


def test_a_store_without_a_directory_is_what_is_said_of_it(evidence):
    store = found(evidence(None, WINDOWED, here=False), kind="session", subtopology=0, retention_ms=HOUR)
    assert store.definition == StoreDefinition(name="s", kind="session", retention_ms=HOUR, engine="rocksDB")
    assert store.tasks == (TASK,)
    assert store.here == frozenset()


def test_windows_that_are_emitted_when_they_close_have_an_index_where_they_have_headers(evidence):
    said = {"format": "headers", "subtopology": 0, "retention_ms": HOUR}
    lost = evidence(None, WINDOWED, here=False)
    store = found(lost, kind="time-ordered-window", **said)
    assert store.trouble == "needed"
    assert "a time-ordered-window store has the format timestamped-in-default, not headers" in store.problem
    for kind in ("indexed-time-ordered-window", "time-ordered-session"):
        assert found(lost, kind=kind, **said).definition.format is StoreFormat.HEADERS


# -- what is missing to say it


def test_a_store_without_a_directory_asks_what_it_is(evidence):
    store = found(evidence(None, here=False))
    assert store.trouble == "missing"
    said = "--store s:kind=key-value|window|session|versioned,format=plain|timestamped|headers,subtopology=N"
    assert said in store.problem
    assert "--shapes FILE" in store.problem
    assert "retention_ms" in store.problem
    assert "--store s:engine=in_memory" in store.problem


@pytest.mark.parametrize(
    "config", [{}, {"cleanup.policy": "delete", "retention.ms": "-1"}, {"cleanup.policy": "compact"}]
)
def test_a_topic_that_does_not_tell_the_retention_asks_for_it(evidence, config):
    store = found(evidence(windows({"window": 1}), config, segmented=True))
    assert (store.trouble, store.definition) == ("needed", None)
    assert "--retention s=MS" in store.problem


@pytest.mark.parametrize(
    ("shape", "retention_ms"),
    [
        (windows({"window": 1}, starts=(0, HOUR // 3)), None),
        (windows({"window": HOUR}), None),
        (windows({"window": 1}), 7 * HOUR),
    ],
)
def test_segments_that_do_not_fit_the_retention_ask_for_the_right_one(evidence, shape, retention_ms):
    store = found(evidence(shape, WINDOWED, segmented=True), retention_ms=retention_ms)
    assert store.trouble == "needed"
    assert "does not fit a retention of" in store.problem


@pytest.mark.parametrize("here", [True, False])
def test_a_windowed_store_without_segments_asks_for_its_retention_whatever_its_topic_says(evidence, here):
    # The application may have its topics keep more than a day beyond the store's own retention.
    shape = windows({}, rows=0, starts=()) if here else None
    store = found(evidence(shape, WINDOWED, segmented=True, here=here), kind="window", format="plain", subtopology=0)
    assert (store.trouble, store.definition) == ("needed", None)
    assert "no segment is left that shows its retention" in store.problem or here
    assert "--retention s=MS" in store.problem


@pytest.mark.parametrize("starts", [(0, HOUR), (HOUR, 2 * HOUR, 3 * HOUR)])
def test_segments_that_may_be_longer_than_the_topic_makes_them_ask_for_the_retention(evidence, starts):
    # Of a retention of two hours whose changelog keeps an hour less than Kafka Streams' default adds, say.
    shape = windows({"window": 1}, starts=starts)
    store = found(evidence(shape, WINDOWED, segmented=True))
    assert (store.trouble, store.definition) == ("needed", None)
    assert f"segments {HOUR} ms apart" in store.problem
    assert "windowstore.changelog.additional.retention.ms; add --retention s=MS" in store.problem
    for retention_ms in (HOUR, 2 * HOUR):  # either can be: some segments may never have had a row
        assert found(evidence(shape, WINDOWED, segmented=True), retention_ms=retention_ms).trouble is None


def test_a_windowed_store_without_rows_asks_for_its_kind(evidence):
    store = found(evidence(windows({"window": 0, "session": 0}, rows=0), WINDOWED, segmented=True))
    assert store.trouble == "needed"
    assert "--store s:kind=window|session" in store.problem


def test_what_is_said_and_the_directories_contradict_is_refused(evidence):
    plain, windowed = key_value(PLAIN), windows({"window": 1})
    for store in (
        found(evidence(plain), format="timestamped"),
        found(evidence(key_value(TIMESTAMPED)), format="plain"),
        found(evidence(windowed, WINDOWED, segmented=True), format="timestamped"),
        found(evidence(plain), kind="window"),
        found(evidence(plain), subtopology=1),
        found(evidence(windowed, WINDOWED, segmented=True), kind="key-value"),
        found(evidence(windowed, WINDOWED, segmented=True), kind="session"),
    ):
        assert (store.trouble, store.definition) == ("needed", None)
        assert "; correct its " in store.problem


def test_what_is_said_and_what_is_found_are_both_named_where_they_contradict(evidence):
    problem = found(evidence(windows({"window": 1}), WINDOWED, segmented=True), kind="session").problem
    assert f"{LOOKED_AT} has row keys of a window store, not of a session store" in problem
    problem = found(evidence(key_value(TIMESTAMPED)), format="plain").problem
    assert "the column families default, keyValueWithTimestamp, offsets, which are those of a timestamped" in problem
    assert "not of a plain one" in problem


def test_a_store_says_how_it_was_described(evidence):
    assert (
        found(evidence(key_value(PLAIN)), kind="key-value", format="plain").described == "kind=key-value, format=plain"
    )
    assert found(evidence(key_value(PLAIN)), subtopology=0).described == ""


def test_a_store_that_no_task_lets_itself_be_read_asks_for_its_format(evidence):
    store = found(evidence(None))
    assert store.trouble == "damaged"
    assert "format=plain|timestamped" in store.problem
    assert found(evidence(None), format="plain").definition.format is StoreFormat.PLAIN


# -- what is left alone


def test_a_format_that_is_not_known_is_left_alone_with_the_reason(evidence):
    store = found(evidence(UnknownFormatError("it has the column families ['x']")))
    assert (store.trouble, store.problem) == ("unknown", "it has the column families ['x']")


def test_rows_of_neither_kind_are_left_alone(evidence):
    assert found(evidence(windows({}), WINDOWED, segmented=True)).trouble == "unknown"


def test_a_format_that_is_not_known_is_left_alone_whatever_is_said_and_that_is_named(evidence):
    store = found(evidence(UnknownFormatError("it has the column families ['x']")), kind="key-value", format="plain")
    assert store.trouble == "unknown"
    assert store.problem.startswith(
        "it has the column families ['x']. It was described as kind=key-value, format=plain."
    )


def no_rows(**changes):
    return key_value(PLAIN)._replace(**{"versions": VersionedRows(False, 1, 1 << 62, 0), **changes})


@pytest.mark.behaviour("V7")
@pytest.mark.parametrize(
    ("shape", "trouble", "why"),
    [
        (no_rows(), "needed", "has no row"),
        (no_rows(versions=None, unread="block checksum mismatch"), "needed", "block checksum mismatch"),
        (None, "damaged", "no row of it can be read"),
    ],
)
def test_a_topic_alone_does_not_tell_a_versioned_store(evidence, shape, trouble, why):
    """An application may set `min.compaction.lag.ms` for the changelog of any store."""
    store = found(evidence(shape, HOURLY))
    assert store.trouble == trouble
    assert why in store.problem
    assert "add --store s:kind=versioned|key-value" in store.problem
    plain = found(evidence(shape, HOURLY), kind="key-value", format="plain")
    assert plain.definition is not None, plain.problem
    assert plain.definition.kind == "key-value"
    one = found(evidence(shape, HOURLY), kind="versioned")
    assert f"add --retention s={HOUR}" in one.problem
    one = found(evidence(shape, HOURLY), kind="versioned", retention_ms=HOUR)
    assert one.definition is not None, one.problem


@pytest.mark.parametrize("kind", ["versioned", "key-value"])
def test_what_is_known_of_a_store_tells_which_it_is_while_no_row_does(evidence, kind):
    fields = {"name": "s", "kind": kind, "format": "plain", "retention_ms": HOUR if kind == "versioned" else None}
    kept = StoreDefinition.model_validate(fields)
    seen = dataclasses.replace(evidence(no_rows(), HOURLY), known=KnownStore(definition=kept))
    store = found(seen, retention_ms=kept.retention_ms)
    assert store.definition is not None, store.problem
    assert store.definition.kind == kind


def test_what_brokers_say_for_all_topics_tells_nothing_of_a_store():
    class Told:
        def topic_configs(self, names):
            return {name: configs[name] for name in names}

        def own_settings(self, names):
            assert sorted(names) == ["app-own-changelog", "app-s-changelog"]
            return {"app-own-changelog": {COMPACTION_LAG: "5"}, "app-s-changelog": {"cleanup.policy": "compact"}}

    configs = {
        "app-own-changelog": {COMPACTION_LAG: "5"},
        "app-s-changelog": {COMPACTION_LAG: "5", "cleanup.policy": "compact"},
        "app-none-changelog": {COMPACTION_LAG: "0"},
        "app-old-changelog": {},
    }
    assert changelog_configs(Told(), configs) == {
        **configs,
        "app-s-changelog": {COMPACTION_LAG: "0", "cleanup.policy": "compact"},
    }


def test_a_window_stores_changelog_may_wait_with_compaction(evidence):
    config = {**WINDOWED, "min.compaction.lag.ms": str(DAY)}
    assert found(evidence(windows({"window": 1}), config, segmented=True)).trouble is None


def test_a_header_in_the_changelog_of_a_store_without_a_directory_goes_before_what_is_said(evidence):
    seen = dataclasses.replace(evidence(None, here=False), header="trace")
    store = found(seen, kind="key-value", format="timestamped", subtopology=0)
    assert store.trouble == "unknown"
    assert "records with the header 'trace'" in store.problem
    assert "It was described as kind=key-value, format=timestamped." in store.problem


def ordered(spread_ms, ordinary=None, **changes):
    return windows(ordinary or {})._replace(time_ordered_ms=spread_ms, **changes)


@pytest.mark.parametrize("said", [{}, {"kind": "session", "format": "plain"}, {"retention_ms": HOUR}])
@pytest.mark.parametrize(
    "shape",
    [
        ordered({"session": 5}),
        ordered({"session": 5}, {"session": 1}),
        ordered({"window": 5}),
        ordered({"window": 5}, {"session": 1}),
        ordered({"window": 5}, {"session": 1}, closed_windows=True),
        ordered({}, {"session": 1}, indexed=frozenset({"session"}), index_rows=True),
        ordered({"window": 5}, index_rows=True, closed_windows=True),
    ],
)
def test_rows_that_may_have_their_times_first_and_are_none_that_we_know_are_left_alone(evidence, shape, said):
    store = found(evidence(shape, WINDOWED, segmented=True), **said)
    assert store.trouble == "unknown"
    assert "EmitStrategy.onWindowClose" in store.problem
    assert ("described as kind=session, format=plain" in store.problem) is ("kind" in said)


CLOSED_WINDOWS = ordered({"window": 5}, closed_windows=True)
CLOSED_SLIDING = CLOSED_WINDOWS._replace(indexed=frozenset({"window"}), index_rows=True)
CLOSED_SESSIONS = ordered({"session": 5}, {"session": 1}, indexed=frozenset({"session"}), index_rows=True)
BUFFER = ordered({"window": T0}, starts=(0,), buffered=True)
COMPACTED = {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("shape", "config", "kind"),
    [
        (CLOSED_WINDOWS, WINDOWED, "time-ordered-window"),
        (CLOSED_SLIDING, WINDOWED, "indexed-time-ordered-window"),
        (CLOSED_SESSIONS, WINDOWED, "time-ordered-session"),
        (BUFFER, COMPACTED, "time-ordered-buffer"),
    ],
)
def test_stores_of_the_dsl_that_have_their_times_first_are_told_by_their_rows(evidence, shape, config, kind):
    store = found(evidence(shape, config, segmented=True))
    assert store.definition == StoreDefinition(
        name="s",
        kind=kind,
        format="timestamped-in-default" if "window" in kind else "plain",
        engine="rocksDB",
        retention_ms=None if kind == "time-ordered-buffer" else HOUR,
        window_size_ms=0 if "window" in kind else None,
    )
    assert store.shown
    assert found(evidence(shape, config, segmented=True), kind=kind).definition == store.definition
    others = {"key-value", "window", "session", "time-ordered-window", "time-ordered-session", "time-ordered-buffer"}
    for other in others - {kind}:
        refused = found(evidence(shape, config, segmented=True), kind=other)
        assert (refused.definition, refused.trouble) == (None, "needed"), other
        assert "correct its kind" in refused.problem


def test_rows_that_can_be_read_in_two_ways_are_those_of_the_dsl_if_somebody_says_so(evidence):
    shape = ordered({"window": 5}, {"window": 1}, closed_windows=True)
    store = found(evidence(shape, WINDOWED, segmented=True))
    assert store.trouble == "unknown"
    assert "--store s:kind=time-ordered-window" in store.problem
    assert found(evidence(shape, WINDOWED, segmented=True), kind="window").trouble == "unknown"
    said = found(evidence(shape, WINDOWED, segmented=True), kind="time-ordered-window")
    assert (said.definition.kind, said.shown) == ("time-ordered-window", False)
    assert said.described == "kind=time-ordered-window"


def test_a_lost_store_of_closed_windows_has_its_format_whatever_format_with_timestamps_is_said(evidence):
    lost = evidence(None, WINDOWED, here=False)
    said = {"kind": "indexed-time-ordered-window", "retention_ms": HOUR, "subtopology": 0}
    for of_format in (None, "timestamped", "timestamped-in-default"):
        store = found(lost, **said, format=of_format)
        assert (store.definition.kind, store.definition.format) == (said["kind"], "timestamped-in-default")
    assert "has the format timestamped-in-default" in found(lost, **said, format="plain").problem
    refused = found(lost, **{**said, "kind": "window"}, format="timestamped-in-default")
    assert (refused.definition, refused.trouble) == (None, "needed")


def test_ordinary_rows_are_not_those_of_the_dsl_whatever_somebody_says(evidence):
    for kind in ("time-ordered-window", "time-ordered-session", "time-ordered-buffer"):
        store = found(evidence(windows({"window": 1}), WINDOWED, segmented=True), kind=kind)
        assert (store.definition, store.trouble) == (None, "needed"), kind


def test_a_buffer_that_kafka_streams_has_restored_is_asked_for(evidence):
    # It has its rows under other keys then, so that they tell nothing.
    shape = BUFFER._replace(buffered=False)
    store = found(evidence(shape, COMPACTED, segmented=True))
    assert store.trouble == "unknown"
    assert "--store s:kind=time-ordered-buffer" in store.problem
    assert found(evidence(shape, COMPACTED, segmented=True), kind="time-ordered-buffer").definition is not None
    assert found(evidence(BUFFER, WINDOWED, segmented=True)).trouble == "unknown"


def test_times_that_are_behind_the_end_of_their_segment_are_none(evidence):
    shape = ordered({"window": HOUR // 2}, {"window": 1, "session": HOUR // 2})
    assert found(evidence(shape, WINDOWED, segmented=True)).definition.kind == "window"


@pytest.mark.parametrize("said", [{}, {"retention_ms": HOUR}, {"kind": "session", "format": "plain"}])
def test_no_retention_that_may_be_another_one_rules_out_that_times_are_first(evidence, said):
    # One live segment, whose end only the retention tells; that of the topic is a guess, and what is said may be wrong.
    shape = ordered({"session": HOUR}, {"session": 1}, starts=(0,))
    store = found(evidence(shape, WINDOWED, segmented=True), **said)
    assert (store.trouble, store.definition) == ("unknown", None)
    assert "can be read in two ways" in store.problem


def test_times_of_a_segment_whose_end_is_not_known_ask_for_the_retention(evidence):
    both = windows({"window": 1, "session": 1 << 40})
    assert "--retention s=MS" in found(evidence(both, {}, segmented=True)).problem
    store = found(evidence(ordered({"window": 1 << 40}, {"window": 1}, starts=(0,)), {}, segmented=True))
    assert store.trouble == "unknown"
    assert "--retention s=MS" in store.problem


def test_two_kinds_whose_times_fit_ask_which_it_is(evidence):
    shape = windows({"window": 1, "session": 2})
    store = found(evidence(shape, WINDOWED, segmented=True))
    assert (store.trouble, store.definition) == ("needed", None)
    assert "window and of session" in store.problem
    assert "--store s:kind=window|session" in store.problem
    assert found(evidence(shape, WINDOWED, segmented=True), kind="session").definition.kind == "session"


def test_an_unlogged_store_is_told_from_one_that_lost_its_topic(evidence):
    assert found(evidence(key_value(PLAIN, {}), changelog=None)).trouble == "unlogged"
    assert found(evidence(key_value(PLAIN), changelog=None)).trouble is None


# -- the shape of a store


def write_database(directory, rows, families=(DEFAULT_COLUMN_FAMILY,)):
    database = RocksDB(directory, list(families))
    database.write({families[0]: rows}, {TopicPartition("input", 3): 7}, status=0)
    database.sync()
    database.close()


def test_a_shape_tells_format_and_changelog_and_changes_nothing(tmp_path):
    write_database(tmp_path / "s", {b"k": b"v"}, (TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY))
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "s").iterdir()}
    shape = shape_of(live_store(tmp_path / "s"))
    assert shape.format is StoreFormat.TIMESTAMPED
    assert shape.offsets == {TopicPartition("input", 3): 7}
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "s").iterdir()} == before


KEYS = [b"", b"k", b"\x00" * 8, b"\xff" * 9, b"a-longer-key"]


@pytest.mark.short_for("window-3", "session-1")
@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("kind", ["window", "session"])
def test_row_keys_tell_windows_from_sessions(tmp_path, evidence, kind, segments):
    for start in [T0 + number * HOUR // 2 for number in range(segments)]:
        times = [start, start + 1, start + HOUR // 2 - 1]
        if kind == "window":
            keys = [window_key.encode(key, time) for key in KEYS for time in times]
        else:
            keys = [session_key.encode(key, time - 10, time) for key in KEYS for time in times]
        write_database(tmp_path / "s" / f"s.{start}", dict.fromkeys(keys, b"v"))
    shape = shape_of(live_store(tmp_path / "s", segmented=True))
    assert found(evidence(shape, WINDOWED, segmented=True)).definition.kind == kind
    assert shape.spread_ms[kind] == HOUR // 2 - 1
    assert shape.starts == tuple(T0 + number * HOUR // 2 for number in range(segments))


def time_ordered(kind, key, time):
    """Row and index row of a window or session, as Kafka Streams' PrefixedWindowKeySchemas and ...SessionKeySchemas."""
    if kind == "window":
        return b"\0" + struct.pack(">q", time) + key + bytes(4), b"\1" + key + struct.pack(">qi", time, 0)
    times = struct.pack(">qq", time, time - 10)
    return b"\0" + times + key, b"\1" + key + times


@pytest.mark.short_for(every=5)
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("kind", ["window", "session"])
@pytest.mark.parametrize("keys", [KEYS, [struct.pack(">q", 7)], [struct.pack(">q", T0 + 5)], [bytes(12)]])
def test_row_keys_tell_stores_that_have_their_times_first(tmp_path, evidence, kind, keys, indexed):
    rows = {}
    for key in keys:
        for at in (T0 + 10, T0 + 1_000):
            row, index = time_ordered(kind, key, at)
            rows[row] = struct.pack(">q", at) + b"v"
            if indexed:
                rows[index] = b""
    write_database(tmp_path / "s" / f"s.{T0}", rows)
    shape = shape_of(live_store(tmp_path / "s", segmented=True))
    assert shape.time_ordered_ms[kind] == 1_000
    assert shape.indexed == ({kind} if indexed else set())
    told = {
        ("window", True): "indexed-time-ordered-window",
        ("window", False): None if shape.spread_ms else "time-ordered-window",
        ("session", True): "time-ordered-session",
    }.get((kind, indexed))
    store = found(evidence(shape, WINDOWED, segmented=True))
    if told is not None:
        assert store.definition.kind == told
    elif store.definition is not None:  # of sessions, each has an index: what can be read as a window is none
        assert (kind, store.definition.kind, "window" in shape.time_ordered_ms) == (
            "session",
            "time-ordered-window",
            True,
        )
    else:
        assert store.trouble == "unknown"
        assert "EmitStrategy.onWindowClose" in store.problem
    assert found(evidence(shape, WINDOWED, segmented=True), kind=kind).definition is None


@pytest.mark.parametrize("indexed", [True, False])
def test_a_topic_that_keeps_less_than_by_default_does_not_make_ordinary_sessions_of_those_with_times_first(
    tmp_path, evidence, indexed
):
    # Retention two days, nothing added to the changelog's: taken for one day, with half as long segments. Keys have 8
    # bytes, so that a session's end, start and key can be read as another key, an end and a start.
    start, rows = T0 // (2 * DAY) * 2 * DAY, {}
    for number in range(100):
        opened = start + number * 60_000
        times = struct.pack(">qq", opened + 13 * HOUR, opened)
        rows[b"\0" + times + struct.pack(">q", number)] = b"v"
        if indexed:
            rows[b"\1" + struct.pack(">q", number) + times] = b""
    write_database(tmp_path / "s" / f"s.{start}", rows)
    shape = shape_of(live_store(tmp_path / "s", segmented=True))
    config = {"cleanup.policy": "compact,delete", "retention.ms": str(2 * DAY)}
    store = found(evidence(shape, config, segmented=True))
    assert store.definition is None
    assert ("--retention s=MS" if indexed else "EmitStrategy.onWindowClose") in store.problem
    said = found(evidence(shape, config, segmented=True), retention_ms=2 * DAY)
    assert (said.definition is not None and said.definition.kind == "time-ordered-session") is indexed


@pytest.mark.parametrize("key", [b"customer-1", struct.pack(">q", 7), b"k"])
def test_a_buffer_of_a_join_with_grace_is_told_by_its_only_segment_that_never_ends(tmp_path, evidence, key):
    row = b"\0" + struct.pack(">q", T0) + key + struct.pack(">i", 5)
    for value, told in ((struct.pack(">q", T0) + b"v", True), (b"v", False)):
        write_database(tmp_path / f"{told}" / "s.0", {row: value})
        shape = shape_of(live_store(tmp_path / f"{told}", segmented=True))
        store = found(evidence(shape, {"cleanup.policy": "compact"}, segmented=True))
        assert shape.buffered is told
        assert store.trouble == (None if told else "unknown")
        assert told or "buffers of joins with a grace period" in store.problem


def test_a_row_and_its_index_are_told_among_rows_that_somebody_took_for_ordinary_ones(tmp_path, evidence):
    key = struct.pack(">q", 7)
    row, index = time_ordered("session", key, T0 + 10)
    write_database(tmp_path / "s" / f"s.{T0}", {row: b"v", index: b"", session_key.encode(key, T0, T0 + 5): b"v"})
    store = found(
        evidence(shape_of(live_store(tmp_path / "s", segmented=True)), WINDOWED, segmented=True), kind="session"
    )
    assert store.trouble == "unknown"


@pytest.mark.parametrize("kind", ["window", "session"])
@pytest.mark.parametrize(
    "keys", [[b"\0"], [b"\0", b"\1"], [struct.pack(">q", 7)], [b"\0" + struct.pack(">i", 500) + b"avro"]]
)
def test_keys_may_begin_with_00_or_01_themselves(tmp_path, evidence, kind, keys):
    encode = {"window": window_key.encode, "session": lambda key, time: session_key.encode(key, time - 10, time)}[kind]
    write_database(tmp_path / "s" / f"s.{T0}", {encode(key, T0 + at): b"v" for key in keys for at in (10, 20)})
    store = found(evidence(shape_of(live_store(tmp_path / "s", segmented=True)), WINDOWED, segmented=True))
    assert store.definition is not None, store.problem
    assert store.definition.kind == kind


def versioned(segment, key, value):
    return {struct.pack(">q", segment) + key: value}


LATEST = struct.pack(">q", T0) + b"value"
EARLIER = struct.pack(">qqqiqi", T0, T0 - 9, T0 - 5, 3, T0 - 9, -1) + b"old"


def test_segment_ids_in_front_of_row_keys_tell_a_versioned_store(tmp_path):
    rows = {**versioned(-1, b"a", LATEST), **versioned(5_000_000, b"a", EARLIER), **versioned(-1, b"b", LATEST)}
    write_database(tmp_path / "s", rows)
    shape = shape_of(live_store(tmp_path / "s"))
    assert shape.versioned
    assert (shape.versions.shortest_ms, shape.versions.longest_ms) == (T0 // 5_000_001 + 1, T0 // 5_000_000)


HOURLY = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(DAY + HOUR)}


def versions(shortest_ms=HOUR // 12, longest_ms=HOUR // 12):
    return key_value(PLAIN)._replace(versions=VersionedRows(True, shortest_ms, longest_ms, 9))


@pytest.mark.behaviour("V7")
@pytest.mark.parametrize("said", [{}, {"kind": "versioned"}, {"format": "plain"}])
def test_the_retention_of_a_versioned_store_is_what_its_topic_says_less_a_day(evidence, said):
    store = found(evidence(versions(), HOURLY), **said)
    assert store.definition is not None, store.problem
    assert (store.definition.kind, store.definition.retention_ms) == ("versioned", HOUR)


@pytest.mark.behaviour("V7")
def test_a_versioned_store_whose_topic_tells_nothing_asks_for_its_retention(evidence):
    store = found(evidence(versions(), {"cleanup.policy": "compact"}))
    assert "add --retention s=MS" in store.problem
    store = found(evidence(versions(), {"cleanup.policy": "compact"}), retention_ms=HOUR)
    assert store.definition is not None, store.problem


@pytest.mark.behaviour("V7")
@pytest.mark.parametrize("interval_ms", [None, 7_000])
def test_a_retention_that_segments_contradict_is_refused_unless_their_length_is_said(evidence, interval_ms):
    store = found(evidence(versions(7_000, 7_000), HOURLY), segment_interval_ms=interval_ms)
    if interval_ms is None:
        assert "segments 7000 ms long, but the history retention of 3600000 ms, which follows from" in store.problem
    else:
        assert store.definition is not None, store.problem
        assert store.definition.segment_interval_ms == interval_ms


@pytest.mark.behaviour("V7")
@pytest.mark.parametrize("said", [{"kind": "key-value"}, {"kind": "key-value", "format": "plain"}])
def test_a_store_with_rows_of_versions_is_no_other_whatever_is_said(evidence, said):
    store = found(evidence(versions(), {"cleanup.policy": "compact"}), **said)
    assert store.trouble == "unknown"
    assert "row keys that begin with segment ids" in store.problem


@pytest.mark.behaviour("V7")
def test_the_retention_of_a_lost_versioned_store_is_asked_for(evidence):
    lost = evidence(None, HOURLY, here=False)
    store = found(lost, kind="versioned", subtopology=0)
    assert store.trouble == "needed"
    assert f"no directory of it is left: add --retention s={HOUR}" in store.problem
    store = found(lost, kind="versioned", subtopology=0, retention_ms=HOUR)
    assert store.definition is not None, store.problem
    assert store.definition.retention_ms == HOUR


def test_rows_of_another_store_contradict_a_topic_of_a_versioned_one(evidence):
    store = found(evidence(key_value(PLAIN), HOURLY))
    assert store.trouble == "unknown"
    assert "rows that are not those of such a store" in store.problem
    store = found(evidence(key_value(PLAIN), HOURLY), kind="key-value")
    assert store.definition is not None, store.problem


@pytest.mark.parametrize(
    "rows",
    [
        {},
        versioned(-1, b"", LATEST),
        versioned(5_000_000, b"a", EARLIER),
        {**versioned(-1, b"a", LATEST), **versioned(5, b"a", LATEST)},
        {**versioned(-1, b"a", LATEST), **versioned(5, b"a", EARLIER + b".")},
        {**versioned(-1, b"a", LATEST), b"short": LATEST},
        versioned(-1, b"a", b"7 bytes"),
        {**versioned(-1, b"a", LATEST), **versioned(-2, b"a", LATEST)},
    ],
)
def test_rows_that_are_not_all_laid_out_as_versions_are_those_of_another_store(tmp_path, rows):
    write_database(tmp_path / "s", rows)
    shape = shape_of(live_store(tmp_path / "s"))
    assert shape.families == PLAIN
    assert not shape.versioned


def partitions_in(directory, count):
    tasks = [TaskId(0, number) for number in range(count)]
    return [live_store(directory / str(task), task, state_dir=directory / "state") for task in tasks]


def test_a_store_that_is_not_known_in_one_task_is_not_known(tmp_path):
    first, second = partitions_in(tmp_path, 2)
    RocksDB(first.directory, [DEFAULT_COLUMN_FAMILY]).close()
    RocksDB(second.directory, ["keyValueWithTimestampAndHeaders"]).close()
    assert "keyValueWithTimestampAndHeaders" in str(_shape([first, second], nullcontext))


def test_sequence_numbers_tell_a_store_that_retains_duplicates(tmp_path):
    write_database(tmp_path / "s" / f"s.{T0}", {window_key.encode(b"k", T0, 2): b"v"})
    assert shape_of(live_store(tmp_path / "s", segmented=True)).duplicates


def test_a_store_without_offsets_in_one_task_is_told_by_another(tmp_path):
    partitions = partitions_in(tmp_path, 3)
    for found, known in zip(
        partitions, ({}, {TopicPartition("input", 1): 7}, {TopicPartition("other", 2): 7}), strict=True
    ):
        database = RocksDB(found.directory, [DEFAULT_COLUMN_FAMILY])
        database.write({DEFAULT_COLUMN_FAMILY: {}}, known, status=0)
        database.close()
    for here, offsets in ((partitions, {TopicPartition("input", 1)}), (partitions[:1], set())):
        shape = _shape(here, nullcontext)
        assert isinstance(shape, StoreShape)
        assert set(shape.offsets) == offsets


def test_a_checkpoint_file_tells_the_offset_of_the_input_that_is_said_to_be_the_changelog(tmp_path):
    here = live_store(tmp_path / "s", state_dir=tmp_path)
    RocksDB(here.directory, [DEFAULT_COLUMN_FAMILY]).close()
    checkpoint = TaskPaths(tmp_path, "app", TASK).checkpoint
    orders, own = TopicPartition("orders", 0), TopicPartition("app-s-changelog", 0)
    write_durably(checkpoint, checkpoint_file.write({orders: 7, own: 3, TopicPartition("app-t-changelog", 0): 1}))
    for said, offsets in ((None, {own}), ("orders", {own, orders})):
        shape = _shape([here], nullcontext, said)
        assert isinstance(shape, StoreShape)
        assert set(shape.offsets) == offsets


@pytest.mark.short_for("True")
@pytest.mark.parametrize("segmented", [False, True])
def test_a_store_whose_manifest_lost_column_families_is_not_taken_for_one_without(tmp_path, segmented):
    here = live_store(tmp_path / "s", segmented=segmented, state_dir=tmp_path / "state")
    directory = here.directory / f"s.{T0}" if segmented else here.directory
    write_database(directory, {window_key.encode(b"k", T0): b"v"}, (TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY))
    manifest = next(directory.glob("MANIFEST-*"))
    whole = manifest.read_bytes()
    told = set()
    for length in (*range(0, len(whole), 7), len(whole)):
        manifest.write_bytes(whole[:length])
        shape = _shape([here], nullcontext)
        told.add(None if shape is None else shape.format)
    assert told == {None, StoreFormat.TIMESTAMPED}


# -- the version of the application


def write_without_offsets(directory):
    directory.mkdir(parents=True)
    Rdict(str(directory), Options(raw_mode=True)).close()


def test_a_checkpoint_file_alone_tells_no_version(tmp_path):
    # 4.3 may leave one, too.
    for task in ("0_1", "global"):
        (tmp_path / "app" / task).mkdir(parents=True)
        (tmp_path / "app" / task / ".checkpoint_s").touch()  # 4.3 keeps it for stores that do not manage their offsets
        assert shown_layout(tmp_path, "app") == (None, None, None)
        (tmp_path / "app" / task / ".checkpoint").touch()
        shown = shown_layout(tmp_path, "app")
        assert (shown.offsets_beside, str(shown)) == (None, f"{tmp_path}/app/{task}/.checkpoint is there")
        (tmp_path / "app" / task / ".checkpoint").unlink()
    write_database(tmp_path / "app" / "0_0" / "rocksdb" / "s", {})
    (tmp_path / "app" / "0_1" / ".checkpoint").touch()
    assert shown_layout(tmp_path, "app").offsets_beside is False


@pytest.mark.parametrize("path", ["0_1/rocksdb/t", f"0_1/t/t.{T0 + HOUR}", "global/rocksdb/t"])
def test_any_store_tells_the_version_unless_another_one_contradicts_it(tmp_path, path):
    assert shown_layout(tmp_path, "app").offsets_beside is None
    write_without_offsets(tmp_path / "app" / path)
    shown = shown_layout(tmp_path, "app")
    assert (shown.offsets_beside, str(shown)) == (True, f"{tmp_path}/app/{path} has no column family offsets")
    write_database(tmp_path / "app" / "0_0" / "t" / f"t.{T0}", {})
    shown = shown_layout(tmp_path, "app")
    assert shown.offsets_beside is None
    assert f"{tmp_path}/app/0_0/t/t.{T0} has the column family offsets" in str(shown)


def test_a_store_that_lost_the_end_of_its_manifest_tells_no_version_before_4_3(tmp_path):
    write_database(tmp_path / "app" / "0_0" / "rocksdb" / "s", {b"k": b"v"})
    manifest = next((tmp_path / "app" / "0_0" / "rocksdb" / "s").glob("MANIFEST-*"))
    whole = manifest.read_bytes()
    for length in range(len(whole)):
        manifest.write_bytes(whole[:length])
        assert shown_layout(tmp_path, "app").beside is None, length


def test_a_store_that_the_disk_does_not_give_back_tells_no_version(tmp_path, monkeypatch):
    def refuse(directory):
        raise OSError(errno.EIO, "Input/output error")

    write_without_offsets(tmp_path / "app" / "0_0" / "rocksdb" / "s")
    assert shown_layout(tmp_path, "app").offsets_beside is True
    monkeypatch.setattr(older_versions, "column_families", refuse)
    assert shown_layout(tmp_path, "app").offsets_beside is None


@pytest.mark.parametrize(
    ("version", "beside"), [("3.9.1", True), ("4.0", True), ("4.2.0", True), ("4.3.1", False), ("4.4.0", False)]
)
def test_a_version_says_where_its_offsets_are(version, beside):
    assert has_offsets_beside(version) is beside


@pytest.mark.parametrize("version", ["", "3.8.1", "4.5.0", "5.0", "4", "4.3.1.2", "latest", "4.3-SNAPSHOT"])
def test_a_version_whose_layout_is_not_known_is_refused(version):
    with pytest.raises(InputError, match=r"a version from 3\.9 to 4\.4"):
        has_offsets_beside(version)


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
    (tmp_path / "app" / "0_0" / "rocksdb" / "o dd").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "app" / "0_0" / "rocksdb" / "linked").symlink_to(tmp_path / "elsewhere")
    stores, others = stores_in(tmp_path, "app")
    assert stores == []
    reasons = {other.path.name: other.reason for other in others}
    assert reasons["custom"] == "data in it is not a segment, expected custom.<start in ms>"
    assert reasons["linked"] == "it is a symbolic link, expected a directory"
    assert "'o dd' is not a valid name" in reasons["o dd"]


def test_a_directory_with_tasks_that_cannot_be_looked_into_is_named(tmp_path):
    (tmp_path / "app" / "__topology__" / "0_0").mkdir(parents=True)
    (tmp_path / "o dd" / "0_0").mkdir(parents=True)
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "app" / "__topology__")
    assert [other.path.name for other in unusable_applications(tmp_path)] == ["linked", "o dd"]
    assert [other.path.name for other in stores_in(tmp_path, "app")[1]] == ["__topology__"]


def test_a_link_to_a_disk_that_is_not_mounted_is_named(tmp_path):
    tasks = tmp_path / "app" / "0_0", tmp_path / "app" / "0_1"
    for task, link in zip(tasks, ("rocksdb/totals", "rocksdb"), strict=True):
        (task / link).parent.mkdir(parents=True)
        (task / link).symlink_to(tmp_path / "not-mounted")
    (tmp_path / "other").symlink_to(tmp_path / "not-mounted")
    assert [other.path.name for other in unusable_applications(tmp_path)] == ["other"]
    assert [other.path.name for other in stores_in(tmp_path, "app")[1]] == ["totals", "rocksdb"]
    (tmp_path / "app" / "0_2").symlink_to(tmp_path / "not-mounted")
    with pytest.raises(InputError, match="is a symbolic link"):
        stores_in(tmp_path, "app")


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
