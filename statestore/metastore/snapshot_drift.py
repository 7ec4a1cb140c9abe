"""Finds stores whose snapshots are too rare for the time that their changelog keeps tombstones.

A snapshot of a compacted changelog can be restored from until `delete.retention.ms` after the store was known to be
complete. Three snapshots within that time leave room for a run that failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from statestore.archive.archive import ArchiveSpec
from statestore.archive.snapshots import History, histories
from statestore.discovery.changelogs import changelog_spec
from statestore.kafka.topics import Topics
from statestore.metastore.drift import Drift, Kind, Remedy, topic_setting
from statestore.metastore.view import View
from statestore.model import changelog_topic

#: Snapshots whose distances tell the schedule.
_LAST = 4
_WITHIN = 3


def rare_snapshots(archive: ArchiveSpec, view: View, topics: Topics, now_ms: int) -> list[Drift]:
    """Find changelogs whose tombstones are gone before three snapshots of them were published.

    What was never published has no schedule, and is not named.

    Parameters
    ----------
    now_ms
        Wall clock time, ms since the epoch.

    Raises
    ------
    ArchiveAccessError, ArchiveUnavailableError
        If the snapshots cannot be listed.
    """
    objects = archive.open()
    result = []
    for application, entry in view.catalogue.applications.items():
        named = {store.name: store.changelog_of(application) for store in entry.definition.logged_stores}
        unlogged = {store.name for store in entry.definition.stores if not store.logged}
        apart_ms: dict[str, int] = {}
        for directory, found in histories(objects, archive.cluster, application).items():
            store = directory.store_partition.store
            if store in unlogged:
                continue
            topic = named.get(store, changelog_topic(application, store))
            apart_ms[topic] = max(apart_ms.get(topic, 0), _apart_ms(found, now_ms))
        there = topics.describe(list(apart_ms))
        configs: Mapping[str, Mapping[str, str]] = topics.topic_configs(there) if there else {}
        for name, topic_found in there.items():
            changelog = changelog_spec(topic_found, dict(configs[name]))
            needed_ms = _WITHIN * apart_ms[name]
            if changelog.compacted and 0 < changelog.delete_retention_ms < needed_ms:
                found_ms = changelog.delete_retention_ms
                setting = topic_setting(topics.cluster.servers, name, "delete.retention.ms", str(needed_ms))
                result.append(_drift(name, application, needed_ms, found_ms, setting))
    return result


def _apart_ms(found: History, now_ms: int) -> int:
    """Return the longest time without a snapshot, by the last few and how old the newest is."""
    times = sorted((listed.written_ms for listed in found.usable), reverse=True)[:_LAST]
    return max((later - earlier for later, earlier in pairwise([now_ms, *times])), default=0) if times else 0


def _drift(topic: str, application: str, needed_ms: int, found_ms: int, setting: str) -> Drift:
    return Drift(
        Kind.RARE_SNAPSHOTS,
        topic,
        application,
        f"delete.retention.ms of {needed_ms} or more: {_WITHIN} snapshots lie so far apart",
        f"delete.retention.ms={found_ms}",
        Remedy.BY_HAND,
        f"publish snapshots more often (STATESTORE_SNAPSHOT_SCHEDULE), or set delete.retention.ms: {setting}",
    )
