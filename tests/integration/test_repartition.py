"""An application is made of the state of another, with more or fewer partitions: rows stay, and counting goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from statestore_jobs.planning import prepare, task_specs

from demo.damage import delete_directory, flip_bit
from statestore.cli.selection import Where
from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.discovery.partitions import store_partition_specs
from statestore.errors import InputError, TopicMismatchError
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, commit_offsets, committed_offsets
from statestore.kafka.partitioner import partition_of
from statestore.model import TopicPartition, input_offsets_topic
from statestore.recovery.as_of import point_range
from statestore.recovery.restore import restore
from statestore.reports import Status
from statestore.requests.restore import AsOf
from statestore.rewrite import repartition as repartitioning
from statestore.statedir.lock import locked
from statestore.tasks.stream_task import run_task
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration import broker, dying
from tests.integration.broker import T0, consume
from tests.integration.catalogued import CatalogueCommand
from tests.integration.kinds import stored
from tests.integration.overwriting import Overwriting, Upserting
from tests.integration.support import STORE, Application, register
from tests.integration.transforming import Transforming
from tests.oracle.rows import fold

KEYS = [b"key-%02d" % number for number in range(24)]


class Counting(Application):
    """Counts values; its input is sent to where Kafka's partitioner puts each key."""

    def process_all(self, keys: list[bytes], at: int = T0, value: bytes | None = b"1") -> None:
        """Send each key once, and process all tasks."""
        for task in range(self.partitions):
            self.send([(key, value) for key in keys if partition_of(key, self.partitions) == task], task, at)
        self.run_all()

    def run_all(self) -> None:
        for task in range(self.partitions):
            row = self.run(task)
            assert row.failure is None, row.failure
        broker.settle(self.servers, self.input, self.changelog)

    def all_rows(self) -> list[dict[bytes, Any]]:
        return [self.contents(task) for task in range(self.partitions)]

    def found(self) -> Any:
        """What nobody but the application itself may change."""
        logs = [consume(self.servers, self.changelog, task) for task in range(self.partitions)]
        files = {path: path.stat().st_mtime_ns for path in (self.state_dir / self.name).rglob("*.sst")}
        return (
            Cluster(self.servers, 60).topics.find(self.changelog),
            logs,
            files,
            committed_offsets(Cluster(self.servers), self.name),
        )

    def statuses(self) -> set[Status]:
        return {verify(self.store_spec(task), VerifyOptions("deep")).status for task in range(self.partitions)}


class Two:
    """An application with state and one without, in a catalogue, and the command that makes the second of the first.

    Parameters
    ----------
    change
        Change the definition of the second before it is applied.
    """

    def __init__(
        self,
        command: CatalogueCommand,
        directory: Path,
        before: int,
        after: int,
        *,
        change: Callable[[Two], object] = lambda two: None,
    ) -> None:
        self.command = command
        self.source = Counting(command.servers, directory, partitions=before)
        self.target = Counting(command.servers, directory, partitions=after)
        change(self)
        definitions = (self.source.definition, self.target.definition)
        register(command.servers, *definitions, service_id=command.service_id)

    @property
    def arguments(self) -> list[str]:
        names = ["--application", self.source.name, "--to", self.target.name]
        return ["rewrite", "repartition", *names, "--parallel", "1"]

    def repartition(self, *options: str) -> Any:
        return self.command.shown(*self.arguments, *options)

    def refused(self, *options: str, code: int = 2) -> str:
        """Ask for it, which must be refused without a change; return the reason."""
        before = self.source.found(), self.made()
        ran = self.command(*self.arguments, "--yes", *options)
        assert ran.code == code, ran
        assert (self.source.found(), self.made()) == before
        return ran.err

    def made(self) -> Any:
        """What there is of the second: the id of its changelog, and its group's offsets."""
        topic = Cluster(self.target.servers, 60).topics.find(self.target.changelog)
        return topic, committed_offsets(Cluster(self.target.servers), self.target.name)

    def die(self, point: str) -> None:
        """Begin it, in a process that is killed at a point."""
        dying.die_in(dying.CommandLine([*self.arguments, "--yes"], self.command.settings), point)

    def prepare_target(self) -> None:
        """Prepare a run of the process job, which must know the topics."""
        entry = self.command.catalogue.entry(self.target.name)
        prepare(Cluster(self.target.servers, 60).topics, self.command.metastore, [entry])

    def assert_whole(self, rows: list[dict[bytes, Any]]) -> None:
        """The second has the rows, each in its partition; changelogs, catalogue and group fit, and nothing is left."""
        target = self.target
        all_rows = {key: value for found in rows for key, value in found.items()}
        expected = [
            {key: value for key, value in all_rows.items() if partition_of(key, target.partitions) == task}
            for task in range(target.partitions)
        ]
        assert target.all_rows() == expected
        logs = [consume(target.servers, target.changelog, task)[0] for task in range(target.partitions)]
        assert [fold(log) for log in logs] == expected
        assert target.statuses() <= {Status.OK, Status.EMPTY}
        entry = self.command.catalogue.entry(target.name)
        assert (entry.topics or {})[target.changelog] == Cluster(target.servers, 60).topics.require(
            target.changelog
        ).topic_id
        own = target.store_spec().paths.own_dir.parent
        assert not [*own.glob("*.json"), *own.glob("*/swap-*"), *own.glob("*/staging"), *own.glob("*/runs/*")]
        self.prepare_target()

    def assert_counts_on(self, rows: list[dict[bytes, Any]]) -> None:
        """The second goes on as one would that has processed all from the start."""
        self.target.process_all(KEYS, T0 + 1_000)
        found = {key: value for of_task in self.target.all_rows() for key, value in of_task.items()}
        before = {key: value for of_task in rows for key, value in of_task.items()}
        assert {key: int(value.value) for key, value in found.items()} == {
            key: int(before[key].value) + 1 if key in before else 1 for key in KEYS
        }


@pytest.fixture
def two(command: CatalogueCommand, tmp_path: Path) -> Two:
    made = Two(command, tmp_path, 2, 3)
    made.source.process_all(KEYS)
    made.source.process_all(KEYS[:9], T0 + 100)
    made.source.process_all(KEYS[20:], T0 + 200, None)
    return made


def test_an_application_with_other_partitions_has_the_rows_and_counts_on(two: Two) -> None:
    rows, before = two.source.all_rows(), two.source.found()
    planned = two.repartition("--dry-run")
    assert two.source.found() == before
    assert sum(planned["plan"][0]["rows"]) == len(KEYS) - 4
    assert not list((two.target.state_dir / ".statestore" / two.target.name).glob("*.json"))
    done = two.repartition("--yes")
    assert sum(row["rows"] for row in done["rows"]) == len(KEYS) - 4
    assert two.source.found() == before
    two.assert_whole(rows)
    for task, found in enumerate(two.target.all_rows()):
        with pytest.raises(InputError, match=f"A rewrite wrote the offsets 0 to {len(found) - 1} as the rows"):
            point_range(two.target.store_spec(task), AsOf(offset=0))
    assert {where.topic for where in committed_offsets(Cluster(two.target.servers), two.target.name)} == {
        two.target.input
    }
    two.assert_counts_on(rows)


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [(4, 16), (16, 4), (4, 6)])
def test_rows_are_those_of_an_application_that_had_so_many_partitions_from_the_start(
    command: CatalogueCommand, tmp_path: Path, before: int, after: int
) -> None:
    two = Two(command, tmp_path, before, after)
    other = Counting(command.servers, tmp_path / "other", partitions=after)
    keys = [b"%d" % number for number in range(3_000)]
    for application in (two.source, other):
        application.process_all(keys)
        application.process_all(keys[::3], T0 + 100_000)
        application.process_all(keys[::7], T0 + 200_000, None)
    two.repartition("--yes")
    two.assert_whole(two.source.all_rows())
    values = [[{key: row.value for key, row in of.items()} for of in app.all_rows()] for app in (two.target, other)]
    assert values[0] == values[1]


def _read_the_same(two: Two) -> None:
    two.target.input = two.source.input
    two.target.defined(input_topic=two.source.input)


@pytest.mark.long
def test_a_copy_goes_on_in_the_same_input_with_what_was_not_processed_yet(
    command: CatalogueCommand, tmp_path: Path
) -> None:
    two = Two(command, tmp_path, 2, 2, change=_read_the_same)
    two.source.process_all(KEYS)
    for task in range(2):
        two.source.send([(key, b"1") for key in KEYS if partition_of(key, 2) == task], task, T0 + 100)
    rows = two.source.all_rows()
    two.repartition("--yes")
    two.assert_whole(rows)
    assert committed_offsets(Cluster(command.servers), two.target.name) == committed_offsets(
        Cluster(command.servers), two.source.name
    )
    two.target.run_all()
    assert {int(row.value) for of in two.target.all_rows() for row in of.values()} == {2}


def test_a_copy_counts_each_record_once_when_the_offsets_of_both_groups_have_expired(
    command: CatalogueCommand, tmp_path: Path
) -> None:
    two = Two(command, tmp_path, 2, 2, change=_read_the_same)
    two.source.process_all(KEYS)
    two.source.forget_group()
    two.repartition("--yes")
    two.target.forget_group()
    two.target.run_all()
    assert {int(row.value) for of in two.target.all_rows() for row in of.values()} == {1}


@pytest.mark.long
def test_offsets_that_an_earlier_application_has_left_are_named(two: Two) -> None:
    topic = input_offsets_topic(two.target.name)
    broker.produce(two.target.servers, topic, [(b"in-0", b"{}")])
    assert topic in two.refused()


@pytest.mark.long
def test_a_key_that_is_elsewhere_may_stay_where_there_are_as_many_partitions(
    command: CatalogueCommand, tmp_path: Path
) -> None:
    two = Two(command, tmp_path, 2, 2)
    two.source.send([(key, b"1") for key in KEYS], 1)
    two.source.run_all()
    assert "--partitioner any" in two.refused()
    two.repartition("--yes", "--partitioner", "any")
    assert two.target.all_rows() == two.source.all_rows()


@pytest.mark.long
def test_an_input_of_its_own_with_records_must_be_said_to_be_in_the_state_or_not(two: Two) -> None:
    rows = two.source.all_rows()
    broker.produce(two.target.servers, two.target.input, [(KEYS[0], b"1")], partition_of(KEYS[0], 3), T0 + 500)
    assert "say --reads-from" in two.refused()
    two.repartition("--yes", "--reads-from", "start")
    two.assert_whole(rows)
    two.target.run_all()
    found = two.target.contents(partition_of(KEYS[0], 3))[KEYS[0]]
    assert found.value == b"3"


# -- refusals ---------------------------------------------------------------------------------------------------------


def _misplace(two: Two) -> None:
    wrong = next(key for key in KEYS if partition_of(key, 2) == 1)
    two.source.send([(wrong, b"1")], 0)
    two.source.run_all()


def _leave_open(two: Two) -> None:
    task = partition_of(b"key-00", 2)
    two.source.send([(b"key-00", b"1")], task)
    dying.die_in(two.source.task_spec(task), "before close")


def _commit_for_target(two: Two) -> None:
    two.target.run_all()


def _run_and_forget(two: Two) -> None:
    two.target.run_all()
    two.target.forget_group()


def _make_a_store(two: Two) -> None:
    spec = two.target.store_spec()
    spec.live.mkdir(parents=True)


def _commit_elsewhere(two: Two) -> None:
    commit_offsets(Cluster(two.target.servers), two.target.name, {TopicPartition(two.target.input, 0): GroupOffset(0)})


REFUSALS: dict[str, tuple[Callable[[Two], object], str]] = {
    "input is left": (lambda two: two.source.send([(b"key-00", b"1")], 1), "has not processed all of its input"),
    "a store is gone": (lambda two: delete_directory(two.source.store_spec(1).live), "is MISSING"),
    "a store is damaged": (lambda two: flip_bit(two.source.store_spec(1).live), "is CORRUPT"),
    "a store was left open": (_leave_open, "is LAGGING"),
    "keys are elsewhere": (_misplace, "1 keys that Kafka's partitioner puts elsewhere"),
    "the changelog is gone": (lambda two: broker.delete_topic(two.source.servers, two.source.changelog), "REPLACED"),
    "the new one has stores": (_make_a_store, "has stores already"),
    "the new one has run": (_commit_for_target, "has committed offsets"),
    "the new one has run, and its group is gone": (_run_and_forget, "has run before"),
    "the new one has run elsewhere": (_commit_elsewhere, "has committed offsets"),
    "the new one has records": (
        lambda two: broker.produce(two.target.servers, two.target.changelog, [(b"key-00", b"7")], 1),
        "has state already",
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case == "input is left" else pytest.mark.long) for case in REFUSALS]
)
def test_what_speaks_against_it_is_named_and_nothing_is_changed(two: Two, case: str) -> None:
    speaks_against, reason = REFUSALS[case]
    speaks_against(two)
    if case == "the changelog is gone":
        ran = two.command(*two.arguments, "--yes")
        assert (ran.code, "does not exist" in ran.err) == (2, True), ran
        return
    assert reason in two.refused()


@pytest.mark.long
def test_transactions_that_were_aborted_are_no_input_that_is_left(two: Two) -> None:
    rows = two.source.all_rows()
    broker.transaction(two.source.servers, two.source.input, [(b"never", b"1")], end="abort")
    broker.transaction(two.source.servers, two.source.input, [], end="commit")
    two.repartition("--yes")
    two.assert_whole(rows)


@pytest.mark.long
def test_whoever_works_or_consumes_is_waited_for_or_named(two: Two) -> None:
    with locked(two.source.store_spec(1).paths):
        assert "is locked by another process" in two.refused(code=3)
    for application in (two.source, two.target):
        with broker.member_of(application.servers, application.name, application.input):
            assert "has active members" in two.refused()
    two.repartition("--yes")


@pytest.mark.long
def test_without_room_for_the_new_stores_nothing_is_begun(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repartitioning, "free_bytes", lambda _: 1_000)  # no disk of this size has the tests' stores
    assert "1000 are free" in two.refused()


@pytest.mark.long
def test_other_stores_or_kinds_of_them_are_refused(command: CatalogueCommand, tmp_path: Path) -> None:
    stores = (StoreDefinition(name=STORE, value_serde="utf8"),)
    two = Two(command, tmp_path, 2, 3, change=lambda two: two.target.defined(stores=stores))
    two.source.process_all(KEYS)
    assert "counts.value_serde bytes -> utf8" in two.refused()


# -- what comes in between --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_input_that_comes_meanwhile_takes_back_all_that_was_made(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = two.source.all_rows()
    build = repartitioning.Repartition._build

    def and_another(self: Any, *given: Any) -> Any:
        two.source.send([(b"new", b"1")], 1)
        return build(self, *given)

    monkeypatch.setattr(repartitioning.Repartition, "_build", and_another)
    ran = two.command(*two.arguments, "--yes")
    assert (ran.code, "has not processed all of its input" in ran.err) == (2, True), ran.err
    own = two.target.store_spec().paths
    assert not [*own.own_dir.parent.glob("*.json"), *own.application_dir.glob("*_*/*")]
    assert two.made() == (None, {})
    assert two.source.all_rows() == rows
    monkeypatch.undo()
    two.source.run_all()
    two.repartition("--yes")
    two.assert_whole(two.source.all_rows())


POINTS = [
    "rewrite, journal written",
    "rewrite, empty topic removed",
    "rewrite, topic made, not in the journal",
    "rewrite, topic in the journal",
    "rewrite, batch sent",
    "rewrite, partition written:2",
    "rewrite, all written",
    "restore, batch read",
    "restore, databases written:2",
    "swap, journal written",
    "swap, before the last rename:2",
    "swap, new store live",
    "restore, swapped, not sealed",
    "rewrite, store in place:3",
    "rewrite, all built",
    "rewrite, whole",
    "rewrite, settings made",
    "rewrite, input offsets kept, not committed",
    "rewrite, offsets committed",
    "rewrite, adopted",
]
IN_THE_GATE = ("rewrite, batch sent",)


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=[] if point in IN_THE_GATE else pytest.mark.long) for point in POINTS]
)
def test_a_kill_at_any_step_leaves_the_first_as_it_was_and_the_second_unusable_until_it_is_run_again(
    two: Two, point: str
) -> None:
    rows, before = two.source.all_rows(), two.source.found()
    two.die(point)
    assert two.source.found() == before
    assert_unusable(two)
    two.repartition("--yes")
    assert two.source.found() == before
    two.assert_whole(rows)
    two.assert_counts_on(rows)


def assert_unusable(two: Two) -> None:
    """Nobody opens a task of the second; without the journal, as on another machine, the catalogue keeps it out."""
    if Cluster(two.target.servers, 60).topics.find(two.target.changelog) is not None:
        assert "is being made by `statestore rewrite`" in two.target.fails("LockedError")
    assert verify(two.target.store_spec(1)).status is Status.LOCKED
    failed = restore(two.target.restore_spec()).failure
    assert failed is not None
    assert failed.kind == "LockedError"


@pytest.mark.long
@pytest.mark.parametrize("point", ["rewrite, directories discarded", "rewrite, topic discarded"])
def test_a_kill_while_a_former_attempt_is_discarded_is_discarded_as_well(two: Two, point: str) -> None:
    rows = two.source.all_rows()
    two.die("rewrite, store in place:2")
    two.die(point)
    assert_unusable(two)
    two.repartition("--yes")
    two.assert_whole(rows)


@pytest.mark.long
def test_on_another_machine_the_catalogue_keeps_processing_out_until_all_is_whole(two: Two) -> None:
    two.die("rewrite, offsets committed")
    with pytest.raises(TopicMismatchError, match=two.target.changelog):
        two.prepare_target()
    two.repartition("--yes")
    two.prepare_target()


@pytest.mark.long
def test_what_was_made_is_made_anew_if_the_first_has_gone_on_since(two: Two) -> None:
    two.die("rewrite, whole")
    two.source.process_all(KEYS, T0 + 900)
    two.repartition("--yes")
    two.assert_whole(two.source.all_rows())


def _append(two: Two) -> None:
    app = two.source
    rows = {KEYS[0]: b"777", KEYS[1]: b"888"}
    Upserting(Overwriting(app.servers, two.command.service_id, app.name, STORE, app.state_dir, rows)).carry_out()


def _transform(two: Two) -> None:
    app = two.source
    Transforming(app.servers, two.command.service_id, app.name, app.state_dir, "times_ten").carry_out()
    app.definition = two.command.catalogue.entry(app.name).definition


@pytest.mark.parametrize("correct", [_append, pytest.param(_transform, marks=pytest.mark.long)])
def test_what_was_made_is_made_anew_if_the_rows_of_the_first_were_corrected_since(
    two: Two, correct: Callable[[Two], None]
) -> None:
    two.die("rewrite, whole")
    correct(two)
    two.repartition("--yes")
    two.assert_whole(two.source.all_rows())


@pytest.mark.long
@pytest.mark.parametrize("correct", [_append, _transform])
def test_a_group_that_has_its_offsets_is_refused_if_the_rows_of_the_first_were_corrected_since(
    two: Two, correct: Callable[[Two], None]
) -> None:
    two.die("rewrite, offsets committed")
    correct(two)
    assert "has gone on since" in two.refused()


@pytest.mark.long
def test_a_group_that_has_its_offsets_is_not_given_others_if_the_first_has_gone_on_since(two: Two) -> None:
    two.die("rewrite, offsets committed")
    two.source.process_all(KEYS, T0 + 900)
    assert "has gone on since" in two.refused()


@pytest.mark.long
def test_a_half_written_topic_that_somebody_has_written_to_is_not_removed(two: Two) -> None:
    two.die("rewrite, all written")
    broker.produce(two.target.servers, two.target.changelog, [(b"new", b"1")] * 9, 1)
    assert "somebody has started" in two.refused()


@pytest.mark.long
def test_stores_behind_repartition_topics_go_along_with_numbers_of_their_own(
    command: CatalogueCommand, tmp_path: Path
) -> None:
    topics = Cluster(command.servers, 60).topics

    def regrouped(partitions: int, behind: int) -> ApplicationDefinition:
        aggregation = {
            "store": "by-value",
            "group_by": "tests.integration.support:value_of",
            "aggregate": "tests.integration.support:number_of",
            "partitions": behind,
        }
        return command.applied(partitions=partitions, aggregations=[aggregation])

    def run(definition: ApplicationDefinition) -> None:
        settings = Settings(
            bootstrap_servers=command.servers, state_dir=command.state_dir, reports_dir=tmp_path, kafka_timeout_s=60
        )
        for part in definition.subtopologies:
            topics.wait_until_stable([part.input_topic])
            for spec in task_specs(settings, topics, definition, part.index):
                row = run_task(spec)
                assert row.failure is None, row.failure

    def send(definition: ApplicationDefinition, partitions: int, at: int) -> None:
        for key in KEYS:
            value = b"value-%d" % (int(key[-2:]) % 5)
            broker.produce(
                command.servers, definition.input_topic, [(key, value)], partition_of(key, partitions), T0 + at
            )

    def rows(definition: ApplicationDefinition) -> dict[str, dict[bytes, bytes]]:
        specs = store_partition_specs(Where(Cluster(command.servers), command.state_dir), topics, [definition])
        found: dict[str, dict[bytes, bytes]] = {}
        for spec in specs:
            of = stored(spec, spec.live)
            assert {partition_of(key, (spec.changelog and spec.changelog.partitions) or 0) for key in of} <= {
                spec.task.partition
            }
            found.setdefault(spec.store.name, {}).update({key: value[8:] for key, value in of.items()})
        return found

    old, new, other = regrouped(2, 3), regrouped(3, 5), regrouped(3, 5)
    send(old, 2, 0)
    run(old)
    kept = rows(old)
    done = command.shown(
        *("rewrite", "repartition", "--application", old.name, "--to", new.name, "--parallel", "1", "--yes")
    )
    assert len(done["rows"]) == 3 + 5
    assert rows(new) == rows(old) == kept
    send(new, 3, 1_000)
    prepare(topics, command.metastore, [command.catalogue.entry(new.name)])
    run(new)
    for at in (0, 1_000):
        send(other, 3, at)
    run(other)
    assert rows(new) == rows(other)
