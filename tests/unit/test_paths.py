"""Where everything lies below `state.dir`: Kafka Streams finds its files there, and older versions have left ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import TIMESTAMPED, WINDOW

from statestore.definitions.store import StoreDefinition
from statestore.model import TaskId
from statestore.statedir.paths import TaskPaths, known_stores_file, rewrite_journal, rewrite_lock

PATHS = TaskPaths(Path("/state"), "app", TaskId(1, 3))
SESSION = StoreDefinition(name="s", kind="session", retention_ms=180_000)


def below(directory, paths):
    return {name: str(path.relative_to(directory)) for name, path in paths.items()}


def test_what_kafka_streams_opens_lies_where_kafka_streams_puts_it():
    found = {
        "application": PATHS.application_dir,
        "task": PATHS.task_dir,
        "checkpoint": PATHS.checkpoint,
        "offsets": PATHS.offsets("s"),
        "key-value": PATHS.live(TIMESTAMPED),
        "the same": PATHS.store("s"),
        "window": PATHS.live(WINDOW),
        "session": PATHS.live(SESSION),
    }
    assert below("/state", found) == {
        "application": "app",
        "task": "app/1_3",
        "checkpoint": "app/1_3/.checkpoint",
        "offsets": "app/1_3/.checkpoint_s",
        "key-value": "app/1_3/rocksdb/s",
        "the same": "app/1_3/rocksdb/s",
        "window": "app/1_3/s",
        "session": "app/1_3/s",
    }


def test_what_is_ours_lies_apart_where_older_versions_have_left_it():
    assert str(PATHS.own_dir) == "/state/.statestore/app/1_3"
    found = {
        "segments": PATHS.segments("s"),
        "staging": PATHS.staging("s"),
        "staged": PATHS.staged_own,
        "staged offsets": PATHS.staged_offsets("s"),
        "staged segments": PATHS.staged_segments("s"),
        "runs": PATHS.runs("s"),
        "runs lock": PATHS.runs_lock("s"),
        "quarantine": PATHS.quarantine("s", "run"),
        "quarantined segments": PATHS.quarantined_segments("s", "run"),
        "quarantined own": PATHS.quarantined_own("s", "run"),
        "journal": PATHS.journal("s"),
        "seal": PATHS.seal("s"),
        "snapshot": PATHS.snapshot("s"),
        "digests": PATHS.digests("s"),
        "record": PATHS.record("s"),
        "memory": PATHS.memory_record("s"),
        "shape": PATHS.shape,
        "mode": PATHS.mode("s"),
    }
    assert below(PATHS.own_dir, found) == {
        "segments": "segments/s",
        "staging": "staging/s",
        "staged": "staged",
        "staged offsets": "staging/.checkpoint_s",
        "staged segments": "staged/segments/s",
        "runs": "runs/s",
        "runs lock": "runs-s.lock",
        "quarantine": "quarantine/s/run",
        "quarantined segments": "quarantine-segments/s/run",
        "quarantined own": "quarantine-own/s/run.json",
        "journal": "swap-s.json",
        "seal": "seal-s.json",
        "snapshot": "snapshot-s.json",
        "digests": "digests-s.json",
        "record": "store-s.json",
        "memory": "memory-s.json",
        "shape": "shape.json",
        "mode": "mode-s",
    }


@pytest.mark.parametrize("name", ["s", "store-x", "a.json", "store-.json"])
def test_recorded_stores_are_named_as_they_are_called_whatever_that_is(paths, name):
    paths.own_dir.mkdir(parents=True)
    for store in (name, "z"):
        paths.record(store).touch()
    paths.seal("other").touch()
    assert paths.recorded_stores() == [name, "z"]


def test_what_is_of_a_whole_application_lies_beside_its_tasks():
    found = {
        path.name: path
        for path in (of(Path("/state"), "app") for of in (known_stores_file, rewrite_journal, rewrite_lock))
    }
    names = ("stores.json", "rewrite.json", "rewrite.lock")
    assert below(PATHS.own_dir.parent, found) == {name: name for name in names}
    for of in (known_stores_file, rewrite_journal, rewrite_lock):
        with pytest.raises(ValueError, match="is not a valid name"):
            of(Path("/state"), "../app")
