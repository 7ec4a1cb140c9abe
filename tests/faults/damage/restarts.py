"""Restarts of an application that is whole, and verification after each: it may never cry wolf.

A run ends cleanly, or is killed at a point drawn from a seed. Then every store is verified at every depth. A store is
OK or EMPTY; after a kill it may lag by what a tail mends, and one without transactions may be unclean, which it is.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from statestore.definitions.fields import Engine
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import RestoreSpec, restore
from statestore.reports import Action, Status
from statestore.requests.restore import RestoreRequest
from statestore.requests.verify import DEPTHS
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.faults import oracle
from tests.faults.children import Kill
from tests.faults.made import processor_subject
from tests.faults.subject import Subject

#: Points that every run reaches that has input.
_POINTS = (
    "database opened, not recorded",
    "databases recorded, not marked open",
    "transactions initialized",
    "recovered",
    "during produce",
    "flushed, not committed",
    "Kafka committed, stores not",
    "store committed",
    "stores committed",
    "before close",
    "store closed",
    "stores closed, nothing recorded",
    "store recorded, not sealed",
    "store sealed, mode not forgotten",
)
_RUN_BYTES = 1 << 16


class Restarts:
    """An application that is restarted again and again.

    Attributes
    ----------
    seen
        How often each status was found.
    """

    def __init__(self, servers: str, directory: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        others: dict[str, Engine] = {} if seed % 2 else {"latest": "rocksDB", "visits": "rocksDB"}
        self.subject: Subject = processor_subject(servers, directory, others=others, partitions=1 + seed % 2)
        self.seen: Counter[Status] = Counter()

    def verify_before_anything(self) -> None:
        """Verify stores that are not there yet."""
        self._verify_all({Status.EMPTY})

    def restart(self) -> None:
        """Process some input, or none, and end well or not; verify; now and then restore what lags."""
        chance, subject = self._chance, self.subject
        clean = not self.seen[Status.OK] or chance.random() < 0.6  # what was killed first may have made no store yet
        if not clean or chance.random() < 0.9:
            subject.produce(chance.randint(5, 25), jump=chance.random() < 0.1)
        if clean:
            subject.run()
            self._verify_all({Status.OK, Status.EMPTY})
            return
        kill = Kill(chance.choice(_POINTS))
        subject.child(kill=kill).killed()
        self._verify_all({Status.OK, Status.EMPTY, Status.LAGGING, Status.UNCLEAN}, str(kill))
        if chance.random() < 0.5:
            self._mend()

    def end(self) -> None:
        """Run to the end of the input; everything is as it must be."""
        self.subject.run()
        self._verify_all({Status.OK, Status.EMPTY})
        oracle.check(self.subject)
        self._verify_all({Status.OK, Status.EMPTY})

    def _verify_all(self, expected: set[Status], after: str = "a clean end") -> None:
        for spec in self._specs():
            for depth in DEPTHS:
                row = verify(spec, VerifyOptions(depth))
                assert row.status in expected, f"{row.label} after {after}, {depth}: {row.status}: {row.detail}"
                if row.status is Status.LAGGING:
                    assert row.action is Action.TAIL, f"{row.label} after {after}, {depth}: {row.detail}"
                if row.status is Status.UNCLEAN:
                    assert spec.store.engine == "rocksDB", f"{row.label} after {after}, {depth}: {row.detail}"
                self.seen[row.status] += 1

    def _mend(self) -> None:
        for spec in self._specs():
            found = verify(spec)
            row = restore(RestoreSpec(spec, RestoreRequest(), "mended", _RUN_BYTES))
            assert row.failure is None, f"{row.label}: {row.failure}"
            assert row.mode == {Action.NONE: None, Action.TAIL: "tail", Action.FULL: "full"}[found.action]
            again = verify(spec)
            assert again.status in (Status.OK, Status.EMPTY), f"{row.label}: {again.status}: {again.detail}"

    def _specs(self) -> list[StorePartitionSpec]:
        return [
            task.store_partition(store.name)
            for task in self.subject.specs()
            for store in self.subject.definition.stores
        ]
