"""The stores of a Kafka Streams application are verified while it runs and writes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka_streams import (
    TRANSACTIONAL_STORES,
    TRANSACTIONAL_VERSION,
    Command,
    Driver,
    KafkaStreams,
    Store,
    other_driver,
)
from shared_state import T0

from statestore.cli.selection import PartitionSelection, Where, choose
from statestore.definitions.fields import Guarantee
from statestore.definitions.objectives import RestoreObjectives
from statestore.drills.partition import DrillSpec, drill
from statestore.model import StoreFormat, changelog_topic
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Action, Status, VerifyRow
from statestore.statedir.paths import OWN_DIRECTORY
from statestore.stores.rocksdb import RocksDB
from statestore.verification.live.verify import verify_live
from statestore.verification.options import VerifyOptions
from tests.integration.broker import produce, wait_for

pytestmark = pytest.mark.long  # Kafka Streams writes meanwhile

STORES = [
    Store("plain"),
    Store("ts", format=StoreFormat.TIMESTAMPED),
    Store("win", "window", StoreFormat.TIMESTAMPED),
    Store("ses", "session"),
]
MINUTE = 60_000
SETTINGS = {"rocksdb.config.setter": "SmallMemtables", "commit.interval.ms": "300"}
ONE_LOOK = VerifyOptions("deep", confirm_within_s=0)
CONFIRMED = VerifyOptions("deep", confirm_within_s=120)
#: Guarantee, and whether stores are transactional.
CELLS: dict[str, tuple[Guarantee, bool]] = {
    "exactly once": ("exactly_once_v2", False),
    "at least once": ("at_least_once", False),
    "transactional": ("exactly_once_v2", True),
}


def commands(seed: int, count: int, begin: int) -> Iterator[Command]:
    """Yield changes of all stores; one in ten deletes, and times are out of order."""
    chance = random.Random(seed)
    for number in range(begin, begin + count):
        store = chance.choice(STORES)
        time_ms = T0 + number * 20
        start = time_ms - time_ms % MINUTE - MINUTE * chance.randrange(3)
        yield Command(
            store.name,
            b"k%04d" % chance.randrange(2_000),
            None if chance.random() < 0.1 else b"%d" % number + b"v" * 60,
            time_ms,
            start=start if store.kind != "kv" else None,
            end=start + 1_000 * chance.randrange(1, 4) if store.kind == "session" else None,
        )


class Life:
    """An application, and its input."""

    def __init__(self, app: KafkaStreams, state_dir: Path, guarantee: Guarantee, config: dict[str, str]) -> None:
        self.app, self.state_dir, self.guarantee = app, state_dir, guarantee
        self.config = {**SETTINGS, "processing.guarantee": guarantee, **config}
        self._sent = 0
        self._specs: list[StorePartitionSpec] = []

    def more(self, count: int) -> list[Command]:
        """Return the next commands."""
        made = list(commands(self._sent, count, self._sent))
        self._sent += count
        return made

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run the application, and feed it until the end of the block."""
        stop = threading.Event()

        def feed() -> None:
            while not stop.is_set():
                self.app.send(self.more(200))

        with self.app.running(self.state_dir, STORES, self.more(6_000), config=self.config):
            feeding = threading.Thread(target=feed)
            feeding.start()
            try:
                yield
            finally:
                stop.set()
                feeding.join()

    def specs(self) -> list[StorePartitionSpec]:
        """Find the stores as `verify --live` does, once."""
        if self._specs:
            return self._specs
        where = Where(self.app.cluster, self.state_dir)
        asked = PartitionSelection(
            where,
            applications=[self.app.application_id],
            guarantee=self.guarantee,
            retentions=[f"{store.name}={store.retention_ms}" for store in STORES if store.kind != "kv"],
        )

        def found() -> list[StorePartitionSpec]:
            chosen = choose(asked, self.app.cluster.topics, without_lock="always")
            return [] if any(store.trouble for store in chosen.discovered) else chosen.specs

        # Before its first rows are on disk, nothing shows the kind of a windowed store.
        self._specs = wait_for(found, "rows of each store on disk")
        return self._specs

    def look(self, options: VerifyOptions = ONE_LOOK) -> dict[str, VerifyRow]:
        """Verify all stores."""
        return {row.store: row for row in verify_live(self.specs(), options)}


@pytest.fixture
def life(
    kafka_streams: Callable[..., KafkaStreams], driver: Driver, tmp_path: Path, request: pytest.FixtureRequest
) -> Life:
    """The application of a cell."""
    guarantee, transactional = CELLS[request.param]
    app = kafka_streams()
    if transactional:
        (tmp_path / "driver").mkdir()
        app = KafkaStreams(other_driver(driver, TRANSACTIONAL_VERSION, tmp_path / "driver"), app.bootstrap_servers)
    return Life(app, tmp_path / "state", guarantee, TRANSACTIONAL_STORES if transactional else {})


def statuses(rows: Sequence[dict[str, VerifyRow]]) -> set[tuple[Status, str]]:
    return {(row.status, row.detail) for found in rows for row in found.values()}


@pytest.mark.long
@pytest.mark.parametrize("life", CELLS, indirect=True)
def test_twenty_looks_at_a_writing_application_raise_no_alarm(life: Life) -> None:
    looks: list[dict[str, VerifyRow]] = []

    def has_grown(store: Store) -> bool:
        before, after = looks[0][store.name].disk_offset, looks[-1][store.name].disk_offset
        assert before is not None
        assert after is not None
        return after > before

    def looked_often() -> bool:
        looks.append(life.look())
        return len(looks) >= 20 and all(map(has_grown, STORES))

    with life.writing():
        wait_for(looked_often, "all stores to have grown on disk")
    assert statuses(looks) == {(Status.PROVEN, "")}
    for store in STORES:
        offsets = [offset for found in looks if (offset := found[store.name].disk_offset) is not None]
        assert offsets == sorted(offsets)


def differing(row: VerifyRow) -> set[tuple[bytes, str]]:
    """Return the keys that a row of a divergent store names."""
    assert (row.status, row.action) == (Status.DIVERGED, Action.BY_HAND), row.detail
    assert row.contents is not None
    return {(bytes.fromhex(each.key or ""), each.found) for each in row.contents.first}


@pytest.mark.short_for("exactly once")
@pytest.mark.parametrize("life", CELLS, indirect=True)
def test_a_changed_row_and_a_lost_one_are_found_while_it_runs(life: Life) -> None:
    planted = [Command("plain", key, b"v", T0) for key in (b"changed", b"lost")]
    life.app.write(life.state_dir, STORES, [*planted, *life.more(1_000)], config=life.config)
    (plain,) = (spec for spec in life.specs() if spec.store.name == "plain")
    database = RocksDB(plain.live, ("default",))
    database.write({"default": {b"changed": b"other", b"lost": None}})
    database.sync()
    database.close()
    with life.writing():
        found = life.look(CONFIRMED)
    assert differing(found.pop("plain")) == {(b"changed", "other value"), (b"lost", "only in log")}
    assert statuses([found]) == {(Status.PROVEN, "")}


@pytest.mark.long
@pytest.mark.parametrize("life", CELLS, indirect=True)
def test_a_foreign_record_in_the_changelog_is_found_while_it_runs(life: Life) -> None:
    with life.writing():
        produce(life.app.bootstrap_servers, changelog_topic(life.app.application_id, "plain"), [(b"foreign", b"x")])
        wait_for(lambda: life.look()["plain"].status is Status.UNCONFIRMED, "the disk to be past the record")
        found = life.look(CONFIRMED)
    assert differing(found.pop("plain")) == {(b"foreign", "only in log")}
    assert statuses([found]) == {(Status.PROVEN, "")}


@pytest.mark.long
@pytest.mark.parametrize("life", CELLS, indirect=True)
def test_a_kill_and_a_replay_raise_no_alarm(life: Life) -> None:
    life.app.write(life.state_dir, STORES, life.more(1_000), config=life.config)
    life.specs()
    life.app.die(life.state_dir, STORES, life.more(3_000), config=life.config, once=life.state_dir.with_name("once"))
    looks, runs = [life.look()], threading.Event()

    def look_on() -> None:
        while not runs.is_set():
            looks.append(life.look())

    looking = threading.Thread(target=look_on)
    looking.start()
    try:
        with life.writing():
            runs.set()
            looking.join()
            confirmed = life.look(CONFIRMED)
    finally:
        runs.set()
        looking.join()
    assert len(looks) > 1
    # A store that was wiped has no rows on disk at first.
    possible = {Status.PROVEN, Status.UNCONFIRMED, Status.LOCKED, Status.IN_USE}
    assert {status for status, _ in statuses(looks)} <= possible
    assert statuses([confirmed]) == {(Status.PROVEN, "")}


@pytest.mark.long
@pytest.mark.parametrize("life", CELLS, indirect=True)
def test_a_drill_proves_a_running_application_and_leaves_it_alone(life: Life, tmp_path: Path) -> None:
    with life.writing():
        specs = life.specs()
        rows = [drill(DrillSpec(spec, RestoreObjectives(), "run", 1 << 24, tmp_path / "drills")) for spec in specs]
        assert statuses([life.look(CONFIRMED)]) == {(Status.PROVEN, "")}
    assert {row.store: (row.verdict, row.detail) for row in rows} == {store.name: ("proven", "") for store in STORES}
    assert all(row.rows > 0 for row in rows)
    assert not [*(tmp_path / "drills").iterdir()]
    assert not (life.state_dir / OWN_DIRECTORY).exists()
