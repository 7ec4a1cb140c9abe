"""An application is made of a set of snapshots of another, which goes on: it has the cut, and processes the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.archive.pins import write_set
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, commit_offsets, committed_offsets
from statestore.model import TopicPartition
from statestore.reports import Status
from tests.integration import broker, dying
from tests.integration.broker import T0, consume
from tests.integration.catalogued import CatalogueCommand
from tests.integration.cloning import Clones
from tests.integration.support import register
from tests.integration.test_repartition import Counting
from tests.integration.test_snapshot_sets import WithSets
from tests.oracle.rows import fold

KEYS = [b"key-%02d" % number for number in range(24)]


class Cloned(Clones):
    """An application with a set, which has gone on since, and one without anything that reads the same input."""

    def __init__(self, command: CatalogueCommand, directory: Path) -> None:
        self.command = command
        self.source = WithSets(command.servers, directory, partitions=2)
        self.target = Counting(command.servers, directory, partitions=2)
        self.target.input = self.source.input
        self.target.defined(input_topic=self.source.input)
        definitions = (self.source.definition, self.target.definition)
        register(command.servers, *definitions, service_id=command.service_id)
        self.send(self.source, KEYS)
        made = self.source.run_all()
        assert made is not None
        self.set = made.snapshot_set or ""
        self.rows = self.rows_of(self.source)
        self.send(self.source, KEYS[:9], T0 + 100)
        for task in range(2):  # without a set
            assert self.source.run(task, archive=None).failure is None

    @property
    def arguments(self) -> list[str]:
        names = ["--application", self.source.name, "--to", self.target.name]
        return ["rewrite", "clone", *names, "--archive", self.source.archive.url, "--parallel", "1"]

    def assert_cloned(self) -> None:
        """The clone has the rows of the cut, its changelog gives them, and its group is where the set ends."""
        target = self.target
        assert self.rows_of(target) == self.rows
        assert [fold(consume(target.servers, target.changelog, task)[0]) for task in range(2)] == self.rows
        assert target.statuses() == {Status.OK}
        known = self.source.known()[0]
        there = committed_offsets(Cluster(target.servers), target.name)
        assert {where: offset.next_offset for where, offset in there.items()} == dict(known.input_offsets)
        self.assert_recorded_and_nothing_left()


@pytest.fixture
def cloned(command: CatalogueCommand, tmp_path: Path) -> Cloned:
    return Cloned(command, tmp_path)


def test_a_clone_has_the_cut_and_processes_the_rest_while_the_other_goes_on(cloned: Cloned) -> None:
    before = cloned.found()
    planned = cloned.command.shown(*cloned.arguments, "--dry-run")
    assert (planned["set"], sum(planned["plan"][0]["rows"]), planned["rows"]) == (cloned.set, len(KEYS), [])
    assert (
        Cluster(cloned.target.servers, 60)
        .topics.log_ranges([TopicPartition(cloned.target.changelog, 0)])[TopicPartition(cloned.target.changelog, 0)]
        .high_watermark
        == 0
    )
    with broker.member_of(cloned.source.servers, cloned.source.name, cloned.source.input):
        cloned.command.shown(*cloned.arguments, "--yes")
    assert cloned.found() == before
    cloned.assert_cloned()
    cloned.assert_goes_on()


@pytest.mark.long
def test_what_speaks_against_it_is_named(cloned: Cloned, tmp_path: Path) -> None:
    def refused(*options: str) -> str:
        ran = cloned.command(*cloned.arguments, "--yes", *options)
        assert ran.code == 2, ran
        return ran.err

    assert "has no set" in refused("--set", "0" * 32)
    other = Cloned(cloned.command, tmp_path / "other")
    assert "is of application" in refused("--set", other.set, "--archive", other.source.archive.url)
    assert "has no set" in refused("--archive", f"file://{tmp_path}/empty")
    cloned.target.run(0)
    assert "has state already" in refused()


@pytest.mark.long
def test_a_set_that_the_input_does_not_reach_is_refused(cloned: Cloned) -> None:
    where = TopicPartition(cloned.source.input, 0)
    end = Cluster(cloned.source.servers, 60).topics.log_ranges([where])[where].high_watermark
    broker.delete_records(cloned.source.servers, cloned.source.input, end)
    ran = cloned.command(*cloned.arguments, "--yes")
    assert (ran.code, "the records between are gone" in ran.err) == (2, True), ran


def test_a_set_of_an_input_that_was_made_anew_is_refused(cloned: Cloned) -> None:
    source = cloned.source
    before = Cluster(source.servers, 60).topics.require(source.input).topic_id
    broker.delete_topic(source.servers, source.input)
    broker.create_topic(source.servers, source.input, 2)
    cloned.send(source, KEYS * 2)  # so each partition has the offsets of the set
    ran = cloned.command(*cloned.arguments, "--yes")
    after = Cluster(source.servers, 60).topics.require(source.input).topic_id
    assert (ran.code, f"expected the topic id {before}, found {after}" in ran.err) == (2, True), ran
    assert committed_offsets(Cluster(cloned.target.servers), cloned.target.name) == {}


@pytest.mark.long
def test_a_set_that_does_not_name_the_topics_of_its_input_is_cloned_and_that_is_said(cloned: Cloned) -> None:
    (made,) = cloned.source.known()
    assert list(made.input_ids) == [cloned.source.input]
    older = made.model_copy(update={"input_ids": {}})
    cloned.source.objects.delete(made.place)
    write_set(cloned.source.objects, older)
    ran = cloned.command(*cloned.arguments, "--yes")
    assert (ran.code, "does not record the topic's id" in ran.out.replace("\n", " ")) == (0, True), ran
    cloned.assert_cloned()


POINTS = [
    "rewrite, journal written",
    "rewrite, topic in the journal",
    "rewrite, batch sent",
    "rewrite, all written",
    "swap, before the last rename:2",
    "rewrite, store in place:2",
    "rewrite, whole",
    "rewrite, offsets committed",
    "rewrite, adopted",
]


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_step_leaves_the_other_as_it_was_and_it_is_run_again(cloned: Cloned, point: str) -> None:
    before = cloned.found()
    dying.die_in(dying.CommandLine([*cloned.arguments, "--yes"], cloned.command.settings), point)
    assert cloned.found() == before
    assert "is being made by `statestore rewrite`" in cloned.target.fails("LockedError")
    cloned.command.shown(*cloned.arguments, "--yes")
    cloned.assert_cloned()
    cloned.assert_goes_on()


@pytest.mark.long
def test_a_killed_clone_is_not_finished_with_offsets_of_an_input_that_was_made_anew_since(cloned: Cloned) -> None:
    source = cloned.source
    dying.die_in(dying.CommandLine([*cloned.arguments, "--yes"], cloned.command.settings), "rewrite, whole")
    broker.delete_topic(source.servers, source.input)
    broker.create_topic(source.servers, source.input, 2)
    starts = {TopicPartition(source.input, task): GroupOffset(0) for task in range(2)}
    commit_offsets(Cluster(source.servers), source.name, starts)
    cloned.send(source, KEYS * 2, T0 + 200)
    made = source.run_all()
    assert made is not None
    assert made.snapshot_set not in (None, cloned.set)
    ran = cloned.command(*cloned.arguments, "--yes")
    assert (ran.code, "was deleted and created anew since that set was written" in ran.err) == (2, True), ran
    assert committed_offsets(Cluster(cloned.target.servers), cloned.target.name) == {}
