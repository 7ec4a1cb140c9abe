"""The recorded descriptions of an application's stores, for the time when no directory shows them.

    <state.dir>/.statestore/<application.id>/stores.json                 here
    shapes/<cluster>/<application.id>/<time and uuid>.json               in the archive; the newest counts

Each verification keeps what it found, and a restore uses it once the directories are gone. What is kept speaks of a
changelog with a certain topic id: of another one it says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from statestore import clock
from statestore.archive.archive import ArchiveSpec
from statestore.archive.documents import from_document, to_document
from statestore.archive.layout import shapes, time_ordered_uuid
from statestore.discovery.hints import Hint
from statestore.discovery.known_store import KnownStore, StoreProgress
from statestore.discovery.store import DiscoveredStore
from statestore.durable import read_checked, with_checksum, write_durably
from statestore.errors import InputError, SnapshotError, about
from statestore.model import check_name
from statestore.objects.store import ObjectStore
from statestore.partition.spec import GLOBAL_TASK, StorePartitionSpec
from statestore.statedir.lock import is_writable
from statestore.statedir.paths import known_stores_file
from statestore.statedir.record import read_record, restored_by
from statestore.stores.manifest import progress_of, segment_identities
from statestore.stores.segment_starts import segment_interval_ms

_MAX_BYTES = 16 * 1024 * 1024
#: What an archive calls it.
_KIND = "shapes"


class KnownStores(BaseModel):
    """Known descriptions of the stores of an application, by name."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
    stores: Mapping[str, KnownStore] = {}


def read_known(state_dir: Path, application: str, archive: ArchiveSpec | None = None) -> dict[str, KnownStore]:
    """Return what is known of the stores of an application, here and in the archive.

    What a directory has shown goes before what somebody has said; then whichever was seen later.

    A file that was damaged says nothing.

    Raises
    ------
    InputError
        If the name cannot be that of an application.
    ArchiveUnavailableError, ArchiveAccessError
        If the archive does not tell.
    """
    try:
        check_name(application)
    except ValueError as error:
        raise InputError(f"application {error}") from error
    here = _read_file(known_stores_file(state_dir, application))
    there = {} if archive is None else _read_archive(archive.open(), archive.cluster, application)
    # Segments and databases are those of this disk.
    newer = {
        name: known.model_copy(
            update={
                "segments": here[name].segments if name in here else {},
                "progress": here[name].progress if name in here else {},
            }
        )
        for name, known in there.items()
        if name not in here or (known.shown, known.seen_ms) > (here[name].shown, here[name].seen_ms)
    }
    return {**here, **newer}


def keep_known(
    state_dir: Path, application: str, stores: Mapping[str, KnownStore], archive: ArchiveSpec | None = None
) -> None:
    """Keep what is known of the stores of an application; in a read-only state directory nothing is kept.

    Raises
    ------
    OSError
        If it cannot be written.
    ArchiveUnavailableError, ArchiveAccessError
        If the archive does not take it.
    """
    content = KnownStores(stores=stores)
    path = known_stores_file(state_dir, application)
    if (stores or path.exists()) and is_writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, with_checksum(content.model_dump_json()), several_writers=True)
    if archive is None:
        return
    objects = archive.open()
    # It changes with each write of a store, and says nothing about another disk.
    content = KnownStores(stores={name: known.model_copy(update={"progress": {}}) for name, known in stores.items()})
    if _without_time(_read_archive(objects, archive.cluster, application)) != _without_time(content.stores):
        name = f"{shapes(archive.cluster, application)}/{time_ordered_uuid(clock.now_ms())}.json"
        objects.create(name, to_document(content, _KIND))


def learned(
    before: Mapping[str, KnownStore],
    discovered: Iterable[DiscoveredStore],
    specs: Iterable[StorePartitionSpec],
    hints: Mapping[str, Hint],
    now_ms: int,
    *,
    committed: Mapping[str, int | None] | None = None,
    offsets_beside: bool | None = None,
    tables: Collection[str] = (),
) -> dict[str, KnownStore]:
    """Return what is known once the stores of an application were looked at.

    Parameters
    ----------
    before
        What was known.
    discovered
        The stores.
    specs
        Those store partitions of theirs that were found whole, or restored: they have all segments that they had.
    hints
        What a user said of stores.
    now_ms
        Wall clock time, ms since the epoch.
    committed
        Committed offsets of store partitions, as they are written in reports.
    offsets_beside
        What its state directory shows of the application's version; None: nothing.
    tables
        Global stores whose rows were found to be those of their topics.
    """
    found = dict(before)
    for name, hint in hints.items():
        if hint.engine == "in_memory":
            found[name] = KnownStore(in_memory=True, seen_ms=now_ms)
    for store in discovered:
        log, earlier = store.changelog, found.get(store.name)
        topic = {} if log is None else {"changelog": log.topic, "topic_id": log.topic_id}
        if store.definition is not None and log is not None:
            is_global = GLOBAL_TASK in store.tasks
            subtopologies = set() if is_global else {task.subtopology for task in store.tasks}
            retention_ms = store.definition.row_retention_ms
            found[store.name] = KnownStore(
                definition=store.definition,
                segment_interval_ms=None if retention_ms is None else segment_interval_ms(retention_ms),
                subtopology=min(subtopologies, default=None),
                # What was built as somebody said shows no more than that.
                described=store.described if not store.shown or (earlier and earlier.described) else "",
                segments=earlier.segments if earlier else {},
                progress=earlier.progress if earlier else {},
                offsets_beside=layout_known(before) if offsets_beside is None else offsets_beside,
                is_global=is_global,
                global_kind=store.global_kind or ("table" if is_global and store.name in tables else None),
                global_said=store.global_said,
                stale=store.stale,
                seen_ms=now_ms,
                **topic,
            )
        elif store.trouble == "in memory":
            found[store.name] = KnownStore(in_memory=True, seen_ms=now_ms, **topic)
        elif store.unknown:
            found[store.name] = KnownStore(unknown=store.unknown, guessed=store.guessed, seen_ms=now_ms, **topic)
    for spec in specs:
        name, task = spec.store.name, str(spec.task)
        if name in found and not spec.is_global and spec.live.is_dir():
            offset = (committed or {}).get(str(spec.store_partition))
            record = read_record(spec.paths, name)
            progress = StoreProgress(
                committed=offset,
                databases=progress_of(spec.live, segmented=spec.store.segmented),
                restored_by=restored_by(record),
            )
            found[name] = found[name].model_copy(update={"progress": {**found[name].progress, task: progress}})
        if name in found and spec.store.segmented and spec.live.is_dir():
            of_tasks = {**found[name].segments, task: segment_identities(spec.live)}
            found[name] = found[name].model_copy(update={"segments": of_tasks})
    return found


def layout_known(stores: Mapping[str, KnownStore]) -> bool | None:
    """Tell whether an application was last seen to have its offsets beside its stores; None: it was not."""
    seen = [(known.seen_ms, known.offsets_beside) for known in stores.values() if known.offsets_beside is not None]
    return max(seen)[1] if seen else None


def _without_time(stores: Mapping[str, KnownStore]) -> dict[str, KnownStore]:
    return {name: known.model_copy(update={"seen_ms": 0}) for name, known in stores.items()}


def _read_file(path: Path) -> dict[str, KnownStore]:
    try:
        with about(path):
            return dict(KnownStores.model_validate_json(read_checked(path)).stores)
    except (FileNotFoundError, ValueError):
        return {}


def _read_archive(objects: ObjectStore, cluster: str, application: str) -> dict[str, KnownStore]:
    names = sorted(found.name for found in objects.entries(shapes(cluster, application)))
    for name in reversed(names):
        try:
            return dict(from_document(objects.read(name, _MAX_BYTES), _KIND, KnownStores, name).stores)
        except (FileNotFoundError, SnapshotError):
            continue  # an older one says enough
    return {}
