"""The versions of a versioned store show which offsets of its log they equal, whatever its committed offset is."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.changelog.topic_settings import changelog_config
from statestore.formats.offsets import COLUMN_FAMILY, STATUS_CLOSED, STATUS_OPEN
from statestore.formats.versioned_put import appended
from statestore.formats.versioned_row import (
    LATEST,
    Version,
    decode_latest,
    decode_row_key,
    decode_segment_row,
    default_segment_interval_ms,
    encode_latest,
    encode_segment_row,
    row_key,
    segment_of,
)
from statestore.reports import Action, Status
from statestore.statedir.seal import break_seal
from statestore.stores.rocksdb import RocksDB
from statestore.stores.table import DeletedRange
from statestore.verification.contents import databases
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.closed import Proof, prove
from tests.integration import broker
from tests.integration.support import Application
from tests.integration.test_versioned_jobs import (
    BEGIN,
    MINUTE,
    RETENTION_MS,
    VERSIONED,
    answers,
    stream_time_of,
    versions,
)
from tests.integration.test_versioned_jobs import rows as stored_rows

PROCESSOR = "tests.integration.test_versioned_jobs:keep"


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    found = Application(bootstrap_servers, tmp_path, stores=[VERSIONED], changelog_config=changelog_config(VERSIONED))
    return found.defined(processor=PROCESSOR)


def committed_of(application: Application) -> int:
    committed = application.verify().committed
    assert committed is not None
    return committed


def proof_of(application: Application, claim: int | None = None) -> Proof:
    spec = application.store_spec()
    log = spec.cluster.topics.log_ranges([spec.partition])[spec.partition]
    found = prove(spec, databases(spec), log, VerifyOptions(), claim=claim)
    assert found is not None
    return found


def a_latest_row(application: Application) -> bytes:
    """Return the row key of a latest value that the store has."""
    return min(key for key in stored_rows(application) if decode_row_key(key)[0] == LATEST)


def rewrite(application: Application, offset: int | None, rows: dict[bytes, bytes | None]) -> None:
    """Write rows and an offset into the closed store; without an offset, leave it open as a killed application does."""
    spec = application.store_spec()
    break_seal(spec.paths, spec.store.name)
    database = RocksDB(spec.live, ["default"])
    if offset is None:
        database.write({"default": rows}, status=STATUS_OPEN, ranges={COLUMN_FAMILY: [DeletedRange(b"", b"\xff")]})
    else:
        database.write({"default": rows}, {spec.partition: offset}, status=STATUS_CLOSED)
    database.sync()
    database.close()


def test_the_position_of_a_versioned_store_is_found_without_its_offset(application: Application) -> None:
    application.process(versions(600, 1))
    committed = committed_of(application)
    aborted = [(b"a", b"9"), (b"new", b"9")]
    broker.transaction(application.servers, application.changelog, aborted, end="abort", timestamp=BEGIN + 70 * MINUTE)
    late = [(b"key-01", b"1"), (b"key-02", None)]  # as Kafka Streams logs what its store refuses
    broker.transaction(application.servers, application.changelog, late, timestamp=BEGIN)
    changed = [(b"a", b"7")]
    broker.transaction(application.servers, application.changelog, changed, timestamp=BEGIN + 60 * MINUTE)
    found = proof_of(application, committed)
    assert found.equals_at(committed)
    assert found.replay_from == committed + 2 + 3 + 3  # after three transactions, each with a marker
    assert not found.equals_at(found.replay_from)
    assert found.prefixes[0].orphans == found.unexplained == 0


@pytest.mark.parametrize("damage", ["changed", "lost"])
def test_a_damaged_version_is_found(application: Application, damage: str) -> None:
    application.process(versions(300, 2))
    committed = committed_of(application)
    deep = application.verify("deep")
    assert deep.status is Status.OK
    assert deep.contents is not None
    assert deep.contents.offsets[-1][1] >= committed
    key = a_latest_row(application)
    rewrite(application, committed, {key: encode_latest(b"changed", BEGIN) if damage == "changed" else None})
    assert not proof_of(application, committed).equals_at(committed)
    assert application.verify("deep").status is Status.DIVERGED


def test_a_versioned_store_with_a_wrong_offset_is_named(application: Application) -> None:
    application.process(versions(300, 3))
    first = committed_of(application)
    broker.transaction(application.servers, application.changelog, [(b"a", b"1")] * 5, timestamp=BEGIN + 61 * MINUTE)
    rewrite(application, first + 4, {})
    found = application.verify("deep")
    assert (found.status, found.action) == (Status.WRONG_OFFSET, Action.FULL)
    assert found.contents is not None
    assert found.contents.offsets == ((first, first + 1),)


def test_a_versioned_store_that_was_left_open_is_caught_up(application: Application) -> None:
    rows = versions(600, 4)
    application.process(rows[:500])
    rewrite(application, None, {})
    broker.transaction(application.servers, application.changelog, [(b"a", b"1")] * 5, timestamp=BEGIN + 61 * MINUTE)
    assert application.verify().status is Status.UNCLEAN
    done = application.restore(label="caught up")
    assert (done.outcome, done.mode, done.records) == ("restored", "tail", 5)
    stream_time = max(stream_time_of(rows), BEGIN + 61 * MINUTE)
    caught_up = list(answers(application, stream_time))
    assert application.verify("deep").status is Status.OK
    assert application.restore("full", force=True).mode == "full"
    assert list(answers(application, stream_time)) == caught_up


def test_a_put_that_was_killed_before_its_latest_value_is_completed(application: Application) -> None:
    rows = versions(300, 6)
    application.process(rows)
    here, time = stored_rows(application), BEGIN + 61 * MINUTE
    raw_key = a_latest_row(application)
    key = decode_row_key(raw_key)[1]
    begun, value = decode_latest(here[raw_key])
    segment = segment_of(time, default_segment_interval_ms(RETENTION_MS))
    row = here.get(row_key(segment, key))
    moved = appended(None if row is None else decode_segment_row(row), Version(begun, value), time)
    broker.transaction(application.servers, application.changelog, [(key, b"1")], timestamp=time)
    rewrite(application, None, {row_key(segment, key): encode_segment_row(moved)})
    done = application.restore(label="caught up")
    assert (done.mode, done.records) == ("tail", 1)
    caught_up = list(answers(application, time))
    assert application.verify("deep").status is Status.OK
    application.restore("full", force=True)
    assert list(answers(application, time)) == caught_up


def test_a_torn_versioned_store_is_rebuilt(application: Application) -> None:
    application.process(versions(300, 5))
    rewrite(application, None, {a_latest_row(application): None})
    done = application.restore(label="rebuilt")
    assert (done.outcome, done.mode) == ("restored", "full")
    assert application.verify("deep").status is Status.OK
