"""Records of the topics of input offsets: where each task continues in its input, kept where nothing expires.

A consumer group's offset expires `offsets.retention.minutes` after its last commit. These topics are compacted, so the
last record of each key stays. A task writes one with each commit, in the same transaction.

    key     the input partition as text, such as orders-3
    value   JSON: {"version": 1, "offset": 42, "topic_id": "...", "sequence": 7, "stream_time": 1700000000000,
            "store_times": {"totals": 1700000000000}, "changelogs": {"totals": "..."}}

Partition 0 also has the claim of the application's catalogue, with the key `catalogue` (`metastore/claims.py`).

`offset` is the next to read; `topic_id` tells an input topic that was recreated; `sequence` grows with each commit.
Times are ms since the epoch: the largest timestamp of the input, and the stream times of window and session stores.
`changelogs` has the topic id of the changelog of each store that has anything. `unlogged` has, of each store without a
changelog that has anything, the number of the last commit that changed it. It is left out if there is no such store.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from statestore.formats.commit_metadata import UNKNOWN_TIME, CommitMetadata

#: Key of the claim.
CLAIM_KEY = b"catalogue"


class InputOffset(BaseModel):
    """One record's value.

    Attributes
    ----------
    offset
        Next input offset to read.
    topic_id
        Id of the input topic; None: not known.
    sequence
        Number of the commit that wrote it.
    stream_time, store_times
        ms since the epoch; -1 before the first record.
    changelogs
        Topic id of the changelog of each store of the task that had anything.
    unlogged
        Number of the last commit that changed each store without a changelog that had anything.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1] = 1
    offset: int = Field(ge=0)
    topic_id: str | None = None
    sequence: int = Field(ge=0)
    stream_time: int = UNKNOWN_TIME
    store_times: dict[str, int] = {}
    changelogs: dict[str, str] = {}
    unlogged: dict[str, int] = {}

    @classmethod
    def of(
        cls,
        offset: int,
        topic_id: str | None,
        sequence: int,
        times: CommitMetadata,
        changelogs: Mapping[str, str] = MappingProxyType({}),
        unlogged: Mapping[str, int] = MappingProxyType({}),
    ) -> Self:
        """Return the value for a commit with these stream times."""
        return cls(
            offset=offset,
            topic_id=topic_id,
            sequence=sequence,
            stream_time=times.partition_time,
            store_times=dict(times.times),
            changelogs=dict(changelogs),
            unlogged=dict(unlogged),
        )

    def is_of(self, topic_id: str | None) -> bool:
        """Return whether it is an offset of an input topic with this id, or one of the two ids is unknown."""
        return None in (self.topic_id, topic_id) or self.topic_id == topic_id

    @property
    def times(self) -> CommitMetadata:
        """Its stream times."""
        return CommitMetadata(self.stream_time, self.store_times)

    def encode(self) -> bytes:
        """Return the value of its record."""
        return self.model_dump_json(exclude=None if self.unlogged else {"unlogged"}).encode()


def decode(value: bytes) -> InputOffset:
    """Read the value of a record.

    Raises
    ------
    ValueError
        If it has another layout, such as that of a later version.
    """
    return InputOffset.model_validate_json(value)
