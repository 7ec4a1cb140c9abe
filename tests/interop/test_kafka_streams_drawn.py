"""Applications with drawn names, topologies, and settings: whatever Kafka Streams makes has a row, and nothing else.

The oracle is Kafka Streams' own answer: the topics and the directories that each run has made. All applications of a
draw are in one cluster, and the names of some begin as those of others. FAULTS_SEED repeats a draw.
"""

from __future__ import annotations

import os
import random
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka_streams import Command, Driver, KafkaStreams, Layout, Store

from statestore.cli.selection import Chosen, PartitionSelection, Where, choose
from statestore.cli.verification import exit_code, rows_without_work, verify_all
from statestore.discovery.store import NOT_JUDGED
from statestore.kafka.topics import Topics
from statestore.model import StoreFormat, changelog_topic
from statestore.reports import Status
from statestore.verification.options import VerifyOptions
from tests.integration.broker import T0, create_topic, produce, unique

pytestmark = pytest.mark.long  # three drawn applications

SEED = int(os.environ.get("FAULTS_SEED", "1"))
#: Draws, and applications in each: 200 in all with `make faults`, and the first draw with `make test`.
DRAWS, EACH = 50, 4
_LETTERS = string.ascii_letters + string.digits + "._-"
#: Names that have a meaning elsewhere.
_ODD = (
    *("global", "0_0", "-", "_", "...", ".hidden", "a.1"),
    *("changelog", "x-changelog", "offsets", "default", "rocksdb.0"),
)
_LAYOUTS: Sequence[tuple[str, Layout | None]] = [
    *(("kv", layout) for layout in (None, "headers", "versioned", "in-memory")),
    *(("window", layout) for layout in (None, "headers", "time-ordered", "sliding")),
    *(("session", layout) for layout in (None, "headers")),
]


@dataclass
class Drawn:
    """One application, and what Kafka Streams has made of it.

    Attributes
    ----------
    topics
        Topics that its run has made.
    """

    app: KafkaStreams
    state_dir: Path
    stores: list[Store]
    exactly_once: bool
    topics: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.app.application_id

    @property
    def logged(self) -> set[str]:
        """Stores whose changelogs it has made."""
        found = {re.fullmatch(re.escape(self.name) + "-(.+)-changelog", topic) for topic in self.topics}
        return {match[1] for match in found if match}

    @property
    def on_disk(self) -> set[tuple[str, str]]:
        """Stores and tasks that it has made directories of."""
        found = set()
        directory = self.state_dir / self.name  # there is none if all stores are in memory
        for task in directory.iterdir() if directory.exists() else ():
            if task.is_dir():
                found |= {(path.name, task.name) for path in task.glob("rocksdb/*")}
                found |= {(path.name, task.name) for path in task.iterdir() if path.is_dir() and path.name != "rocksdb"}
        return found

    def chosen(self, topics: Topics) -> Chosen:
        where = Where(self.app.cluster, self.state_dir)
        guarantee = "exactly_once_v2" if self.exactly_once else "at_least_once"
        return choose(PartitionSelection(where, applications=[self.name], guarantee=guarantee), topics)


class Draw:
    """Draws applications for one cluster."""

    def __init__(self, seed: str, driver: Driver, servers: str, directory: Path) -> None:
        self._random = random.Random(seed)
        self._driver = driver
        self._servers = servers
        self._directory = directory
        self._names: list[str] = []

    def name(self, longest: int) -> str:
        """Draw a name that Kafka takes."""
        if self._random.random() < 0.2:
            return self._random.choice(_ODD)
        size = self._random.choice([1, 3, 12, 12, 30, longest])
        return "".join(self._random.choices(_LETTERS, k=min(size, longest))).strip(".") or "x"

    def application(self) -> str:
        """Draw an application.id: often one that begins as another one, and a part of one of its stores."""
        if self._names and self._random.random() < 0.5:
            name = f"{self._random.choice(self._names)}-{self._random.choice(['v2', 'a', self.name(10)])}"
        else:
            name = unique(self.name(90))
        if name in self._names:
            return self.application()
        self._names.append(name)
        return name

    def store(self, name: str) -> Store:
        """Draw a store of any kind."""
        kind, layout = self._random.choice(_LAYOUTS)
        store_format = self._random.choice([StoreFormat.PLAIN, StoreFormat.TIMESTAMPED])
        if kind == "session":
            store_format = StoreFormat.PLAIN
        retention_ms = self._random.choice([600_000, 3_600_000, 86_400_000])
        return Store(name, kind, store_format, retention_ms, 60_000, False, layout)  # type: ignore[arg-type]

    def drawn(self) -> Drawn:
        """Draw an application."""
        partitions = self._random.randint(1, 3)
        topics = {}
        for part in ("tables", "global_tables"):
            if self._random.random() < 0.25:
                topic = create_topic(self._servers, unique(part), partitions, {"cleanup.policy": "compact"})
                produce(self._servers, topic, [(b"a", b"1")], timestamp=T0)
                topics[part] = {self.name(30) + "-of-topic": topic}
        app = KafkaStreams(self._driver, self._servers, partitions, {}, **topics)  # type: ignore[arg-type]
        app.application_id = self.application()
        names = {self.name(200 - len(app.application_id)) for _ in range(self._random.randint(1, 5))}
        names |= {f"v2-{self.name(10)}" for _ in range(self._random.randint(0, 1))}
        stores = [self.store(name) for name in sorted(names)]
        state_dir = self._directory / self._random.choice(["here", "there"])
        return Drawn(app, state_dir, stores, self._random.random() < 0.5)

    def run(self, found: Sequence[Drawn]) -> None:
        """Run the applications one after the other, and note the topics that each has made."""
        runs = []
        for each in found:
            commands = [
                Command(
                    store.name,
                    b"k%d" % number,
                    b"%d" % number,
                    T0 + number,
                    start=T0 + number,
                    end=T0 + number,
                    partition=partition,
                )
                for store in each.stores
                for number in range(3)
                for partition in range(each.app.partitions)
            ]
            config = {} if each.exactly_once else {"processing.guarantee": "at_least_once"}
            runs.append(each.app.writing(each.state_dir, each.stores, commands, config))
        for each, topics in zip(found, self._driver.run_several(runs), strict=True):
            each.topics = frozenset(topics)


def faults(drawn: Drawn, every: Sequence[Drawn]) -> list[str]:
    """Return what is wrong with what we say of an application.

    The owner of a topic may be asked for, or be another application of the draw, if no directory of the store exists.
    """
    topics = drawn.app.cluster.topics
    chosen = drawn.chosen(topics)
    rows = verify_all(chosen.specs, VerifyOptions("deep")) + rows_without_work(chosen, topics)
    others = {topic for other in every if other is not drawn for topic in other.topics}
    in_memory = {store.name for store in drawn.stores if store.layout == "in-memory"}
    in_memory |= {row.store for row in rows if changelog_topic(drawn.name, row.store) in others and "?" in row.task}
    of_disk = {(row.store, row.task) for row in rows if row.store not in in_memory}
    found = [f"no row for {store} of {task}" for store, task in sorted(drawn.on_disk - of_disk)]
    found += [f"a row for {store} of {task}" for store, task in sorted(of_disk - drawn.on_disk)]
    named = {row.store for row in rows} | {store.name for store in chosen.discovered if store.trouble != "foreign"}
    named |= {store.name for store in chosen.discovered if store.trouble == "foreign"} & in_memory
    found += [f"topic of {store} is left out" for store in sorted(drawn.logged - named)]
    made = drawn.logged | {store for store, _ in drawn.on_disk} | in_memory
    found += [f"there is no store {store}" for store in sorted(named - made)]
    found += [
        f"{row.label} is {row.status}: {row.detail}"
        for row in rows
        if row.store not in in_memory and not row.healthy and row.status is not Status.UNKNOWN_FORMAT
    ]
    judged = not any(store.trouble in NOT_JUDGED for store in chosen.discovered)
    if judged != (exit_code(rows) == 0):
        found.append(f"exit code {exit_code(rows)}, {[(store.name, store.trouble) for store in chosen.discovered]}")
    return [f"{drawn.name}: {each}" for each in found]


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=[pytest.mark.long] if number else []) for number in range(DRAWS)]
)
def test_all_that_kafka_streams_makes_has_a_row_and_nothing_else(
    driver: Driver, bootstrap_servers: str, tmp_path: Path, number: int
) -> None:
    seed = f"{SEED}-{number}"
    print(f"FAULTS_SEED={SEED}, draw {number}")
    draw = Draw(seed, driver, bootstrap_servers, tmp_path)
    found = [draw.drawn() for _ in range(EACH)]
    draw.run(found)
    wrong = [fault for each in found for fault in faults(each, found)]
    assert not wrong, "\n".join([f"FAULTS_SEED={SEED}, draw {number}", *wrong])
