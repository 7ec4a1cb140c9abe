"""A restore asks Kafka for the ends of its log once, and lists the snapshots in the archive once."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from statestore.archive.layout import STORES
from statestore.errors import StoreBehindLogStartError
from statestore.kafka.topics import Topics
from statestore.objects.store import ObjectStore
from statestore.recovery import deciding
from statestore.recovery.planning import plan_restore
from statestore.recovery.restore import restore
from statestore.recovery.sources import all_sources
from tests.integration.archived import ROWS, Archived
from tests.integration.support import Application


class Asked:
    """Counts requests, by what they ask for; `before_build` are those before a store was built."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self.before_build: Counter[str] = Counter()
        self._count(patch, Topics, "log_ranges", lambda _, partitions: "log ends")
        self._count(patch, ObjectStore, "entries", lambda _, prefix="": prefix.partition("/")[0])
        self._count(patch, ObjectStore, "read", lambda _, name, limit: f"file in {name.partition('/')[0]}")
        for source in all_sources():
            self._note_build(patch, type(source))

    def _count(self, patch: pytest.MonkeyPatch, owner: type, method: str, what: Callable[..., str]) -> None:
        original = getattr(owner, method)

        def counted(*given: Any, **how: Any) -> Any:
            self.counts[what(*given, **how)] += 1
            return original(*given, **how)

        patch.setattr(owner, method, counted)

    def _note_build(self, patch: pytest.MonkeyPatch, source: type) -> None:
        original = source.build  # type: ignore[attr-defined]

        def noted(*given: Any) -> Any:
            self.before_build = self.counts.copy()
            return original(*given)

        patch.setattr(source, "build", noted)


def lose_the_node(archived: Archived) -> None:
    archived.lose_all()


def damage(archived: Archived) -> None:
    (archived.live / "CURRENT").unlink()


def lag(archived: Archived) -> None:
    copy = archived.state_dir.with_name("older")
    shutil.copytree(archived.state_dir, copy)
    archived.send([(b"later", b"value")])
    assert Application.run(archived).failure is None
    shutil.rmtree(archived.state_dir)
    copy.rename(archived.state_dir)


@pytest.mark.short_for("lost, from a snapshot", "damaged, home in the archive")
@pytest.mark.parametrize(
    ("mode", "prepare", "node_local", "done"),
    [
        ("auto", lose_the_node, False, {"snapshot", "full"}),
        ("snapshot", lose_the_node, False, {"snapshot"}),
        ("auto", damage, False, {"snapshot", "full"}),
        ("full", damage, False, {"full"}),
        ("auto", lag, False, {"tail"}),
        ("snapshot", lose_the_node, True, {"snapshot"}),
        ("full", damage, True, {"full"}),
    ],
    ids=[
        "lost",
        "lost, from a snapshot",
        "damaged",
        "damaged, from the log",
        "lagging",
        "lost, home in the archive",
        "damaged, home in the archive",
    ],
)
def test_a_restore_asks_for_the_ends_of_its_log_and_for_its_snapshots_once(
    archived: Archived,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    prepare: Callable[[Archived], None],
    node_local: bool,
    done: set[str],
) -> None:
    archived.process(ROWS)
    archived.process([(b"key-000", b"value")])
    prepare(archived)
    archive = archived.archive.model_copy(update={"node_local": node_local})
    spec = archived.restore_spec(mode, archive=archive, force=mode == "full" or node_local)
    with monkeypatch.context() as patch:
        asked = Asked(patch)
        row = restore(spec)
    assert row.failure is None, row.failure
    assert row.mode in done
    assert asked.before_build["log ends"] == 1
    from_archive = 0 if row.mode == "tail" else 1
    assert (asked.before_build[STORES], asked.before_build[f"file in {STORES}"]) == (from_archive, from_archive)


def test_a_dry_run_asks_what_the_restore_asks(archived: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    archived.process(ROWS)
    archived.lose_all()
    with monkeypatch.context() as patch:
        asked = Asked(patch)
        assert plan_restore(archived.restore_spec("snapshot", archive=archived.archive)).failure is None
    assert (asked.counts["log ends"], asked.counts[STORES]) == (1, 1)


def doubt(archived: Archived) -> None:
    """Leave the store as it is: a report says that its rows are wrong."""


@pytest.mark.parametrize(
    ("question", "prepare"), [("_log_bytes", damage), ("_archive_loss", lose_the_node), ("_proof", doubt)]
)
def test_a_restore_is_judged_anew_if_the_start_of_the_log_moves_while_it_is_planned(
    archived: Archived, monkeypatch: pytest.MonkeyPatch, question: str, prepare: Callable[[Archived], None]
) -> None:
    archived.process(ROWS)
    archived.process([(b"key-000", b"value")])
    prepare(archived)
    spec = archived.restore_spec("auto", archive=archived.archive)._replace(diverged=prepare is doubt)
    answer, left = getattr(deciding, question), 3

    def moved(*given: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            raise StoreBehindLogStartError("its log begins later")
        return answer(*given)

    monkeypatch.setattr(deciding, question, moved)
    rows = [plan_restore(spec), restore(spec)]
    assert [row.failure.kind for row in rows if row.failure] == ["StoreBehindLogStartError"] * 2
    left = 1
    row = restore(spec)
    assert (row.failure, row.outcome) == (None, "restored")
