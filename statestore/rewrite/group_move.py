"""The input offsets of an application's group, which move together with the changelogs that the catalogue names.

    hold -> the catalogue names the changelogs -> settle -> the stores are put in place -> release

While the hold is there, the application is between two points, and no task opens (`statedir/lock.py`), not even one
without a store. So the offsets can be committed again by each attempt: no task has continued from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from statestore import kill_switch
from statestore.changelog.input_offsets import keep_offsets
from statestore.durable import remove_durably, write_durably
from statestore.kafka.groups import GroupOffset, commit_offsets
from statestore.kafka.topics import Topics
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.journal import RewriteJournal
from statestore.statedir.paths import point_hold


class GroupMove(NamedTuple):
    """Input offsets that a group gets, and those that it had, with stream times as metadata."""

    offsets: Mapping[TopicPartition, GroupOffset]
    former: Mapping[TopicPartition, GroupOffset]


def position_at(offsets: Mapping[TopicPartition, GroupOffset], store: StorePartitionSpec) -> dict[TopicPartition, int]:
    """Return the position of a store that reflects all of its input before these offsets."""
    assert store.input_topic is not None, "a definition tells it"
    where = TopicPartition(store.input_topic, store.task.partition)
    found = offsets.get(where)
    return {where: found.next_offset - 1} if found is not None and found.next_offset else {}


def hold(state_dir: Path, journal: RewriteJournal) -> None:
    """Let no task of the application open until `release`, if the journal moves offsets."""
    if journal.offsets:
        write_durably(point_hold(state_dir, journal.application), f"{journal.label}\n")
        kill_switch.reached("point, held")


def settle(topics: Topics, state_dir: Path, journal: RewriteJournal) -> None:
    """Commit the offsets of a journal, unless the application may have gone on from them."""
    if not point_hold(state_dir, journal.application).exists():
        return
    keep_offsets(topics, journal.application, journal.group_offsets)
    kill_switch.reached("point, input offsets kept, not committed")
    commit_offsets(topics.cluster, journal.application, journal.group_offsets)
    kill_switch.reached("point, input offsets committed")


def release(state_dir: Path, journal: RewriteJournal) -> None:
    """Let tasks open again; only before the journal is removed."""
    if journal.offsets:
        remove_durably(point_hold(state_dir, journal.application))
        kill_switch.reached("point, released")
