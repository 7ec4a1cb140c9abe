"""A replaced store is put back as it was, broken or whole; killed anywhere, one of the two stores is live and whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demo.damage import flip_bit
from statestore.definitions.store import StoreDefinition
from statestore.durable import remove_durably, write_durably
from statestore.formats import checkpoint_file
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.partition.quarantine import quarantined, release_validated, waits_for_a_person
from statestore.partition.rollback import RollbackRow, RollbackSpec, roll_back
from statestore.recovery.restore import restore
from statestore.reports import Status, VerifyRow
from statestore.statedir.lock import locked
from tests.integration import broker, dying
from tests.integration.broker import T0
from tests.integration.command_line import Ran, command_on
from tests.integration.kinds import STORES, changes, logged, stored
from tests.integration.support import STORE, Application

Run = Callable[..., Ran]

KINDS = ["key-value", "plain key-value", "window", "window with duplicates", "session"]


def rolled_back(application: Application, label: str = "back", **changes: Any) -> RollbackRow:
    """Roll the store partition of task 0_0 back, which must succeed."""
    row = roll_back(RollbackSpec(application.store_spec(**changes), label))
    assert row.failure is None, row.failure
    return row


def found(application: Application) -> VerifyRow:
    """What a verification says, but for how long it took."""
    return application.verify().model_copy(update={"seconds": 0.0})


def files(directory: Path) -> dict[str, bytes]:
    """Files of a store that are compared: all but what opening it, also for reading, writes."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith("LOG") and path.name != "LOCK"
    }


@pytest.fixture
def replaced(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application whose store was damaged, then restored."""
    made = Application(bootstrap_servers, tmp_path)
    made.process([(b"key-%03d" % number, b"1") for number in range(200)])
    flip_bit(made.live)
    return made


@pytest.mark.short_for("session")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_put_back_as_it_was_and_forth_again(bootstrap_servers: str, tmp_path: Path, kind: str) -> None:
    definition = STORES[kind]
    application = logged(bootstrap_servers, tmp_path, definition, changes(definition, 100, 1))
    store = application.store_spec()
    assert restore(application.restore_spec(label="first")).failure is None
    broker.transaction(application.servers, application.changelog, changes(definition, 60, 2, minute=11))
    old, before = stored(store, store.live), found(application)
    assert before.status is Status.LAGGING
    row = restore(application.restore_spec("full", label="second"))
    assert row.failure is None, row.failure
    new, after = stored(store, store.live), found(application)

    back = rolled_back(application)

    assert back.put_back == row.quarantine
    assert back.quarantine == str(store.paths.quarantine(STORE, "back"))
    assert stored(store, store.live) == old
    assert found(application) == before
    if definition.kind != "key-value":
        assert (store.paths.segments(STORE) / "interval").read_text() == "120000"

    forth = rolled_back(application, "forth")

    assert (forth.put_back, forth.quarantine) == (back.quarantine, str(store.paths.quarantine(STORE, "forth")))
    assert stored(store, store.live) == new
    assert found(application) == after


@pytest.mark.long
def test_a_store_that_was_broken_is_broken_again_and_can_be_restored_again(replaced: Application) -> None:
    broken, damaged = found(replaced), files(replaced.live)
    assert broken.status is Status.CORRUPT
    replaced.restore()
    assert found(replaced).status is Status.OK

    rolled_back(replaced)

    assert files(replaced.live) == damaged
    assert found(replaced) == broken
    replaced.restore(label="again")
    assert found(replaced).status is Status.OK
    replaced.assert_oracle()


def test_a_store_that_is_gone_is_replaced_without_leaving_anything_in_quarantine(replaced: Application) -> None:
    old = files(replaced.live)
    replaced.restore()
    shutil.rmtree(replaced.live)

    assert rolled_back(replaced).quarantine is None
    assert files(replaced.live) == old
    refused = roll_back(RollbackSpec(replaced.store_spec(), "again"))
    assert refused.failure.message.startswith(f"{replaced.name}/{STORE}/0_0 has no replaced store in ")


@pytest.mark.long
def test_an_application_goes_on_from_a_store_that_was_put_back(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1"), (b"b", b"1")])
    application.restore("full", force=True)
    application.process([(b"a", b"2")])
    rolled_back(application)

    application.process([(b"a", b"3"), (b"c", b"1")])

    application.assert_oracle()


def test_the_seal_of_a_store_that_is_put_back_still_proves_its_damage(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"key-%03d" % number, b"1") for number in range(200)])
    manifest = application.live / (application.live / "CURRENT").read_text().strip()
    manifest.write_bytes(manifest.read_bytes()[:-10])
    broken = found(application)
    assert (broken.status, manifest.name in broken.detail) == (Status.CORRUPT, True)
    application.restore()

    rolled_back(application)

    assert found(application) == broken


def test_offsets_of_a_checkpoint_file_come_back_with_their_store(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1")])
    spec = application.write_anew({b"a": ValueAndTimestamp(b"7", T0)})
    remove_durably(spec.paths.record(STORE))
    write_durably(spec.paths.checkpoint, checkpoint_file.write({spec.partition: 0}))
    before = found(application)
    assert before.committed == 0
    application.restore("full", force=True)
    assert not spec.paths.checkpoint.exists()

    rolled_back(application)

    assert found(application) == before
    assert checkpoint_file.read(spec.paths.checkpoint) == {spec.partition: 0}


@pytest.mark.parametrize("then", ["damaged", pytest.param("behind", marks=pytest.mark.long)])
def test_what_was_put_back_waits_for_a_person_unless_its_successor_has_all_of_it(
    bootstrap_servers: str, tmp_path: Path, then: str
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"key-%03d" % number, b"1") for number in range(200)])
    offsets = {application.store_spec().partition: application.committed()}
    application.write_anew({b"chosen": ValueAndTimestamp(b"7", T0)}, offsets=offsets)
    application.restore("full", force=True, label="first")
    rolled_back(application)
    application.process([(b"a", b"1")])
    if then == "damaged":
        flip_bit(application.live)
    else:
        broker.transaction(application.servers, application.changelog, [(b"b", b"1")])
    row = application.restore(label="second")
    assert row.mode == ("full" if then == "damaged" else "tail")
    paths, chosen = application.store_spec().paths, b"chosen" in application.contents()
    kept = waits_for_a_person(paths, STORE, Path(row.quarantine or "").name)
    assert (chosen, kept is None) == ((False, False) if then == "damaged" else (True, True)), kept
    with locked(paths):
        assert release_validated(paths, application.store_spec().store, "second") == (kept is None)


# -- killed -----------------------------------------------------------------------------------------------------------


@pytest.mark.short_for("swap, before the last rename-True")
@pytest.mark.behaviour("R8")
@pytest.mark.parametrize("kind", ["key-value", "session"])
@pytest.mark.parametrize(
    ("point", "begun"),
    [
        ("swap, journal written", False),
        ("swap, old store in quarantine", True),
        ("swap, before the last rename", True),
        ("swap, new store live", True),
        ("swap, before the journal goes", True),
    ],
)
def test_r8_a_killed_rollback_is_forgotten_or_completed_and_a_rerun_ends_with_the_old_store(
    bootstrap_servers: str, tmp_path: Path, kind: str, point: str, begun: bool
) -> None:
    definition = STORES[kind]
    application = logged(bootstrap_servers, tmp_path, definition, changes(definition, 60, 1))
    store = application.store_spec()
    restore(application.restore_spec(label="first"))
    broker.transaction(application.servers, application.changelog, changes(definition, 60, 2, minute=11))
    old, before = stored(store, store.live), found(application)
    restore(application.restore_spec("full", label="second"))
    new, after = stored(store, store.live), found(application)

    dying.die_in(RollbackSpec(store, "back"), point)
    assert found(application) == (before if begun else after)  # it finishes what was begun
    assert stored(store, store.live) == (old if begun else new)
    if definition.kind != "key-value":
        assert (store.paths.segments(STORE) / "interval").exists()
    assert not list(store.paths.own_dir.glob("swap-*"))
    if not begun:
        rolled_back(application)
        assert (found(application), stored(store, store.live)) == (before, old)
    assert stored(store, store.paths.quarantine(STORE, "back")) == new


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def command(
    replaced: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> Run:
    """The command `restore` on the application, whose damaged store was just restored."""
    replaced.restore()
    made, definitions = command_on(replaced, tmp_path, monkeypatch, capfd)
    return lambda *given: made("restore", *given, "--definitions", str(definitions))


@pytest.mark.short_for("counts/0")
@pytest.mark.parametrize("named", [STORE, f"{STORE}/0"])
def test_the_command_puts_back_what_it_names_and_says_where_the_present_store_is(
    replaced: Application, command: Run, tmp_path: Path, named: str
) -> None:
    report = tmp_path / "report.json"

    ran = command("--rollback", named, "--application", replaced.name, "--json", str(report))

    assert ran.code == 0, ran.err
    assert f"{replaced.name}/{STORE}/0_0" in ran.out
    [row] = json.loads(report.read_text())["rows"]
    assert Path(row["put_back"]) == replaced.store_spec().paths.quarantine(STORE, "run")
    assert Path(row["quarantine"]).is_dir()
    assert found(replaced).status is Status.CORRUPT


def test_a_dry_run_says_what_would_be_done_and_does_nothing(replaced: Application, command: Run) -> None:
    before = replaced.live.stat().st_ino

    ran = command("--rollback", STORE, "--dry-run")

    assert (ran.code, "would be put back" in ran.out) == (0, True)
    assert replaced.live.stat().st_ino == before
    assert os.listdir(replaced.store_spec().paths.replaced / STORE) == ["run"]


@pytest.mark.long
def test_a_task_in_use_is_not_rolled_back_and_ends_with_3(replaced: Application, command: Run) -> None:
    with locked(replaced.store_spec().paths, 1):
        ran = command("--rollback", STORE)
    assert (ran.code, "LockedError" in ran.out) == (3, True)
    assert found(replaced).status is Status.OK


@pytest.mark.short_for(every=3)
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--rollback", "other"], "no store 'other'; the stores are: counts"),
        (["--rollback", f"{STORE}/7"], "store counts has no partition 7; it has 0_0"),
        (["--rollback", f"{STORE}/x"], "no application 'counts'"),
        (["--rollback", "/0"], "'/0' names no store"),
        (["--rollback", STORE, "--mode", "full"], "--rollback puts replaced stores back"),
        (["--release", STORE, "--force"], "--release removes them"),
        (["--release", f"a/{STORE}/x"], "expected at most an application, a store, and a partition"),
        (["--release", STORE, "--rollback", STORE], "expected one of them, found both"),
        (["--rollback", STORE, "--partition", "0"], "--rollback puts replaced stores back"),
        (["--rollback", STORE, "--as-of-offset", "0"], "--as-of-offset: expected mode as-of, found mode auto"),
        (["--rollback", STORE, "--ranges", "2"], "--rollback puts replaced stores back"),
    ],
)
def test_a_rollback_that_makes_no_sense_ends_with_2_and_does_nothing(
    replaced: Application, command: Run, given: list[str], expected: str
) -> None:
    ran = command(*given)
    assert (ran.code, expected in ran.err) == (2, True), ran.err
    assert found(replaced).status is Status.OK


def test_where_each_node_has_a_disk_of_its_own_no_copy_is_put_back(
    replaced: Application, command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATESTORE_ARCHIVE", f"file://{tmp_path}/archive")
    monkeypatch.setenv("STATESTORE_NODE_LOCAL_STATE", "true")
    ran = command("--rollback", STORE)
    assert (ran.code, "run `statestore snapshot reinstate`" in ran.err) == (2, True), ran.err
    assert found(replaced).status is Status.OK


def test_what_was_never_replaced_ends_with_2(replaced: Application, command: Run) -> None:
    shutil.rmtree(replaced.store_spec().paths.own_dir / "quarantine")
    ran = command("--rollback", f"{STORE}/0")
    assert (ran.code, "has no replaced store" in ran.err) == (2, True)


@pytest.mark.long
def test_a_store_of_two_applications_is_asked_for(
    replaced: Application, bootstrap_servers: str, tmp_path: Path, command: Run
) -> None:
    other = Application(bootstrap_servers, tmp_path, stores=[StoreDefinition(name=STORE)])
    both = f"{replaced.definition.model_dump_json()}\n---\n{other.definition.model_dump_json()}"
    (tmp_path / "application.yaml").write_text(both)
    ran = command("--rollback", STORE)
    assert (ran.code, "or add --application" in ran.err) == (2, True), ran.err


def test_what_was_replaced_is_removed_when_a_person_says_so(replaced: Application, command: Run) -> None:
    paths = replaced.store_spec().paths
    before = quarantined(paths, STORE)
    assert before
    ran = command("--release", f"{STORE}/0", "--dry-run")
    assert (ran.code, quarantined(paths, STORE)) == (0, before)
    (replaced.live / "CURRENT").rename(replaced.live / "CURRENT.away")
    ran = command("--release", STORE)
    assert (ran.code, quarantined(paths, STORE)) == (1, before)
    (replaced.live / "CURRENT.away").rename(replaced.live / "CURRENT")
    ran = command("--release", STORE)
    assert (ran.code, quarantined(paths, STORE)) == (0, []), ran
