"""A user's own stores, named in definitions: processed, verified, restored, rolled back as ours are."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import DefinitionError
from statestore.kafka.cluster import Cluster
from statestore.kafka.writer import TransactionalWriter
from statestore.model import transactional_id
from statestore.recovery.restore import restore
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Action, Loss, Status
from statestore.requests.restore import RestoreRequest
from statestore.tasks.loading import named_code
from tests.integration import dying
from tests.integration.broker import T0, consume, create_topic, delete_records, settle, transaction
from tests.integration.kinds import MINUTE, changes, logged
from tests.integration.support import STORE, Application
from tests.oracle.rows import fold

ROWS: list[tuple[bytes, bytes | None]] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"b", None)]
LATER: list[tuple[bytes, bytes | None]] = [(b"d", b"1"), (b"a", None), (b"c", b"3")]
_MODULE = "tests.integration.file_store"
KEY_VALUE = {
    "plain": StoreDefinition(name=STORE, engine="rocksDB", supplier=f"{_MODULE}:plain"),
    "timestamped": StoreDefinition(name=STORE, engine="rocksDB", supplier=f"{_MODULE}:timestamped"),
    "transactional": StoreDefinition(name=STORE, engine="txn_rocksDB", supplier=f"{_MODULE}:transactional"),
    "offsets": StoreDefinition(name=STORE, engine="rocksDB", supplier=f"{_MODULE}:offsets_without_transactions"),
    "ours": StoreDefinition(name=STORE, engine="rocksDB", supplier=f"{_MODULE}:ours_without_timestamps"),
}
_WINDOWED = {"name": STORE, "engine": "rocksDB", "retention_ms": 4 * MINUTE}
WINDOWED = {
    "window": StoreDefinition(**_WINDOWED, kind="window", window_size_ms=MINUTE, supplier=f"{_MODULE}:windows"),
    "session": StoreDefinition(**_WINDOWED, kind="session", supplier=f"{_MODULE}:sessions"),
}
every_key_value = pytest.mark.parametrize("name", list(KEY_VALUE))


def of_it(servers: str, directory: Path, name: str) -> Application:
    """Make an application with a supplier's store."""
    return Application(servers, directory, stores=[KEY_VALUE[name]])


def file_of(application: Application) -> Path:
    """The file of the store's rows."""
    return application.live / "rows.json"


def assert_whole(application: Application) -> None:
    """The store is what its changelog gives, and that what its input gives."""
    settle(application.servers, application.changelog)
    rows, _ = application.recomputed()
    found = fold(consume(application.servers, application.changelog)[0])
    assert {key: row.value for key, row in found.items()} == {key: row.value for key, row in rows.items()}
    for depth in ("offsets", "scan", "deep"):
        row = application.verify(depth)
        assert (row.status, row.action, row.loss) == (Status.OK, Action.NONE, row.loss), row
    assert row.keys == len(rows)
    assert row.contents.equal == len(rows)


@pytest.mark.short_for("exactly_once_v2-plain")
@every_key_value
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_suppliers_store_is_processed_and_every_depth_finds_it_whole(
    bootstrap_servers: str, tmp_path: Path, name: str, guarantee: str
) -> None:
    application = of_it(bootstrap_servers, tmp_path, name).extend(processing_guarantee=guarantee)
    application.process(ROWS)
    assert_whole(application)
    second = application.process(LATER, T0 + 100)
    assert [(figures.restored, figures.rebuilt) for figures in second.stores] == [(0, None)]
    assert_whole(application)


@pytest.mark.behaviour("K19")
@pytest.mark.short_for("Kafka committed, stores not-timestamped", "Kafka committed, stores not-offsets")
@every_key_value
@pytest.mark.parametrize("point", ["flushed, not committed", "Kafka committed, stores not", "stores committed"])
def test_a_suppliers_store_is_what_its_log_gives_after_a_crash(
    bootstrap_servers: str, tmp_path: Path, name: str, point: str
) -> None:
    application = of_it(bootstrap_servers, tmp_path, name)
    application.process(ROWS)
    application.send(LATER)
    dying.die_in(application.task_spec(), point)
    row = application.run()
    assert row.failure is None
    # What was not committed lay in memory; without transactions nobody knows that.
    assert [figures.rebuilt is None for figures in row.stores] == [name == "transactional"]
    assert_whole(application)


@pytest.mark.short_for("flipped-timestamped")
@pytest.mark.parametrize("name", ["plain", "timestamped", "transactional"])
@pytest.mark.parametrize("damage", ["torn", "flipped", "gone"])
def test_a_damaged_store_of_a_supplier_is_found_and_restored(
    bootstrap_servers: str, tmp_path: Path, name: str, damage: str
) -> None:
    application = of_it(bootstrap_servers, tmp_path, name)
    application.process(ROWS)
    whole = file_of(application).read_bytes()
    if damage == "torn":
        file_of(application).write_bytes(whole[: len(whole) // 2])
    elif damage == "flipped":
        file_of(application).write_bytes(whole.replace(b"32", b"39"))
    else:
        file_of(application).unlink()
        application.live.rmdir()
    found = application.verify()
    assert found.status is (Status.MISSING if damage == "gone" else Status.CORRUPT)
    assert found.action is Action.FULL
    row = application.restore()
    assert (row.mode, row.keys, row.records) == ("full", 2, 5)
    assert (row.quarantine is None) is (damage == "gone")
    assert_whole(application)
    application.process(LATER, T0 + 100)
    assert_whole(application)


@pytest.mark.long
@pytest.mark.parametrize("name", ["plain", "transactional"])
def test_a_task_rebuilds_the_damaged_store_of_a_supplier(bootstrap_servers: str, tmp_path: Path, name: str) -> None:
    application = of_it(bootstrap_servers, tmp_path, name)
    application.process(ROWS)
    file_of(application).write_text("{")
    row = application.process(LATER, T0 + 100)
    assert [figures.rebuilt is not None for figures in row.stores] == [True]
    assert_whole(application)


@pytest.mark.long
@pytest.mark.parametrize("name", ["timestamped", "plain"])
def test_rows_that_differ_from_the_log_are_told_and_what_replaced_them_can_be_rolled_back(
    bootstrap_servers: str, tmp_path: Path, name: str
) -> None:
    from statestore.partition.rollback import RollbackSpec, roll_back

    application = of_it(bootstrap_servers, tmp_path, name)
    application.process(ROWS)
    content = json.loads(file_of(application).read_text())
    content["rows"].append([[b"zz".hex()], (b"\0" * 8 * (name == "timestamped") + b"9").hex()])
    file_of(application).write_text(json.dumps(content))
    (application.store_spec().paths.seal(STORE)).unlink()
    found = application.verify("deep")
    assert (found.status, found.action) == (Status.DIVERGED, Action.FULL)
    assert (found.contents.equal, found.contents.store_rows) == (2, 3)
    spec = application.restore_spec(force=True)
    row = restore(spec)
    assert row.failure is None
    assert_whole(application)
    spec = application.store_spec()
    back = roll_back(RollbackSpec(spec, "back"))
    assert back.failure is None
    assert len(json.loads(file_of(application).read_text())["rows"]) == 3
    assert spec.paths.offsets(STORE).exists()


@pytest.mark.long
@pytest.mark.parametrize("name", ["plain", "transactional"])
def test_a_store_of_a_supplier_that_lags_gets_the_tail_of_its_log(
    bootstrap_servers: str, tmp_path: Path, name: str
) -> None:
    application = of_it(bootstrap_servers, tmp_path, name)
    application.process(ROWS)
    transaction(bootstrap_servers, application.changelog, [(b"x", b"7")])
    settle(bootstrap_servers, application.changelog)
    assert application.verify().status is Status.LAGGING
    row = application.restore()
    assert (row.mode, row.records, row.keys) == ("tail", 1, 3)
    assert application.verify("deep").status is Status.OK


@pytest.mark.long
@pytest.mark.parametrize("name", list(WINDOWED))
def test_windows_and_sessions_of_a_supplier_are_restored_and_compared(
    bootstrap_servers: str, tmp_path: Path, name: str
) -> None:
    store = WINDOWED[name]
    application = logged(bootstrap_servers, tmp_path, store, changes(store, 200, 7))
    settle(bootstrap_servers, application.changelog)
    row = restore(application.restore_spec())
    assert row.failure is None
    found = application.verify("deep")
    assert found.status is Status.OK, found
    assert found.contents.equal > 20


@pytest.mark.long
def test_what_reads_rows_for_long_keeps_to_the_memory_that_it_is_given(bootstrap_servers: str, tmp_path: Path) -> None:
    application = of_it(bootstrap_servers, tmp_path, "timestamped")
    application.process([(b"%05d" % number, b"1") for number in range(3_000)])
    found = application.verify("deep", run_bytes=10_000)
    assert found.status is Status.OK
    assert found.contents.equal == 3_000
    sampled = application.verify("deep", sample=0.2, seed=7)
    assert 0 < sampled.contents.equal < 3_000


@pytest.mark.parametrize(
    ("store", "what"),
    [
        (StoreDefinition(name=STORE, supplier=f"{_MODULE}:plain"), "expected engine: rocksDB"),
        (StoreDefinition(name=STORE, engine="rocksDB", supplier=f"{_MODULE}:in_memory"), "expected engine: in_memory"),
        (StoreDefinition(name=STORE, supplier=f"{_MODULE}:of_another_name"), "with the name 'other'"),
        (
            StoreDefinition(name=STORE, supplier=f"{_MODULE}:nothing_like_a_store"),
            "makes a dict without persistent, transactional, .*expected a key-value store",
        ),
        (StoreDefinition(name=STORE, supplier=f"{_MODULE}:failing"), "raised RuntimeError: no such engine"),
        (StoreDefinition(name=STORE, supplier=f"{_MODULE}:nothing"), "cannot be used: AttributeError"),
        (WINDOWED["window"].model_copy(update={"supplier": f"{_MODULE}:plain"}), "without fetch, fetch_range"),
    ],
)
def test_a_supplier_that_does_not_fit_is_refused_when_it_is_applied_and_when_it_runs(
    bootstrap_servers: str, tmp_path: Path, store: StoreDefinition, what: str
) -> None:
    application = Application(bootstrap_servers, tmp_path, stores=[store])
    named = {item.what: item.load for item in named_code(application.definition)}
    with pytest.raises(DefinitionError, match=what):
        named[f"supplier {store.supplier} of store {STORE}"]()
    application.send(ROWS)
    row = application.run()
    assert row.failure.kind == "DefinitionError"
    assert re.search(what, row.failure.message)


@pytest.mark.long
def test_a_suppliers_store_in_memory_is_filled_from_its_log_in_each_run(bootstrap_servers: str, tmp_path: Path) -> None:
    store = StoreDefinition(name=STORE, engine="in_memory", supplier=f"{_MODULE}:in_memory")
    application = Application(bootstrap_servers, tmp_path, stores=[store])
    application.process(ROWS)
    row = application.process(LATER, T0 + 100)
    assert [figures.restored for figures in row.stores] == [5]
    rows, _ = application.recomputed()
    logged_rows = fold(consume(application.servers, application.changelog)[0])
    assert {key: row.value for key, row in logged_rows.items()} == {key: row.value for key, row in rows.items()}


@pytest.mark.long
def test_options_of_rocksdb_are_set_where_a_task_opens_its_stores(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.extend(rocksdb_config_setter=f"{_MODULE}:set_options", uncommitted_max_bytes=1_024)
    application.process([(b"%04d" % number, b"x" * 100) for number in range(2_000)])
    options = max(application.live.glob("OPTIONS-*")).read_text()
    assert "write_buffer_size=65536" in options
    application.assert_oracle()


def test_a_setter_that_fails_names_the_store_and_changes_nothing(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, stores=[StoreDefinition(name="refused")], processor="echo")
    application.extend(rocksdb_config_setter=f"{_MODULE}:set_options")
    application.send(ROWS)
    assert "raised ValueError for store refused: this store is not to be opened" in application.fails("DefinitionError")
    definition = application.definition.model_copy(update={"rocksdb_config_setter": "nowhere:setter"})
    with pytest.raises(DefinitionError, match="cannot be used: ModuleNotFoundError"):
        load_all(definition)


def load_all(definition: ApplicationDefinition) -> None:
    """Load all that a definition names."""
    for item in named_code(definition):
        item.load()


@pytest.mark.short_for("timestamped")
@pytest.mark.parametrize("name", ["timestamped", "transactional"])
def test_a_store_that_gets_a_supplier_or_loses_it_is_filled_from_its_log(
    bootstrap_servers: str, tmp_path: Path, name: str
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process(ROWS)
    ours = application.definition.stores
    application.defined(stores=(KEY_VALUE[name],)).process(LATER, T0 + 100)
    assert_whole(application)
    application.defined(stores=ours).process([(b"e", b"1")], T0 + 200)
    application.assert_oracle()
    assert application.verify("deep").status is Status.OK


@pytest.mark.long
@pytest.mark.parametrize("name", ["plain", "transactional"])
def test_a_task_that_finds_the_directory_of_a_suppliers_store_gone_fills_it_anew(
    bootstrap_servers: str, tmp_path: Path, name: str
) -> None:
    application = of_it(bootstrap_servers, tmp_path, name)
    application.process(ROWS)
    file_of(application).unlink()
    application.live.rmdir()
    row = application.process(LATER, T0 + 100)
    assert [figures.restored for figures in row.stores] == [5]
    assert_whole(application)


@pytest.mark.short_for("without")
@pytest.mark.parametrize("dead_letters", [True, False], ids=["with dead letters", "without"])
def test_a_suppliers_store_that_fails_when_it_is_read_is_damaged_and_no_record_is_blamed_for_it(
    bootstrap_servers: str, tmp_path: Path, dead_letters: bool
) -> None:
    store = StoreDefinition(name=STORE, engine="rocksDB", supplier=f"{_MODULE}:fails_later")
    application = Application(bootstrap_servers, tmp_path, stores=[store])
    if dead_letters:
        application.extend(dead_letter_topic=create_topic(bootstrap_servers, f"{application.name}-dead"))
    application.process(ROWS)
    file_of(application).write_text("{")
    application.store_spec().paths.seal(STORE).unlink()
    for depth in ("scan", "deep"):
        found = application.verify(depth)
        assert (found.status, found.action) == (Status.CORRUPT, Action.FULL)
    row = application.process(LATER, T0 + 100)
    assert (row.poison_records, [figures.rebuilt is not None for figures in row.stores]) == (0, [True])
    assert_whole(application)
    file_of(application).write_text("{")
    assert application.restore().before is Status.CORRUPT
    assert_whole(application)


@pytest.mark.long
def test_a_tail_does_not_commit_what_a_crash_left_staged(bootstrap_servers: str, tmp_path: Path) -> None:
    store = StoreDefinition(name=STORE, supplier=f"{_MODULE}:stages_on_disk")
    application = Application(bootstrap_servers, tmp_path, stores=[store])
    application.process(ROWS)
    application.send([(b"z", b"1"), *LATER])
    dying.die_in(application.task_spec(), "flushed, not committed")
    assert (application.live / "staged.json").exists()
    TransactionalWriter(
        Cluster(bootstrap_servers, 60), transactional_id(application.name, application.task_spec().task)
    ).init()
    transaction(bootstrap_servers, application.changelog, [(b"x", b"7")])
    settle(bootstrap_servers, application.changelog)
    row = application.restore()
    assert (row.mode, row.keys) == ("tail", 3)
    assert application.verify("deep").status is Status.OK


def test_the_last_copy_in_a_suppliers_damaged_store_is_not_replaced_unasked_though_nothing_of_ours_tells_of_it(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    kept = {"cleanup.policy": "compact,delete"}
    application = Application(bootstrap_servers, tmp_path, stores=[KEY_VALUE["plain"]], changelog_config=kept)
    application.process(ROWS)
    shutil.rmtree(application.store_spec().paths.own_dir)
    delete_records(bootstrap_servers, application.changelog, 3)
    file_of(application).write_text("{")
    found = application.verify()
    assert (found.status, found.loss) == (Status.CORRUPT, Loss.LIKELY)
    application.fails("StoreBehindLogStartError")


def test_duplicates_of_a_suppliers_window_store_are_refused() -> None:
    with pytest.raises(ValueError, match="a supplier's store cannot retain duplicates"):
        StoreDefinition(**WINDOWED["window"].model_dump() | {"retain_duplicates": True})


@pytest.mark.long
@pytest.mark.parametrize("name", ["timestamped", "transactional"])
def test_a_suppliers_store_is_built_as_of_an_offset_and_the_live_one_stays(
    bootstrap_servers: str, tmp_path: Path, name: str
) -> None:
    application = of_it(bootstrap_servers, tmp_path, name)
    application.process(ROWS)
    whole, target = file_of(application).read_bytes(), tmp_path / "then"
    request = RestoreRequest(mode="as-of", as_of_offset=2, target=target)
    spec = RestoreSpec(application.store_spec(), request, "run", 1 << 24)
    row = restore(spec)
    assert (row.failure, row.outcome, row.mode, row.exact, row.keys) == (None, "restored", "as-of", True, 2)
    there = spec.store.model_copy(update={"state_dir": target})
    rows = json.loads((there.live / "rows.json").read_text())["rows"]
    assert {bytes.fromhex(key): bytes.fromhex(value)[8:] for (key,), value in rows} == {b"a": b"2", b"b": b"1"}
    assert file_of(application).read_bytes() == whole
    assert restore(spec._replace(label="another")).outcome == "skipped"
