"""Stream times of an application that is made of another's state."""

from __future__ import annotations

from statestore.formats import commit_metadata
from statestore.formats.commit_metadata import CommitMetadata
from statestore.kafka.groups import GroupOffset
from statestore.rewrite.group_offsets import stream_times


def test_stream_times_of_new_partitions_are_the_latest_of_those_that_their_keys_come_from() -> None:
    committed = [
        GroupOffset(5, commit_metadata.encode(CommitMetadata(100 + number, {"store": 10 * number})))
        for number in range(4)
    ]
    merged = [commit_metadata.decode(stream_times(committed, number, 2)) for number in range(2)]
    assert merged == [CommitMetadata(102, {"store": 20}), CommitMetadata(103, {"store": 30})]
    divided = [commit_metadata.decode(stream_times(committed, number, 8)).partition_time for number in range(8)]
    assert divided == [100, 101, 102, 103, 100, 101, 102, 103]
    others = {commit_metadata.decode(stream_times(committed, number, 3)).partition_time for number in range(3)}
    assert others == {103}
    assert stream_times([None, GroupOffset(1)], 0, 4) == ""
