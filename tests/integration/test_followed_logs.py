"""A store of Kafka Streams that lags: it gets the rest of its log if that still has every delete, or is built anew.

Nobody knows when such a store was whole last. Only the log can show that nothing was removed from it since.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.selection import Chosen, PartitionSelection, Where, choose
from statestore.errors import InputError, StoreBehindLogStartError
from statestore.kafka.cluster import Cluster
from statestore.recovery import tail
from statestore.reports import Action, Status
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration import compaction
from tests.integration.broker import WAIT_S, make_compaction_eager
from tests.integration.restored import restored_here
from tests.integration.support import Application

ROWS = [(b"key-%d" % number, b"1") for number in range(200)]


def chosen(application: Application, state_dir: Path, **changes: Any) -> Chosen:
    """Choose what lies in a directory of which nothing else is known, as in one that Kafka Streams has left."""
    where = Where(Cluster(application.servers, WAIT_S), state_dir)
    asked = PartitionSelection(where, applications=[application.name], **changes)
    return choose(asked, Cluster(application.servers, WAIT_S).topics)


@pytest.fixture
def lagging(bootstrap_servers: str, tmp_path: Path) -> tuple[Application, Path]:
    """An application that has gone on elsewhere, and the directory that it left before."""
    config = {"cleanup.policy": "compact", **compaction.EAGER}
    application = Application(bootstrap_servers, tmp_path / "elsewhere", changelog_config=config)
    application.send(ROWS)
    assert application.run().failure is None
    left = tmp_path / "left"
    shutil.copytree(application.state_dir / application.name, left / application.name)
    application.send([(b"key-7", b"2"), (b"new", b"1")])
    assert application.run().failure is None
    return application, left


@pytest.mark.long
def test_a_short_rest_from_which_nothing_was_removed_is_replayed(lagging: tuple[Application, Path]) -> None:
    application, left = lagging
    [spec] = chosen(application, left).specs
    found = verify(spec)
    assert (found.status, found.action) == (Status.LAGGING, Action.TAIL)
    [row] = restored_here(
        stores_to_restore(chosen(application, left), Cluster(application.servers).topics), mode="tail"
    )
    assert (row.outcome, row.mode, row.failure) == ("restored", "tail", None)
    [spec] = chosen(application, left).specs
    assert verify(spec, VerifyOptions("deep")).status is Status.OK


def test_one_that_processes_at_least_once_is_built_anew(lagging: tuple[Application, Path]) -> None:
    application, left = lagging
    [spec] = chosen(application, left, guarantee="at_least_once").specs
    assert verify(spec).action is Action.FULL


def test_a_rest_from_which_something_was_removed_makes_it_built_anew(
    bootstrap_servers: str, lagging: tuple[Application, Path]
) -> None:
    application, left = lagging
    make_compaction_eager(bootstrap_servers)
    compaction.overtake(application.servers, application.changelog, b"key-7")
    [spec] = chosen(application, left).specs
    found = verify(spec)
    assert (found.status, found.action) == (Status.LAGGING, Action.FULL)
    stores = stores_to_restore(chosen(application, left), Cluster(application.servers).topics)
    [row] = restored_here(stores, mode="tail")
    assert row.failure is not None
    assert row.failure.kind == InputError.__name__


def test_what_is_removed_while_the_rest_is_read_is_found_out_behind_it(
    bootstrap_servers: str, lagging: tuple[Application, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    application, left = lagging
    make_compaction_eager(bootstrap_servers)
    replay = tail.replay

    def replay_then_compact(*arguments: Any) -> Any:
        replayed = replay(*arguments)
        compaction.overtake(application.servers, application.changelog, b"key-7")
        return replayed

    monkeypatch.setattr(tail, "replay", replay_then_compact)
    stores = stores_to_restore(chosen(application, left), Cluster(application.servers).topics)
    [row] = restored_here(stores, mode="tail")
    assert row.failure is not None
    assert row.failure.kind in (InputError.__name__, StoreBehindLogStartError.__name__)
    monkeypatch.undo()
    [row] = restored_here(stores)
    assert (row.outcome, row.mode, row.failure) == ("restored", "tail", None)  # proven, not believed
