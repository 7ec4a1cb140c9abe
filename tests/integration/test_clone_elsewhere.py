"""An application in another Kafka cluster is made of a set of snapshots, which an archive has, and counts on there.

The cluster of the first application is not asked. Applications with repartition topics are cloned here and there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from statestore_jobs.planning import prepare, task_specs
from statestore_jobs.process import _forget_processed

from statestore.archive.archive import archive_of
from statestore.cli.selection import Where
from statestore.clock import iso
from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.discovery.partitions import store_partition_specs
from statestore.formats import commit_metadata
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import committed_offsets
from statestore.kafka.partitioner import partition_of
from statestore.model import TopicPartition, repartition_topic
from statestore.reports import SnapshotSetRow, Status
from statestore.tasks.snapshot_sets import set_after_run
from statestore.tasks.stream_task import run_task
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.faults.own_broker import OwnBroker
from tests.integration import broker, dying
from tests.integration.broker import T0
from tests.integration.catalogued import BY_VALUE, CatalogueCommand, changed, defined
from tests.integration.cloning import Clones
from tests.integration.kinds import stored
from tests.integration.support import register
from tests.integration.test_clone import KEYS, POINTS
from tests.integration.test_repartition import Counting
from tests.integration.test_snapshot_sets import WithSets

MINUTE = 60_000


class Apart(Clones):
    """An application with a set, and one in another cluster that nobody has started; its input is empty."""

    def __init__(self, here: str, command: CatalogueCommand, directory: Path, **fields: Any) -> None:
        self.command = command
        self.source = WithSets(here, directory / "source", partitions=2)
        self.target = Counting(command.servers, directory, partitions=2)
        self.target.defined(**fields)
        register(command.servers, self.target.definition, service_id=command.service_id)
        self.send(self.source, KEYS)
        made = self.source.run_all()
        assert made is not None
        self.set = made.snapshot_set or ""
        self.rows = self.rows_of(self.source)
        self.ends = [self.input_end(task) for task in range(2)]
        inputs = [broker.consume(here, self.source.input, task)[0] for task in range(2)]
        self.latest = max(record.timestamp for records in inputs for record in records)
        self.send(self.source, KEYS[:9], T0 + MINUTE)
        for task in range(2):  # the source goes on, without a set
            assert self.source.run(task, archive=None).failure is None

    def input_end(self, task: int) -> int:
        where = TopicPartition(self.source.input, task)
        return Cluster(self.source.servers, 60).topics.log_ranges([where])[where].high_watermark

    @property
    def cluster(self) -> list[str]:
        return ["--from-cluster", self.source.archive.cluster]

    @property
    def names(self) -> list[str]:
        return ["rewrite", "clone", "--application", self.source.name, "--to", self.target.name]

    @property
    def arguments(self) -> list[str]:
        return [*self.names, *self.cluster, "--archive", self.source.archive.url, "--parallel", "1"]

    def refused(self, *options: str) -> str:
        before = self.made()
        ran = self.command(*self.arguments, "--yes", *options)
        assert ran.code == 2, ran
        assert self.made() == before
        return ran.err

    def made(self) -> Any:
        target = self.target
        ranges = Cluster(target.servers, 60).topics.log_ranges(
            [TopicPartition(target.changelog, task) for task in range(2)]
        )
        stores = sorted((target.state_dir / target.name).rglob("CURRENT"))
        return ranges, committed_offsets(Cluster(target.servers), target.name), stores

    def assert_cloned(self, offsets: list[int]) -> None:
        target = self.target
        assert self.rows_of(target) == self.rows
        logs = [broker.consume(target.servers, target.changelog, task)[0] for task in range(2)]
        assert [{record.key for record in log} for log in logs] == [set(rows) for rows in self.rows]
        assert target.statuses() == {Status.OK}
        there = committed_offsets(Cluster(target.servers), target.name)
        assert [there[TopicPartition(target.input, task)].next_offset for task in range(2)] == offsets
        assert set(there) == {TopicPartition(target.input, task) for task in range(2)}
        self.assert_recorded_and_nothing_left()


@pytest.fixture
def there(
    own_broker: OwnBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> CatalogueCommand:
    """The command in the other cluster."""
    return CatalogueCommand(monkeypatch, capfd, own_broker.servers, tmp_path)


@pytest.fixture
def apart(bootstrap_servers: str, there: CatalogueCommand, tmp_path: Path) -> Apart:
    return Apart(bootstrap_servers, there, tmp_path)


@pytest.mark.long
def test_a_clone_in_another_cluster_counts_on_there(apart: Apart) -> None:
    before = apart.found()
    planned = apart.command.shown(*apart.arguments, "--dry-run")
    assert (planned["set"], planned["from_cluster"]) == (apart.set, apart.source.archive.cluster)
    assert planned["cluster"] == Cluster(apart.target.servers, 60).topics.cluster_id() != planned["from_cluster"]
    assert (sum(planned["plan"][0]["rows"]), planned["rows"]) == (len(KEYS), [])
    assert apart.made()[1:] == ({}, [])
    done = apart.command(*apart.arguments, "--yes")
    assert (done.code, "begins in" in done.out, "the topic has no record" in done.out) == (0, True, True), done
    assert apart.found() == before
    apart.assert_cloned([0, 0])
    apart.send(apart.target, KEYS[:9], T0 + MINUTE)
    apart.assert_goes_on()


@pytest.mark.long
@pytest.mark.parametrize("begins", ["start", "end", "set-offsets", "time"])
def test_where_it_begins_in_an_input_with_records_is_said_by_a_person(apart: Apart, begins: str) -> None:
    """What lies in the clone's input is what its first application has read, or what came behind, or both."""
    if begins != "start":
        apart.send(apart.target, KEYS)
    if begins != "end":
        apart.send(apart.target, KEYS[:9], T0 + MINUTE)
    refused = apart.refused()
    assert "Say where" in refused
    assert f"the largest timestamp in it is {iso(apart.latest)}" in refused
    apart.command.shown(
        *apart.arguments, "--yes", "--reads-from", iso(apart.latest + 1) if begins == "time" else begins
    )
    apart.assert_cloned([0, 0] if begins == "start" else apart.ends)
    if begins == "end":
        apart.send(apart.target, KEYS[:9], T0 + MINUTE)
    apart.assert_goes_on()


@pytest.mark.long
def test_what_speaks_against_it_is_named(apart: Apart, tmp_path: Path, there: CatalogueCommand) -> None:
    no_cluster = [*apart.names, "--archive", apart.source.archive.url, "--yes"]
    ran = there(*no_cluster)
    assert (ran.code, f"has sets of it in {apart.source.archive.cluster}" in ran.err) == (2, True), ran
    ran = there(*no_cluster, "--set", apart.set)
    assert (ran.code, f"say --from-cluster {apart.source.archive.cluster}" in ran.err) == (2, True), ran
    assert "has no set" in apart.refused("--from-cluster", "elsewhere")
    assert "no set" in apart.refused("--set", "0" * 32)
    assert "expected start, end, set-offsets, or a time" in apart.refused("--reads-from", "soon")
    assert "and set" in apart.refused("--reads-from", "set-offsets")  # the input is empty
    broker.produce(apart.target.servers, apart.target.changelog, [(KEYS[0], b"7")], 0)
    assert "has state already" in apart.refused()


@pytest.mark.long
@pytest.mark.parametrize(
    ("fields", "partitions", "reason"),
    [
        ({}, 3, "has 3 partitions, expected 2"),
        ({"stores": [{"name": "counts", "value_serde": "utf8"}]}, 2, "value_serde bytes -> utf8"),
        ({"stores": [{"name": "counts"}, {"name": "more"}]}, 2, "lacks store more"),
        ({"aggregations": [BY_VALUE]}, 2, "needs the aggregations of the application"),
        ({"stores": [{"name": "counts", "engine": "in_memory"}]}, 2, "sets do not include stores in memory"),
    ],
)
def test_a_definition_that_does_not_fit_the_set_is_refused(
    apart: Apart, there: CatalogueCommand, fields: dict[str, Any], partitions: int, reason: str
) -> None:
    other = there.define(partitions=partitions, **fields)
    there.apply(other)
    ran = there(*apart.arguments, "--to", other.name, "--yes")
    assert (ran.code, reason in ran.err) == (2, True), ran


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_step_leaves_nothing_half(apart: Apart, point: str) -> None:
    before = apart.found()
    dying.die_in(dying.CommandLine([*apart.arguments, "--yes"], apart.command.settings), point)
    assert apart.found() == before
    assert "is being made by `statestore rewrite`" in apart.target.fails("LockedError")
    apart.command.shown(*apart.arguments, "--yes")
    apart.assert_cloned([0, 0])
    apart.send(apart.target, KEYS[:9], T0 + MINUTE)
    apart.assert_goes_on()


@pytest.mark.long
def test_what_was_made_of_another_set_is_finished_and_not_mixed(apart: Apart) -> None:
    dying.die_in(dying.CommandLine([*apart.arguments, "--yes"], apart.command.settings), "rewrite, whole")
    newer = apart.source.run_all()
    assert newer is not None
    assert newer.snapshot_set not in (None, apart.set)
    assert "an interrupted attempt has already created" in apart.refused("--set", newer.snapshot_set or "")
    done = apart.command.shown(*apart.arguments, "--yes")
    assert (done["set"], done["finishes"]) == (apart.set, True)
    apart.assert_cloned([0, 0])


# -- repartition topics -----------------------------------------------------------------------------------------------

GROUPED = {
    "processor": "tests.integration.support:count",
    "aggregations": [
        {**BY_VALUE, "partitions": 3},
        {"store": "minutes", "windows": {"size_ms": MINUTE, "grace_ms": 0}},
    ],
}
ROWS: list[broker.Row] = [(key, b"value-%d" % (number % 5)) for number, key in enumerate(KEYS)]


class Grouped:
    """An application with a repartition topic, all of whose tasks run one after the other as a job would run them."""

    def __init__(self, definition: ApplicationDefinition, servers: str, directory: Path, archive: str | None) -> None:
        self.definition, self.servers = definition, servers
        self.topics = Cluster(servers, 60).topics
        self.settings = Settings(
            bootstrap_servers=servers,
            state_dir=directory / "state",
            reports_dir=directory,
            data_docs_dir=directory,
            archive=archive,
            kafka_timeout_s=60,
        )

    def send(self, rows: list[broker.Row], at: int = T0) -> None:
        for task in range(2):
            own = [row for row in rows if partition_of(row[0] or b"", 2) == task]
            broker.produce(self.servers, self.definition.input_topic, own, task, at)

    def run(self, settings: Settings | None = None) -> SnapshotSetRow | None:
        settings, rows = settings or self.settings, []
        for part in self.definition.subtopologies:
            self.topics.wait_until_stable([part.input_topic])
            rows += [run_task(spec) for spec in task_specs(settings, self.topics, self.definition, part.index)]
        assert [row.failure for row in rows if row.failure is not None] == []
        archive = archive_of(settings, self.topics)
        made = archive and set_after_run(self.definition, rows, archive, Cluster(self.servers, 60))
        self.rows_of_run = rows
        _forget_processed(settings, self.topics, self.definition)
        return made

    def go_on(self) -> None:
        """Run without an archive."""
        self.run(self.settings.model_copy(update={"archive": None}))

    def stores(self) -> list[Any]:
        where = Where(Cluster(self.servers), self.settings.state_dir)
        return store_partition_specs(where, self.topics, [self.definition])

    def rows(self) -> dict[str, Any]:
        return {f"{spec.store.name}/{spec.task}": stored(spec, spec.live) for spec in self.stores()}

    def statuses(self) -> set[Status]:
        return {verify(spec, VerifyOptions("deep")).status for spec in self.stores()}


@pytest.fixture(params=["here", "elsewhere"])
def both(request: pytest.FixtureRequest, command: CatalogueCommand, tmp_path: Path) -> tuple[Grouped, Grouped, Any]:
    """An application with a repartition topic and a set, what is to be its clone, and the command that makes it."""
    archive = f"file://{tmp_path}/archive"
    first = defined(command.servers, **GROUPED)
    source = Grouped(first, command.servers, tmp_path / "source", archive)
    metastore = register(command.servers, first, service_id=command.service_id)
    prepare(source.topics, metastore, [metastore.view().catalogue.entry(first.name)])
    other: CatalogueCommand = request.getfixturevalue("there") if request.param == "elsewhere" else command
    definition = defined(other.servers, **GROUPED)
    if other is command:
        definition = changed(definition, input_topic=first.input_topic)
    register(other.servers, definition, service_id=other.service_id)
    target = Grouped(definition, other.servers, tmp_path, archive)
    cluster = ["--from-cluster", Cluster(command.servers, 60).topics.cluster_id()] if other is not command else []
    arguments = ["--application", first.name, "--to", definition.name, "--archive", archive, "--parallel", "1"]

    def clone(*options: str) -> Any:
        return other.shown("rewrite", "clone", *arguments, *cluster, *options)

    return source, target, clone


@pytest.mark.long
def test_an_application_with_a_repartition_topic_has_nothing_on_its_way_at_a_set_and_counts_on(
    both: tuple[Grouped, Grouped, Callable[..., Any]],
) -> None:
    source, target, clone = both
    source.send(ROWS)
    source.send([(KEYS[0], None), (KEYS[1], None)], T0 + 30 * MINUTE)  # moves stream time on, and no window has it
    made = source.run()
    assert made is not None
    assert made.snapshot_set, made.why
    rows = source.rows()
    later: list[tuple[list[broker.Row], int]] = [
        (ROWS[:9], T0 + MINUTE),  # too late for any window, and for nothing else
        (ROWS[5:], T0 + 40 * MINUTE),
    ]
    for sent, at in later:
        source.send(sent, at)
    source.go_on()
    done = clone("--yes")
    assert done["set"] == made.snapshot_set
    assert target.rows() == rows
    assert target.statuses() == {Status.OK}
    own = repartition_topic(target.definition.name, "by-value")
    begins = {
        where: found for where, found in committed_offsets(Cluster(target.servers), target.definition.name).items()
    }
    assert {where: begins[where].next_offset for where in begins if where.topic == own} == {
        TopicPartition(own, number): 0 for number in range(3)
    }
    times = [commit_metadata.decode(found.metadata).partition_time for found in begins.values()]
    assert max(times) == T0 + 30 * MINUTE
    if target.definition.input_topic != source.definition.input_topic:
        for sent, at in later:
            target.send(sent, at)
    target.run()
    assert target.rows() == source.rows()
    assert target.statuses() == {Status.OK}


@pytest.mark.long
def test_with_a_record_on_its_way_there_is_no_set(
    both: tuple[Grouped, Grouped, Callable[..., Any]],
) -> None:
    source, _, _ = both
    source.send(ROWS)
    source.run()
    source.send(ROWS)
    archive = archive_of(source.settings, source.topics)
    assert archive is not None
    topic = repartition_topic(source.definition.name, "by-value")
    broker.produce(source.servers, topic, [(b"value-1", b"on its way")], 1)
    why = set_after_run(source.definition, source.rows_of_run, archive, Cluster(source.servers, 60))
    assert why is not None
    assert why.snapshot_set is None
    assert "in flight in a repartition topic" in why.why
    again = source.run()
    assert again is not None
    assert again.snapshot_set, again.why
