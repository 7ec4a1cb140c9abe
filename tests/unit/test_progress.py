"""The file in which a running task says how far it is."""

from __future__ import annotations

import pytest

from statestore.definitions.application import ApplicationDefinition
from statestore.kafka.cluster import Cluster
from statestore.model import TaskId
from statestore.progress import files as progress_module
from statestore.progress.files import read_files
from statestore.tasks.spec import TaskSpec
from statestore.tasks.task_progress import TaskProgress, TaskProgressWriter
from statestore.tasks.topology import Counts


@pytest.fixture
def spec(tmp_path):
    """A task that tells its progress in a directory that is not there yet."""
    return TaskSpec(
        application=ApplicationDefinition(name="app", input_topic="in", aggregations=[{"store": "c"}]),
        task=TaskId(0, 3),
        input_end=500,
        offsets_id="offsets",
        changelogs={},
        cluster=Cluster("", 1),
        state_dir=tmp_path / "state",
        progress=tmp_path / "progress" / "app-0_3.json",
    )


def found(spec):
    (progress,) = read_files(spec.progress.parent, TaskProgress)
    return progress


def test_a_task_tells_where_it_began_where_it_is_and_where_it_ends(spec):
    with TaskProgressWriter(spec) as progress:
        progress.tell("recovering")
        assert found(spec) == TaskProgress(application="app", task="0_3", phase="recovering", end=500)
        progress.tell("processing", 110, Counts(records_in=10, late=2, poison=1))
        expected = TaskProgress(
            application="app",
            task="0_3",
            phase="processing",
            first=100,
            next=110,
            end=500,
            records_in=10,
            late_records=2,
            poison_records=1,
        )
        assert found(spec) == expected
    assert found(spec) == expected.model_copy(update={"phase": "ended"})


@pytest.mark.parametrize("begins_at", [0, 100])
def test_the_file_is_not_written_for_every_record(spec, monkeypatch, begins_at):
    monkeypatch.setattr(progress_module, "_EVERY_S", 3_600)
    with TaskProgressWriter(spec) as progress:
        progress.tell("processing", begins_at + 10, Counts(records_in=10))
        first = spec.progress.stat().st_ino
        for number in range(11, 200):
            progress.tell("processing", begins_at + number, Counts(records_in=number))
        assert spec.progress.stat().st_ino == first  # each write is another file, renamed
    last = found(spec)
    assert (last.phase, last.next, last.records_in) == ("ended", begins_at + 199, 199)


def test_a_task_that_told_nothing_leaves_no_file(spec):
    with TaskProgressWriter(spec):
        pass
    assert not spec.progress.parent.exists()


def test_without_a_place_for_it_nothing_is_told(spec, tmp_path):
    with TaskProgressWriter(spec.model_copy(update={"progress": None})) as progress:
        progress.tell("processing", 110, Counts(records_in=10))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_stops_no_task(spec):
    spec.progress.parent.write_text("a file where the directory should be")
    with TaskProgressWriter(spec) as progress:
        progress.tell("processing", 110, Counts(records_in=10))
        progress.tell("recovering")


def test_what_cannot_be_read_says_nothing(spec):
    with TaskProgressWriter(spec) as progress:
        progress.tell("recovering")
    for name, text in (("a.json", "{"), ("b.json", "[]"), ("c.json", ""), (".app-0_4.json.1", "{}")):
        (spec.progress.parent / name).write_text(text)
    (spec.progress.parent / "d.json").mkdir()
    assert [progress.task for progress in read_files(spec.progress.parent, TaskProgress)] == ["0_3"]
    assert read_files(spec.progress.parent / "absent", TaskProgress) == []
