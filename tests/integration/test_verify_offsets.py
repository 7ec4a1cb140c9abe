"""Verification by offsets: what it finds without opening a store, when it must open one, and many at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from statestore.definitions.store import StoreDefinition
from statestore.errors import StateStoreError, StoreAccessError
from statestore.kinds.known import BUILT_IN
from statestore.partition import inspection
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Action, Status, VerifyRow
from statestore.requests.verify import DEPTHS, Depth
from statestore.statedir.lock import locked
from statestore.statedir.record import write_record
from statestore.statedir.seal import break_seal, seal
from statestore.verification import check
from statestore.verification.check import verify, verify_many
from statestore.verification.options import VerifyOptions
from tests.integration import broker, dying
from tests.integration.broker import Row, transaction
from tests.integration.support import STORE, Application, plain_store
from tests.records import recorded

KEY_VALUE = BUILT_IN["key-value"]

OFFSETS = VerifyOptions(depth="offsets")
INPUT: list[Row] = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"b", None)]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the stores that are opened meanwhile."""
    names: list[str] = []
    build = inspection.build_store

    def noting(definition: StoreDefinition) -> object:
        names.append(definition.name)
        return build(definition)

    monkeypatch.setattr(inspection, "build_store", noting)
    return names


@pytest.mark.behaviour("L2")
def test_l2_a_sealed_store_is_not_opened(whole: Application, opened: list[str]) -> None:
    row = whole.verify("offsets")
    assert (row.status, row.action, row.committed, row.start, row.end, row.lag, row.sealed, row.keys) == (
        Status.OK, Action.NONE, 4, 0, 6, 0, True, None,
    )  # fmt: skip
    assert (row.depth, opened) == ("offsets", [])


def test_a_store_without_a_seal_is_opened(whole: Application, opened: list[str]) -> None:
    break_seal(whole.store_spec().paths, STORE)
    row = whole.verify("offsets")
    assert (row.status, row.committed, row.sealed, opened) == (Status.OK, 4, False, [STORE])


def test_a_record_that_is_not_of_the_sealed_store_is_not_believed(whole: Application, opened: list[str]) -> None:
    paths = whole.store_spec().paths
    spec = whole.changelog_spec()
    write_record(paths, STORE, recorded(spec.topic_id, 2))
    row = whole.verify("offsets")
    assert (row.committed, opened) == (4, [STORE])


@pytest.mark.long
def test_an_older_copy_of_the_store_beside_a_newer_record_is_found(whole: Application, tmp_path: Path) -> None:
    shutil.copytree(whole.live, tmp_path / "older")
    whole.process([(b"a", b"3")])
    shutil.rmtree(whole.live)
    shutil.copytree(tmp_path / "older", whole.live)
    assert whole.verify("offsets").status is Status.CORRUPT
    break_seal(whole.store_spec().paths, STORE)
    row = whole.verify("offsets")
    # Nobody knows since when this copy is not whole: deletes that it has not seen may be gone.
    assert (row.status, row.action, row.committed) == (Status.LAGGING, Action.FULL, 4)


@pytest.mark.long
def test_l1_an_offset_in_a_checkpoint_file_counts_also_where_the_store_is_sealed(whole: Application) -> None:
    whole.store_spec().paths.checkpoint.write_text(f"0\n1\n{whole.changelog} 0 1\n")
    assert whole.verify("offsets").committed == 1


@pytest.mark.long
def test_lag_is_counted_from_the_first_record_that_is_left(whole: Application) -> None:
    transaction(whole.servers, whole.changelog, [(b"a", b"9")] * 3, end="abort")
    assert whole.verify("offsets").lag == 0
    whole.send([(b"a", b"3")])
    dying.die_in(whole.task_spec(), "Kafka committed, stores not")
    row = whole.verify("offsets")
    # Offsets 0 to 5 are known, 6 to 9 were aborted, 10 is left, and its transaction's marker is the end.
    assert (row.status, row.action, row.lag, row.end) == (Status.LAGGING, Action.TAIL, 2, 12)
    assert "first record at 10" in row.detail


DAMAGES: dict[str, Callable[[Path], object]] = {
    "SST shorter": lambda store: os.truncate(max(store.glob("*.sst")), 100),
    "SST gone": lambda store: max(store.glob("*.sst")).unlink(),
    "CURRENT gone": lambda store: (store / "CURRENT").unlink(),
    "MANIFEST shorter": lambda store: os.truncate(next(store.glob("MANIFEST*")), 50),
    "MANIFEST gone": lambda store: next(store.glob("MANIFEST*")).unlink(),
}


@pytest.mark.short_for("SST gone")
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_that_the_seal_shows(whole: Application, opened: list[str], damage: str) -> None:
    DAMAGES[damage](whole.live)
    row = whole.verify("offsets")
    assert (row.status, row.action, opened) == (Status.CORRUPT, Action.FULL, [])
    assert Path(row.file).parent == whole.live


def test_missing_and_empty(application: Application) -> None:
    assert application.verify("offsets").status is Status.EMPTY
    application.process(INPUT)
    shutil.rmtree(application.live)
    row = application.verify("offsets")
    assert (row.status, row.action, row.lag) == (Status.MISSING, Action.FULL, 6)


@pytest.mark.short_for("deep")
@pytest.mark.behaviour("M2")
@pytest.mark.parametrize("depth", ["offsets", "scan", "deep"])
def test_m2_a_format_that_is_not_the_definitions(whole: Application, depth: Depth) -> None:
    plain = whole.store_spec().model_copy(update={"store": plain_store()})
    row = verify(plain, VerifyOptions(depth=depth))
    assert (row.status, row.action) == (Status.DOWNGRADED, Action.FULL)
    row = verify(plain.model_copy(update={"owned": False}), VerifyOptions(depth=depth))
    assert (row.status, row.action) == (Status.UNKNOWN_FORMAT, Action.BY_HAND)


def test_r10_a_changelog_with_too_few_partitions_is_only_touched_by_hand(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    spec = application.store_spec(1)
    fewer = spec.model_copy(update={"changelog": spec.changelog.model_copy(update={"partitions": 1})})
    for depth in ("offsets", "scan"):
        row = verify(fewer, VerifyOptions(depth=depth))  # type: ignore[arg-type]
        assert (row.status, row.action) == (Status.REPARTITIONED, Action.BY_HAND)
    assert "has 1 partitions, expected" in row.detail


# -- many at once -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_many_are_verified_at_once_and_come_in_the_order_of_the_specs(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, partitions=4)
    for partition in range(4):
        application.send(INPUT, partition)
        assert application.run(partition).failure is None
    broker.settle(bootstrap_servers, application.changelog)
    specs = [application.store_spec(partition) for partition in (3, 1, 0, 2, 1)]
    shutil.rmtree(specs[0].live)
    (specs[3].live / "CURRENT").unlink()
    with locked(specs[2].paths, 1):
        rows = verify_many([spec.model_copy(update={"lock_wait_s": 0.1}) for spec in specs], OFFSETS)
    assert [row.task for row in rows] == ["0_3", "0_1", "0_0", "0_2", "0_1"]
    statuses = [Status.MISSING, Status.OK, Status.LOCKED, Status.CORRUPT, Status.OK]
    assert [row.status for row in rows] == statuses


def test_who_was_only_passed_by_records_that_came_in_between_is_whole(
    whole: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = check._judged
    calls: list[int] = []

    def after_a_run(*arguments: object, **how: bool) -> list[VerifyRow]:
        calls.append(1)
        if len(calls) == 1:  # the store was looked at, its lock was given back, and its log was not yet asked for
            whole.process([(b"a", b"3")])
        return judged(*arguments, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(check, "_judged", after_a_run)
    row = whole.verify("offsets")
    assert (row.status, row.committed, len(calls)) == (Status.OK, 6, 2)


@pytest.mark.long
def test_stores_of_one_task_share_its_lock(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(
        bootstrap_servers,
        tmp_path,
        processor="count_in_two_stores",
        stores=[StoreDefinition(name=STORE), plain_store("latest")],
    )
    application.process(INPUT)
    application.send([(b"a", b"3")])
    dying.die_in(application.task_spec(), "Kafka committed, stores not")
    rows = verify_many([application.store_spec(store=name) for name in (STORE, "latest")], OFFSETS)
    assert [row.status for row in rows] == [Status.LAGGING, Status.LAGGING]


# -- what the operating system refuses --------------------------------------------------------------------------------


def _verify_as_anybody(spec: StorePartitionSpec, answers: Path) -> None:
    dying.give_up_capabilities()
    for depth in DEPTHS:
        try:
            found = str(verify(spec, VerifyOptions(depth=depth)).status)
        except StateStoreError as error:
            found = type(error).__name__
        with answers.open("a") as file:
            file.write(f"{found}\n")


FILES: dict[str, Callable[[StorePartitionSpec], Path]] = {
    "MANIFEST": lambda spec: next(spec.live.glob("MANIFEST*")),
    "CURRENT": lambda spec: spec.live / "CURRENT",
    "SST": lambda spec: max(spec.live.glob("*.sst")),
    "the store's directory": lambda spec: spec.live,
    "the task's directory": lambda spec: spec.paths.task_dir,
    "our directory": lambda spec: spec.paths.own_dir,
    "the seal": lambda spec: spec.paths.seal(STORE),
    "the record": lambda spec: spec.paths.record(STORE),
}


@pytest.mark.short_for("False-SST")
@pytest.mark.parametrize("refused", FILES)
@pytest.mark.parametrize("sealed", [True, False])
def test_a_missing_permission_is_never_taken_for_damage(
    whole: Application, tmp_path: Path, refused: str, sealed: bool
) -> None:
    spec = whole.store_spec()
    if not sealed:
        break_seal(spec.paths, STORE)
    if refused == "the seal" and not sealed:
        seal(spec.paths, STORE, KEY_VALUE)
    victim = FILES[refused](spec)
    mode = victim.stat().st_mode
    victim.chmod(0)
    process = dying.start_process(_verify_as_anybody, spec, tmp_path / "answers")
    process.join(2 * broker.WAIT_S)
    victim.chmod(mode)
    expected = [StoreAccessError.__name__] * len(DEPTHS)
    if refused == "SST" and sealed:
        expected[0] = "OK"  # by offsets nobody asks for its contents
    assert (tmp_path / "answers").read_text().split() == expected
