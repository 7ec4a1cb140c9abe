"""Processors that use what belongs to the task: refused, and nothing is lost, counted twice, or left out of the log."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from statestore.definitions.fields import Engine
from statestore.definitions.store import StoreDefinition
from statestore.reports import Status
from statestore.tasks import ProcessorContext, Record, ValueAndTimestamp
from tests.integration import broker, support
from tests.integration.broker import T0, consume
from tests.integration.support import STORE, Application
from tests.oracle.rows import fold

_HERE = "tests.integration.test_processor_stores"
ROWS = [(b"a", b"1"), (b"b", b"1"), (b"a", b"1")]
GUARANTEES = ["exactly_once_v2", "at_least_once"]


def commit_store_then_count(record: Record, context: ProcessorContext) -> None:
    """Commit the store if the value says so, whatever comes of it, then count."""
    if record.value == b"commit":
        with contextlib.suppress(Exception):
            context.state_store(STORE).commit({})
    support.count(record, context)


def commit_store_then_fail(record: Record, context: ProcessorContext) -> None:
    """Count, commit the store if the value says so, and fail on a later record."""
    support.count(record, context)
    if record.value == b"commit":
        context.state_store(STORE).commit({})
    if record.value == b"fail":
        raise ValueError("a bug")


class CountsInTheBackground:
    """Counts, while a thread writes to the store all the time."""

    def init(self, context: ProcessorContext) -> None:
        """Start to write."""
        store = context.state_store(STORE)

        def write() -> None:
            with contextlib.suppress(Exception):
                for number in range(1_000_000):
                    store.put(b"background", ValueAndTimestamp(b"%d" % number, T0))

        self._thread = threading.Thread(target=write)
        self._thread.start()

    def process(self, record: Record, context: ProcessorContext) -> None:
        """Count, and ask for a commit."""
        support.count(record, context)
        context.commit()

    def close(self) -> None:
        """Wait for the thread."""
        self._thread.join()


def refused(application: Application, processor: str, why: str) -> None:
    """Run a processor, which must be refused and must have changed nothing."""
    before, log = application.contents(), consume(application.servers, application.changelog)[0]
    message = application.defined(processor=f"{_HERE}:{processor}").fails("InvalidStateError")
    assert why in message
    broker.settle(application.servers, application.changelog, application.output)
    assert application.contents() == before
    assert consume(application.servers, application.changelog)[0] == log


def mended(application: Application) -> None:
    """Run a processor that counts, and compare with each record of the input counted once."""
    row = application.defined(processor=f"{support.__name__}:count").process()
    assert row.stores[0].rebuilt is None
    application.assert_oracle()
    assert application.contents() == fold(consume(application.servers, application.changelog)[0])
    assert [application.verify(depth).status for depth in ("offsets", "scan", "deep")] == [Status.OK] * 3


@pytest.mark.short_for("exactly_once_v2-True", "at_least_once-True")
@pytest.mark.parametrize("dead_letters", [False, True])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_processor_that_commits_its_store_is_refused_though_it_catches_the_error(
    bootstrap_servers: str, tmp_path: Path, guarantee: str, dead_letters: bool
) -> None:
    letters = broker.create_topic(bootstrap_servers, broker.unique("letters"))
    settings = {"dead_letter_topic": letters} if dead_letters else {}
    application = Application(bootstrap_servers, tmp_path, processing_guarantee=guarantee, **settings)
    application.process(ROWS)
    application.send([(b"a", b"commit"), (b"b", b"1"), (b"c", b"1")], timestamp=T0 + 100)
    refused(application, "commit_store_then_count", "a processor cannot use 'commit'")
    assert consume(bootstrap_servers, letters)[0] == []
    mended(application)


@pytest.mark.parametrize("engine", ["txn_rocksDB", "rocksDB"])
def test_a_commit_of_a_store_before_an_error_counts_nothing_twice(
    bootstrap_servers: str, tmp_path: Path, engine: Engine
) -> None:
    application = Application(bootstrap_servers, tmp_path, stores=[StoreDefinition(name=STORE, engine=engine)])
    application.process(ROWS)
    application.send([(b"a", b"1"), (b"a", b"commit"), (b"b", b"fail"), (b"c", b"1")], timestamp=T0 + 100)
    application.defined(processor=f"{_HERE}:commit_store_then_fail").fails("InvalidStateError")
    application.defined(processor=f"{support.__name__}:count").process()
    application.assert_oracle()
    assert application.verify("deep").status is Status.OK


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_thread_of_a_processor_writes_nothing_that_the_log_lacks(
    bootstrap_servers: str, tmp_path: Path, guarantee: str
) -> None:
    application = Application(bootstrap_servers, tmp_path, processing_guarantee=guarantee)
    application.process(ROWS)
    application.send([(b"%d" % number, b"1") for number in range(50)], timestamp=T0 + 100)
    message = application.defined(processor=f"{_HERE}:CountsInTheBackground").fails("InvalidStateError")
    assert "only in the thread of that call" in message
    broker.settle(application.servers, application.changelog, application.output)
    assert b"background" not in application.contents()
    if guarantee == "exactly_once_v2":
        mended(application)
