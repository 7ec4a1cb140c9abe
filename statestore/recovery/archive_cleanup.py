"""Removing snapshots that are not needed: which may go, by what the logs of now can give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from statestore.archive.archive import ArchiveSpec, archive_spec, open_archive
from statestore.archive.builds import ListedBuild, expired_builds, remove_build
from statestore.archive.cleanup import (
    Retention,
    Swept,
    expendable,
    mark,
    retention_of,
    sweep,
    sweep_sets,
)
from statestore.archive.contents import all_histories
from statestore.archive.manifest import Manifest
from statestore.archive.pins import kept_snapshots, put_back
from statestore.archive.server_time import server_time_ms
from statestore.config import Settings
from statestore.discovery.changelogs import changelog_spec
from statestore.errors import StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.partition.reinstating import unpin_old
from statestore.partition.snapshots import snapshot_loss
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.reports import Failure, Loss, MaintenanceRow

#: No store of this machine is looked at.
_NOWHERE = Path("/nonexistent")
_DAY_S = 24 * 60 * 60
#: Objects that a row names, as rows of other places do.
_NAMED = 20


class ArchiveCleanup(NamedTuple):
    """Result of a clean-up, or its plan.

    Attributes
    ----------
    marked
        Objects of the snapshots that it marked; they go after the grace period.
    swept
        What it removed.
    builds
        Those that it removed: nothing was added to them for the grace period.
    """

    marked: tuple[str, ...]
    swept: Swept
    builds: tuple[ListedBuild, ...]


def clean_archive(archive: ArchiveSpec, cluster: Cluster, retention: Retention, *, dry_run: bool) -> ArchiveCleanup:
    """Mark the snapshots of a cluster that are not needed, and remove those that were marked long enough ago.

    Raises
    ------
    SnapshotError
        If a pin, a set or a manifest cannot be read: what it keeps is not known.
    """
    objects = open_archive(archive.url, archive.timeout_s)  # who deletes asks anew what is there
    now_ms = server_time_ms(objects)
    kept = kept_snapshots(objects)
    logs = _Logs(cluster)
    marked = []
    for history in all_histories(objects, archive.cluster):
        for found in expendable(objects, history, retention, kept, logs.may_lack, now_ms):
            marked.append(found.directory.snapshot(found.name))
            if not dry_run:
                mark(objects, found)
    if not dry_run:  # a pin may have come since; one that comes later puts back what it names
        back = put_back(objects, kept_snapshots(objects))
        marked = [place for place in marked if place not in back]
    swept = sweep(objects, retention.grace_ms, now_ms, dry_run=dry_run)
    if not dry_run:
        sweep_sets(objects, kept_snapshots(objects))
    builds = tuple(expired_builds(objects, retention.grace_ms, now_ms))
    for build in () if dry_run else builds:
        remove_build(objects, build)
    return ArchiveCleanup(tuple(marked), swept, builds)


def archive_rows(settings: Settings, *, dry_run: bool) -> list[MaintenanceRow]:
    """Clean the archive up, if there is one, and return the rows of a report; a failure of ours is a row of its own."""
    retention = retention_of(settings.snapshot_keep, settings.snapshot_days, settings.snapshot_grace_hours)
    try:
        archive = archive_spec(settings.archive, settings.archive_timeout_s, settings.cluster.topics)
        if archive is None:
            return []
        unpinned = unpin_old(archive.open(), settings.quarantine_days * _DAY_S, dry_run=dry_run)
        done = clean_archive(archive, settings.cluster, retention, dry_run=dry_run)
    except (StateStoreError, OSError) as error:
        return [MaintenanceRow(place="archive", failure=Failure.of(error))]
    swept = done.swept
    replaced = MaintenanceRow(place="archive/replaced", removed=unpinned[:_NAMED], removed_count=len(unpinned))
    return [
        *((replaced,) if unpinned else ()),
        MaintenanceRow(place="archive/marked", removed=done.marked[:_NAMED], removed_count=len(done.marked)),
        MaintenanceRow(
            place="archive/files",
            removed=(*swept.manifests, *swept.blobs)[:_NAMED],
            removed_count=len(swept.manifests) + len(swept.blobs),
            removed_bytes=swept.bytes,
        ),
        *((_builds_row(done.builds),) if done.builds else ()),
    ]


def _builds_row(builds: Sequence[ListedBuild]) -> MaintenanceRow:
    return MaintenanceRow(
        place="archive/builds",
        removed=tuple(str(build.directory) for build in builds)[:_NAMED],
        removed_count=len(builds),
        removed_bytes=sum(build.bytes for build in builds),
    )


class _Logs:
    """Tells what the logs of now can give; each topic is asked for once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topics = cluster.topics
        self._known: dict[str, ChangelogSpec | None] = {}

    def may_lack(self, snapshot: Manifest, newest: Manifest) -> bool:
        """Tell whether a snapshot may be the only copy of something that its log can no longer give.

        A later snapshot of the same generation and topic grew from the same store. So what nothing rules out
        (`Loss.UNPROVEN`) is in that one, too. Without a changelog, that one has all that the store has committed since.
        """
        if not snapshot.definition.logged:
            return newest.generation != snapshot.generation or newest.record.topic_id != snapshot.record.topic_id
        loss = self._loss(snapshot)
        if loss is not Loss.UNPROVEN:
            return loss is Loss.LIKELY
        return (
            newest.generation != snapshot.generation
            or newest.record.topic_id != snapshot.record.topic_id
            # That one was built anew, from the log alone.
            or (snapshot.record.adopted and not newest.record.adopted)
            or (snapshot.by_hand is not None and newest.by_hand is None)
        )

    def _loss(self, snapshot: Manifest) -> Loss:
        changelog = self._changelog(snapshot.topic)
        if changelog is None:
            return Loss.LIKELY
        spec = StorePartitionSpec(
            application=snapshot.application,
            task=snapshot.store_partition.task,
            store=snapshot.definition,
            changelog=changelog,
            cluster=self._cluster,
            state_dir=_NOWHERE,
        )
        return snapshot_loss(spec, snapshot).loss

    def _changelog(self, topic: str) -> ChangelogSpec | None:
        if topic not in self._known:
            found = self._topics.describe([topic]).get(topic)
            config: Mapping[str, str] = {} if found is None else self._topics.topic_configs([topic])[topic]
            self._known[topic] = None if found is None else changelog_spec(found, dict(config))
        return self._known[topic]
