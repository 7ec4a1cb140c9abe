"""Every store of every Kafka Streams since 3.9, under both guarantees: verified, restored, broken and mended.

`make interop` runs all of it and writes docs/compatibility.md (compatibility.py); `make test` runs one column.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import get_args

import joined_streams
import pytest
from joined_streams import JOINED
from kafka_streams import (
    EVERY_KIND,
    Command,
    Contents,
    Driver,
    KafkaStreams,
    Row,
    Store,
    StorePartition,
    other_driver,
)
from rocksdict import Options, Rdict
from shared_state import KEYS, SPAN_MS, random_commands, recent
from stopped import Stopped

from demo.kafka_jars import KAFKA_VERSION
from statestore.formats.versioned_row import default_segment_interval_ms
from statestore.model import StoreFormat
from statestore.reports import Action, Status, VerifyRow
from statestore.verification.options import Depth
from tests.integration.broker import T0
from tests.interop.compatibility import GUARANTEES, VERSIONS, Column

VERSIONED = Store("versioned", layout="versioned", keys=tuple(KEYS))
STORES = [
    *EVERY_KIND,
    Store("closed-window", "window", layout="time-ordered"),
    Store("closed-sliding-window", "window", layout="sliding"),
    Store("closed-session", "session", layout="time-ordered"),
    VERSIONED,
    Store("headers-kv", format=StoreFormat.HEADERS),
    Store("headers-window", "window", StoreFormat.HEADERS),
    Store("headers-session", "session", StoreFormat.HEADERS),
    Store("headers-closed-window", "window", layout="time-ordered-headers"),
    Store("headers-closed-sliding-window", "window", layout="sliding-headers"),
    Store("headers-closed-session", "session", layout="time-ordered-headers"),
    *JOINED,
]
#: By store: the first version that has it; a store that is not here is in all of them.
SINCE = {store.name: KAFKA_VERSION for store in STORES if store.name.startswith("headers-")}
#: Stream time of versioned stores (ms), by how often their application was run.
ENDS = (T0 - SPAN_MS, T0)
WHOLE = (Status.OK, "")


#: What runs with `make test`.
SHORT = Column(KAFKA_VERSION, "exactly_once_v2")
SHORT_STORES = ("ts-kv",)
TIMES_IN_FRONT = ("time-ordered", "sliding", "time-ordered-headers", "sliding-headers")
#: By what is done to a store: how it is found.
BROKEN = {"a row changed": {Status.DIVERGED}, "a row removed": {Status.DIVERGED}, "a file cut": {Status.CORRUPT}}


def cells(short: Sequence[pytest.MarkDecorator] = ()) -> Iterator[object]:
    """Yield every column with each of its stores; all but `SHORT_STORES` of `SHORT` are left to `make interop`.

    Parameters
    ----------
    short
        Marks of those that are not.
    """
    for version in VERSIONS:
        for guarantee in GUARANTEES:
            column = Column(version, guarantee)
            for store in stores_of(version):
                is_short = column == SHORT and store.name in SHORT_STORES
                marks = short if is_short else [pytest.mark.interop]
                yield pytest.param(store, column, id=f"{column}-{store.name}", marks=marks)


def stores_of(version: str) -> list[Store]:
    """Stores that a version has."""
    return [store for store in STORES if VERSIONS.index(SINCE.get(store.name, VERSIONS[0])) <= VERSIONS.index(version)]


def each(found: Iterator[object]) -> pytest.MarkDecorator:
    """Run a test for cells; those of a column share what it has filled while they come behind each other."""
    return pytest.mark.parametrize(("store", "filled"), list(found), indirect=["filled"], scope="module")


each_cell = each(cells())
each_cell_of_make_faults = each(cells([pytest.mark.long]))
each_cell_of_make_interop = each(cells([pytest.mark.interop]))


class Filled:
    """A stopped application, what it had, and what it had when we had restored it of nothing."""

    def __init__(self, stopped: Stopped, stores: list[Store], directory: Path) -> None:
        self.stopped, self.stores, self._directory = stopped, stores, directory
        self._reads = itertools.count()
        self.contents = self.read(stopped)

    def read(self, stopped: Stopped, end: int = ENDS[0]) -> Contents:
        """Start Kafka Streams on a directory, and return what it finds; the log of a versioned store grows by that.

        Parameters
        ----------
        end
            Stream time (ms) of versioned stores.
        """
        found = stopped.app.read(
            stopped.state_dir,
            self.stores,
            waking(self.stores, end, b"read %d" % next(self._reads)),
            config=stopped.config,
            as_of=[end - past_ms for past_ms in range(0, VERSIONED.retention_ms, VERSIONED.retention_ms // 7)],
        )
        part = StorePartition(VERSIONED.name)
        return replace(found, rows={**found.rows, part: within_history(found.rows.get(part, []), end)})

    @cached_property
    def caught_up(self) -> tuple[dict[str, str], dict[str, VerifyRow], Contents, Contents]:
        """How a directory that lags was caught up, what it is then, what is in it, and what is to be in it.

        From here on the first directory lags, too.
        """
        lagging, later = (self.stopped.copy(self._directory / name) for name in ("lagging", "later"))
        more = [*waking(self.stores, ENDS[0], b"later"), *commands(self.stores, seed=2, begin=ENDS[0])]
        later.app.write(later.state_dir, self.stores, more, config=later.config)
        expected = self.read(later, ENDS[1])
        restored = {row.store: row.outcome for row in lagging.restored()}
        return restored, lagging.verified(depth="deep"), self.read(lagging, ENDS[1]), expected

    @cached_property
    def again(self) -> tuple[dict[str, VerifyRow], Contents]:
        """What a directory that we built is, and what Kafka Streams finds in it."""
        built = self.stopped.copy(self._directory / "built")
        shutil.rmtree(built.directory)
        built.restored()
        return built.verified(depth="deep"), self.read(built)


@pytest.fixture(scope="module")
def filled(
    request: pytest.FixtureRequest, driver: Driver, bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Filled:
    """The application of a column, which has filled all stores of its version."""
    column: Column = request.param
    directory = tmp_path_factory.mktemp(f"column-{column.version}")
    its_driver = driver if column.release == KAFKA_VERSION else other_driver(driver, column.release, directory)
    stores = [store for store in stores_of(column.version) if store in wanted(request)]
    app = KafkaStreams(its_driver, bootstrap_servers, changelog_config={}, joins=not set(JOINED).isdisjoint(stores))
    stopped = Stopped(app, directory / "state", column.guarantee, column.settings)
    app.write(stopped.state_dir, stores, commands(stores), config=stopped.config)
    stopped.keep_known()  # that is enough to restore a store that is lost
    return Filled(stopped, stores, directory)


def wanted(request: pytest.FixtureRequest) -> list[Store]:
    """Return the stores of a column that tests of this run are about."""
    found = [getattr(item, "callspec", None) for item in request.session.items]
    return [one.params["store"] for one in found if one is not None and one.params.get("filled") == request.param]


def commands(stores: Sequence[Store], seed: int = 1, begin: int = ENDS[0] - SPAN_MS) -> list[Command]:
    """Return what is done to stores: puts, deletes and reads, out of order, some of what has expired."""
    own = [store for store in stores if store not in JOINED]
    found = recent(list(random_commands(own, 250 * len(own), seed, begin)))
    # Nulls of a store that retains duplicates: see test_kafka_streams_restored.py.
    found = [one for one in found if not (one.store == "twice" and one.op == "delete")]
    return found if own == stores else [*found, *joined_streams.commands(1_500, seed)]


def waking(stores: Sequence[Store], end: int, key: bytes) -> list[Command]:
    """Return puts of a new key, one in each segment of a versioned store.

    Kafka Streams, started anew, knows neither its stream time nor the segments that it does not write to.
    """
    begin, interval = end - VERSIONED.retention_ms, default_segment_interval_ms(VERSIONED.retention_ms)
    times = range(begin - interval, end + 1, interval) if VERSIONED in stores else ()
    return [Command(VERSIONED.name, key, b"awake", T0, time) for time in times]


def within_history(rows: Sequence[Row], end: int) -> list[Row]:
    """Return what a versioned store answers for sure: older versions go with their segments, sooner or later."""
    begin = end - VERSIONED.retention_ms
    return [row for row in rows if row.start is None or row.end is None or row.end > begin]


@each_cell_of_make_faults
def test_it_is_whole_at_every_depth(filled: Filled, store: Store) -> None:
    assert len(filled.contents.rows[StorePartition(store.name)]) > 15, "worth comparing"
    assert store.kind == "kv" or len(filled.stopped.databases(store)) > 1, "worth comparing"
    for depth in get_args(Depth):
        row = filled.stopped.verified(store.name, depth=depth)[store.name]
        assert (row.status, row.detail) == WHOLE, depth


@each_cell_of_make_faults
def test_what_is_broken_is_found_and_mended(filled: Filled, store: Store, tmp_path: Path) -> None:
    for number, (what, found_as) in enumerate(BROKEN.items()):
        broken = filled.stopped.copy(tmp_path / str(number))
        newest = broken.databases(store)[-1]
        if what == "a file cut":
            sst = max(newest.glob("*.sst"), key=lambda path: path.stat().st_size)
            sst.write_bytes(sst.read_bytes()[: sst.stat().st_size // 2])
        else:
            change_a_row(newest, store, remove=what == "a row removed")
        depth: Depth = "scan" if what == "a file cut" else "deep"
        row = broken.verified(store.name, depth=depth)[store.name]
        assert row.status in found_as, (what, row)
        assert row.action is Action.FULL, what
        # Rows that are only others are seen by a deep verification alone, and a restore looks less deep by itself.
        how = {} if what == "a file cut" else {"mode": "full", "force": True}
        assert [row.outcome for row in broken.restored(store.name, **how)] == ["restored"], what
        row = broken.verified(store.name, depth="deep")[store.name]
        assert (row.status, row.detail) == WHOLE, what
        shutil.rmtree(broken.state_dir)


@pytest.mark.behaviour("R15")
@each_cell
def test_kafka_streams_starts_on_what_we_restored_of_nothing(filled: Filled, store: Store) -> None:
    rows, contents = filled.again
    part = StorePartition(store.name)
    assert (rows[store.name].status, rows[store.name].detail) == WHOLE
    assert contents.restored[part] == 0
    assert contents.rows[part] == filled.contents.rows[part]


@each_cell_of_make_interop
def test_one_that_lags_is_caught_up_with_its_log(filled: Filled, store: Store) -> None:
    # Behind the tests of what was there: the logs grow.
    restored, rows, contents, expected = filled.caught_up
    part = StorePartition(store.name)
    assert restored[store.name] == "restored"
    assert (rows[store.name].status, rows[store.name].detail) == WHOLE
    assert contents.restored[part] == 0
    assert contents.rows[part] == expected.rows[part]


def change_a_row(database: Path, store: Store, *, remove: bool) -> None:
    """Change, or remove, a row of a database; nothing but its rows tells that anything was done to it."""
    last_write_s = max(path.stat().st_mtime for path in database.glob("*.sst"))
    families = Rdict.list_cf(str(database))
    opened = Rdict(str(database), Options(raw_mode=True), {name: Options(raw_mode=True) for name in families})
    try:
        for name in sorted(families, key=lambda name: name == "default"):
            if name == "offsets":
                continue
            family = opened.get_column_family(name)
            # Rows with their times in front are the first ones, their index the last; a latest version is the last one.
            key, value = next(iter(family.items(backwards=store.layout not in TIMES_IN_FRONT)), (None, None))
            if key is None:
                continue
            if remove:
                del family[key]
            else:
                family[key] = value + b"!"
            family.flush()
            break
        else:
            raise AssertionError(f"{database} has no row")
    finally:
        opened.close()
    for path in database.iterdir():
        os.utime(path, (last_write_s, last_write_s))
