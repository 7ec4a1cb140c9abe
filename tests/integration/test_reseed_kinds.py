"""A changelog that is written anew from a store of any kind gives the same rows again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from statestore import kill_switch
from statestore.archive.snapshots import history
from statestore.definitions.store import StoreDefinition
from statestore.errors import DiskSpaceError, InputError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.kafka.cluster import Cluster
from statestore.model import StoreFormat
from statestore.partition.advice import reseed_refused
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import restore
from statestore.reports import Status
from statestore.rewrite.reseed import ReseedSpec, reseed
from statestore.rewrite.staged_stores import Rewritten
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.faults.damage.access import own_disk
from tests.integration import broker
from tests.integration.archived import ROWS, Archived
from tests.integration.broker import T0, consume
from tests.integration.kinds import ALL_STORES, MINUTE, changes, logged, stored
from tests.integration.support import STORE, Application

#: Kinds that only the DSL of Kafka Streams makes.
TIME_ORDERED = {
    "time-ordered window": StoreDefinition(
        name=STORE,
        kind="time-ordered-window",
        format=StoreFormat.TIMESTAMPED_IN_DEFAULT,
        retention_ms=4 * MINUTE,
        window_size_ms=MINUTE,
    ),
    "indexed time-ordered window": StoreDefinition(
        name=STORE,
        kind="indexed-time-ordered-window",
        format=StoreFormat.HEADERS,
        retention_ms=4 * MINUTE,
        window_size_ms=MINUTE,
    ),
    "time-ordered session": StoreDefinition(name=STORE, kind="time-ordered-session", retention_ms=4 * MINUTE),
}
KINDS = ALL_STORES | TIME_ORDERED
IN_THE_GATE = ("window",)
NOW = T0 + 3_500_000


def reseeded(stores: Sequence[StorePartitionSpec], started_ms: int = NOW) -> list[Rewritten]:
    """Do it as the command does, for stores that no catalogue has."""
    with reseed(ReseedSpec(stores, 1, False, None, run_bytes=1 << 24, started_ms=started_ms)) as work:
        return work.carry_out(lambda topic: None)


def deep(store: StorePartitionSpec) -> tuple[Status, str]:
    row = verify(store, VerifyOptions("deep"))
    return row.status, row.detail


def as_kind(store: StorePartitionSpec, definition: StoreDefinition) -> StorePartitionSpec:
    """Take a store for one of another kind: no application of ours may define those of the DSL."""
    return store.model_copy(update={"store": definition})


def restored(application: Application, definition: StoreDefinition, label: str) -> None:
    spec = application.restore_spec(force=True, label=label)
    assert restore(spec._replace(store=as_kind(spec.store, definition))).failure is None


def lost(
    application: Application, definition: StoreDefinition = KINDS["key-value"], **changes: Any
) -> StorePartitionSpec:
    """Lose the changelog, and say what the store is then."""
    broker.delete_topic(application.servers, application.changelog)
    store = as_kind(application.store_spec(**changes), definition)
    found = verify(store, VerifyOptions("deep"))
    assert found.status is Status.REPLACED
    assert found.advice is not None
    reseeds = reseed_refused(store) is None
    assert ("rewrite reseed" in (found.advice.command or "")) is reseeds
    return store


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in IN_THE_GATE else pytest.mark.long) for kind in KINDS]
)
def test_every_kind_has_its_rows_again(bootstrap_servers: str, tmp_path: Path, kind: str) -> None:
    definition = KINDS[kind]
    like = definition.model_copy(update={"kind": definition.store_kind.ordinary_kin or definition.kind})
    if definition.store_kind.layout is not None:
        like = like.model_copy(update={"format": StoreFormat.TIMESTAMPED})
    application = logged(bootstrap_servers, tmp_path, like, changes(like, 300, 1))
    restored(application, definition, "before")
    live = as_kind(application.store_spec(), definition).live
    before = stored(as_kind(application.store_spec(), definition), live)
    store = lost(application, definition)
    [row] = reseeded([store])
    assert stored(store, store.live) == before
    records = consume(application.servers, application.changelog)[0]
    indexed = definition.store_kind.layout is not None and definition.store_kind.layout.indexed
    assert len(records) == row.rows == len(before) // (2 if indexed else 1)
    assert len({record.key for record in records}) == len(records)
    assert deep(as_kind(application.store_spec(), definition)) == (Status.OK, "")
    restored(application, definition, "again")
    assert stored(store, store.live) == before
    config = Cluster(application.servers, 60).topics.topic_configs([application.changelog])[application.changelog]
    assert config["cleanup.policy"] == ("compact,delete" if definition.retention_ms else "compact")


@pytest.mark.long
def test_rows_whose_timestamps_are_not_known_get_that_of_the_reseed(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, processor="keep_timestamp_unknown")
    application.process([(b"a", b"1"), (b"b", b"2")])
    assert application.contents()[b"a"] == ValueAndTimestamp(b"1", -1)
    reseeded([lost(application)])
    assert application.contents() == {
        b"a": ValueAndTimestamp(b"1", NOW),
        b"b": ValueAndTimestamp(b"2", NOW),
    }
    assert deep(application.store_spec()) == (Status.OK, "")


@pytest.mark.long
def test_rows_of_an_older_format_are_logged_as_they_are_read(bootstrap_servers: str, tmp_path: Path) -> None:
    plain = StoreDefinition(name=STORE, format=StoreFormat.PLAIN)
    application = Application(bootstrap_servers, tmp_path, processor="count_plain", stores=[plain])
    application.process([(b"a", b"1"), (b"b", b"2")])
    application.defined(stores=(StoreDefinition(name=STORE),))
    broker.delete_topic(application.servers, application.changelog)
    reseeded([application.store_spec()])
    assert application.contents() == {b"a": ValueAndTimestamp(b"1", NOW), b"b": ValueAndTimestamp(b"1", NOW)}
    assert deep(application.store_spec()) == (Status.OK, "")


@pytest.mark.long
def test_at_least_once_and_without_transactions_it_is_the_same(bootstrap_servers: str, tmp_path: Path) -> None:
    settings = {"processing_guarantee": "at_least_once", "default_dsl_store": "rocksDB"}
    stores = [StoreDefinition(name=STORE, engine="rocksDB")]
    application = Application(bootstrap_servers, tmp_path, stores=stores, **settings)
    application.process([(b"a", b"1"), (b"b", b"2")])
    rows = application.contents()
    reseeded([lost(application, stores[0])])
    assert application.contents() == rows
    assert deep(application.store_spec()) == (Status.OK, "")
    application.process([(b"a", b"1")], T0 + 100)
    assert application.contents()[b"a"] == ValueAndTimestamp(b"2", T0 + 100)


@pytest.mark.long
def test_a_disk_that_is_full_meanwhile_leaves_the_store_and_no_topic(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process(ROWS)
    with own_disk(tmp_path / "disk", 1 << 26) as disk:
        shutil.copytree(application.state_dir, disk / "state")
        store = lost(application, state_dir=disk / "state")
        before = stored(store, store.live)

        def fill(point: str) -> None:
            if point == "restore, before the databases":
                (disk / "filler").write_bytes(bytes(shutil.disk_usage(disk).free))

        monkeypatch.setattr(kill_switch, "reached", fill)
        with pytest.raises(DiskSpaceError):
            reseeded([store])
        monkeypatch.undo()
        (disk / "filler").unlink()
        assert Cluster(application.servers, 60).topics.find(application.changelog) is None
        assert stored(store, store.live) == before
        own = store.paths.own_dir
        assert not [*own.parent.glob("reseed-*"), *own.glob("staging"), *own.glob("runs/*")]
        [row] = reseeded([store])
        assert row.rows == len(before)
        assert stored(store, store.live) == before


@pytest.mark.long
def test_a_store_without_a_row_gets_an_empty_changelog(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1"), (b"a", None)])
    reseeded([lost(application)])
    assert verify(application.store_spec()).status is Status.EMPTY
    application.process([(b"a", b"1")], T0 + 100)
    assert application.contents() == {b"a": ValueAndTimestamp(b"1", T0 + 100)}


@pytest.mark.long
def test_a_reseeded_store_begins_a_generation_of_snapshots(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Archived(bootstrap_servers, tmp_path)
    application.process(ROWS)
    before, contents = application.snapshots(), application.contents()
    assert before
    [row] = reseeded([lost(application, archive=application.archive)])
    assert row.published is not None
    assert row.published.failure is None
    (directory,) = application.directories()
    assert history(application.objects, directory).generation == 1
    assert application.snapshots() == [row.published.snapshot]
    application.process([(b"new", b"1")], T0 + 100)
    application.lose_all()
    restored = application.restored()
    assert (restored.mode, restored.snapshot is not None) == ("snapshot", True)
    assert application.contents() == contents | {b"new": ValueAndTimestamp(b"1", T0 + 100)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (StoreDefinition(name=STORE, kind="versioned", retention_ms=MINUTE), "several records for a row"),
        (
            StoreDefinition(name=STORE, kind="time-ordered-buffer", format=StoreFormat.PLAIN),
            "records that a join holds back",
        ),
    ],
)
def test_kinds_whose_rows_do_not_make_a_changelog_are_refused(
    bootstrap_servers: str, tmp_path: Path, definition: StoreDefinition, reason: str
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    with pytest.raises(InputError, match=reason):
        reseeded([as_kind(application.store_spec(), definition)])
