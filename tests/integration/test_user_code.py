"""User code that catches, writes and asks what it likes: store and changelog say the same, and no task is stuck."""

from __future__ import annotations

from hashlib import sha512
from pathlib import Path

import pytest
from statestore_jobs.planning import task_specs

from demo.damage import flip_bit
from statestore.config import Settings
from statestore.definitions.fields import Engine
from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.model import StoreFormat
from statestore.stores.key_value import KeyValueBytes
from statestore.tasks import ProcessorContext, Record, ValueAndTimestamp
from tests.engines import each_engine_on_disk
from tests.integration import broker, support
from tests.integration.broker import T0, consume
from tests.integration.support import STORE, Application
from tests.oracle.rows import fold

_HERE = "tests.integration.test_user_code"
_HOUR_MS = 3_600_000


def put_without_a_time(record: Record, context: ProcessorContext) -> None:
    """Put a value with the timestamp 0, and take no notice of what comes of it."""
    store = context.state_store(STORE)
    for write in (
        lambda: store.put(record.key, ValueAndTimestamp(b"refused", 0)),
        lambda: store.put_all([(record.key, ValueAndTimestamp(b"refused", 0))]),
    ):
        try:
            write()
        except Exception:  # users do so
            continue
    context.forward(record.key, record.value)


def count_whatever_happens(record: Record, context: ProcessorContext) -> None:
    """Count, and begin anew where the store cannot be read."""
    try:
        support.count(record, context)
    except Exception:
        context.state_store(STORE).put(record.key, ValueAndTimestamp(b"1", record.timestamp))


class WritesInInit:
    """Counts, and leaves a mark in `init`."""

    def init(self, context: ProcessorContext) -> None:
        """Write and forward."""
        context.state_store(STORE).put(b"mark", b"init")
        context.forward(b"mark", b"init")

    def process(self, record: Record, context: ProcessorContext) -> None:
        """Count."""
        support.count_plain(record, context)


class FailsToClose:
    """Counts, writes in `close` what it may not, and fails."""

    def init(self, context: ProcessorContext) -> None:
        """Keep the context."""
        self._context = context

    def process(self, record: Record, context: ProcessorContext) -> None:
        """Count."""
        support.count(record, context)

    def close(self) -> None:
        """Write and forward, then fail."""
        refused = []
        for write in (
            lambda: self._context.state_store(STORE).put(b"late", ValueAndTimestamp(b"1", T0)),
            lambda: self._context.forward(b"late", b"1"),
        ):
            try:
                write()
            except Exception as error:
                refused.append(type(error).__name__)
        raise RuntimeError(f"the connection is gone; refused: {refused}")


def commit_when_told(record: Record, context: ProcessorContext) -> None:
    """Count, and ask for a commit where the value says so."""
    support.count(record, context)
    if record.value == b"commit":
        context.commit()


def logged(application: Application) -> dict[bytes, ValueAndTimestamp]:
    """Return what the changelog makes of the store."""
    return fold(consume(application.servers, application.changelog)[0])


@each_engine_on_disk
def test_a_put_that_is_refused_writes_nothing_though_user_code_catches_it(
    bootstrap_servers: str, tmp_path: Path, engine: Engine
) -> None:
    stores = [StoreDefinition(name=STORE, engine=engine)]
    application = Application(bootstrap_servers, tmp_path, processor="count", stores=stores)
    application.process([(b"a", b"1")])
    application.defined(processor=f"{_HERE}:put_without_a_time").process([(b"a", b"1"), (b"b", b"1")], T0 + 100)
    assert application.contents() == {b"a": ValueAndTimestamp(b"1", T0)}
    assert application.contents() == logged(application)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_store_that_cannot_be_read_is_rebuilt_though_user_code_swallows_the_error(
    bootstrap_servers: str, tmp_path: Path, guarantee: str
) -> None:
    application = Application(bootstrap_servers, tmp_path, processing_guarantee=guarantee)
    rows = [(sha512(b"%d" % number).digest() * 2, b"1") for number in range(250)]
    application.process(rows * 2)
    flip_bit(application.live)  # in one of several blocks, which opening does not read
    application.defined(processor=f"{_HERE}:count_whatever_happens")
    row = application.process(rows, T0 + 100)
    assert row.stores[0].rebuilt
    if guarantee == "exactly_once_v2":
        application.assert_oracle()
    counts = {int(found.value) for found in application.contents().values()}
    assert min(counts) == 3, "no count began anew, although user code began one"


@pytest.mark.long
def test_init_may_write_and_forward_in_every_run(bootstrap_servers: str, tmp_path: Path) -> None:
    stores = [StoreDefinition(name=STORE, format=StoreFormat.PLAIN)]
    application = Application(bootstrap_servers, tmp_path, stores=stores)
    application.defined(processor=f"{_HERE}:WritesInInit")
    for run in range(2):
        row = application.process([(b"a", b"1")], T0 + 100 * run)
        assert (row.records_in, row.records_out, row.changelog_records) == (1, 1, 2)
    assert application.process().commits == 0  # without a record there is nothing to initialize for
    assert application.contents() == {b"mark": b"init", b"a": b"2"}
    assert {key: found.value for key, found in logged(application).items()} == application.contents()
    assert [record.timestamp for record in consume(bootstrap_servers, application.output)[0]] == [T0, T0]


def test_a_record_from_the_future_goes_to_the_dead_letters_and_moves_no_stream_time(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    letters = broker.create_topic(bootstrap_servers, broker.unique("letters"))
    application = Application(bootstrap_servers, tmp_path, dead_letter_topic=letters)
    broker.set_topic_config(bootstrap_servers, application.input, message_timestamp_after_max_ms=str(2**63 - 1))
    application.send([(b"a", b"1")])
    application.send([(b"a", b"2")], timestamp=2**62)
    application.send([(b"a", b"3")], timestamp=T0 + 1)
    settings = Settings(
        bootstrap_servers=bootstrap_servers,
        state_dir=application.state_dir,
        reports_dir=tmp_path,
        data_docs_dir=tmp_path,
        kafka_timeout_s=60,
    )
    (planned,) = task_specs(settings, Cluster(bootstrap_servers, 60).topics, application.definition)
    assert planned.timestamps.after_ms == _HOUR_MS  # Kafka's own setting
    row = application.run(timestamps=planned.timestamps)
    assert row.failure is None, row.failure
    assert (row.records_in, row.poison_records, row.lag) == (3, 1, 0)
    (letter,) = consume(bootstrap_servers, letters)[0]
    assert (letter.key, letter.value, letter.timestamp) == (b"a", b"2", T0)
    assert application.contents() == {b"a": ValueAndTimestamp(b"2", T0 + 1)}


@pytest.mark.long
def test_a_close_that_fails_is_reported_and_undoes_nothing(bootstrap_servers: str, tmp_path: Path) -> None:
    stores = [StoreDefinition(name=STORE, engine="rocksDB")]
    application = Application(bootstrap_servers, tmp_path, stores=stores)
    application.send([(b"a", b"1"), (b"b", b"1")])
    row = application.defined(processor=f"{_HERE}:FailsToClose").run()
    assert row.failure.kind == "ProcessingError"
    assert "the connection is gone; refused: ['InvalidStateError', 'InvalidStateError']" in row.failure.message
    assert (row.records_in, row.commits, row.lag) == (2, 1, 0)
    broker.settle(bootstrap_servers, application.changelog)
    assert application.contents() == logged(application)
    row = application.defined(processor=f"{support.__name__}:count").process([(b"a", b"1")], T0 + 100)
    assert (row.records_in, row.restored, row.stores[0].rebuilt) == (1, 0, None)
    application.assert_oracle()


@pytest.mark.short_for("exactly_once_v2")
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_processor_asks_for_a_commit_and_it_comes_after_the_record(
    bootstrap_servers: str, tmp_path: Path, guarantee: str
) -> None:
    application = Application(bootstrap_servers, tmp_path, processing_guarantee=guarantee)
    application.defined(processor=f"{_HERE}:commit_when_told")
    row = application.process([(b"a", b"1"), (b"a", b"commit"), (b"b", b"commit"), (b"c", b"1")])
    assert (row.records_in, row.commits, row.stores[0].commits) == (4, 3, 3)
    application.assert_oracle()


# -- recover (KIP-844) --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.behaviour("T16")
def test_a_transactional_store_is_asked_to_recover_its_own_offset_and_rebuilt_if_it_cannot(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1"), (b"b", b"1")])
    committed = application.committed()
    asked: list[int | None] = []

    def cannot(_: KeyValueBytes, offset: int | None) -> bool:
        # Stands for a store of a user's: ours, just opened, always can.
        asked.append(offset)
        return len(asked) > 1

    monkeypatch.setattr(KeyValueBytes, "recover", cannot)
    row = application.process([(b"a", b"2")], T0 + 100)
    assert asked == [committed]
    assert row.stores[0].rebuilt == f"store {STORE} reports that it cannot be set to its state at committed offset 1"
    application.assert_oracle()
