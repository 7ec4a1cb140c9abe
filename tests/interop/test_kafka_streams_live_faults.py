"""Running applications of Kafka Streams are looked at while something happens to them, or to their stores.

What happens to an application is no alarm, and the offsets of each look are those of the application's own notes
(streams_oracle.py). What happens to a store is found by the second look, with the keys.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kafka_streams import Command, Driver, Store, other_driver
from streams_oracle import MINUTE, NEVER, Life, StoreLook, expected, segment_of, stores_of

from demo.kafka_jars import KAFKA_VERSION
from statestore.formats import session_key, window_key
from statestore.model import StoreFormat, changelog_topic
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Action, Status
from statestore.verification.contents import databases
from tests.integration.broker import T0, produce, wait_for
from tests.integration.kinds import stored
from tests.interop.compatibility import TRANSACTIONAL, Column

SEED = int(os.environ.get("FAULTS_SEED", "1"))
COLUMNS = (
    Column(KAFKA_VERSION, "exactly_once_v2"),
    Column(KAFKA_VERSION, "at_least_once"),
    Column(TRANSACTIONAL, "exactly_once_v2"),
)
LOOKS = 20
_LOOKS_S = 240
#: Moves a task soon, and keeps a copy of it on a second instance.
MEMBERS = {
    "num.standby.replicas": "1",
    "consumer.session.timeout.ms": "10000",
    "consumer.heartbeat.interval.ms": "2000",
}
#: Stores that a column cannot have if it is killed. With exactly once, 4.3.1 does not start on these: it opens segments
#: twice (KAFKA-20808). Other columns keep stores after a kill, and take the newest segment's offset for that of all
#: (KAFKA-20663). So rows of older segments are lost, and verification reports `WRONG_OFFSET`.
#: After a replay, 4.3.1 without transactions leaves rows in segments of versioned stores whose oldest version comes
#: twice. It stops at the first one, so the versions after it are lost; verification reports `CORRUPT`.
NOT_AFTER_KILL = {
    COLUMNS[0]: ("sliding", "time-ordered"),
    COLUMNS[1]: ("sliding", "time-ordered", "window", "session", "versioned"),
    COLUMNS[2]: ("sliding", "time-ordered", "window", "session"),
}
#: A look while a store is replaced, restored, or moved may not find it, or find it in two states.
HARMLESS = {Status.PROVEN, Status.UNCONFIRMED, Status.LOCKED, Status.IN_USE}


@pytest.fixture
def make(driver: Driver, bootstrap_servers: str, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Life]:
    """Make the application of a column, which may be killed; arguments as of `Life`."""
    column: Column = request.param
    if column.release != KAFKA_VERSION:
        (tmp_path / "driver").mkdir()
        driver = other_driver(driver, column.release, tmp_path / "driver")

    def of_column(*, killed: bool = False, **arguments: Any) -> Life:
        arguments.setdefault("without", NOT_AFTER_KILL[column] if killed else ())
        return Life(driver, bootstrap_servers, column, tmp_path, SEED, **arguments)

    return of_column


# -- what happens to an application -----------------------------------------------------------------------------------


@contextmanager
def looking(life: Life, specs: list[StorePartitionSpec]) -> Iterator[Callable[[int], None]]:
    """Look at stores all the time, until the end of the block; yield a function that waits for so many more looks."""
    stop, failures = threading.Event(), list[BaseException]()

    def look_on() -> None:
        try:
            while not stop.is_set():
                for spec in [*specs]:
                    life.look(spec)
        except BaseException as error:
            failures.append(error)

    def wait(more: int) -> None:
        enough = {spec.store.name: len(life.looks.get(spec.store.name, ())) + more for spec in specs}
        wait_for(
            lambda: failures or all(len(life.looks.get(name, ())) >= looks for name, looks in enough.items()),
            f"{more} looks",
            _LOOKS_S,
        )

    thread = threading.Thread(target=look_on)
    thread.start()
    try:
        yield wait
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


def write_on(life: Life) -> None:
    """Commit, begin segments, and let others expire."""
    segmented = [store.name for store in life.stores if store.kind != "kv"]
    with life.running(killed=False), looking(life, [*life.specs().values()]) as wait:
        wait(LOOKS)
        wait_for(lambda: all(changed_segments(life.looks[name]) for name in segmented), "segments", _LOOKS_S)


def changed_segments(looks: Sequence[StoreLook]) -> bool:
    """Return whether a segment has begun, and another one has expired, while a store was looked at."""
    segments = [look.before.keys() for look in looks]
    return bool(segments[-1] - segments[0]) and bool(segments[0] - segments[-1])


def restart(life: Life) -> None:
    """End, start, be killed, and replay; be killed again."""
    with life.running(killed=False):
        specs = [*life.specs().values()]
        with looking(life, specs) as wait:
            wait(4)
    with looking(life, specs) as wait:
        with life.running(killed=True):
            wait(6)
        with life.running(killed=True):
            wait(LOOKS - 10)


def change_members(life: Life) -> None:
    """Let a second instance join, which has copies; freeze the one with the task, and fence it, or kill it."""
    with life.running(killed=True) as first:
        specs = [*life.specs().values()]
        with looking(life, specs) as wait:
            wait(4)
            with life.joined("second") as (instance, second):
                specs += life.specs(instance).values()
                wait(8)
                active, exactly_once = life.active, life.column.guarantee == "exactly_once_v2"
                service = (first, second)[active]
                service.send_signal(signal.SIGSTOP if exactly_once else signal.SIGKILL)
                wait_for(lambda: life.active != active, "the other instance to take the task over", _LOOKS_S)
                wait(8)
                service.send_signal(signal.SIGCONT)
                wait(LOOKS - 12)


EVENTS = {
    "commits, new segments, and expiries": write_on,
    "restart, kill, and replay": restart,
    "rebalance, standby, and fenced instance": change_members,
}


CASES = [(column, event) for column in COLUMNS for event in EVENTS]


@pytest.mark.long
@pytest.mark.parametrize(("make", "event"), CASES, indirect=["make"], ids=str)
def test_no_look_at_an_application_that_changes_raises_an_alarm(make: Callable[..., Life], event: str) -> None:
    happen = EVENTS[event]
    life = make(settings=MEMBERS if happen is change_members else {}, killed=happen is restart)
    happen(life)
    checked = 0
    for store in life.stores:
        looks = life.looks[store.name]
        alarms = [look for look in looks if look.row.status not in HARMLESS]
        assert not alarms, (store.name, alarms[0].row.model_dump(exclude_defaults=True))
        assert len(looks) >= LOOKS
        assert sum(look.row.status is Status.PROVEN for look in looks) >= LOOKS // 2
        checked += check_offsets(life, store)
    assert checked >= LOOKS
    assert any(look.committed for looks in life.looks.values() for look in looks)


def check_offsets(life: Life, store: Store) -> int:
    """Check that looks have found the offset of the last put on disk, where it was noted; return how many did."""
    committed = {one.offset: True for one in life.logged(store, read_committed=True)}
    periods, puts = life.periods(), functools.cache(life.puts)
    checked = 0
    for look in life.looks[store.name]:
        of_run = [at for at, one in enumerate(periods) if one.run == look.run and one.first < look.done[0]]
        if not of_run or of_run[-1] != max(at for at in of_run if periods[at].first < look.done[1]):
            continue
        for segment, prefix in look.prefixes.items():
            on_disk = look.before.get(segment)
            if on_disk is None or look.after.get(segment) != on_disk:
                continue  # it was written meanwhile
            its = puts(store, of_run[-1], on_disk.identity)
            noted = [
                sequence
                for sequence, of in zip(its.sequences, its.segments, strict=True)
                if of == segment and 0 < sequence < NEVER
            ]
            if not noted or not min(noted) <= on_disk.sequence < max(noted):
                continue  # something else wrote it, as a standby does
            truth = expected(its, segment, on_disk.sequence, look.log, committed=committed)
            if truth.offset not in committed:
                continue
            found = [(one.first, one.last) for one in prefix.offsets]
            # A delete changes nothing if the put before it was refused as late, which earlier periods do not show.
            if 0 in (at for at, of in zip(its.sequences, its.segments, strict=True) if of == segment):
                assert any(first <= truth.offset <= last for first, last in found), (store.name, segment, look)
            else:
                assert found == [(truth.first, truth.last)], (store.name, segment, look)
            checked += 1
    return checked


WINDOWED = ("window", "session")
ALARMS = {Status.WRONG_OFFSET, Status.DIVERGED}


@pytest.mark.long
@pytest.mark.parametrize("make", COLUMNS[1:], indirect=True, ids=str)
def test_an_alarm_after_a_kill_is_raised_only_for_stores_that_have_lost_rows(make: Callable[..., Life]) -> None:
    life = make(without=[store.name for store in stores_of(KAFKA_VERSION) if store.name not in WINDOWED])
    with life.running(killed=True):
        specs = [*life.specs().values()]
        life.wait_for_kill()
    with life.running(killed=False), looking(life, specs) as wait:
        wait(LOOKS)
    found = life.stopped.verified(depth="deep")
    lost = {spec.store.name: lost_rows(life, spec) for spec in specs}
    for name, rows in lost.items():
        alarms = [look.row for look in life.looks[name] if look.row.status not in HARMLESS]
        assert not alarms or rows, (name, alarms[0])
        assert (found[name].status in ALARMS) == bool(rows), (name, found[name])
    assert any(lost.values()), "the offset of the newest segment is not above what older segments have"


def lost_rows(life: Life, spec: StorePartitionSpec) -> set[bytes]:
    """Return the keys in segments on disk whose last record in the changelog the closed store does not show."""
    store = life.store(spec.store.name)
    kept = databases(spec).keys()
    logged: dict[bytes, bytes | None] = {}
    for record in life.logged(store):
        key = record.key or b""
        start = session_key.decode(key)[2] if store.kind == "session" else window_key.decode(key)[1]
        segment = start - start % MINUTE
        is_late = segment < (record.timestamp - life.retention_ms) // MINUTE * MINUTE
        if segment in kept and not is_late:  # Kafka Streams logs what it does not store, as it comes too late
            logged[key] = record.value
    prefix = 8 if store.format is StoreFormat.TIMESTAMPED else 0
    on_disk = {key: value[prefix:] for key, value in stored(spec, spec.live).items()}
    return {key for key, value in logged.items() if on_disk.get(key) != value}


# -- what happens to a store ------------------------------------------------------------------------------------------

PLANTED = ("plain", "timestamped", "window", "session")
START = T0 - T0 % MINUTE
#: The value of the row whose byte is changed: nothing else has it.
VALUE = uuid4().hex.encode()


def command_for(store: Store, key: bytes, value: bytes | None, *, unlogged: bool = False) -> Command:
    """Return a change of a row, in a window or session if the store has them."""
    start = None if store.kind == "kv" else START
    end = START + 1_000 if store.kind == "session" else None
    return Command(store.name, key, value, T0, start=start, end=end, unlogged=unlogged)


def row_key(store: Store, key: bytes) -> bytes:
    """Return the key of this row."""
    if store.kind == "kv":
        return key
    return session_key.encode(key, START, START + 1_000) if store.kind == "session" else window_key.encode(key, START)


def change_byte(spec: StorePartitionSpec) -> bool:
    """Change the last byte of the value in each file that has it; return whether all copies on disk are changed."""
    changed, found = VALUE[:-1] + b"!", False
    for directory in databases(spec).values():
        for path in directory.glob("*.sst"):
            try:
                content = path.read_bytes()
                if (at := content.find(VALUE)) >= 0:
                    with path.open("r+b") as file:
                        file.seek(at)
                        file.write(changed)
                    return False  # look once more: the file may have been compacted meanwhile
                found |= changed in content
            except FileNotFoundError:
                return False
    return found


def plant(life: Life, spec: StorePartitionSpec, store: Store) -> None:
    """Change a byte of a file, lose a row, and write a foreign record into the changelog of a store in use."""
    wait_for(lambda: change_byte(spec), "the row whose byte is changed")
    life.send(0, command_for(store, b"lost", None, unlogged=True))
    topic = changelog_topic(life.stopped.app.application_id, store.name)
    produce(life.bootstrap_servers, topic, [(row_key(store, b"foreign"), b"x")])


@pytest.mark.long
@pytest.mark.parametrize("make", COLUMNS, indirect=True, ids=str)
def test_what_is_planted_in_a_running_application_is_found_by_the_second_look(make: Callable[..., Life]) -> None:
    life = make(settings={"rocksdb.config.setter": "UncheckedBlocks"}, retention_ms=60 * MINUTE)
    stores = [life.store(name) for name in PLANTED]
    with life.running(killed=False):
        rows = ((b"changed", VALUE), (b"lost", b"v"))
        life.send(0, *(command_for(store, *row) for store in stores for row in rows))
        specs = life.specs()
        for store in stores:
            plant(life, specs[store.name], store)
        for status in (Status.UNCONFIRMED, Status.DIVERGED):
            for store in stores:
                segment = segment_of(store, command_for(store, b"", None))
                life.wait_for_disk(specs[store.name], segment)
                wait_for(lambda spec=specs[store.name]: change_byte(spec), "the changed byte")
                look = life.look(specs[store.name])
                assert look.row.status is status, (store.name, look.row)
        for name in specs.keys() - set(PLANTED):
            assert life.look(specs[name]).row.status is Status.PROVEN, life.looks[name][-1].row
    for store in stores:
        assert named(life.looks[store.name][-1]) == {
            (row_key(store, b"changed"), "other value"),
            (row_key(store, b"lost"), "only in log"),
            (row_key(store, b"foreign"), "only in log"),
        }


def named(look: StoreLook) -> set[tuple[bytes, str]]:
    """Return the keys that a look at a divergent store names."""
    assert look.row.action is Action.BY_HAND
    assert look.row.contents is not None
    return {(bytes.fromhex(each.key or ""), each.found) for each in look.row.contents.first}
