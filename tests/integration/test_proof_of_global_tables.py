"""The rows of a global table show, for each partition of its topic, which offsets they equal."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.formats.offsets import STATUS_CLOSED
from statestore.formats.timestamped_value import encode
from statestore.partition.spec import GLOBAL_TASK, StorePartitionSpec
from statestore.reports import Contents, Status, VerifyRow
from statestore.statedir.lock import locked
from statestore.statedir.record import StoreRecord
from statestore.stores.open import open_key_value_store
from statestore.stores.rocksdb import RocksDB
from statestore.verification.global_stores import logs_of, verify_global
from statestore.verification.live.verify import verify_live
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.global_tables import prove_global
from tests.integration.broker import T0, transaction
from tests.integration.support import Application


def proven(spec: StorePartitionSpec) -> list[tuple[tuple[int, int], ...]]:
    """Return the ranges of offsets of each partition."""
    found = prove_global(spec, logs_of(spec), VerifyOptions(), spec.live)
    assert found is not None
    return [tuple((first, last) for first, last in prefix.offsets) for prefix in found.prefixes.values()]


@pytest.fixture
def table(bootstrap_servers: str, tmp_path: Path) -> StorePartitionSpec:
    """A closed global table that has the first 3, 2 and 0 records of the partitions of its topic."""
    application = Application(bootstrap_servers, tmp_path, partitions=3)
    for partition, rows in enumerate(
        ([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None)], [(b"c", b"1"), (b"d", None), (b"c", b"3")], [])
    ):
        transaction(bootstrap_servers, application.changelog, rows, partition=partition)
    spec = application.store_spec(task=GLOBAL_TASK, owned=False, global_kind="table", global_said=True)
    assert spec.changelog is not None
    spec = spec.model_copy(update={"changelog": spec.changelog.model_copy(update={"partitions": 3})})
    open_key_value_store(spec.store, spec.live).close()
    rewrite(spec, {b"a": encode(b"2", T0 + 2), b"b": encode(b"1", T0 + 1), b"c": encode(b"1", T0)}, [3, 2, 0])
    return spec


def rewrite(spec: StorePartitionSpec, rows: dict[bytes, bytes | None], next_offsets: list[int] | None = None) -> None:
    """Write rows, and the next offsets to read."""
    family = spec.store.values.column_families[0]
    database = RocksDB(spec.live, spec.store.values.column_families)
    offsets = {} if next_offsets is None else dict(zip(spec.partitions, next_offsets, strict=True))
    database.write({family: rows}, offsets, status=STATUS_CLOSED)
    database.sync()
    database.close()


def compared(spec: StorePartitionSpec) -> tuple[VerifyRow, Contents]:
    found = verify_global(spec, VerifyOptions(depth="deep"))
    assert found.contents is not None
    return found, found.contents


def test_each_partition_of_a_global_table_has_its_own_offsets(table: StorePartitionSpec) -> None:
    assert proven(table) == [((2, 2),), ((0, 1),), ((-1, -1),)]
    found, contents = compared(table)
    assert (found.status, contents.differing, contents.equal) == (Status.LAGGING, 0, 3)
    assert contents.partition_offsets == ((0, 2, 2), (1, 0, 1), (2, -1, -1))


def test_a_global_table_without_its_last_records_is_not_proven(table: StorePartitionSpec) -> None:
    rewrite(table, {}, [3, 3, 0])
    found, contents = compared(table)
    assert (found.status, contents.other_value) == (Status.DIVERGED, 1)
    assert contents.partition_offsets == ()


def test_a_global_table_can_be_after_its_committed_offsets(table: StorePartitionSpec) -> None:
    rewrite(table, {}, [1, 0, 0])
    found, contents = compared(table)
    assert (found.status, contents.partition_offsets[0]) == (Status.LAGGING, (0, 2, 2))


def test_a_row_without_a_record_is_found_in_a_global_table(table: StorePartitionSpec) -> None:
    rewrite(table, {b"other": encode(b"1", T0)})
    proof = prove_global(table, logs_of(table), VerifyOptions(), table.live)
    assert proof is not None
    assert (proof.without_record, proof.is_prefix) == (1, False)
    assert compared(table)[1].only_in_store == 1


def test_a_key_of_two_partitions_is_compared_instead(table: StorePartitionSpec, bootstrap_servers: str) -> None:
    transaction(bootstrap_servers, table.partition.topic, [(b"a", b"2")], partition=2, timestamp=T0 + 2)
    proof = prove_global(table, logs_of(table), VerifyOptions(), table.live)
    assert proof is not None
    assert proof.shared == 1
    assert [found.is_prefix for found in proof.prefixes.values()] == [True] * 3
    found, contents = compared(table)
    assert (found.status, contents.differing, contents.partition_offsets) == (Status.LAGGING, 0, ())


def test_a_global_table_is_proven_while_it_is_in_use(table: StorePartitionSpec) -> None:
    options = VerifyOptions("deep", confirm_within_s=0)
    with locked(table.paths, 1):
        (found,) = verify_live([table], options)
    assert (found.status, found.live, found.keys, found.end) == (Status.PROVEN, True, 3, None)
    assert found.contents is not None
    assert found.contents.partition_offsets == ((0, 2, 2), (1, 0, 1), (2, -1, -1))
    rewrite(table, {b"other": encode(b"1", T0)})
    (found,) = verify_live([table], options)
    assert found.status is Status.UNCONFIRMED
    (found,) = verify_live([table.model_copy(update={"global_kind": None})], options)
    assert (found.status, "processor" in found.detail) == (Status.IN_USE, True)
    (found,) = verify_live([table.model_copy(update={"global_kind": "processor"})], options)
    assert (found.status, found.detail) == (Status.IN_USE, "not proven: a processor fills it")


def test_a_global_table_in_use_whose_topic_was_recreated_is_not_judged(table: StorePartitionSpec) -> None:
    options = VerifyOptions("deep", confirm_within_s=0)
    table.paths.record(table.store.name).parent.mkdir(parents=True, exist_ok=True)
    table.paths.record(table.store.name).write_text(StoreRecord(topic_id="earlier", caught_up_ms=1).model_dump_json())
    assert verify_live([table], options)[0].status is Status.PROVEN, "its rows are those of the new topic, too"
    rewrite(table, {b"other": encode(b"1", T0)})
    (found,) = verify_live([table], options)
    assert (found.status, "topic earlier" in found.detail) == (Status.UNCONFIRMED, True)
    assert found.contents is not None
    assert (found.contents.partition_offsets, "topic earlier" in found.contents.not_proven) == ((), True)


def test_a_global_table_whose_topic_is_recreated_during_a_look_is_not_judged(table: StorePartitionSpec) -> None:
    rewrite(table, {b"other": encode(b"1", T0)})
    assert table.changelog is not None
    before = table.model_copy(update={"changelog": table.changelog.model_copy(update={"topic_id": "earlier"})})
    (found,) = verify_live([before], VerifyOptions("deep", confirm_within_s=0))
    assert (found.status, "topic earlier" in found.detail) == (Status.UNCONFIRMED, True)


def test_a_global_table_in_use_without_rows_is_not_proven(table: StorePartitionSpec) -> None:
    rewrite(table, dict.fromkeys((b"a", b"b", b"c")))
    (found,) = verify_live([table], VerifyOptions("deep", confirm_within_s=0))
    assert (found.status, "no rows" in found.detail) == (Status.IN_USE, True)
