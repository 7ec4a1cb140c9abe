"""The first record after which a suite fails is found, in random histories, and as far as compaction has left it."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from statestore import clock
from statestore.changelog import brokers_clock
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.formats.timestamped_value import decode
from statestore.kafka.cluster import Cluster
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.bisection import Bisected, Bisection, BisectionSpec
from statestore.rewrite.point_cut import end_at
from statestore.rewrite.rows import stored_rows
from tests.integration import broker
from tests.integration.broker import Logged, consume
from tests.integration.catalogued import CatalogueCommand
from tests.integration.support import STORE, Application, register

KEYS = [b"key-%d" % number for number in range(9)]
#: The log keeps everything: records of long ago and markers of now do not fit into one segment, and are compacted.
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}
BAD = b"bad"


def passes(store: StorePartitionSpec) -> bool:
    """No row is bad."""
    rows = [value for _, batch in stored_rows(store) for value in batch.column(1).to_pylist()]
    return BAD not in [decode(value).value for value in rows]


class History:
    """An application that keeps the last value of each key, and what it has processed."""

    def __init__(self, servers: str, directory: Path, **settings: object) -> None:
        given = {"changelog_config": KEPT, "processor": "echo", **settings}
        self.app = Application(servers, directory, **given)  # type: ignore[arg-type]
        self.scratch = directory / "scratch"
        self.cluster = Cluster(servers, 60)
        self.sent = 0

    def process(self, rows: list[tuple[bytes, bytes | None]]) -> int:
        """Process rows in one commit, and return a time after it, by the clock of the brokers."""
        self.app.process(rows)
        self.sent += len(rows)
        at_ms = brokers_clock.now_ms(self.cluster)
        while brokers_clock.now_ms(self.cluster) <= at_ms:
            time.sleep(0.001)  # until the clock of the brokers advances
        return at_ms

    def bisect(self, good_ms: int) -> Bisected:
        store = self.app.store_spec()
        good = end_at(self.cluster.topics, store, good_ms)
        search = Bisection(BisectionSpec(store, good, None, passes, self.scratch, 1 << 24))
        assert search.fails_at_end()
        found = search.find()
        assert not [*self.scratch.glob("*")]
        return found

    def log(self) -> list[Logged]:
        return consume(self.app.servers, self.app.changelog)[0]


def _passing(log: list[Logged], below: int) -> bool:
    rows = {record.key: record.value for record in log if record.offset < below}
    return BAD not in rows.values()


@pytest.mark.short_for("0")
@pytest.mark.parametrize("seed", range(20))
def test_a_planted_record_is_found_with_what_it_changed(bootstrap_servers: str, tmp_path: Path, seed: int) -> None:
    draw, history = random.Random(seed), History(bootstrap_servers, tmp_path)

    def rows(keys: list[bytes]) -> list[tuple[bytes, bytes | None]]:
        values = [b"v%d" % draw.randrange(100) for _ in range(4)]
        return [(draw.choice(keys), draw.choice([*values, None])) for _ in range(draw.randint(1, 12))]

    good_ms = history.process([(b"key-0", b"first"), *rows(KEYS)])
    for _ in range(draw.randint(0, 3)):
        history.process(rows(KEYS))
    victim = draw.choice(KEYS)
    others = [key for key in KEYS if key != victim]
    planted = rows(KEYS)
    at = history.sent + len(planted)
    kept = [(record.key, record.value) for record in history.log()] + planted
    before = {key: value or b"" for key, value in kept}.get(victim)  # the processor keeps no value as an empty one
    history.process([*planted, (victim, BAD), *rows(others)])
    for _ in range(draw.randint(0, 3)):
        history.process(rows(others))
    found = history.bisect(good_ms)
    (bad,) = (record for record in history.log() if record.value == BAD)
    record = found.record
    assert record is not None
    assert (record.offset, record.key, record.new, record.old) == (bad.offset, victim, BAD, before)
    assert record.timestamp == bad.timestamp
    assert record.input_record == _input_offset(history, at)
    assert record.inputs is not None
    assert record.inputs[0] <= record.input_record <= record.inputs[1]
    assert record.before_ms is not None
    end = end_at(history.cluster.topics, history.app.store_spec(), record.before_ms)
    assert end is not None, "a restore to that time has the commits before"
    assert end <= bad.offset
    assert _passing(history.log(), end)
    assert end_at(history.cluster.topics, history.app.store_spec(), record.before_ms + 1) > bad.offset


def _input_offset(history: History, number: int) -> int:
    return consume(history.app.servers, history.app.input)[0][number].offset


def test_of_several_changes_one_from_pass_to_fail_is_found(bootstrap_servers: str, tmp_path: Path) -> None:
    history = History(bootstrap_servers, tmp_path)
    good_ms = history.process([(b"a", b"1"), (b"b", b"1")])
    for value in (BAD, b"2", BAD, b"3", BAD):
        history.process([(b"a", value), (b"b", b"1"), (b"b", b"2")])
    found, log = history.bisect(good_ms), history.log()
    assert found.record is not None
    assert _passing(log, found.record.offset)
    assert not _passing(log, found.record.offset + 1)


@pytest.mark.long
def test_a_suite_that_fails_at_the_good_time_is_refused(bootstrap_servers: str, tmp_path: Path) -> None:
    history = History(bootstrap_servers, tmp_path)
    good_ms = history.process([(b"a", BAD)])
    history.process([(b"b", b"1")])
    with pytest.raises(InputError, match="the suite fails already at offset 0"):
        history.bisect(good_ms)


@pytest.mark.long
def test_an_interval_is_named_where_compaction_has_removed_versions(bootstrap_servers: str, tmp_path: Path) -> None:
    broker.make_compaction_eager(bootstrap_servers)
    history = History(bootstrap_servers, tmp_path)
    now = clock.now_ms()
    good_ms = history.process([(b"a", b"1")])
    first = history.log()[-1].offset
    for value in (b"1", b"2", BAD, b"3"):
        history.process([(b"d", value) if value == BAD else (b"b", value)])
    (bad,) = (record for record in history.log() if record.value == BAD)
    topic = history.app.changelog
    broker.set_topic_config(
        history.app.servers, topic, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.001"
    )
    for ahead in (1, 2, 3):
        history.app.send([(b"c", b"%d" % ahead)], timestamp=now + ahead * 1_000)
        history.app.run()
    broker.wait_for(lambda: sum(record.key == b"b" for record in history.log()) == 1, "compaction", 60)
    found = history.bisect(good_ms)
    assert found.record is None
    assert history.log()[1].offset > first + 1, "the versions after the good one are gone"
    assert first < found.passed <= bad.offset < found.failed


@pytest.mark.long
def test_the_command_finds_the_record_with_the_suite_of_a_store(command: CatalogueCommand, tmp_path: Path) -> None:
    rule = {
        "type": "expect_store_rows_to_satisfy",
        "kwargs": {"condition": "string(value) != 'bad'"},
        "description": "no value is bad",
    }
    suite = tmp_path / "own.json"
    suite.write_text(json.dumps({"name": "own", "expectations": [rule]}))
    stores = (StoreDefinition(name=STORE, expectations=str(suite)),)
    history = History(command.servers, tmp_path, stores=stores)
    register(command.servers, history.app.definition, service_id=command.service_id)
    good_ms = history.process([(key, b"1") for key in KEYS])
    history.process([(key, b"2") for key in KEYS[:4]])
    history.process([(b"key-1", b"3"), (b"key-5", BAD), (b"key-7", b"4")])
    history.process([(b"key-1", b"5")])
    asked = ("bisect", "--application", history.app.name, "--suite", "own", "--good", str(good_ms))
    (row,) = command.shown(*asked)["rows"]
    found = row["record"]
    assert bytes.fromhex(found["key"]) == b"key-5"
    assert (bytes.fromhex(found["old"]), bytes.fromhex(found["new"])) == (b"1", BAD)
    assert found["input_record"] == _input_offset(history, 14)
    ran = command(*asked)
    assert f"--to {clock.iso(found['before_ms'])}" in ran.err
    assert command(*asked[:-1], str(clock.now_ms())).code == 2
