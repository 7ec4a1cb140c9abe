"""Stores without a changelog (logged: false) on a real broker, in tasks, verification, restores, and snapshots."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from statestore_jobs.planning import prepare, task_specs

from statestore.archive.cleanup import Retention
from statestore.archive.layout import BLOBS
from statestore.cli.verification import exit_code
from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.discovery.partitions import store_partition_specs
from statestore.errors import InputError
from statestore.kafka.cluster import Cluster
from statestore.model import StoreFormat
from statestore.recovery.archive_cleanup import clean_archive
from statestore.recovery.many import plan_many
from statestore.recovery.restore import restore
from statestore.recovery.snapshot_building import SnapshotSpec, make_snapshot
from statestore.reports import Action, Status
from statestore.rewrite.examination import require_rewritable
from statestore.stores.commit_log import numbers, prepared_commits
from statestore.tasks.stream_task import run_task
from statestore.verification.check import verify
from tests.faults.children import Child, Kill
from tests.integration.archived import Archived
from tests.integration.broker import consume, create_topic, delete_records, produce, set_topic_config, unique
from tests.integration.conftest import INPUT
from tests.integration.support import STORE, Application, register


def unlogged(servers: str, directory: Path, **settings: Any) -> Application:
    """An application whose only store has no changelog."""
    return Application(servers, directory, stores=(StoreDefinition(name=STORE, logged=False),), **settings)


def kept(application: Application) -> dict[str, Any]:
    """The last record in the topic of input offsets."""
    return json.loads(consume(application.servers, application.task_spec().offsets.topic)[0][-1].value)


@pytest.mark.behaviour("K18")
def test_each_run_continues_with_what_the_last_one_committed(bootstrap_servers: str, tmp_path: Path) -> None:
    application = unlogged(bootstrap_servers, tmp_path)
    row = application.process(INPUT)
    assert (row.records_in, row.records_out, row.changelog_records) == (5, 5, 0)
    assert application.contents() == application.recomputed()[0]
    first = application.committed()
    assert kept(application)["unlogged"] == {STORE: first}
    application.process([(b"a", b"3")])
    assert application.contents() == application.recomputed()[0]
    second = application.committed()
    assert second > first
    assert (kept(application)["unlogged"], kept(application)["sequence"]) == ({STORE: second}, 2)
    assert application.run().commits == 0
    assert application.committed() == second
    assert not numbers(application.task_spec().paths.commits(STORE))
    there = application._topics.describe([application.changelog, f"{application.name}-{STORE}-changelog"])
    assert not there


@pytest.mark.behaviour("U2")
def test_a_missing_store_stops_its_task_until_a_user_accepts_the_loss(bootstrap_servers: str, tmp_path: Path) -> None:
    application = unlogged(bootstrap_servers, tmp_path)
    application.process(INPUT)
    shutil.rmtree(application.live)
    application.send([(b"a", b"3")])
    assert "is missing" in application.failure("RebuildError").evidence
    assert not application.live.exists()
    row = application.run(accept_loss=True)
    assert row.failure is None
    assert {key: found.value for key, found in application.contents().items()} == {b"a": b"1"}
    assert application.run().failure is None
    application.process([(b"a", b"4")])
    assert {key: found.value for key, found in application.contents().items()} == {b"a": b"2"}


@pytest.mark.behaviour("U2")
def test_an_older_copy_is_not_used(bootstrap_servers: str, tmp_path: Path) -> None:
    application = unlogged(bootstrap_servers, tmp_path)
    application.process(INPUT)
    copy, first = tmp_path / "copy", application.committed()
    shutil.copytree(application.state_dir, copy)
    application.process([(b"a", b"3")])
    shutil.rmtree(application.state_dir)
    copy.rename(application.state_dir)
    assert f"commit {kept(application)['unlogged'][STORE]} as the last" in application.failure("RebuildError").evidence
    assert application.run(accept_loss=True).failure is None
    assert application.committed() == first
    assert kept(application)["unlogged"] == {STORE: first}
    assert application.run().failure is None


# -- verify -------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("U3")
@pytest.mark.parametrize("depth", ["offsets", "scan", "deep"])
def test_verify_never_says_ok(bootstrap_servers: str, tmp_path: Path, depth: Any) -> None:
    application = unlogged(bootstrap_servers, tmp_path)
    assert application.verify(depth).status == Status.EMPTY
    application.process(INPUT)
    row = application.verify(depth)
    number = application.committed()
    assert (row.status, row.action, row.committed, row.sealed) == (Status.UNLOGGED, Action.NONE, number, True)
    assert (row.keys, row.contents, row.loss, row.depth) == (None if depth == "offsets" else 2, None, "likely", depth)
    file = next(application.live.glob("*.sst"))
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    if depth != "offsets":
        row = application.verify(depth)
        assert (row.status, row.action, row.file) == (Status.CORRUPT, Action.BY_HAND, str(file))
        assert exit_code([row]) == 1
    file.unlink()
    assert application.verify(depth).status == Status.CORRUPT
    shutil.rmtree(application.live)
    row = application.verify(depth)
    assert (row.status, row.action, row.loss) == (Status.MISSING, Action.BY_HAND, "likely")
    assert application.fails("RebuildError")


def killed_at(application: Application, directory: Path, point: str) -> Path:
    """Kill a process at a point of its commit of a record; return where the commits of its store are."""
    application.send([(b"a", b"3")])
    Child([application.task_spec()], directory / "marks", kill=Kill(point)).killed()
    return application.task_spec().paths.commits(STORE)


@pytest.mark.behaviour("U3", "U6")
def test_commits_in_files_are_part_of_what_is_verified(bootstrap_servers: str, tmp_path: Path) -> None:
    application = unlogged(bootstrap_servers, tmp_path)
    application.process(INPUT)
    first = application.committed()
    commits = killed_at(application, tmp_path, "stores committed")
    (number,) = numbers(commits)
    row = application.verify()
    assert (row.status, row.committed, "1 commits are in files" in row.detail) == (Status.UNLOGGED, first, True)
    intact = (commits / str(number)).read_bytes()
    (commits / str(number)).write_bytes(intact[:-3] + b"xyz")
    assert application.verify().status == Status.CORRUPT
    assert "cannot be used" in application.failure("RebuildError").evidence
    assert numbers(commits) == [number]
    (commits / str(number)).unlink()
    row = application.verify()
    assert (row.status, row.action) == (Status.LAGGING, Action.BY_HAND)
    (commits / str(number)).write_bytes(intact)
    assert application.run().failure is None
    assert application.contents() == application.recomputed()[0]
    assert not commits.exists()


@pytest.mark.behaviour("U1")
def test_a_prepared_commit_that_kafka_has_not_committed_is_not_read(bootstrap_servers: str, tmp_path: Path) -> None:
    application = unlogged(bootstrap_servers, tmp_path)
    application.process(INPUT)
    before = application.contents()
    commits = killed_at(application, tmp_path, "flushed, not committed")
    (prepared,) = prepared_commits(commits)
    assert application.contents() == before
    assert application.verify().status == Status.UNLOGGED
    assert application.run().failure is None
    assert application.contents() == application.recomputed()[0]
    assert application.committed() > prepared


@pytest.mark.behaviour("U1", "U6")
def test_a_prepared_commit_of_another_copy_of_the_store_is_not_completed(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application = unlogged(bootstrap_servers, tmp_path)
    application.process(INPUT)
    application.send([(b"a", b"3")])
    Child([application.task_spec()], tmp_path / "marks", kill=Kill("flushed, not committed")).killed()
    copy = tmp_path / "copy"
    shutil.copytree(application.state_dir, copy)
    application.process([(b"a", b"4")])
    shutil.rmtree(application.state_dir)
    copy.rename(application.state_dir)
    commits = application.task_spec().paths.commits(STORE)
    assert "is not as it was committed" in application.failure("RebuildError").evidence
    assert len(prepared_commits(commits)) == 1  # nothing is removed before a user decides
    assert application.run(accept_loss=True).failure is None
    assert not commits.exists()
    assert {key: found.value for key, found in application.contents().items()} == {b"a": b"2", b"c": b"1"}


# -- snapshots ----------------------------------------------------------------------------------------------------


class ArchivedUnlogged(Archived):
    """An application with an archive, whose only store has no changelog."""

    def __init__(self, servers: str, directory: Path) -> None:
        super().__init__(servers, directory, stores=(StoreDefinition(name=STORE, logged=False),))


@pytest.fixture
def archived(bootstrap_servers: str, tmp_path: Path) -> ArchivedUnlogged:
    return ArchivedUnlogged(bootstrap_servers, tmp_path)


@pytest.mark.behaviour("U4")
@pytest.mark.parametrize("lost", ["live", "all"])
def test_a_snapshot_with_the_last_commit_replaces_a_store_without_a_question(
    archived: ArchivedUnlogged, lost: str
) -> None:
    archived.process(INPUT)
    (snapshot,) = archived.snapshots()
    shutil.rmtree(archived.live if lost == "live" else archived.state_dir)
    row = archived.restored("auto")
    assert (row.before, row.mode, row.snapshot, row.keys) == (Status.MISSING, "snapshot", snapshot, 2)
    assert archived.verify().status == Status.UNLOGGED
    archived.process([(b"a", b"3")])
    assert archived.contents() == archived.recomputed()[0]
    assert len(archived.snapshots()) == 2
    assert archived.restored("auto").outcome == "skipped"


@pytest.mark.behaviour("U4", "U6")
def test_an_older_snapshot_needs_the_consent_of_a_user(archived: ArchivedUnlogged, tmp_path: Path) -> None:
    archived.process(INPUT)
    archived.send([(b"a", b"3")])
    Child([archived.task_spec()], tmp_path / "marks", kill=Kill("stores committed")).killed()
    commits = archived.task_spec().paths.commits(STORE)
    (number,) = numbers(commits)
    next(archived.live.glob("*.sst")).unlink()
    spec = archived.restore_spec("auto", archive=archived.archive)
    refused = restore(spec)
    assert refused.failure is not None
    assert (refused.before, refused.failure.kind) == (Status.CORRUPT, "InputError")
    assert plan_many([spec], lambda pieces, work, *_: list(map(work, pieces)))[0].failure is not None
    row = archived.restored("auto", accept_loss=True)
    assert row.quarantine is not None
    assert numbers(archived.task_spec().paths.quarantined_commits(STORE, Path(row.quarantine).name)) == [number]
    assert not commits.exists()
    assert {key: found.value for key, found in archived.contents().items()} == {b"a": b"2", b"c": b"1"}
    archived.process([(b"a", b"4")])
    assert {key: found.value for key, found in archived.contents().items()} == {b"a": b"3", b"c": b"1"}
    assert archived.verify().status == Status.UNLOGGED


@pytest.mark.behaviour("U4")
def test_a_store_stays_where_it_is_if_none_of_its_snapshots_can_be_built(
    archived: ArchivedUnlogged, tmp_path: Path
) -> None:
    archived.process(INPUT)
    next(archived.live.glob("*.sst")).unlink()
    for blob in archived.objects.entries(BLOBS):
        (tmp_path / "archive" / blob.name).write_bytes(bytes(blob.size))
    before = sorted(path.name for path in archived.live.iterdir())
    row = restore(archived.restore_spec("auto", archive=archived.archive))
    assert row.failure is not None
    assert (row.failure.kind, "SHA-256" in row.failure.message) == ("InputError", True), row.failure
    assert sorted(path.name for path in archived.live.iterdir()) == before


@pytest.mark.behaviour("U2", "U4")
@pytest.mark.parametrize("killed", ["", "Kafka committed, stores not", "before close"])
def test_a_later_loss_is_asked_about_again(archived: ArchivedUnlogged, tmp_path: Path, killed: str) -> None:
    """Given a loss that was accepted when it was unknown what the last commit was."""
    archived.process(INPUT)
    lose_last_commit(archived)
    archived.restored("snapshot", force=True, accept_loss=True)
    archived.send([(b"a", b"3")])
    if killed:
        Child([archived.task_spec()], tmp_path / "marks", kill=Kill(killed)).killed()
    if killed != "before close":
        assert archived.run().failure is None
    lose_last_commit(archived)
    archived.send([(b"a", b"5")])
    assert "is not as it was committed" in archived.failure("RebuildError").evidence


def lose_last_commit(application: Application) -> None:
    """Delete the task's records from the topic of input offsets."""
    topic = application.task_spec().offsets.topic
    set_topic_config(application.servers, topic, cleanup_policy="compact,delete")
    delete_records(application.servers, topic, -1)


@pytest.mark.behaviour("U3", "U4")
def test_a_missing_store_is_not_empty_because_kafka_has_lost_the_last_commit(archived: ArchivedUnlogged) -> None:
    archived.process(INPUT)
    lose_last_commit(archived)
    archived.forget_group()
    shutil.rmtree(archived.live)
    row = archived.verify()
    assert (row.status, row.action) == (Status.MISSING, Action.BY_HAND)
    archived.send([(b"a", b"3")])
    assert "is missing" in archived.failure("RebuildError").evidence
    assert archived.restored("auto", accept_loss=True).outcome == "restored"


@pytest.mark.behaviour("U4")
def test_a_snapshot_loses_nothing_if_the_input_offset_of_its_cut_is_set(archived: ArchivedUnlogged) -> None:
    archived.process(INPUT)
    (snapshot,) = archived.snapshots()
    archived.process([(b"a", b"3"), (b"c", b"2")])
    shutil.rmtree(archived.live)
    request = archived.restore_spec("snapshot", archive=archived.archive, accept_loss=True)
    request = request._replace(request=request.request.model_copy(update={"snapshot": snapshot}))
    assert restore(request).failure is None
    archived.set_group_offset(len(INPUT))
    assert archived.run().failure is None
    assert archived.contents() == archived.recomputed()[0]


@pytest.mark.behaviour("U4")
@pytest.mark.parametrize("mode", ["tail", "full"])
def test_modes_that_need_a_changelog_are_refused_by_name(archived: ArchivedUnlogged, mode: str) -> None:
    archived.process(INPUT)
    row = restore(archived.restore_spec(mode, archive=archived.archive, force=True, accept_loss=True))
    assert row.failure is not None
    assert (row.failure.kind, f"mode {mode} cannot" in row.failure.message) == ("InputError", True)
    with pytest.raises(InputError, match="no changelog"):
        require_rewritable([archived.store_spec()])


def test_a_snapshot_is_made_of_closed_files(archived: ArchivedUnlogged, tmp_path: Path) -> None:
    assert archived.run(archive=None).failure is None
    archived.send(INPUT)
    assert archived.run(archive=None).failure is None
    spec = SnapshotSpec(archived.store_spec(archive=archived.archive), "run", 1 << 20, tmp_path)
    row = make_snapshot(spec)
    assert (row.failure, row.committed, [row.snapshot]) == (None, archived.committed(), archived.snapshots())
    assert make_snapshot(spec).snapshot is None  # nothing has changed


def test_clean_up_keeps_the_newest_snapshot_whatever_the_store_is(archived: ArchivedUnlogged) -> None:
    for number in range(4):
        archived.process([(b"a", b"%d" % number)])
    newest = archived.snapshots()[0]
    shutil.rmtree(archived.state_dir)
    retention = Retention(newest=0, age_ms=0, grace_ms=0)
    clean_archive(archived.archive, Cluster(archived.servers, 60), retention, dry_run=False)
    assert archived.snapshots() == [newest]
    archived.restored("auto")
    assert archived.contents() == archived.recomputed()[0]


@pytest.mark.behaviour("U5")
def test_an_applied_definition_has_no_changelog_and_is_planned_verified_and_processed(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    topic = create_topic(bootstrap_servers, unique("in"), 1)
    definition = ApplicationDefinition(
        name=unique("app"),
        input_topic=topic,
        processor="tests.integration.support:count_plain",
        stores=(StoreDefinition(name=STORE, logged=False, format=StoreFormat.PLAIN),),
    )
    metastore = register(bootstrap_servers, definition)
    entry = metastore.view().catalogue.entry(definition.name)
    offsets = f"{definition.name}-input-offsets"
    assert set(entry.topics or {}) == {offsets}
    topics = Cluster(bootstrap_servers, 60).topics
    names = [f"{definition.name}-{STORE}-{suffix}" for suffix in ("changelog", "commits")]
    assert not topics.describe(names)
    prepare(topics, metastore, [entry])
    produce(bootstrap_servers, topic, INPUT)
    state, reports = tmp_path / "state", str(tmp_path)
    settings = Settings(
        bootstrap_servers=bootstrap_servers, state_dir=state, reports_dir=reports, data_docs_dir=reports
    )
    (spec,) = task_specs(settings, topics, definition)
    row = run_task(spec)
    assert (row.failure, row.records_in, row.changelog_records) == (None, 5, 0)
    (found,) = store_partition_specs(settings, topics, [definition])
    assert verify(found).status == Status.UNLOGGED
    assert not topics.describe(names)
    with pytest.raises(InputError, match="NODE_LOCAL"):
        task_specs(settings.model_copy(update={"node_local_state": True}), topics, definition)
