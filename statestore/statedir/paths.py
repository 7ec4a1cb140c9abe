"""Paths of all files below `state.dir`.

    <state.dir>/<application.id>/<task id>/rocksdb/<store>/      Kafka Streams' own layout; nothing of ours in it
    <state.dir>/.statestore/<application.id>/<task id>/...       ours: lock, records, staging, quarantine, journals
    <state.dir>/.statestore/<application.id>/stores.json         ours: what its stores are, if no definition says it
    <state.dir>/.statestore/<application.id>/acknowledged.json   ours: which stores need not be judged
    <state.dir>/.statestore/<application.id>/rewrite.json        ours: journal of an application made of another's state
    <state.dir>/.statestore/<application.id>/rewritten/...       ours: how many records rewrites wrote to changelogs

Both are on one file system, so that a rename between them is atomic.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from statestore.definitions.store import StoreDefinition
from statestore.durable import LONGEST_NAME
from statestore.formats import checkpoint_file
from statestore.model import KEY_VALUE_DIRECTORY, TaskId, check_name
from statestore.stores.last_use import commits_directory, last_use_file

OWN_DIRECTORY = ".statestore"


def known_stores_file(state_dir: Path, application: str) -> Path:
    """Where it is kept what the stores of an application without a definition are."""
    return state_dir / OWN_DIRECTORY / check_name(application) / "stores.json"


def acknowledged_file(state_dir: Path, application: str) -> Path:
    """File of the stores that a user has acknowledged although they cannot be judged."""
    return known_stores_file(state_dir, application).with_name("acknowledged.json")


def rewrite_journal(state_dir: Path, application: str) -> Path:
    """Journal of an application that is made of another's state: while it is there, nobody else opens its tasks."""
    return state_dir / OWN_DIRECTORY / check_name(application) / "rewrite.json"


def point_hold(state_dir: Path, application: str) -> Path:
    """File that exists while an application is between its state and another point: no task opens."""
    return rewrite_journal(state_dir, application).with_name("point-hold")


def reseed_journal(state_dir: Path, application: str, store: str) -> Path:
    """Return the journal of a reseed of a store's changelog: it exists until the reseed has ended."""
    return rewrite_journal(state_dir, application).with_name(f"reseed-{check_name(store)}.json")


def rewrite_lock(state_dir: Path, application: str) -> Path:
    """Lock of who makes an application of the state of another; never removed."""
    return rewrite_journal(state_dir, application).with_name("rewrite.lock")


@dataclass(frozen=True, order=True)
class TaskPaths:
    """Paths of one task. The parts come from checked names only (model.py)."""

    state_dir: Path
    application: str
    task: TaskId

    @cached_property
    def application_dir(self) -> Path:
        """Kafka Streams' directory of the application."""
        return self.state_dir / self.application

    @cached_property
    def task_dir(self) -> Path:
        """Kafka Streams' directory of the task."""
        return self.application_dir / str(self.task)

    @cached_property
    def checkpoint(self) -> Path:
        """The legacy offsets file."""
        return self.task_dir / checkpoint_file.FILE_NAME

    @cached_property
    def locks(self) -> tuple[Path, Path]:
        """The lock files of the application, which is Kafka Streams' own, and of the task."""
        return self.application_dir / ".lock", self.own_dir / "lock"

    def offsets(self, store: str) -> Path:
        """The offsets of a store that does not keep them itself."""
        return self.task_dir / checkpoint_file.name_of(store)

    @cached_property
    def own_dir(self) -> Path:
        """Our directory for the task."""
        return self.state_dir / OWN_DIRECTORY / self.application / str(self.task)

    def store(self, name: str) -> Path:
        """Directory of a key-value store's database."""
        return self.task_dir / KEY_VALUE_DIRECTORY / name

    def live(self, store: StoreDefinition) -> Path:
        """Directory of a store of any kind on disk: a key-value store's database, or all segments of another."""
        return store.store_kind.directory(self.task_dir, store.name)

    def segments(self, name: str) -> Path:
        """Record of a window or session store's segments."""
        return self.own_dir / "segments" / name

    @cached_property
    def staged(self) -> Path:
        """Where replacements of all stores are built."""
        return self.own_dir / "staging"

    def staging(self, store: str) -> Path:
        """Where a replacement of the store is built."""
        return self.staged / store

    def staged_offsets(self, store: str) -> Path:
        """The offsets of a replacement that does not keep them itself."""
        return self.staging(store).with_name(checkpoint_file.name_of(store))

    @cached_property
    def staged_own(self) -> Path:
        """Ours while a replacement is built: what this directory is for a live store."""
        return self.own_dir / "staged"

    def staged_segments(self, store: str) -> Path:
        """Record of the replacement's segments."""
        return self.staged_own / "segments" / store

    @cached_property
    def all_runs(self) -> Path:
        """Sorted runs of which replacements of all stores are built."""
        return self.own_dir / "runs"

    def runs(self, store: str) -> Path:
        """Sorted runs of which a replacement is built."""
        return self.all_runs / store

    def runs_lock(self, store: str) -> Path:
        """Lock of the sorted runs; never removed."""
        return self.own_dir / _file_of("runs", store, ".lock")

    @cached_property
    def replaced(self) -> Path:
        """Where the replaced stores are, a directory for each store's."""
        return self.own_dir / "quarantine"

    def quarantine(self, store: str, label: str) -> Path:
        """Where the replaced store goes."""
        return self.replaced / store / label

    def replaced_segments(self, store: str) -> Path:
        """Records of the segments of all its replaced stores."""
        return self.own_dir / "quarantine-segments" / store

    def quarantined_segments(self, store: str, label: str) -> Path:
        """Record of the replaced store's segments."""
        return self.replaced_segments(store) / label

    def replaced_own(self, store: str) -> Path:
        """Sidecar files of all its replaced stores."""
        return self.own_dir / "quarantine-own" / store

    def quarantined_own(self, store: str, label: str) -> Path:
        """Sidecar files of the replaced store."""
        return self.replaced_own(store) / f"{label}.json"

    def journal(self, store: str) -> Path:
        """Journal of a swap that has begun."""
        return self.own_dir / _file_of("swap", store, ".json")

    def seal(self, store: str) -> Path:
        """The seal of the closed store."""
        return self.own_dir / _file_of("seal", store, ".json")

    def digests(self, store: str) -> Path:
        """Digests of the store's SST files, which outlive the seal."""
        return self.own_dir / _file_of("digests", store, ".json")

    def snapshot(self, store: str) -> Path:
        """Which snapshot of the archive the store grew from."""
        return self.own_dir / _file_of("snapshot", store, ".json")

    def record(self, store: str) -> Path:
        """Record of the store."""
        return self.own_dir / _file_of("store", store, ".json")

    def memory_record(self, store: str) -> Path:
        """Record of an in-memory store."""
        return self.own_dir / _file_of("memory", store, ".json")

    def recorded_stores(self) -> list[str]:
        """Names of the stores that there is a record of."""
        found = self.own_dir.glob("store-*.json")
        return sorted(path.name.removeprefix("store-").removesuffix(".json") for path in found)

    @cached_property
    def shape(self) -> Path:
        """The task's definition when its stores were built."""
        return self.own_dir / "shape.json"

    def commits(self, store: str) -> Path:
        """Files of commits that the store's databases may have only in part."""
        return commits_directory(self.own_dir, store)

    def quarantined_commits(self, store: str, label: str) -> Path:
        """Commits in files of a replaced store without a changelog."""
        return self.own_dir / "quarantine-commits" / store / label

    def mode(self, store: str) -> Path:
        """Which openings of the store were ours, with transactions."""
        return last_use_file(self.own_dir, store)


def _file_of(prefix: str, store: str, suffix: str) -> str:
    """Name of a file about a store. If it would be too long, a digest replaces the end of the store's name."""
    name = f"{prefix}-{store}{suffix}"
    if len(name) <= LONGEST_NAME:
        return name
    return f"{prefix}-{store[:150]}~{hashlib.sha256(store.encode()).hexdigest()[:32]}{suffix}"


@lru_cache(maxsize=1024)
def task_paths(state_dir: Path, application: str, task: TaskId) -> TaskPaths:
    """Return the paths of a task; where they are asked for again the same object, which keeps those it has made."""
    return TaskPaths(state_dir, application, task)
