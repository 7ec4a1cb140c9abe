"""Metrics of stores: counted for reports, and offered to OpenTelemetry under Kafka Streams' names from DEBUG on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from store_under_test import StoreUnderTest

from statestore.errors import StateStoreError
from statestore.stores import metrics
from tests.compositions import CHANGELOG, compositions

#: Runs in a process of its own, because a process has one MeterProvider. At each level it works on a store of each
#: scope, and prints what a reader collects: name, unit, tags, value.
SCRIPT = """
import json, sys, tempfile, warnings
from pathlib import Path
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.compositions import CHANGELOG, Composition
from store_under_test import Home, StoreUnderTest
from statestore.model import StoreFormat

reader = InMemoryMetricReader()
set_meter_provider(MeterProvider(metric_readers=[reader]))

def collected():
    data = reader.get_metrics_data()
    return [
        [metric.name, metric.unit, dict(point.attributes), point.value]
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    ]

def work_at(level):
    stores = []
    for kind in ("key-value", "window", "session"):
        for persistent in (True, False):
            home = Home(Path(tempfile.mkdtemp(dir=sys.argv[1])))
            composition = Composition(kind, StoreFormat.TIMESTAMPED, persistent, True)
            stores.append(StoreUnderTest(composition, home, recording_level=level))
    found = [collected()]
    for store in stores:
        store.put(1, "text")
        store.replay([(2, "restored")])
        for offset in range(3):
            store.store.commit({CHANGELOG: offset})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            store.store.flush()
    found.append(collected())
    for store in stores:
        store.close()
    return [*found, collected()]

print(json.dumps({level: work_at(level) for level in ("INFO", "DEBUG", "TRACE")}))
"""
SCOPES = ["rocksdb", "in-memory", "rocksdb-window", "in-memory-window", "rocksdb-session", "in-memory-session"]
NAMES = {
    f"{operation}-{figure}" for operation in ("commit", "restore") for figure in ("rate", "latency-avg", "latency-max")
}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """What a reader collects by recording level: before any work, after it, and after closing."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path_factory.mktemp("metrics"))],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.behaviour("M1")
@pytest.mark.parametrize("level", ["DEBUG", "TRACE"])
def test_from_debug_on_each_store_publishes_kafka_streams_metrics_with_its_tags_while_it_is_open(published, level):
    before, worked, closed = published[level]
    assert before == closed == []
    for scope in SCOPES:
        own = [point for point in worked if f"{scope}-state-id" in point[2]]
        assert {name for name, *_ in own} == NAMES, "and nothing of flush, which KIP-1035 deprecates"
        for name, unit, tags, value in own:
            assert tags.keys() == {"type", "thread-id", "task-id", f"{scope}-state-id"}
            assert (tags["type"], tags["task-id"], tags[f"{scope}-state-id"]) == ("stream-state-metrics", "0_0", "s")
            assert tags["thread-id"]
            assert unit == ("1/s" if name.endswith("rate") else "ns")
            assert value > 0
        figures = {name: value for name, _, _, value in own}
        assert figures["commit-latency-max"] >= figures["commit-latency-avg"]
        assert figures["commit-rate"] > figures["restore-rate"]
    assert len(worked) == len(SCOPES) * len(NAMES)


@pytest.mark.behaviour("M1")
def test_at_info_nothing_is_published(published):
    assert published["INFO"] == [[], [], []]


@pytest.mark.behaviour("M1")
def test_every_store_counts_its_commits_and_restores_for_the_report_and_never_a_flush(store):
    store.fill([1, 7], "text")
    for offset in range(3):
        store.store.commit({CHANGELOG: offset})
    store.replay([(2, "restored")])
    with pytest.warns(DeprecationWarning, match="flush does nothing"):
        store.store.flush()
    counts = {one: store.store.metrics.figures(one).count for one in ("commit", "restore", "flush")}
    assert counts == {"commit": 3, "restore": 1, "flush": 0}
    commit = store.store.metrics.figures("commit")
    assert 0 < commit.latency_avg <= commit.latency_max
    assert commit.rate > 0
    assert store.store.metrics.figures("flush").latency_avg == 0


@pytest.mark.behaviour("M4")
def test_commits_of_a_replay_do_not_count_once_processing_begins(store, monkeypatch):
    seconds = [100.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: seconds[0])
    store.reopen()
    store.replay([(2, "restored")])
    store.store.commit({CHANGELOG: 0})
    seconds[0] += 10
    store.store.metrics.begin_processing()
    assert store.store.metrics.figures("commit").count == 0
    for offset in (1, 2):
        store.store.commit({CHANGELOG: offset})
    seconds[0] += 4
    commit, restore = (store.store.metrics.figures(one) for one in ("commit", "restore"))
    assert (commit.count, commit.rate) == (2, 0.5)
    assert (restore.count, restore.rate) == (1, 1 / 14)


@compositions(persistent=True)
def test_a_commit_that_fails_is_counted_too(composition, home):
    store = StoreUnderTest(composition, home)
    store.close()
    with pytest.raises(StateStoreError):
        store.store.commit({CHANGELOG: 1})
    assert store.store.metrics.figures("commit").count == 1
