"""Tasks with stores without a changelog are killed at each step of a commit: no update is lost or applied twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.children import Kill
from tests.faults.unlogged import Counting

LONG = pytest.mark.long
_FIRST, _SECOND = 100, 400
COMMITTING = [
    Kill("commit in its file, which is not in place", 2),
    Kill("commit prepared, Kafka not committed", 5),
    Kill("flushed, input offsets not sent", 2),
    Kill("flushed, not committed", 2),
    Kill("Kafka committed, stores not", 2),
    Kill("prepared commit decided, not applied", 5),
    Kill("segment committed", 7),
    Kill("store committed", 6),
    Kill("stores committed", 2),
    Kill("store closed", 2),
    Kill("stores closed, nothing recorded"),
    Kill("file of a commit removed", 2),
]
#: After a kill between the commits of Kafka and of the stores.
RECOVERING = [
    Kill("commit repeated", 2),
    Kill("commits repeated and on disk, their files still there", 2),
    Kill("prepared commits completed, their files still there", 2),
    Kill("transactions initialized"),
    Kill("recovered"),
]
_SHORT = {"commit prepared, Kafka not committed", "Kafka committed, stores not", "prepared commit decided, not applied"}


def _one_of(kills: list[Kill]) -> list[object]:
    return [pytest.param(kill, marks=() if kill.point in _SHORT else LONG, id=kill.point) for kill in kills]


@pytest.mark.behaviour("U1")
@pytest.mark.parametrize("kill", _one_of(COMMITTING))
def test_a_kill_during_a_commit_loses_and_doubles_nothing(bootstrap_servers: str, tmp_path: Path, kill: Kill) -> None:
    counting = Counting(bootstrap_servers, tmp_path)
    counting.send(_FIRST)
    counting.run()
    counting.send(_SECOND)
    counting.child(kill=kill).killed()
    counting.run()
    counting.check()


@LONG
@pytest.mark.behaviour("U1")
@pytest.mark.parametrize("kill", _one_of(RECOVERING))
def test_a_kill_while_a_commit_is_completed_loses_and_doubles_nothing(
    bootstrap_servers: str, tmp_path: Path, kill: Kill
) -> None:
    counting = Counting(bootstrap_servers, tmp_path)
    counting.send(_FIRST)
    counting.run()
    counting.send(_SECOND)
    counting.child(kill=Kill("Kafka committed, stores not", 3)).killed()
    counting.child(kill=kill).killed()
    counting.run()
    counting.check()
