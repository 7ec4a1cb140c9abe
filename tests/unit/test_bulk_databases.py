"""Stores built from sorted runs are the stores that a replay of the log makes: in rows, offsets, segments and marks."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from samples import CHANGELOG, INPUT, batches
from store_samples import STORES, context, databases, logs

from statestore.bulk.databases import write_databases
from statestore.bulk.digest import Digest
from statestore.bulk.routing import routing_of
from statestore.bulk.runs import RunWriter, merged
from statestore.errors import StoreAccessError, StoreCorruptedError
from statestore.formats.offsets import COLUMN_FAMILY, STATUS_CLOSED, UNKNOWN_OFFSET
from statestore.formats.value_format import value_format
from statestore.stores.open import build_store
from statestore.stores.rocksdb import RocksDB

#: An example opens many databases: a failing one is shown as it was found.
PHASES = (Phase.explicit, Phase.generate)


def built(definition, log, directory, run_bytes=1 << 20, cuts=()):
    """The store built from ranges of the log; return what was written."""
    runs = []
    for number, (start, end) in enumerate(zip((0, *cuts), (*cuts, len(log)), strict=True)):
        writer = RunWriter(directory.with_name("runs") / str(number), routing_of(definition), run_bytes, start=start)
        for batch in batches(log[start:end], [9] * 10, start):
            writer.add(batch)
        runs.append(writer.finish(end))
    offsets = {CHANGELOG: len(log) - 1 if log else UNKNOWN_OFFSET}
    return write_databases(runs, definition, directory, offsets, {INPUT: 7})


def replayed(definition, log, directory):
    """The store that a replay of the log makes, closed."""
    store = build_store(definition)
    store.init(context(definition, directory))
    store.apply_changelog(*zip(*log, strict=True) if log else ((), (), ()))
    store.commit({CHANGELOG: len(log) - 1} if log else {}, {INPUT: 7})
    store.close()


def with_rows(found):
    """Databases without those segments that have no rows: a replay leaves such behind where all rows were deleted."""
    return {
        name: families
        for name, families in found.items()
        if any(rows for family, rows in families.items() if family != COLUMN_FAMILY)
    }


@pytest.mark.short_for("key-value", "duplicates")
@pytest.mark.parametrize("kind", STORES)
@settings(max_examples=6, phases=PHASES)
@given(data=st.data(), run_bytes=st.sampled_from([1, 6_000, 1 << 20]), cut=st.integers(0, 60))
def test_r9_a_built_store_has_the_bytes_of_a_replayed_one(tmp_path_factory, kind, data, run_bytes, cut):
    definition, directory = STORES[kind], tmp_path_factory.mktemp("stores")
    log = data.draw(logs(definition))
    written = built(definition, log, directory / "built", run_bytes, (min(cut, len(log)),))
    replayed(definition, log, directory / "replayed")
    found, expected = (databases(definition, directory / name) for name in ("built", "replayed"))
    assert with_rows(found) == with_rows(expected)
    assert written.rows == sum(len(rows[value_format(definition.format).column_families[0]]) for rows in found.values())
    if not with_rows(found):
        assert list(found) == ([""] if definition.kind == "key-value" else ["s.0"])
    if definition.kind == "key-value":
        assert found == expected


@pytest.mark.short_for("key-value", "session")
@pytest.mark.parametrize("kind", STORES)
def test_a_built_store_opens_under_exactly_once_and_goes_on(tmp_path, kind):
    definition = STORES[kind]
    suffix = routing_of(definition).suffix_bytes
    key = b"k" + (struct.pack(">q", 350_000) + bytes(suffix - 8) if suffix else b"")
    built(definition, [(key, b"1", 5)], tmp_path / "store")
    store = build_store(definition)
    store.init(context(definition, tmp_path / "store"))
    assert store.committed_offset(CHANGELOG) == 0
    assert store.position() == {INPUT: 7}
    store.apply_changelog([key], [b"2"], [6])
    store.commit({CHANGELOG: 1}, {INPUT: 8})
    store.close()
    store.init(context(definition, tmp_path / "store", read_only=True))
    assert store.committed_offset(CHANGELOG) == 1
    store.close(clean=False)
    [contents] = databases(definition, tmp_path / "store").values()
    assert [value[-1:] for value in contents[value_format(definition.format).column_families[0]].values()] == [b"2"]


@pytest.mark.parametrize("kind", ["key-value", "window", "session"])
def test_r3_an_empty_log_builds_a_store_without_rows(tmp_path, kind):
    definition = STORES[kind]
    assert built(definition, [], tmp_path / "store") == (0, 0, "0" * 32)
    store = build_store(definition)
    store.init(context(definition, tmp_path / "store"))
    assert store.committed_offset(CHANGELOG) is None
    store.close()


@pytest.mark.behaviour("S3")
def test_s3_segments_that_expired_within_the_log_are_not_built(tmp_path):
    log = [(b"k" + struct.pack(">qi", time, 0), b"v", 1) for time in (5, 150_000, 320_000, 450_000)]
    written = built(STORES["window"], log, tmp_path / "store")
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["s.200000", "s.300000", "s.400000"][1:]
    assert written.rows == 2


def test_every_segment_has_offsets_position_and_the_mark_of_a_clean_close(tmp_path):
    log = [(b"k" + struct.pack(">qi", time, 0), b"v", 1) for time in (300_000, 450_000)]
    built(STORES["window"], log, tmp_path / "store")
    for path in (tmp_path / "store").iterdir():
        segment = RocksDB(path, value_format(STORES["window"].format).column_families, read_only=True)
        assert (segment.committed_offset(CHANGELOG), segment.status()) == (1, STATUS_CLOSED)
        assert segment.position() == {INPUT: 7}
        segment.close()


@pytest.mark.short_for("plain key-value", "window")
@pytest.mark.parametrize("kind", STORES)
@settings(max_examples=5, phases=PHASES)
@given(data=st.data(), sizes=st.lists(st.integers(1, 5), max_size=20))
def test_the_digest_is_that_of_the_rows_scanned_from_the_store(tmp_path_factory, kind, data, sizes):
    definition, directory = STORES[kind], tmp_path_factory.mktemp("stores")
    written = built(definition, data.draw(logs(definition)), directory / "store")
    digest = Digest(definition.format)
    for families in reversed(databases(definition, directory / "store").values()):
        rows = list(families[value_format(definition.format).column_families[0]].items())
        for size in (*sizes, len(rows)):
            part, rows = rows[:size], rows[size:]
            digest.add_stored([key for key, _ in part], [value for _, value in part])
    assert (digest.hexdigest(), digest.rows) == (written.digest, written.rows)


ROW = (b"key", b"value", 5)


@pytest.mark.parametrize(
    "other",
    [
        [],
        [ROW, (b"other", b"", 5)],
        [(b"kez", b"value", 5)],
        [(b"key", b"valuf", 5)],
        [(b"keyv", b"alue", 5)],
        [(b"key", b"value", 6)],
    ],
)
def test_other_rows_have_another_digest(other):
    definition = STORES["key-value"]

    def digest(rows):
        result = Digest(definition.format)
        for batch in batches(rows, []):
            result.add(batch)
        return result.hexdigest()

    assert digest(other) != digest([ROW])


def test_the_timestamp_of_a_plain_row_is_no_part_of_the_digest():
    digests = [Digest(STORES["plain key-value"].format) for _ in range(2)]
    for timestamp, digest in enumerate(digests):
        digest.add(batches([(b"a", b"1", timestamp)], [])[0])
    assert digests[0].hexdigest() == digests[1].hexdigest()


def test_a_stored_value_without_room_for_its_timestamp_is_damage():
    with pytest.raises(StoreCorruptedError, match="8 bytes of a timestamp"):
        Digest(STORES["key-value"].format).add_stored([b"a"], [b"1234567"])


def test_a_directory_that_is_not_empty_is_refused_and_left_alone(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "file").write_text("mine")
    with pytest.raises(StoreAccessError, match="not empty"):
        built(STORES["key-value"], [(b"a", b"1", 1)], tmp_path / "store")
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["file"]


@pytest.mark.parametrize("kind", ["key-value", "window"])
def test_nothing_but_the_store_is_left_behind(tmp_path, kind):
    suffix = bytes(routing_of(STORES[kind]).suffix_bytes)
    built(STORES[kind], [(b"a" + suffix, b"1", 1)], tmp_path / "store")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    names = {path.name for path in Path(tmp_path / "store").rglob("*")}
    assert not {name for name in names if name.endswith(".tmp") or name.startswith("rocksdict")}


def test_merged_rows_of_nothing_are_none():
    assert list(merged([], routing_of(STORES["window"]))) == []


@pytest.mark.long
def test_a_store_is_built_without_loading_pandas(tmp_path):
    program = """
import sys
from pathlib import Path
from statestore.bulk.databases import write_databases
from statestore.bulk.routing import routing_of
from statestore.bulk.runs import RunWriter
from statestore.kafka.record_columns import batch_of
from statestore.definitions.store import StoreDefinition
from statestore.model import TopicPartition

store, directory = StoreDefinition(name="s"), Path(sys.argv[1])
writer = RunWriter(directory / "runs", routing_of(store), 1 << 20, start=0)
writer.add(batch_of([b"a", b"b"], [b"1", None], [5, 6], [0, 1]))
written = write_databases([writer.finish(2)], store, directory / "store", {TopicPartition("log", 0): 1})
assert written.rows == 1
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=300)
