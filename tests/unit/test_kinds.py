"""Kinds of stores: what they say of row keys is what the formats of Kafka Streams say."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.definitions.store import StoreDefinition
from statestore.errors import DefinitionError, StoreCorruptedError
from statestore.formats import session_key, window_key
from statestore.formats.value_format import (
    SESSION_HEADERS,
    TIME_ORDERED_SESSION_HEADERS,
    TIME_ORDERED_WINDOW_HEADERS,
    value_format,
)
from statestore.kinds.key_value import KEY_VALUE
from statestore.kinds.kind import Number, StoreKind
from statestore.kinds.known import kind_of
from statestore.kinds.session import SESSION
from statestore.kinds.time_ordered import INDEXED_TIME_ORDERED_WINDOW, TIME_ORDERED_BUFFER, TIME_ORDERED_SESSION
from statestore.kinds.versioned import VERSIONED
from statestore.kinds.window import WINDOW
from statestore.model import StoreFormat


class Lifetime(StoreKind):
    """Rows of keys from one time to another, in segments of the first."""

    name = "lifetime"
    numbers = (Number("begin"), Number("end"))
    first_time, last_time = "begin", "end"


class Event(StoreKind):
    """Rows of keys and one time."""

    name = "event"
    numbers = (Number("time"),)
    first_time = last_time = "time"


KEYS = st.binary(max_size=12)
TIMES = st.integers(0, 2**63 - 1)
NUMBERS = st.integers(0, 2**31 - 1)


@given(KEYS, TIMES, TIMES, NUMBERS)
def test_a_row_key_has_the_numbers_that_its_format_has(key, one, other, number):
    assert WINDOW.suffix_bytes == len(window_key.encode(b"", 0))
    assert SESSION.suffix_bytes == len(session_key.encode(b"", 0, 0))
    assert WINDOW.row_time(window_key.encode(key, one, number)) == one
    assert SESSION.row_time(session_key.encode(key, one, other)) == other
    row_keys = [window_key.encode(key, time, number) for time in (one, other)]
    assert [*WINDOW.row_times(row_keys)] == [one, other]
    row_key = session_key.encode(key, one, other)
    at = len(row_key) - SESSION.first_time_bytes
    assert int.from_bytes(row_key[at : at + 8], "big") == one
    assert WINDOW.first_time_bytes == WINDOW.suffix_bytes


@pytest.mark.parametrize("kind", [WINDOW, SESSION, Event()], ids=["window", "session", "one number alone"])
def test_times_are_signed_and_read_of_many_rows_as_of_one(kind):
    behind = bytes(kind.suffix_bytes - 8)
    rows = [(b"", -1), (b"key", 5), (b"k", 0)]
    row_keys = [key + time.to_bytes(8, "big", signed=True) + behind for key, time in rows]
    assert [kind.row_time(row_key) for row_key in row_keys] == [-1, 5, 0]
    assert [*kind.row_times(row_keys)] == [-1, 5, 0]
    assert [*kind.row_times([])] == []


def test_rows_that_began_earlier_are_looked_for_where_the_first_number_is_no_end():
    start, stop = Lifetime().key_bounds(b"key", 7, 9)
    assert start == b"key" + bytes(16)
    assert stop == b"key" + (9).to_bytes(8, "big") + b"\x7f" + b"\xff" * 7 + b"\0"
    assert WINDOW.key_bounds(b"key", 7, 9)[0] == b"key" + (7).to_bytes(8, "big") + bytes(4)


@pytest.mark.parametrize("kind", [WINDOW, SESSION], ids=["window", "session"])
def test_what_is_too_short_for_a_row_key_is_refused(kind):
    with pytest.raises(StoreCorruptedError, match=f"a {kind.name} store's row key has at least {kind.suffix_bytes}"):
        kind.row_time(bytes(kind.suffix_bytes - 1))
    assert kind.row_time(bytes(kind.suffix_bytes)) == 0
    with pytest.raises(StoreCorruptedError, match=f"a {kind.name} store's row key has at least {kind.suffix_bytes}"):
        kind.row_times([bytes(kind.suffix_bytes), bytes(kind.suffix_bytes - 9)])


def test_a_windows_segment_is_left_out_where_it_begins_too_late_and_a_sessions_is_not():
    assert WINDOW.may_be_in_segment(9, 10)
    assert not WINDOW.may_be_in_segment(10, 10)
    assert SESSION.may_be_in_segment(10, 10)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("no.such.module:KIND", "kind no.such.module:KIND cannot be used: ModuleNotFoundError"),
        ("statestore.model:TaskId", "kind statestore.model:TaskId is <class .*expected a StoreKind"),
    ],
)
def test_a_kind_that_cannot_be_loaded_is_refused_where_it_is_used(reference, said):
    store = StoreDefinition(name="s", kind=reference)  # reading a catalogue runs no code of the user's
    with pytest.raises(DefinitionError, match=said):
        _ = store.store_kind
    with pytest.raises(DefinitionError):
        kind_of(reference)


def test_a_store_lies_where_kafka_streams_has_it_and_its_segments_beside_each_other(tmp_path):
    assert KEY_VALUE.directory(tmp_path, "s") == tmp_path / "rocksdb" / "s"
    assert WINDOW.directory(tmp_path, "s") == SESSION.directory(tmp_path, "s") == tmp_path / "s"
    assert KEY_VALUE.database(tmp_path / "s", "s", 7) == tmp_path / "s"
    assert WINDOW.database(tmp_path / "s", "s", 7) == tmp_path / "s" / "s.7"
    assert KEY_VALUE.databases(tmp_path / "s") == [tmp_path / "s"]
    assert WINDOW.databases(tmp_path / "s") == []
    for name in ("s.7", "s.30"):
        (tmp_path / "s" / name).mkdir(parents=True)
    (tmp_path / "s" / "a-file").touch()
    assert WINDOW.databases(tmp_path / "s") == [tmp_path / "s" / "s.30", tmp_path / "s" / "s.7"]
    with pytest.raises(ValueError, match="is not a valid name"):
        WINDOW.directory(tmp_path, "../s")


def test_a_changelog_has_the_settings_of_kafka_streams():
    assert KEY_VALUE.changelog_config(StoreDefinition(name="s")) == {"cleanup.policy": "compact"}
    session = StoreDefinition(name="s", kind="session", retention_ms=5)
    expected = {"cleanup.policy": "compact,delete", "retention.ms": "86400005"}
    assert SESSION.changelog_config(session) == expected


@pytest.mark.parametrize(
    ("retention_ms", "lag_ms"), [(None, 86_400_000), (0, 86_400_000), (5, 86_400_005), (2**63 - 1, 2**63 - 1)]
)
def test_versions_outlive_compaction_for_their_retention_and_a_day(retention_ms, lag_ms):
    settings = SimpleNamespace(retention_ms=retention_ms)
    assert VERSIONED.changelog_config(settings) == {"cleanup.policy": "compact", "min.compaction.lag.ms": str(lag_ms)}


def test_a_versioned_store_shows_from_when_until_when_and_has_the_segments_it_says_or_those_of_kafka_streams():
    store = StoreDefinition(name="s", kind="versioned", retention_ms=60_000)
    assert VERSIONED.columns(store) == (Number("valid_from"), Number("valid_to"))
    assert VERSIONED.segment_interval_ms(store) == 20_000
    assert VERSIONED.segment_interval_ms(store.model_copy(update={"segment_interval_ms": 7})) == 7
    assert VERSIONED.segment_interval_ms(SimpleNamespace(segment_interval_ms=None, retention_ms=None)) == 2_000


def test_values_are_laid_out_as_the_kind_of_the_store_has_them():
    for kind, with_headers in (
        (KEY_VALUE, value_format(StoreFormat.HEADERS)),
        (SESSION, SESSION_HEADERS),
        (INDEXED_TIME_ORDERED_WINDOW, TIME_ORDERED_WINDOW_HEADERS),
        (TIME_ORDERED_SESSION, TIME_ORDERED_SESSION_HEADERS),
    ):
        assert kind.value_format(StoreFormat.HEADERS) is with_headers
        for other in (StoreFormat.PLAIN, StoreFormat.TIMESTAMPED, StoreFormat.TIMESTAMPED_IN_DEFAULT):
            assert kind.value_format(other) is value_format(other)


def test_all_rows_of_a_buffer_are_in_its_one_segment(tmp_path):
    assert TIME_ORDERED_BUFFER.directory(tmp_path, "s") == tmp_path / "s"
    with pytest.raises(ValueError, match="is not a valid name"):
        TIME_ORDERED_BUFFER.directory(tmp_path, "../s")
    assert TIME_ORDERED_BUFFER.row_time(b"any") == 0
    assert [*TIME_ORDERED_BUFFER.row_times([b"any", b"other"])] == [0, 0]
    assert TIME_ORDERED_BUFFER.may_be_in_segment(10, 5) is True


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"retention_ms": 1},
            "a key-value store has neither retention nor window, and no retain_duplicates; found retention_ms, "
            "retain_duplicates False",
        ),
        (
            {"kind": "window", "retention_ms": 1},
            "a window store has retention_ms, window_size_ms and may have retain_duplicates; found retention_ms, "
            "retain_duplicates False",
        ),
        ({"retain_duplicates": True}, "found none, retain_duplicates True"),
        ({"retention_ms": 1, "window_size_ms": 1}, "found retention_ms, window_size_ms, retain_duplicates False"),
        ({"kind": "window", "retention_ms": 0, "window_size_ms": 1}, "retention_ms of 0 is shorter"),
        ({"kind": "window"}, "a window store has retention_ms, window_size_ms"),
        ({"kind": "session", "window_size_ms": 10}, "found window_size_ms, retain_duplicates False"),
        ({"kind": "session", "retention_ms": -1}, "retention_ms"),
        (
            {"kind": "window", "name": "rocksdb", "retention_ms": 60_000, "window_size_ms": 1},
            "a window store cannot be called rocksdb",
        ),
        (
            {"kind": "session", "retain_duplicates": True},
            "a session store has retention_ms, and no retain_duplicates; found none, retain_duplicates True",
        ),
        (
            {"kind": "session", "retention_ms": 1, "retain_duplicates": True},
            "a session store has retention_ms, and no retain_duplicates; found retention_ms, retain_duplicates True",
        ),
        (
            {"kind": "window", "retention_ms": 1, "window_size_ms": 2},
            "retention_ms of 1 is shorter than window_size_ms of 2; expected at least as long",
        ),
        (
            {"kind": "session", "name": "rocksdb", "retention_ms": 1},
            "a session store cannot be called rocksdb, as the directory of a task's key-value stores is; choose "
            "another name",
        ),
        (
            {"kind": "versioned", "retention_ms": 1, "format": "timestamped"},
            "a versioned store has the format plain, found timestamped",
        ),
        (
            {"kind": "indexed-time-ordered-window", "retention_ms": 1, "window_size_ms": 1, "format": "plain"},
            "a indexed-time-ordered-window store has the format timestamped-in-default or headers, found plain",
        ),
        (
            {"kind": "neither"},
            "expected one of key-value, window, session, versioned, or module:attribute of a kind, found 'neith",
        ),
    ],
)
def test_t12_a_definition_that_does_not_say_what_its_kind_needs_is_refused(fields, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        StoreDefinition.model_validate({"name": "s", **fields})


def test_the_least_that_a_kind_needs_is_enough():
    assert StoreDefinition(name="rocksdb").store_kind is KEY_VALUE
    assert StoreDefinition(name="s", kind="window", retention_ms=2, window_size_ms=2).store_kind is WINDOW
    assert StoreDefinition(name="s", kind="session", retention_ms=0).store_kind is SESSION
    assert StoreDefinition(name="s", kind="window", retention_ms=0, window_size_ms=0).store_kind is WINDOW


def test_a_window_ends_at_the_largest_time_at_most_and_shows_its_number_where_it_retains_duplicates():
    plain = StoreDefinition(name="s", kind="window", retention_ms=20, window_size_ms=20)
    numbered = plain.model_copy(update={"retain_duplicates": True})
    names = [number.name for number in WINDOW.columns(plain)]
    assert names == ["window_start", "window_end"]
    assert [(number.name, number.bytes) for number in WINDOW.columns(numbered)][2:] == [("sequence", 4)]
    latest = window_key.MAX_TIME
    shown = WINDOW.shown({"window_start": np.array([0, latest - 20, latest - 19])}, plain)
    assert shown["window_end"].tolist() == [20, latest, latest]
    assert shown["window_start"].tolist() == [0, latest - 20, latest - 19]
    point = plain.model_copy(update={"window_size_ms": 0})
    assert WINDOW.shown({"window_start": np.array([5])}, point)["window_end"].tolist() == [5]
    assert [number.name for number in SESSION.columns(plain)] == ["session_start", "session_end"]
