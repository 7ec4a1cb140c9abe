"""Planted damage: deep verification finds and names it, or the damage leaves an earlier state above all lower bounds.

An earlier state of a store without a committed offset is such a case: nothing shows it, and a replay corrects it. So is
a byte of a versioned store that changes no answer.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from statestore.bulk.routing import routing_of
from statestore.changelog.topic_settings import changelog_config
from statestore.definitions.store import StoreDefinition
from statestore.formats.checkpoint_file import write
from statestore.formats.offsets import COLUMN_FAMILY, STATUS_CLOSED, STATUS_OPEN
from statestore.formats.versioned_row import LATEST, Version, decode_row_key, encode_latest, row_key
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Status, VerifyRow
from statestore.statedir.seal import break_seal
from statestore.stores.manifest import progress_of
from statestore.stores.rocksdb import RocksDB
from statestore.stores.scan import ScannedDatabase
from statestore.stores.table import DeletedRange
from statestore.verification.check import verify
from statestore.verification.contents import databases
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.closed import prove
from statestore.verification.versions import stored_keys, timeline
from tests.integration import broker
from tests.integration.broker import T0, Row
from tests.integration.kinds import ALL_STORES, changes, stored
from tests.integration.support import STORE, Application

SEED = int(os.environ.get("FAULTS_SEED", "1"))
EACH = 8
STORES = {
    name: ALL_STORES[name] for name in ("key-value", "plain key-value", "window", "session", "key-value with headers")
} | {"versioned": StoreDefinition(name=STORE, kind="versioned", retention_ms=60 * 60_000)}
ABORTED = b"aborted"


class Damaged(NamedTuple):
    """An application whose store is damaged, with two intact copies: the current store, and its state before."""

    application: Application
    spec: StorePartitionSpec
    earlier: Path
    now: Path
    committed: int

    def put_back(self, copy: Path) -> None:
        """Put a copy in the store's place."""
        break_seal(self.spec.paths, self.spec.store.name)
        shutil.rmtree(self.spec.live)
        shutil.copytree(copy, self.spec.live)

    def rewrite(self, changed: dict[bytes, bytes | None], *, opened: bool = False) -> None:
        """Write rows; leave the store closed at its offset, or open without one."""
        store = self.spec.store
        for segment, directory in databases(self.spec).items():
            own = {key: value for key, value in changed.items() if self._segment(key) == segment}
            family = store.values.column_families[0]
            database = RocksDB(directory, store.values.column_families)
            if opened:
                ranges = {COLUMN_FAMILY: [DeletedRange(b"", b"\xff")]}
                database.write({family: own}, status=STATUS_OPEN, ranges=ranges)
            elif own:
                database.write({family: own}, status=STATUS_CLOSED)
            database.sync()
            database.close()

    def _segment(self, key: bytes) -> int:
        return routing_of(self.spec.store).place(key)[0] if self.spec.store.segmented else 0


def _rows(store: StoreDefinition) -> list[Row]:
    if store.kind != "versioned":
        return changes(store, 300, seed=SEED, minute=0)
    return changes(StoreDefinition(name=STORE), 300, seed=SEED)


def _aborted(store: StoreDefinition) -> list[Row]:
    return [(row[0], ABORTED) for row in _rows(store)[260:] if row[1] is not None]


@pytest.fixture(scope="module")
def intact(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Damaged]:
    """Return the application of a store, made once, with its store as it was."""
    made: dict[str, Damaged] = {}

    def of(name: str) -> Damaged:
        if name not in made:
            made[name] = _made(bootstrap_servers, tmp_path_factory.mktemp("planted"), STORES[name])
        found = made[name]
        found.put_back(found.now)
        found.spec.paths.checkpoint.unlink(missing_ok=True)
        return found

    return of


def _made(servers: str, directory: Path, store: StoreDefinition) -> Damaged:
    application = Application(
        servers, directory, stores=[store], processor="echo", changelog_config=changelog_config(store)
    )
    rows = _rows(store)
    broker.transaction(servers, application.changelog, rows[:200])
    application.restore("full")
    shutil.copytree(application.live, directory / "earlier")
    broker.transaction(servers, application.changelog, _aborted(store), end="abort", timestamp=T0 + 200)
    broker.transaction(servers, application.changelog, rows[200:], timestamp=T0 + 300)
    application.restore("tail")
    shutil.copytree(application.live, directory / "now")
    committed = application.verify().committed
    assert committed is not None
    spec = application.store_spec(owned=False)
    progress = tuple(progress_of(spec.live, segmented=store.segmented).items())
    spec = spec.model_copy(update={"progress_seen": progress, "committed_seen": committed})
    return Damaged(application, spec, directory / "earlier", directory / "now", committed)


def _changed_byte(damaged: Damaged, chance: random.Random) -> None:
    rows = {key: value for key, value in stored(damaged.spec, damaged.spec.live).items() if value}
    key = chance.choice(sorted(rows))
    at, value = chance.randrange(len(rows[key])), bytearray(rows[key])
    value[at] ^= chance.randrange(1, 256)
    damaged.rewrite({key: bytes(value)})


def _lost_row(damaged: Damaged, chance: random.Random) -> None:
    rows = sorted(stored(damaged.spec, damaged.spec.live))
    damaged.rewrite({chance.choice(rows): None})


def _aborted_row(damaged: Damaged, chance: random.Random) -> None:
    store, rows = damaged.spec.store, stored(damaged.spec, damaged.spec.live)
    if store.kind == "versioned":
        latest = sorted(key for key in rows if decode_row_key(key)[0] == LATEST)
        _, key = decode_row_key(chance.choice(latest))
        damaged.rewrite({row_key(LATEST, key): encode_latest(ABORTED, T0 + 200)})
        return
    # In the changelog, headers are not in the value.
    logged = b"\0" + (T0 + 200).to_bytes(8, "big") + ABORTED if store.values.keeps_headers else ABORTED
    here = databases(damaged.spec)
    keys = {row[0] for row in _aborted(store) if row[0] is not None}
    key = chance.choice(sorted(key for key in keys if routing_of(store).place(key)[0] in here))
    damaged.rewrite({key: store.values.stored_as_read(logged, T0 + 200)})


def _older_files(damaged: Damaged, _: random.Random) -> None:
    damaged.put_back(damaged.earlier)
    content = write({damaged.spec.partition: damaged.committed})
    damaged.spec.paths.checkpoint.write_text(content, encoding="utf-8")


def _older_copy(damaged: Damaged, _: random.Random) -> None:
    damaged.put_back(damaged.earlier)


def _older_copy_left_open(damaged: Damaged, _: random.Random) -> None:
    damaged.put_back(damaged.earlier)
    damaged.rewrite({}, opened=True)


def _lost_segment(damaged: Damaged, chance: random.Random) -> None:
    shutil.rmtree(chance.choice(sorted(path for path in damaged.spec.live.iterdir() if path.is_dir())[-2:]))


DAMAGE: dict[str, Callable[[Damaged, random.Random], None]] = {
    "changed byte": _changed_byte,
    "lost row": _lost_row,
    "aborted row": _aborted_row,
    "older files": _older_files,
    "older copy": _older_copy,
    "older copy left open": _older_copy_left_open,
    "lost segment": _lost_segment,
}
CELLS = [
    (store, damage)
    for store, definition in STORES.items()
    for damage in DAMAGE
    if definition.segmented or damage != "lost segment"
]


def _answers(spec: StorePartitionSpec, directory: Path | None = None) -> list[tuple[bytes, list[Version]]]:
    """Return what a versioned store answers: an end that a later version precedes changes nothing."""
    database = ScannedDatabase(directory or spec.live, spec.store.values)
    try:
        return [(key, timeline(versions, 0)) for key, versions in stored_keys(database, None)]
    finally:
        database.close()


def _outcome(damaged: Damaged, found: VerifyRow) -> str:
    """Return what became of a damage; each that is found names a key, the offsets, or a file."""
    if found.status in (Status.DIVERGED, Status.WRONG_OFFSET, Status.CORRUPT):
        named = found.file or found.detail
        if found.contents is not None:
            assert found.contents.first or found.contents.offsets
        assert named
        return "found"
    if found.status is Status.LAGGING and "an older copy was put back" in found.detail:
        return "found"
    spec = damaged.spec
    if spec.store.kind == "versioned" and found.status is Status.OK and _answers(spec) == _answers(spec, damaged.now):
        return "changes no answer"
    log = spec.cluster.topics.log_ranges([spec.partition])[spec.partition]
    proof = prove(spec, databases(spec), log, VerifyOptions())
    assert proof is not None
    assert proof.offsets
    return "earlier state above all bounds" if found.status is Status.UNCLEAN else f"not found: {found.status}"


@pytest.mark.short_for("key-value-changed byte", "window-lost segment", "versioned-lost row")
@pytest.mark.parametrize(("store", "damage"), [pytest.param(*cell, id="{}-{}".format(*cell)) for cell in CELLS])
def test_planted_damage_is_found_and_named_or_counted(
    intact: Callable[[str], Damaged], store: str, damage: str
) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(EACH):
        damaged = intact(store)
        DAMAGE[damage](damaged, random.Random(SEED * 10_000 + number))
        outcomes[_outcome(damaged, verify(damaged.spec, VerifyOptions("deep")))] += 1
    expected = "earlier state above all bounds" if damage == "older copy left open" else "found"
    assert outcomes[expected] + outcomes["changes no answer"] == EACH, outcomes
    assert outcomes[expected] > EACH // 2


def test_two_hundred_damages_are_planted() -> None:
    assert len(CELLS) * EACH >= 200
