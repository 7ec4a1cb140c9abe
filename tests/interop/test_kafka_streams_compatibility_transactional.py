"""Stores of Kafka Streams 4.4 with transactions (KIP-892): running, killed, without transactions again, and warmed.

Further steps of one column of the matrix (compatibility.py). They work on one directory, step by step, for all stores
of the column at once; each test looks at one store.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from joined_streams import JOINED
from kafka_streams import TRANSACTIONAL_VERSION, Command, Contents, Store, StorePartition
from stopped import Stopped
from test_kafka_streams_compatibility import (
    ENDS,
    WHOLE,
    Filled,
    commands,
    each,
    filled,
    stores_of,
)

from statestore.reports import Status, VerifyRow
from tests.interop.compatibility import GUARANTEES, NOT_KILLED, TRANSACTIONAL, Column

pytestmark = pytest.mark.long  # another version of Kafka Streams is fetched

#: pytest finds the fixture by this name.
__all__ = ["filled"]

#: What `make faults` runs of the column; `make interop` runs all of it.
FAULTS, FAULTS_STORES = Column(TRANSACTIONAL, "exactly_once_v2"), ("window", "session")
#: `make test` runs this one.
SHORT = "ts-kv"


def cells() -> Iterator[object]:
    """Yield the stores of the column under both guarantees."""
    for guarantee in GUARANTEES:
        column = Column(TRANSACTIONAL, guarantee)
        for store in stores_of(TRANSACTIONAL):
            if store.name in NOT_KILLED:
                continue
            of_faults = column == FAULTS and store.name in FAULTS_STORES
            marks = [pytest.mark.long if of_faults else pytest.mark.interop]
            if column == FAULTS and store.name == SHORT:
                marks = []
            yield pytest.param(store, column, id=f"{column}-{store.name}", marks=marks)


each_cell = each(cells())


class Met(NamedTuple):
    """A directory as it was met, what it was after a restore, and what Kafka Streams found in it.

    Attributes
    ----------
    found, mended
        Results of verification by store, before the restore and in depth after it.
    first, contents
        What Kafka Streams restored at its first and second start, and the rows that it returned. Until it has processed
        or restored a record, it does not know its stream time, so only rows of second starts are compared.
    expected
        The second start on a copy of the directory, which Kafka Streams had restored itself.
    """

    found: dict[str, VerifyRow]
    mended: dict[str, VerifyRow]
    first: Contents
    contents: Contents
    expected: Contents


class Life:
    """What becomes of one directory, step by step."""

    def __init__(self, filled: Filled, directory: Path) -> None:
        self._filled, self._directory, self._seed = filled, directory, 10
        self._own = [store for store in filled.stores if store not in JOINED]
        state = filled.stopped.copy(directory / "state")
        with state.app.running(state.state_dir, filled.stores, self._more(), config=state.config):
            self.running = state.verified(depth="deep")
        state.app.write(state.state_dir, filled.stores, self._more(), crash=True, config=state.config)
        self.outside = self._met(state)
        once = directory / "halts"
        state.app.die(state.state_dir, filled.stores, self._more(), config=state.config, once=once)
        assert not once.exists(), "it was killed in the transaction"
        self.inside = self._met(state)
        off = replace(state, settings={})
        self.off = filled.read(off, ENDS[1])
        self.after_off = off.verified(depth="deep")
        self.on = filled.read(state, ENDS[1])
        shutil.rmtree(state.directory)
        self.warmed = _warm(state)
        self.after_warming = filled.read(state, ENDS[1])

    def _more(self) -> list[Command]:
        self._seed += 1
        return commands(self._own, self._seed, ENDS[0])

    def _met(self, state: Stopped) -> Met:
        alone = state.copy(self._directory / f"alone-{self._seed}")
        found = state.verified()
        state.restored()
        mended = state.verified(depth="deep")
        first, contents, _, expected = (self._filled.read(stopped, ENDS[1]) for stopped in (state, state, alone, alone))
        return Met(found, mended, first, contents, expected)


def _warm(state: Stopped) -> str:
    """Warm all tasks of an empty directory, and return the output."""
    where = ["--state-dir", str(state.state_dir), "--bootstrap-servers", state.app.bootstrap_servers]
    what = ["--application", state.app.application_id, "--kafka-streams", TRANSACTIONAL_VERSION]
    argv = [sys.executable, "-m", "statestore.cli", "warm", *where, *what, "--max-bytes", "1Gi", "--require"]
    argv += ["--at-least-once"] if state.guarantee == "at_least_once" else []
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def life(filled: Filled, tmp_path_factory: pytest.TempPathFactory) -> Life:
    return Life(filled, tmp_path_factory.mktemp("transactional"))


def _assert_met(met: Met, store: Store) -> None:
    part = StorePartition(store.name)
    assert met.found[store.name].status in (Status.OK, Status.LAGGING), met.found[store.name]
    assert (met.mended[store.name].status, met.mended[store.name].detail) == WHOLE
    assert (met.first.restored[part], met.contents.restored[part]) == (0, 0)
    assert met.contents.rows[part] == met.expected.rows[part]


@each_cell
def test_one_that_runs_is_left_alone(life: Life, store: Store) -> None:
    assert life.running[store.name].status is Status.LOCKED


@pytest.mark.behaviour("T17")
@each_cell
def test_one_that_was_killed_between_transactions_is_caught_up(life: Life, store: Store) -> None:
    _assert_met(life.outside, store)


@pytest.mark.behaviour("T17")
@each_cell
def test_one_that_was_killed_in_a_transaction_has_nothing_of_it(life: Life, store: Store) -> None:
    _assert_met(life.inside, store)


@pytest.mark.behaviour("T17")
@each_cell
def test_one_whose_transactions_were_turned_off_stays_usable(life: Life, store: Store) -> None:
    part = StorePartition(store.name)
    assert (life.off.restored[part], life.on.restored[part]) == (0, 0)
    assert life.off.rows[part] == life.on.rows[part] == life.inside.contents.rows[part]
    assert (life.after_off[store.name].status, life.after_off[store.name].detail) == WHOLE


@pytest.mark.behaviour("T17")
@each_cell
def test_kafka_streams_starts_on_what_was_warmed(life: Life, store: Store) -> None:
    part = StorePartition(store.name)
    assert store.name in life.warmed
    assert life.after_warming.restored[part] == 0
    assert life.after_warming.rows[part] == life.on.rows[part]
