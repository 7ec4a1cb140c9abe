"""A lost changelog is written anew from its stores: rows stay, the catalogue knows it, and counting goes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from statestore_jobs.planning import prepare

from demo.damage import delete_directory, flip_bit
from statestore.cli import output
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, TopicMismatchError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.kafka.cluster import Cluster
from statestore.kafka.partitioner import partition_of
from statestore.metastore.commands import RecordTopics
from statestore.partition.quarantine import waits_for_a_person
from statestore.recovery.as_of import point_range
from statestore.recovery.restore import restore
from statestore.reports import Status
from statestore.requests.restore import AsOf
from statestore.rewrite import reseed as reseeding
from statestore.statedir.lock import locked
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.engines import each_engine_on_disk
from tests.integration import broker, dying
from tests.integration.broker import T0, consume
from tests.integration.catalogued import CatalogueCommand
from tests.integration.support import STORE, Application, register
from tests.oracle.rows import fold

KEYS = [b"key-%02d" % number for number in range(20)]


class Lost:
    """An application of the catalogue, with two tasks, that can lose its changelog."""

    def __init__(self, command: CatalogueCommand, directory: Path, **settings: Any) -> None:
        self.command = command
        self.app = Application(command.servers, directory, partitions=2, **settings)
        register(command.servers, self.app.definition, service_id=command.service_id)
        self.tasks = range(2)

    def process(self, value: bytes | None = b"1", at: int = T0) -> None:
        """Send each key once, to where the partitioner puts it, and process."""
        for task in self.tasks:
            rows = [(key, value) for key in KEYS if partition_of(key, 2) == task]
            self.app.send(rows, task, at)
            row = self.app.run(task)
            assert row.failure is None, row.failure

    def lose(self, *, make_again: bool = False) -> None:
        broker.delete_topic(self.app.servers, self.app.changelog)
        if make_again:
            broker.create_topic(self.app.servers, self.app.changelog, 2)

    def reseed(self, *options: str, code: int = 0) -> Any:
        return self.command.shown(
            "rewrite", "reseed", "--application", self.app.name, "--store", STORE, *options, code=code
        )

    def refused(self, *options: str, code: int = 2) -> str:
        """Ask for it, which must be refused without a change; return the reason."""
        before = self.found()
        ran = self.command("rewrite", "reseed", "--application", self.app.name, "--store", STORE, "--yes", *options)
        assert ran.code == code, ran
        assert self.found() == before
        return ran.err

    def found(self) -> Any:
        """What a refusal must leave as it is: the topic, what is in it, and the files of the stores."""
        topics, changelog = Cluster(self.app.servers, 60).topics, self.app.changelog
        topic = topics.find(changelog)
        ends = [consume(self.app.servers, changelog, task)[1] for task in self.tasks] if topic else []
        files = {path: path.stat().st_mtime_ns for path in self.app.state_dir.rglob("*.sst")}
        return topic, ends, files

    def prepare(self) -> None:
        """Prepare a run of the process job, which must know the topics."""
        entry = self.command.catalogue.entry(self.app.name)
        prepare(Cluster(self.app.servers, 60).topics, self.command.metastore, [entry])

    def die(self, point: str) -> None:
        """Begin one, in a process that is killed at a point."""
        arguments = ["rewrite", "reseed", "--application", self.app.name, "--store", STORE, "--yes"]
        dying.die_in(dying.CommandLine(arguments, self.command.settings), point)

    def statuses(self) -> set[Status]:
        return {verify(self.app.store_spec(task), VerifyOptions("deep")).status for task in self.tasks}

    def rows(self) -> list[Any]:
        return [self.app.contents(task) for task in self.tasks]

    def positions(self) -> list[Any]:
        return [self.app.position(task) for task in self.tasks]

    @property
    def recorded(self) -> str | None:
        entry = self.command.catalogue.entry(self.app.name)
        return (entry.topics or {}).get(self.app.changelog)

    def assert_whole(self, rows: list[Any]) -> None:
        """The stores have these rows, their new changelog gives them, the catalogue has it, and nothing is left."""
        assert self.rows() == rows
        assert [fold(consume(self.app.servers, self.app.changelog, task)[0]) for task in self.tasks] == rows
        assert self.statuses() == {Status.OK}
        assert self.recorded == Cluster(self.app.servers, 60).topics.require(self.app.changelog).topic_id
        own = self.app.store_spec().paths.own_dir.parent
        assert not [*own.glob("reseed-*"), *own.glob("*/swap-*"), *own.glob("*/staging"), *own.glob("*/runs/*")]

    def assert_counts_on(self) -> None:
        self.process(at=T0 + 1_000)
        for task in self.tasks:
            assert self.app.contents(task) == self.app.recomputed(task)[0]


@pytest.fixture
def lost(command: CatalogueCommand, tmp_path: Path) -> Lost:
    found = Lost(command, tmp_path)
    found.process()
    found.process(at=T0 + 100)
    return found


def test_a_deleted_changelog_is_written_anew_and_processing_counts_on(lost: Lost) -> None:
    rows, before, positions = lost.rows(), lost.recorded, lost.positions()
    assert all(positions)
    lost.lose()
    assert lost.statuses() == {Status.REPLACED}
    planned = lost.reseed("--dry-run")
    assert [part["rows"] for part in planned["plan"]] == [len(found) for found in rows]
    assert (planned["rows"], planned["behind"], lost.recorded) == ([], [], before)
    done = lost.reseed("--yes")
    assert [row["rows"] for row in done["rows"]] == [len(found) for found in rows]
    lost.assert_whole(rows)
    assert lost.recorded != before
    assert lost.positions() == positions
    lost.prepare()
    assert [lost.app.rebuilt_position(task) for task in lost.tasks] == positions
    for task, found in enumerate(rows):
        with pytest.raises(InputError, match=f"A rewrite wrote the offsets 0 to {len(found) - 1} as the rows"):
            point_range(lost.app.store_spec(task), AsOf(offset=0))
    lost.assert_counts_on()


@pytest.mark.long
def test_an_empty_topic_is_made_again_with_its_own_settings_and_old_stores_wait_for_a_person(lost: Lost) -> None:
    rows = lost.rows()
    lost.lose()
    made = {"max.message.bytes": "900000", "cleanup.policy": "delete"}
    broker.create_topic(lost.app.servers, lost.app.changelog, 2, made)
    empty = Cluster(lost.app.servers, 60).topics.require(lost.app.changelog).topic_id
    done = lost.reseed("--yes")
    lost.assert_whole(rows)
    topics = Cluster(lost.app.servers, 60).topics
    assert topics.require(lost.app.changelog).topic_id != empty
    config = topics.topic_configs([lost.app.changelog])[lost.app.changelog]
    assert (config["max.message.bytes"], config["cleanup.policy"]) == ("900000", "compact")
    for row, task in zip(done["rows"], lost.tasks, strict=True):
        kept = waits_for_a_person(lost.app.store_spec(task).paths, STORE, Path(row["quarantine"]).name)
        assert "its changelog was lost" in str(kept)


@each_engine_on_disk
def test_a_run_that_failed_in_between_leaves_the_stores_as_they_were(
    command: CatalogueCommand, tmp_path: Path, engine: Any
) -> None:
    lost = Lost(command, tmp_path, stores=(StoreDefinition(name=STORE, engine=engine),))
    lost.process()
    rows = lost.rows()
    lost.lose(make_again=True)
    assert lost.command("drift", "--repair", "--yes").code in (0, 1)
    for task in lost.tasks:
        lost.app.send([(KEYS[task], b"1")], task)
        failure = lost.app.run(task).failure
        assert failure is not None
        assert failure.kind == "ChangelogReplacedError"
        assert lost.app.store_spec(task).paths.seal(STORE).exists()
    assert lost.statuses() == {Status.REPLACED}
    lost.reseed("--yes")
    lost.assert_whole(rows)


# -- refusals ---------------------------------------------------------------------------------------------------------


def _write_to_the_new_topic(lost: Lost) -> None:
    broker.create_topic(lost.app.servers, lost.app.changelog, 2)
    broker.produce(lost.app.servers, lost.app.changelog, [(b"key-00", b"7")], 1)


def _misplace(lost: Lost) -> None:
    wrong = next(key for key in KEYS if partition_of(key, 2) == 1)
    lost.app.send([(wrong, b"1")], 0)
    lost.app.run(0)


def _leave_open(lost: Lost) -> None:
    lost.app.send([(b"key-00", b"1")], partition_of(b"key-00", 2))
    dying.die_in(lost.app.task_spec(partition_of(b"key-00", 2)), "Kafka committed, stores not")


REFUSALS: dict[str, tuple[Callable[[Lost], object], Callable[[Lost], object], str]] = {
    "somebody wrote to the new topic": (lambda lost: None, _write_to_the_new_topic, "is not empty"),
    "a store is gone": (lambda lost: delete_directory(lost.app.store_spec(1).live), lambda lost: None, "is MISSING"),
    "a store is damaged": (lambda lost: flip_bit(lost.app.store_spec(1).live), lambda lost: None, "is CORRUPT"),
    "a store was left open": (_leave_open, lambda lost: None, "was left open"),
    "keys are elsewhere": (_misplace, lambda lost: None, "1 keys that Kafka's partitioner puts elsewhere"),
    "the changelog is there": (lambda lost: None, lambda lost: setattr(lost, "lost", False), "is not empty"),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case.startswith("somebody") else pytest.mark.long) for case in REFUSALS]
)
def test_what_speaks_against_it_is_named_and_nothing_is_changed(lost: Lost, case: str) -> None:
    before, after, reason = REFUSALS[case]
    before(lost)
    if case != "the changelog is there":
        lost.lose()
    after(lost)
    assert reason in lost.refused()


@pytest.mark.long
def test_where_each_node_has_a_disk_of_its_own_no_copy_is_taken_for_the_store(
    lost: Lost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, lost.app.state_dir = lost.app.state_dir, tmp_path / "elsewhere"
    shutil.copytree(here, lost.app.state_dir)
    lost.process(at=T0 + 200)  # the copy here lacks this, and all that is known of it here is as old
    lost.app.state_dir = here
    lost.lose()
    monkeypatch.setenv("STATESTORE_ARCHIVE", f"file://{tmp_path}/archive")
    monkeypatch.setenv("STATESTORE_NODE_LOCAL_STATE", "true")
    assert "the stores in the state directory of a node are copies" in lost.refused()
    others = (["transform", "--function", "other:rows"], ["repartition", "--to", "other"], ["undo"])
    for kind, *options in others:
        ran = lost.command("rewrite", kind, "--application", lost.app.name, *options, "--yes")
        assert (ran.code, "the stores in the state directory of a node are copies" in ran.err) == (2, True), ran


@pytest.mark.long
def test_an_older_copy_of_a_store_is_refused(lost: Lost, tmp_path: Path) -> None:
    spec, older = lost.app.store_spec(0), tmp_path / "older"
    shutil.copytree(spec.live, older)
    lost.process(at=T0 + 500)
    delete_directory(spec.live)
    shutil.copytree(older, spec.live)
    for seal in spec.paths.own_dir.glob(f"seal-{STORE}*"):
        seal.unlink()
    lost.lose()
    assert "it is an older copy" in lost.refused()
    shutil.rmtree(spec.paths.own_dir)  # as on another machine, which knows only its own copy
    (sign,) = lost.reseed("--dry-run")["behind"]
    assert "its store is the newer one" in sign


@pytest.mark.long
def test_keys_may_be_elsewhere_if_the_application_has_a_partitioner_of_its_own(lost: Lost) -> None:
    _misplace(lost)
    rows = lost.rows()
    lost.lose()
    lost.reseed("--yes", "--partitioner", "any")
    lost.assert_whole(rows)


@pytest.mark.long
def test_a_task_that_works_and_a_member_of_the_group_are_waited_for_or_named(lost: Lost) -> None:
    lost.lose()
    with locked(lost.app.store_spec(1).paths):
        assert "is locked by another process" in lost.refused(code=3)
    with broker.member_of(lost.app.servers, lost.app.name, lost.app.input):
        assert "has active members" in lost.refused()
    lost.reseed("--yes")


@pytest.mark.long
def test_without_room_for_the_new_stores_nothing_is_begun(lost: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reseeding, "free_bytes", lambda _: 1_000)  # a disk of this size cannot have the tests' stores
    lost.lose()
    assert "1000 are free" in lost.refused()


@pytest.mark.long
def test_nobody_who_could_answer_is_a_no(lost: Lost) -> None:
    lost.lose()
    ran = lost.command("rewrite", "reseed", "--application", lost.app.name, "--store", STORE)
    assert (ran.code, "Add --yes" in ran.err) == (2, True)
    assert lost.found()[0] is None


@pytest.mark.long
def test_a_row_that_no_record_of_ours_can_have_is_refused_with_its_key(lost: Lost) -> None:
    spec = lost.app.store_spec()
    lost.app.write_anew({b"key-00": ValueAndTimestamp(b"1", 0)}, offsets={spec.partition: 100})
    lost.lose()
    assert "the row with key b'key-00' has the timestamp 0" in lost.refused("--partitioner", "any")


# -- what comes in between --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_partition_that_fails_takes_the_topic_back_and_replaces_nothing(lost: Lost) -> None:
    large = next(key for key in (b"large-%d" % number for number in range(9)) if partition_of(key, 2) == 1)
    spec = lost.app.store_spec(1)
    kept = lost.app.contents(1)
    lost.app.write_anew(
        {**kept, large: ValueAndTimestamp(os.urandom(9_000), T0)},
        offsets={spec.partition: lost.app.committed(1) or 0},
        partition=1,
    )
    rows = lost.rows()
    lost.lose()
    broker.create_topic(lost.app.servers, lost.app.changelog, 2, {"max.message.bytes": "5000"})
    ran = lost.command("rewrite", "reseed", "--application", lost.app.name, "--store", STORE, "--yes")
    assert (ran.code, "is larger than topic" in ran.err) == (2, True), ran.err
    assert (lost.found()[0], lost.rows(), lost.statuses()) == (None, rows, {Status.REPLACED})
    lost.reseed("--yes")
    lost.assert_whole(rows)


POINTS = [
    "rewrite, topic removed",
    "rewrite, topic made, not in the journal",
    "rewrite, topic in the journal",
    "rewrite, batch sent",
    "rewrite, partition written:2",
    "restore, batch read",
    "restore, databases written:2",
    "rewrite, store built",
    "rewrite, store built:2",
    "rewrite, whole",
    "swap, journal written",
    "swap, old store in quarantine:2",
    "swap, before the last rename",
    "swap, new store live",
    "restore, swapped, not sealed",
    "rewrite, store replaced",
    "rewrite, store replaced:2",
    "rewrite, adopted",
    "rewrite, settings made",
]
IN_THE_GATE = ("rewrite, batch sent", "swap, old store in quarantine:2")


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=[] if point in IN_THE_GATE else pytest.mark.long) for point in POINTS]
)
def test_a_kill_at_any_step_leaves_the_stores_or_their_replacements_and_it_is_run_again(lost: Lost, point: str) -> None:
    rows = lost.rows()
    lost.lose(make_again=True)
    lost.die(point)
    topic = Cluster(lost.app.servers, 60).topics.find(lost.app.changelog)
    adopted = topic is not None and lost.recorded == topic.topic_id
    assert adopted == (point in ("rewrite, adopted", "rewrite, settings made"))
    assert lost.statuses() <= {Status.REPLACED, Status.OK}
    assert lost.rows() == rows
    if not adopted:
        with pytest.raises(TopicMismatchError, match=lost.app.changelog):
            lost.prepare()
    for task in lost.tasks:
        spec = lost.app.restore_spec()._replace(store=lost.app.store_spec(task))
        assert restore(spec).outcome in ("failed", "skipped")
    assert lost.rows() == rows
    lost.reseed("--yes")
    lost.assert_whole(rows)
    lost.assert_counts_on()


@pytest.mark.long
@pytest.mark.parametrize("taken", ["written to", "recorded"])
def test_a_topic_that_somebody_took_while_it_was_half_written_is_not_removed(lost: Lost, taken: str) -> None:
    lost.lose()
    lost.die("rewrite, partition written:1")
    if taken == "written to":
        broker.produce(lost.app.servers, lost.app.changelog, [(b"new", b"1")] * 40, 1)
    else:
        topic = Cluster(lost.app.servers, 60).topics.require(lost.app.changelog)
        taken_as = {topic.name: topic.topic_id}
        lost.command.metastore.submit(lambda _: RecordTopics(application=lost.app.name, topics=taken_as))
    assert "was left half written by an earlier attempt" in lost.refused()


@pytest.mark.long
def test_what_others_write_while_it_is_written_is_found_before_a_store_is_replaced(
    lost: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = lost.rows()
    lost.lose()
    write = reseeding.Reseed._write_records

    def and_another(self: Any, journal: Any) -> Any:
        found = write(self, journal)
        broker.produce(lost.app.servers, lost.app.changelog, [(b"new", b"1")], 1)
        return found

    monkeypatch.setattr(reseeding.Reseed, "_write_records", and_another)
    ran = lost.command("rewrite", "reseed", "--application", lost.app.name, "--store", STORE, "--yes")
    assert (ran.code, "another process writes to it" in ran.err) == (2, True), ran.err
    assert (lost.rows(), lost.statuses()) == (rows, {Status.REPLACED})


@pytest.mark.long
@pytest.mark.parametrize("left", ["an empty topic", "a half written one"])
def test_what_others_write_while_somebody_is_asked_is_not_removed(
    lost: Lost, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    rows = lost.rows()
    lost.lose(make_again=left == "an empty topic")
    if left == "a half written one":
        lost.die("rewrite, partition written:1")

    def answer_late(*_: Any, **__: Any) -> None:  # nobody sits at a terminal here, and takes time to answer
        broker.produce(lost.app.servers, lost.app.changelog, [(b"new", b"1")] * 40, 1)

    monkeypatch.setattr(output, "require_yes", answer_late)
    ran = lost.command("rewrite", "reseed", "--application", lost.app.name, "--store", STORE)
    assert ran.code == 2, ran
    assert (b"new", b"1") in [
        (record.key, record.value) for record in consume(lost.app.servers, lost.app.changelog, 1)[0]
    ]
    assert (lost.rows(), lost.statuses()) == (rows, {Status.REPLACED})
