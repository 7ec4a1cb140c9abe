"""What is killed where: campaigns of kills, drawn from a seed alone, so that the seed repeats them.

A campaign kills one application again and again. Which points an application can reach depends on its stores and on
what the past left; each point therefore says what it needs, and an application takes the points that were killed least.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.fields import Engine, Guarantee
from statestore.model import StoreFormat
from tests.faults.applications import with_aggregations, with_processor
from tests.faults.children import Kill

ENGINES: tuple[Engine, ...] = ("txn_rocksDB", "rocksDB", "in_memory")
#: Stores that are segmented.
_SEGMENTED = ("hourly", "visits")
#: Kills of one application.
LENGTH = 12
#: What was killed before a point of recovery can be reached.
_LEFT_OPEN, _NOT_IN_STORES = Kill("flushed, not committed"), Kill("Kafka committed, stores not")


@dataclass(frozen=True)
class Application:
    """An application to be killed.

    Attributes
    ----------
    upgraded
        Whether the plain store `counts` is to be defined as timestamped later.
    """

    kind: Literal["processor", "aggregations"]
    guarantee: Guarantee
    engines: dict[str, Engine]
    formats: dict[str, StoreFormat]
    partitions: int
    commit_interval_ms: int
    upgraded: bool

    def definition(self, name: str) -> ApplicationDefinition:
        """Define it under a name."""
        settings: dict[str, Any] = {"commit_interval_ms": self.commit_interval_ms, "uncommitted_max_bytes": 1_024}
        if self.kind == "processor":
            return with_processor(name, self.engines, self.formats, self.guarantee, **settings)
        return with_aggregations(name, self.engines, self.guarantee, **settings)

    @property
    def exactly_once(self) -> bool:
        """Whether it commits with transactions."""
        return self.guarantee == "exactly_once_v2"

    def has(self, engine: Engine, stores: tuple[str, ...] = ("counts", "latest", "hourly", "visits")) -> bool:
        """Whether one of the stores that subtopology 0 has is kept by this engine."""
        return any(self.engines[name] == engine for name in stores if name in self.engines)

    @property
    def persistent(self) -> int:
        """How many of the stores of subtopology 0 are on disk."""
        return sum(self.engines[name] != "in_memory" for name in self.engines if name != "grouped")


@dataclass(frozen=True)
class Point:
    """A point at which a process can be killed.

    Attributes
    ----------
    most
        How often a run reaches it at least; 0: not at all in this application.
    before
        Kills that must have come before, without a complete run in between.
    jump, big
        What the input must have.
    legacy
        Whether the stores' offsets must be in a checkpoint file.
    upgrade
        Whether the upgrade must come just before.
    logged
        Whether the changelogs must have something.
    """

    name: str
    most: Callable[[Application], int] = lambda _: 1
    before: Callable[[Application], tuple[Kill, ...]] = lambda _: ()
    jump: bool = False
    big: bool = False
    legacy: bool = False
    upgrade: bool = False
    logged: bool = False


def _records(application: Application) -> int:
    return 20 if application.kind == "processor" else 3


def _commits(application: Application) -> int:
    # Of two partitions each has too few keys to fill what one commit takes.
    big = application.kind == "processor" and application.partitions == 1
    return 3 if big and application.has("txn_rocksDB", ("counts", "latest")) else application.partitions


def _persistent(application: Application) -> int:
    return application.persistent


def _replayed(application: Application) -> tuple[Kill, ...]:
    return (_NOT_IN_STORES,) if not application.has("in_memory") else ()


def _takes_over(application: Application) -> int:
    return int(application.kind == "processor" and application.engines["counts"] != "in_memory")


def _spills(application: Application) -> int:
    return int(application.kind == "processor" and application.has("txn_rocksDB", ("latest",)))


def _rebuilds(application: Application) -> int:
    return int(application.exactly_once and application.has("rocksDB"))


def _drops_segments(application: Application) -> int:
    return int(any(application.engines[name] != "in_memory" for name in _SEGMENTED))


def _commits_to_files(application: Application) -> int:
    return int(application.has("txn_rocksDB", _SEGMENTED))


def _migrates(application: Application) -> int:
    return int(application.upgraded)


POINTS = (
    Point("task begun", lambda application: application.partitions),
    Point("database opened, not recorded", _persistent),
    Point("databases recorded, not marked open", _persistent),
    Point("transactions initialized", lambda application: application.partitions),
    Point("recovered", lambda application: application.partitions),
    Point("before produce", _records),
    Point("during produce", _records),
    Point("before the flush", _commits),
    Point("flushed, input offsets not sent", _commits),
    Point("flushed, not committed", _commits),
    Point("commit sent, answer unseen", lambda application: _commits(application) * application.exactly_once),
    Point("Kafka committed, stores not", _commits),
    Point("commit in its file, not applied", _commits_to_files),
    Point("segment committed", _drops_segments),
    Point("chunk of a spilled commit written", _spills, big=True),
    Point("store committed", lambda application: 4 if application.kind == "processor" else 3),
    Point("stores committed", _commits),
    Point("before close", lambda application: application.partitions),
    Point("store closed", lambda _: 3),
    Point("stores closed, nothing recorded", lambda application: application.partitions),
    Point("store recorded, not sealed", _persistent),
    Point("store sealed, mode not forgotten", _persistent),
    Point("expired segment closed", _drops_segments, jump=True),
    Point("expired segment moved", _drops_segments, jump=True),
    Point("expired segment gone", _drops_segments, jump=True),
    Point("row migrated, the plain one still there", _migrates, upgrade=True),
    Point("Kafka committed, stores not", _migrates, upgrade=True),
    Point("store committed", _migrates, upgrade=True),
    Point("replayed, not committed", before=_replayed, logged=True),
    Point("replayed", before=_replayed, logged=True),
    Point("store rebuilt, not in its place", _rebuilds, before=lambda _: (_LEFT_OPEN,)),
    Point("swap, old store in quarantine", _rebuilds, before=lambda _: (_LEFT_OPEN,)),
    Point("store rebuilt, the old one in quarantine", _rebuilds, before=lambda _: (_LEFT_OPEN,)),
    Point("legacy offset taken over, not on disk", _takes_over, legacy=True),
    Point("legacy offsets taken over, the file still there", _takes_over, legacy=True),
)


@dataclass(frozen=True)
class Fault:
    """A point, the kill at it, and those that come before.

    Attributes
    ----------
    on_disk
        Whether what was written had reached the disk, committed or not.
    first
        Whether no fault of the same seed has the point before this one.
    """

    point: Point
    kills: tuple[Kill, ...]
    on_disk: bool
    first: bool


@dataclass(frozen=True)
class Campaign:
    """Faults of one application, in their order."""

    seed: int
    application: Application
    faults: tuple[Fault, ...]

    @property
    def kills(self) -> int:
        """How many processes are killed."""
        return sum(len(fault.kills) for fault in self.faults)


def plan(seed: int, kills: int) -> list[Campaign]:
    """Draw campaigns with so many kills, or a few more; the last one is shorter where that is enough."""
    used: Counter[Point] = Counter()
    campaigns: list[Campaign] = []
    while sum(campaign.kills for campaign in campaigns) < kills:
        left = kills - sum(campaign.kills for campaign in campaigns)
        campaigns.append(_campaign(seed, len(campaigns), min(left, LENGTH), used))
    return campaigns


def campaigns(seed: int, length: int = LENGTH) -> Iterator[Campaign]:
    """Draw campaigns without end, each with so many kills or one more; they begin as those of `plan`."""
    used: Counter[Point] = Counter()
    return (_campaign(seed, number, length, used) for number in count())


def _campaign(plan_seed: int, number: int, kills: int, used: Counter[Point]) -> Campaign:
    seed = plan_seed * 1_000_003 + number
    draw = random.Random(seed)
    application = _application(draw, number)
    faults: list[Fault] = []
    upgraded = False
    while sum(len(fault.kills) for fault in faults) < kills:
        points = [
            point for point in POINTS if point.most(application) and not (point.upgrade and (upgraded or not faults))
        ]
        draw.shuffle(points)
        point = min(points, key=lambda point: used[point])
        first = not used[point]
        used[point] += 1
        upgraded = upgraded or point.upgrade
        times = 1 if point.before(application) or point.upgrade else draw.randint(1, point.most(application))
        kill = Kill(point.name, times, delay_ms=draw.choice([0.5, 1, 2, 4]))
        faults.append(Fault(point, (*point.before(application), kill), draw.random() < 0.5, first))
    return Campaign(seed, application, tuple(faults))


def _application(draw: random.Random, number: int) -> Application:
    kind: Literal["processor", "aggregations"] = "aggregations" if number % 3 == 2 else "processor"
    guarantee: Guarantee = "at_least_once" if number % 5 == 4 else "exactly_once_v2"
    upgraded = kind == "processor" and number % 2 == 0
    stores = ("counts", "latest", "hourly", "visits") if kind == "processor" else ("counts", "grouped", *_SEGMENTED)
    engines = {name: draw.choices(ENGINES, [5, 3, 2])[0] for name in stores}
    formats = {
        "counts": draw.choice([StoreFormat.PLAIN, StoreFormat.TIMESTAMPED]),
        "latest": draw.choice([StoreFormat.PLAIN, StoreFormat.TIMESTAMPED]),
        "hourly": draw.choice([StoreFormat.PLAIN, StoreFormat.TIMESTAMPED]),
        "visits": StoreFormat.PLAIN,
    }
    if upgraded:
        formats["counts"] = StoreFormat.PLAIN
        engines["counts"] = draw.choice(["txn_rocksDB", "rocksDB"])
    return Application(
        kind, guarantee, engines, formats, draw.choice([1, 1, 2]), draw.choice([20, 600_000, 600_000]), upgraded
    )
