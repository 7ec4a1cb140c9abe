"""A store that takes sorted runs over has the bytes of one that replays the same records."""

from __future__ import annotations

import shutil
import struct

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from samples import CHANGELOG, INPUT, batches
from store_samples import STORES, context, databases, logs

from statestore.bulk.ingestion import ingest
from statestore.bulk.routing import routing_of
from statestore.bulk.runs import RunWriter
from statestore.formats.offsets import COLUMN_FAMILY
from statestore.model import StoreFormat
from statestore.stores.open import build_store

#: Stores whose rows before are in the plain format, and have not been migrated.
PENDING = {f"upgraded {kind}": kind for kind in ("key-value", "window", "timestamped session")}
KINDS = {**STORES, **{name: STORES[kind] for name, kind in PENDING.items()}}


def replay(definition, log, directory, sizes=(), first=0):
    """Replay a log into a store, committing it after each batch."""
    store = build_store(definition)
    store.init(context(definition, directory))
    for batch in batches(log, sizes, first):
        keys, values, timestamps, offsets = (column.to_pylist() for column in batch.columns)
        store.apply_changelog(keys, values, timestamps)
        store.commit({CHANGELOG: offsets[-1]}, {INPUT: 7})
    time = store.inner.stream_time
    store.close()
    return time


def take_over(definition, log, directory, sizes=(), first=0, run_bytes=1 << 20):
    """Have a store take over the runs of a log."""
    writer = RunWriter(directory.with_name("runs"), routing_of(definition), run_bytes, start=first)
    for batch in batches(log, sizes, first):
        writer.add(batch)
    store = build_store(definition)
    store.init(context(definition, directory))
    ingest([writer.finish(first + len(log))], definition, store.inner, directory.with_name("files"))
    if log:
        store.commit({CHANGELOG: first + len(log) - 1}, {INPUT: 7})
    time = store.inner.stream_time
    store.close()
    return time


def begun(kind, log, directory):
    """A store with the first part of a log."""
    definition = KINDS[kind]
    before = definition.model_copy(update={"format": StoreFormat.PLAIN}) if kind in PENDING else definition
    replay(before, log, directory / "store", [9] * 10)


def kept(directory):
    return {path.name: path.read_text() for path in (directory / "own" / "segments").rglob("*") if path.is_file()}


@pytest.mark.short_for("key-value", "plain window", "session")
@pytest.mark.behaviour("R9")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5, phases=(Phase.explicit, Phase.generate))  # an example opens many databases
@given(data=st.data(), run_bytes=st.sampled_from([1, 2_000, 1 << 20]), sizes=st.lists(st.integers(1, 20), max_size=8))
def test_r9_a_store_that_takes_runs_over_has_the_bytes_of_a_replayed_one(
    tmp_path_factory, kind, data, run_bytes, sizes
):
    definition, directory = KINDS[kind], tmp_path_factory.mktemp("stores")
    log = data.draw(logs(definition))
    first = data.draw(st.integers(0, len(log)))
    begun(kind, log[:first], directory / "replayed")
    shutil.copytree(directory / "replayed", directory / "taken")
    expected_time = replay(definition, log[first:], directory / "replayed" / "store", sizes, first)
    time = take_over(definition, log[first:], directory / "taken" / "store", sizes, first, run_bytes)
    found, expected = (databases(definition, directory / name / "store") for name in ("taken", "replayed"))
    assert found == expected
    assert time == expected_time
    assert kept(directory / "taken") == kept(directory / "replayed")
    assert not (directory / "taken" / "files").exists()
    shutil.rmtree(directory)


@pytest.mark.parametrize("kind", ["upgraded key-value", "key-value"])
def test_a_delete_and_a_new_row_leave_nothing_of_the_row_before(tmp_path, kind):
    begun(kind, [(b"a", b"1", 5), (b"b", b"2", 6), (b"c", b"3", 7)], tmp_path)
    take_over(KINDS[kind], [(b"a", None, 8), (b"b", b"new", 9)], tmp_path / "store", first=3)
    [families] = databases(KINDS[kind], tmp_path / "store").values()
    rows = {name: sorted(found) for name, found in families.items() if name != COLUMN_FAMILY}
    old = kind != "key-value"
    assert rows == {"default": [b"c"] if old else [], "keyValueWithTimestamp": [b"b"] if old else [b"b", b"c"]}


@pytest.mark.behaviour("S3")
def test_s3_segments_that_expire_by_the_runs_go_and_new_ones_come(tmp_path):
    def rows(*times):
        return [(b"k" + struct.pack(">qi", time, 0), b"v", 1) for time in times]

    begun("window", rows(5, 150_000, 250_000), tmp_path)
    take_over(KINDS["window"], rows(260_000, 450_000), tmp_path / "store", first=3)
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["s.200000", "s.400000"]


@settings(max_examples=8, phases=(Phase.explicit, Phase.generate))
@given(data=st.data(), rounds=st.integers(2, 5))
@pytest.mark.long
def test_runs_may_be_taken_over_again_and_again(tmp_path_factory, data, rounds):
    definition, directory = STORES["key-value"], tmp_path_factory.mktemp("stores")
    first = 0
    for _ in range(rounds):
        log = data.draw(logs(definition))
        replay(definition, log, directory / "replayed" / "store", (), first)
        take_over(definition, log, directory / "taken" / "store", (), first)
        first += len(log)
    found, expected = (databases(definition, directory / name / "store") for name in ("taken", "replayed"))
    assert found == expected
    shutil.rmtree(directory)
