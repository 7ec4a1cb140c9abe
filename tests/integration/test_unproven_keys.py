"""Keys whose rows a compacted changelog no longer proves are counted, and are no difference."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from statestore.formats.timestamped_value import encode
from statestore.partition.spec import GLOBAL_TASK
from statestore.reports import Status
from statestore.statedir.lock import locked
from statestore.stores.open import open_key_value_store
from statestore.stores.rocksdb import RocksDB
from statestore.verification.live.verify import verify_live
from statestore.verification.options import VerifyOptions
from tests.integration import broker
from tests.integration.broker import Row, consume
from tests.integration.compaction import EAGER
from tests.integration.support import Application

#: Two records of `a` come between the first one of `k` and the store's committed offset, 3.
ROWS: list[Row] = [(b"k", b"1"), (b"a", b"1"), (b"a", b"2"), (b"b", b"1")]


@pytest.fixture
def compacted(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application that has the first four records of its log; compaction has removed the second one."""
    broker.make_compaction_eager(bootstrap_servers)
    application = Application(bootstrap_servers, tmp_path, changelog_config=EAGER)
    now = int(time.time() * 1000)
    broker.produce(application.servers, application.changelog, ROWS, timestamp=now)
    application.restore("full")
    for ahead in (1, 2):  # the newest segment is never compacted
        broker.produce(application.servers, application.changelog, [(b"z", b"1")], timestamp=now + ahead * 1_000)
    broker.wait_for(
        lambda: all(record.offset != 1 for record in consume(application.servers, application.changelog)[0]),
        "compaction",
    )
    broker.produce(application.servers, application.changelog, [(b"k", b"2")], timestamp=now + 3_000)
    return application


def test_unproven_keys_are_counted_and_a_store_at_the_end_has_none(compacted: Application) -> None:
    found = compacted.verify("deep")
    assert found.status is Status.LAGGING
    assert found.contents is not None
    # `k`, and `z`, which has no row: compaction could have removed a record of either.
    assert (found.contents.unproven, found.contents.differing) == (2, 0)
    assert "2 keys are unproven" in found.detail
    with locked(compacted.store_spec().paths, 1):
        (row,) = verify_live([compacted.store_spec()], VerifyOptions("deep", confirm_within_s=0))
    assert row.status is Status.PROVEN
    assert row.contents is not None
    assert row.contents.unproven == 2
    assert_unproven_in_global_table(compacted)
    compacted.restore("tail")
    found = compacted.verify("deep")
    assert found.status is Status.OK
    assert found.contents is not None
    assert (found.contents.unproven, found.detail) == (0, "")


def assert_unproven_in_global_table(compacted: Application) -> None:
    """Check that a global table in use, with the same topic and rows, has as many unproven keys."""
    spec = compacted.store_spec(task=GLOBAL_TASK, owned=False, global_kind="table", global_said=True)
    times = {record.key: record.timestamp for record in consume(compacted.servers, compacted.changelog)[0][:3]}
    open_key_value_store(spec.store, spec.live).close()
    with RocksDB(spec.live, spec.store.values.column_families) as database:
        rows = {b"k": b"1", b"a": b"2", b"b": b"1"}
        family = spec.store.values.column_families[0]
        database.write({family: {key: encode(value, times[key]) for key, value in rows.items()}})
        database.sync()
    (row,) = verify_live([spec], VerifyOptions("deep", confirm_within_s=0))
    assert row.contents is not None
    assert (row.status, row.contents.unproven, "2 keys are unproven" in row.detail) == (Status.PROVEN, 2, True)
