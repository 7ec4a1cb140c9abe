"""The stores of a task: opened, brought to the end of their changelogs, committed and closed together.

A store that cannot be used as it is, such as one left open without transactions, is rebuilt from its changelog by
itself; the others stay as they are (conformance T13, R13). It is set aside only when Kafka has shown that its changelog
is there and has not lost what the store had, and removed when its successor is whole.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack

from statestore import kill_switch
from statestore.changelog.reader import LogReader, first_offset
from statestore.changelog.standing import Standing, standing
from statestore.changelog.topics import LogRange
from statestore.durable import remove_durably, remove_tree, rename_durably
from statestore.errors import (
    ChangelogReplacedError,
    RebuildError,
    StateStoreError,
    StoreAheadError,
    StoreBehindLogStartError,
)
from statestore.model import StoreDefinition, TopicPartition
from statestore.reports import Action, Status, StoreFigures
from statestore.statedir.context import forget_mode, store_context
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.record import read_record, write_record
from statestore.statedir.seal import break_seal, check_seal, forget_digests, seal
from statestore.stores.open import build_store
from statestore.stores.serdes import load_serde
from statestore.stores.typed import AnyStore
from statestore.tasks.replay import replay
from statestore.tasks.spec import TaskSpec

#: As what a task refuses to rebuild a store, unasked, whose changelog may have lost something that it has.
_REFUSED: dict[Status, type[RebuildError]] = {
    Status.AHEAD: StoreAheadError,
    Status.REPLACED: ChangelogReplacedError,
    Status.TRUNCATED: StoreBehindLogStartError,
}


class TaskStores:
    """The stores of one task, under its lock.

    Parameters
    ----------
    read_in_full
        Read every row while opening: something in one of the stores could not be read, and it is not known where.

    Attributes
    ----------
    by_name
        The stores.
    restored
        Changelog records replayed, by store.
    rebuilt
        Why a store was rebuilt, by store.
    """

    def __init__(self, spec: TaskSpec, *, read_in_full: bool = False) -> None:
        self._spec = spec
        self._paths = spec.paths
        self._definitions = {store.name: store for store in spec.subtopology.stores}
        self.by_name: dict[str, AnyStore] = {name: _build(store) for name, store in self._definitions.items()}
        self._damaged: dict[str, RebuildError] = {}
        self.committed: dict[str, int] = {}
        self.restored: dict[str, int] = {}
        self.rebuilt: dict[str, str] = {}
        self._migrated = legacy_offsets(self._paths)
        try:
            for name in self.by_name:
                try:
                    self._open(name, read_in_full=read_in_full)
                except RebuildError as error:
                    self.by_name[name].close(clean=False)
                    self._damaged[name] = error
            kill_switch.reached("legacy offsets taken over, the file still there")
            remove_durably(self._paths.checkpoint)
        except BaseException:
            self.close(clean=False)
            raise

    # -- opening --------------------------------------------------------------------------------------------------

    def _open(self, name: str, *, read_in_full: bool) -> None:
        store, definition = self.by_name[name], self._definitions[name]
        there = store.persistent and self._paths.live(definition).exists()
        if there and not check_seal(self._paths, name, segmented=definition.kind != "key-value"):
            forget_digests(self._paths, name)  # somebody else may have built it anew
        self._init(name, self._migrated.get(self._spec.changelog(name)))
        if read_in_full:
            for _ in store.all():
                pass

    def _init(self, name: str, migrated: int | None = None) -> None:
        store, application = self.by_name[name], self._spec.application
        store.init(
            store_context(
                self._paths,
                # A commit comes first; only what a single record writes far beyond the bound spills.
                uncommitted_max_bytes=4 * application.uncommitted_max_bytes,
                recording_level=self._spec.recording_level,
                opening=lambda store: break_seal(self._paths, store),
                exactly_once=self._spec.exactly_once,
            )
        )
        if migrated is not None and not store.is_empty:
            store.commit({self._spec.changelog(name): migrated})
            kill_switch.reached("legacy offset taken over, not on disk")
            store.sync()

    # -- recovery -------------------------------------------------------------------------------------------------

    def recover(self, ranges: dict[TopicPartition, LogRange]) -> None:
        """Bring every store to the end of its changelog; rebuild those that cannot be used as they are.

        Raises
        ------
        RebuildError
            If a store cannot catch up, and its changelog may have lost what it has.
        """
        for name in self.by_name:
            log = ranges[self._spec.changelog(name)]
            if name in self._damaged:
                self._rebuild(name, self._damaged[name], log)
            else:
                self._catch_up(name, log)
            remove_tree(self._paths.set_aside(name))
        self._damaged = {}

    def _catch_up(self, name: str, log: LogRange) -> None:
        store, changelog = self.by_name[name], self._spec.changelog(name)
        topic = self._spec.changelogs[name]
        record = read_record(self._paths, name) if store.persistent else None
        store.recover(log.last_stable - 1)
        committed = store.committed_offset(changelog)
        found = standing(
            committed,
            log,
            empty=store.is_empty,
            topic_id=topic.topic_id,
            recorded_topic_id=record.topic_id if record else None,
            caught_up_ms=record.whole_ms(committed) if record else None,
            delete_retention_ms=topic.delete_retention_ms,
            now_ms=int(time.time() * 1000),
        )
        start = log.start if committed is None else committed + 1
        if found.status.log_may_have_lost:
            self._refuse(name, found)
        if found.action is Action.TAIL:
            self._replay(name, start, log)
        elif found.action is not Action.NONE and not (committed is not None and self._nothing_left(name, start, log)):
            store.close(clean=False)
            self._rebuild(name, RebuildError(found.detail), log, committed)
            return
        self._note_whole(name)

    def _rebuild(self, name: str, reason: RebuildError, log: LogRange, known: int | None = None) -> None:
        """Build a store anew from its changelog; `known` is its committed offset, where it could be asked."""
        definition, record = self._definitions[name], read_record(self._paths, name)
        aside = self._paths.set_aside(name)
        if record is not None:
            self._require_whole_log(name, reason, record.topic_id, record.committed if known is None else known, log)
            remove_tree(aside)  # its successor was whole
        break_seal(self._paths, name)
        forget_digests(self._paths, name)
        forget_mode(self._paths, name)
        remove_durably(self._paths.record(name))  # until the new one is whole, nothing vouches for it
        for part, path in (("store", self._paths.live(definition)), ("segments", self._paths.segments(name))):
            if (aside / part).exists():
                remove_tree(path)  # half-built by a rebuild that was killed; what it was to replace waits on
            elif path.exists():
                rename_durably(path, aside / part)
        kill_switch.reached("damaged store set aside")
        self.by_name[name] = _build(definition)
        self._init(name)
        self._replay(name, log.start, log)
        self.rebuilt[name] = str(reason)
        kill_switch.reached("store rebuilt, not vouched for")
        self._note_whole(name)
        kill_switch.reached("store rebuilt, the damaged one still there")

    def _replay(self, name: str, start: int, log: LogRange) -> None:
        spec, store = self._spec, self.by_name[name]
        with LogReader(
            spec.bootstrap_servers,
            spec.changelog(name),
            read_committed=spec.exactly_once,
            stall_timeout_s=spec.kafka_timeout_s,
        ) as reader:
            self.restored[name] = replay(store, reader, start, log.last_stable).records
        store.sync()

    def _nothing_left(self, name: str, start: int, log: LogRange) -> bool:
        spec = self._spec
        changelog = spec.changelog(name)
        return first_offset(spec.bootstrap_servers, changelog, start, log.last_stable, spec.kafka_timeout_s) is None

    def _note_whole(self, name: str) -> None:
        store = self.by_name[name]
        if store.persistent:
            offset = store.committed_offset(self._spec.changelog(name))
            write_record(self._paths, name, self._spec.changelogs[name].topic_id, offset)

    def _require_whole_log(
        self, name: str, reason: RebuildError, topic_id: str, committed: int | None, log: LogRange
    ) -> None:
        """Refuse to rebuild a store from a changelog that has lost what the store had."""
        topic = self._spec.changelogs[name]
        found = standing(
            committed,
            log,
            empty=False,
            topic_id=topic.topic_id,
            recorded_topic_id=topic_id,
            caught_up_ms=None,
            delete_retention_ms=topic.delete_retention_ms,
            now_ms=0,
        )
        if found.status.log_may_have_lost:
            raise _REFUSED[found.status](
                f"store {name} of {self._spec.application.name} task {self._spec.task} cannot be used ({reason}), and "
                f"{topic.topic} may have lost what it had ({found.status}: {found.detail}): it is not rebuilt by "
                "itself; run restore for it, which keeps the old store in quarantine"
            )

    def _refuse(self, name: str, found: Standing) -> None:
        raise _REFUSED[found.status](
            f"store {name} of {self._spec.application.name} task {self._spec.task} is {found.status}: {found.detail}; "
            "run verify and restore for it"
        )

    # -- at work --------------------------------------------------------------------------------------------------

    @property
    def staged_bytes(self) -> int:
        """Memory held by uncommitted rows."""
        return sum(store.staged_bytes for store in self.by_name.values())

    def holding(self) -> list[str]:
        """Names of the stores that have anything of their changelogs."""
        return [
            name
            for name, store in self.by_name.items()
            if store.committed_offset(self._spec.changelog(name)) is not None
        ]

    @property
    def stream_times(self) -> dict[str, int]:
        """Stream time (ms) of each window and session store, which decides on what has expired."""
        times = {name: getattr(store.inner, "stream_time", -1) for name, store in self.by_name.items()}
        return {name: time for name, time in times.items() if time >= 0}

    def advance_stream_times(self, times: Mapping[str, int]) -> None:
        """Let stores go on from the stream times (ms) that an earlier run had reached."""
        for name, time_ms in times.items():
            advance = getattr(self.by_name[name].inner, "advance_stream_time", None) if name in self.by_name else None
            if advance is not None:
                advance(time_ms)

    def commit(self, delivered: dict[TopicPartition, int], position: dict[TopicPartition, int]) -> None:
        """Commit every store, also if one of them fails; raise the first failure (conformance R12)."""
        first: StateStoreError | None = None
        for name, store in self.by_name.items():
            changelog = self._spec.changelog(name)
            if changelog not in delivered and not store.staged_bytes:  # a lazy migration is staged, but not logged
                continue
            try:
                store.commit({changelog: delivered[changelog]} if changelog in delivered else {}, position)
            except StateStoreError as error:
                first = first or error
            else:
                self.committed.update({name: delivered[changelog]} if changelog in delivered else {})
            kill_switch.reached("store committed")
        if first is not None:
            raise first

    def figures(self) -> tuple[StoreFigures, ...]:
        """What each store did so far."""
        return tuple(self._figures(store) for store in self.by_name.values())

    def _figures(self, store: AnyStore) -> StoreFigures:
        commits, restores = store.metrics.figures("commit"), store.metrics.figures("restore")
        return StoreFigures(
            store=store.name,
            commits=commits.count,
            commit_latency_avg_ms=round(commits.latency_avg / 1e6, 3),
            commit_latency_max_ms=round(commits.latency_max / 1e6, 3),
            committed=self.committed.get(store.name),
            restored=self.restored.get(store.name, 0),
            restore_seconds=round(restores.count * restores.latency_avg / 1e9, 3),
            rebuilt=self.rebuilt.get(store.name),
            expired=store.expired_records,
        )

    def close(self, *, clean: bool) -> None:
        """Close every store, also if closing one fails; clean ones are vouched for."""
        opened = {name: store for name, store in self.by_name.items() if store.is_open and store.persistent}
        offsets = {name: store.committed_offset(self._spec.changelog(name)) for name, store in opened.items() if clean}
        with ExitStack() as resources:
            for store in self.by_name.values():
                if store.is_open:
                    resources.callback(kill_switch.reached, "store closed")
                    resources.callback(store.close, clean=clean)
        kill_switch.reached("stores closed, nothing recorded")
        for name, offset in offsets.items():
            forget_mode(self._paths, name)
            kill_switch.reached("mode forgotten")
            write_record(self._paths, name, self._spec.changelogs[name].topic_id, offset)
            kill_switch.reached("store recorded, not sealed")
            seal(self._paths, name, segmented=self._definitions[name].kind != "key-value")


def _build(definition: StoreDefinition) -> AnyStore:
    return build_store(definition, load_serde(definition.key_serde), load_serde(definition.value_serde))
