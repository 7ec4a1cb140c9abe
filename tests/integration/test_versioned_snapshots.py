"""Versioned stores in the archive, as of a point, and killed on their way: they answer as if nothing had happened."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from statestore.changelog.topic_settings import changelog_config
from statestore.recovery.restore import restore
from statestore.recovery.snapshot_building import SnapshotSpec, snapshot_from_log
from statestore.reports import Status
from statestore.requests.restore import RestoreRequest
from tests.integration import dying
from tests.integration.archived import TINY_RUN, Archived
from tests.integration.test_versioned_jobs import BEGIN, VERSIONED, answers, stream_time_of, versions

pytestmark = pytest.mark.long

FIRST, SECOND = versions(400, 7), versions(300, 8, BEGIN + 2_400_000)


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Archived:
    found = Archived(bootstrap_servers, tmp_path, stores=[VERSIONED], changelog_config=changelog_config(VERSIONED))
    found.defined(processor="tests.integration.test_versioned_jobs:keep")
    return found


def said(application: Archived) -> list[Any]:
    return list(answers(application, stream_time_of([*FIRST, *SECOND])))


def test_a_lost_node_has_its_history_again_from_a_snapshot_and_the_rest_of_the_log(application: Archived) -> None:
    (published,) = application.process(FIRST).snapshots
    assert published.failure is None
    application.send(SECOND)
    assert application.run(archive=None).failure is None  # what came after the snapshot is in the log alone
    expected = said(application)
    application.lose_all()
    row = application.restored("auto")
    assert (row.mode, row.snapshot) == ("snapshot", published.snapshot)
    assert said(application) == expected
    assert application.verify("deep").status is Status.OK


def test_snapshots_that_are_made_from_the_log_answer_as_the_store(application: Archived, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    made = []
    for rows in (FIRST, SECOND):
        application.send(rows)
        assert application.run(archive=None).failure is None
        made.append(
            snapshot_from_log(
                SnapshotSpec(application.store_spec(archive=application.archive), "run", TINY_RUN, scratch)
            )
        )
    assert [(row.failure, row.mode) for row in made] == [(None, "full"), (None, "snapshot")]
    expected = said(application)
    application.lose_all()
    row = application.restored()
    assert (row.records, row.snapshot) == (0, made[1].published.snapshot)
    assert said(application) == expected
    assert application.verify("deep").status is Status.OK


@pytest.mark.parametrize("mode", ["full", "tail", "snapshot"])
@pytest.mark.parametrize(
    "point", ["restore, built, not swapped", "swap, before the last rename", "restore, swapped, not sealed"]
)
def test_a_restore_that_is_killed_is_completed_by_the_next(
    application: Archived, tmp_path: Path, mode: str, point: str
) -> None:
    application.process(FIRST)
    shutil.copytree(application.state_dir, tmp_path / "before")
    application.send(SECOND)
    assert application.run(archive=None).failure is None
    expected = said(application)
    shutil.rmtree(application.state_dir)
    if mode == "tail":
        shutil.copytree(tmp_path / "before", application.state_dir)
    archive = application.archive if mode == "snapshot" else None
    dying.die_in(application.restore_spec(mode, archive=archive, label="killed"), point)
    row = restore(application.restore_spec("auto", archive=archive, label="killed"))
    assert row.failure is None, row.failure
    assert said(application) == expected
    assert application.verify("deep").status is Status.OK


@pytest.mark.parametrize("point", ["Kafka committed, stores not", "store committed", "store recorded, not sealed"])
def test_a_task_that_is_killed_behind_its_commit_goes_on(application: Archived, point: str) -> None:
    application.process(FIRST)
    application.send(SECOND)
    dying.die_in(application.task_spec(archive=application.archive), point)
    assert application.process().failure is None
    killed = said(application)
    assert application.verify("deep").status is Status.OK
    application.lose_all()
    application.restored("full")
    assert said(application) == killed


def test_as_of_a_point_the_store_answers_as_it_did_then(application: Archived, tmp_path: Path) -> None:
    application.process(FIRST)
    then, end = list(answers(application, stream_time_of(FIRST))), application.log_end()
    application.process(SECOND)
    spec = application.restore_spec()
    asked = RestoreRequest(mode="as-of", as_of_offset=end - 1, target=tmp_path / "then")
    row = restore(spec._replace(request=asked))
    assert (row.failure, row.exact) == (None, True)
    application.state_dir = tmp_path / "then"
    assert list(answers(application, stream_time_of(FIRST))) == then
