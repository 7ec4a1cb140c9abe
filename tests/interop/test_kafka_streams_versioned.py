"""Versioned stores of a real Kafka Streams application (KIP-889): verified, restored, and gone on with."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kafka_streams import Command, Contents, KafkaStreams, Row, Store, StorePartition

from statestore.changelog.topic_settings import changelog_config
from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.selection import Chosen, PartitionSelection, Where, choose
from statestore.cli.verification import verify_all
from statestore.errors import UnknownFormatError
from statestore.formats import versioned_row as layout
from statestore.formats.offsets import STATUS_CLOSED
from statestore.formats.versioned_row import LATEST, row_key
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Status, VerifyRow
from statestore.rewrite.changelog_writing import write_changelog
from statestore.rewrite.row_stage import AttemptWriter, RowStage
from statestore.rewrite.version_rows import OPEN, as_records, version_rows
from statestore.statedir.seal import break_seal
from statestore.stores.open import build_store
from statestore.stores.rocksdb import RocksDB
from statestore.verification.options import Depth, VerifyOptions
from tests.integration.broker import T0
from tests.integration.restored import restored_here
from tests.spark.store_files import read

pytestmark = pytest.mark.long  # Kafka Streams is started several times

MINUTE = 60_000
RETENTION_MS = 10 * MINUTE
KEYS = (b"k", b"k\0", *(b"key-%02d" % number for number in range(8)))
HISTORY = Store("history", layout="versioned", retention_ms=RETENTION_MS, keys=KEYS)
BEGIN = T0 - T0 % MINUTE
END = BEGIN + 40 * MINUTE
#: Within the history at the end of what is written, between and at the borders of segments.
TIMES = range(END - RETENTION_MS, END + 1, MINUTE // 2)
DEPTHS: tuple[Depth, ...] = ("offsets", "scan", "deep")


def commands(count: int = 600, seed: int = 1) -> list[Command]:
    """Versions of keys, some often, deletes, late ones and such that come too late; the last one ends it."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        late = chance.choice([0, 0, 0, 0, 1, 4, 9, 14]) * MINUTE
        time = BEGIN + number * (END - BEGIN) // count - late + chance.randrange(100)
        key = KEYS[0] if number % 3 == 0 else chance.choice(KEYS)
        value = None if chance.random() < 0.2 else b"%d" % number
        found.append(Command("history", key, value, time, op="put" if number % 2 else "delete" if not value else "put"))
    return [*found, Command("history", b"end", b"end", END)]


def waking() -> list[Command]:
    """Puts of another key, one in the time of each segment, so that Kafka Streams knows the segments."""
    return [
        Command("history", b"wake", b"%d" % time, time) for time in range(END - RETENTION_MS - MINUTE, END + 1, MINUTE)
    ]


def rows(contents: Contents) -> list[Row]:
    """What was answered within the history: all of it but the beginnings of values that began before."""
    found = contents.rows[StorePartition("history")]
    return [row for row in found if row.start is None or row.end is None or row.end > END - RETENTION_MS]


class Stopped:
    """A stopped application."""

    def __init__(self, app: KafkaStreams, state_dir: Path) -> None:
        self.app = app
        self.state_dir = state_dir
        self.topics = app.cluster.topics

    def chosen(self, *stores: str, **how: Any) -> Chosen:
        where = Where(self.app.cluster, self.state_dir)
        selection = PartitionSelection(where, applications=[self.app.application_id], stores=stores, **how)
        return choose(selection, self.topics)

    def spec(self, *stores: str, **how: Any) -> StorePartitionSpec:
        chosen = self.chosen(*stores, **how)
        chosen.require_known()
        [spec] = chosen.specs
        return spec

    def verified(self, depth: Depth, *stores: str) -> VerifyRow:
        [row] = verify_all([self.spec(*stores)], VerifyOptions(depth, name_keys=True))
        return row

    def restored(self, *stores: str, **how: Any) -> None:
        [row] = restored_here(stores_to_restore(self.chosen(*stores), self.topics, kafka_streams="4.3.1"), **how)
        assert row.failure is None, row
        assert row.outcome == "restored"


@pytest.fixture(scope="module")
def written(
    kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Stopped, list[Row]]:
    app = kafka_streams(changelog_config={})
    state_dir = tmp_path_factory.mktemp("versioned") / "state"
    contents = app.write(state_dir, [HISTORY], commands(), as_of=TIMES)
    return Stopped(app, state_dir), rows(contents)


@pytest.fixture
def stopped(written: tuple[Stopped, list[Row]], tmp_path: Path) -> Stopped:
    shutil.copytree(written[0].state_dir, tmp_path / "state")
    return Stopped(written[0].app, tmp_path / "state")


def change(spec: StorePartitionSpec, changes: dict[bytes, bytes | None]) -> None:
    break_seal(spec.paths, spec.store.name)
    database = RocksDB(spec.live, ["default"])
    database.write({"default": changes}, status=STATUS_CLOSED)
    database.sync()
    database.close()


def stored(spec: StorePartitionSpec) -> dict[bytes, bytes]:
    database = RocksDB(spec.live, ["default"], read_only=True)
    found = dict(database.scan("default"))
    database.close()
    return found


def ours(spec: StorePartitionSpec) -> list[Row]:
    """What our own store answers, as Kafka Streams reports it."""
    store = build_store(spec.store)
    store.init(spec.context(read_only=True))
    store.inner.advance_stream_time(END)
    found: list[Row] = []
    for key in KEYS:
        for version in store.history(key, descending=False):
            until = (1 << 63) - 1 if version.valid_to is None else version.valid_to
            found.append(Row(key, version.value, version.timestamp, version.timestamp, until))
        if (latest := store.get(key)) is not None:
            found.append(Row(key, latest.value, latest.timestamp))
    for time in TIMES:
        for key in KEYS:
            if (version := store.get(key, time)) is not None:
                found.append(Row(key, version.value, version.timestamp, time, time))
    store.close(clean=False)
    return [row for row in found if row.start is None or row.end is None or row.end > END - RETENTION_MS]


@pytest.mark.long
@pytest.mark.behaviour("V3", "V5", "V7")
def test_what_kafka_streams_wrote_is_known_and_healthy_and_answers_the_same(
    written: tuple[Stopped, list[Row]], stopped: Stopped
) -> None:
    spec = stopped.spec()
    assert (spec.store.kind, spec.store.retention_ms, spec.store.segment_interval_ms) == (
        "versioned",
        RETENTION_MS,
        None,
    )
    for depth in DEPTHS:
        row = stopped.verified(depth)
        assert row.status is Status.OK, row
    assert row.contents is not None
    assert row.contents.equal > 50
    assert ours(spec) == written[1]


@pytest.mark.behaviour("V3")
@pytest.mark.long
def test_spark_shows_the_versions_that_kafka_streams_answers(
    written: tuple[Stopped, list[Row]], stopped: Stopped
) -> None:
    shown = read({"path": stopped.spec().paths.application_dir, "store": "history"})
    within = [row for row in shown if row["valid_to"] is None or row["valid_to"] > END - RETENTION_MS]
    # The rows of a MultiVersionedKeyQuery; those of a time begin and end with it.
    answered = [row for row in written[1] if row.start is not None and row.end != row.start]
    assert [
        (row["key"], row["value"], row["valid_from"], (1 << 63) - 1 if row["valid_to"] is None else row["valid_to"])
        for row in within
        if row["key"] in KEYS
    ] == [(row.key, row.value, row.start, row.end) for row in sorted(answered, key=lambda row: (row.key, row.start))]
    assert len(answered) > 50


@pytest.mark.behaviour("V4", "V6")
@pytest.mark.parametrize("lost", ["the store", pytest.param("everything", marks=pytest.mark.share)])
def test_kafka_streams_starts_on_what_was_restored_and_answers_the_same(
    kafka_streams: Callable[..., KafkaStreams], tmp_path: Path, lost: str
) -> None:
    app, state_dir = kafka_streams(changelog_config={}), tmp_path / "state"
    before = rows(app.write(state_dir, [HISTORY], commands(), as_of=TIMES))
    stopped = Stopped(app, state_dir)
    shutil.rmtree(stopped.spec().live)
    if lost == "everything":
        shutil.rmtree(state_dir)
        state_dir.mkdir()
    stopped.restored(f"history:kind=versioned,subtopology=0,retention_ms={RETENTION_MS}", mode="full")
    assert stopped.verified("deep").status is Status.OK
    assert ours(stopped.spec()) == before
    after = app.write(state_dir, [HISTORY], waking(), as_of=TIMES)
    assert after.restored == {StorePartition("history"): 0}
    assert rows(after) == before
    assert stopped.verified("deep").status is Status.OK


@pytest.mark.behaviour("V4")
@pytest.mark.long
def test_kafka_streams_restores_the_same_versions_from_records_in_the_order_of_their_times(
    kafka_streams: Callable[..., KafkaStreams], written: tuple[Stopped, list[Row]], stopped: Stopped, tmp_path: Path
) -> None:
    spec, app = stopped.spec(), kafka_streams(changelog_config={})
    shown = read({"path": spec.paths.application_dir, "store": "history"})
    keys, values = (pa.array([row[name] for row in shown], pa.binary()) for name in ("key", "value"))
    begins = np.array([row["valid_from"] for row in shown])
    ends = np.array([OPEN if row["valid_to"] is None else row["valid_to"] for row in shown])
    with AttemptWriter(tmp_path / "stage", 1) as attempt:
        attempt.add(keys, version_rows(keys, values, begins, ends))
    records = as_records(RowStage(tmp_path / "stage", [attempt.staged]), [spec], 1 << 20, whole=True)
    assert records.rows(0) > len(shown) > 50
    topic, topics = f"{app.application_id}-history-changelog", app.cluster.topics
    topics.make(topic, 1, changelog_config(spec.store))
    write_changelog(topics, topic, T0, [(spec, records.batches(0))])
    after = app.write(tmp_path / "other", [HISTORY], waking(), as_of=TIMES)
    assert after.restored == {StorePartition("history"): records.rows(0)}
    assert rows(after) == written[1]


@pytest.mark.behaviour("V5")
@pytest.mark.long
@pytest.mark.parametrize("broken", ["latest", "removed", "cut"])
def test_a_broken_row_is_found_and_restored(stopped: Stopped, broken: str) -> None:
    spec = stopped.spec()
    if broken == "latest":
        raw_key = next(raw_key for raw_key in stored(spec) if raw_key[:8] == row_key(LATEST, b""))
        change(spec, {raw_key: layout.encode_latest(b"other", END)})
    else:
        live = row_key(layout.segment_of(END - RETENTION_MS // 2, MINUTE), b"")
        raw_key, raw = next(row for row in stored(spec).items() if row[0][:1] == b"\0" and row[0] > live)
        if broken == "cut":
            change(spec, {raw_key: raw[:-1]})
        else:
            change(spec, {raw_key: None})
    if broken == "cut":
        assert stopped.verified("scan").status is Status.CORRUPT
    row = stopped.verified("deep")
    assert row.status is (Status.CORRUPT if broken == "cut" else Status.DIVERGED), row
    stopped.restored(mode="full", force=True)
    assert stopped.verified("deep").status is Status.OK


@pytest.mark.behaviour("V7")
@pytest.mark.parametrize("said", ["history:kind=key-value,format=plain", "history:format=timestamped"])
def test_a_versioned_store_is_no_other_whatever_is_said(stopped: Stopped, said: str) -> None:
    with pytest.raises(UnknownFormatError, match="versioned"):
        stores_to_restore(stopped.chosen(said), stopped.topics)


@pytest.mark.behaviour("V7")
def test_a_retention_that_its_rows_contradict_is_refused(stopped: Stopped) -> None:
    [problem] = [store.problem for store in stopped.chosen("history:retention_ms=7200000").discovered]
    assert "segments 60000 ms long, but the history retention of 7200000 ms, which is said, has segments of" in problem
