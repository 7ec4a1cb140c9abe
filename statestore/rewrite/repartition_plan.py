"""What a repartition is to make of which application, and what that would write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from statestore.kafka.groups import GroupOffset
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.group_offsets import InputPair, NewOffsets, ReadsFrom
from statestore.rewrite.new_application import NewApplication
from statestore.rewrite.partitioned import Counted


class CutSource(NamedTuple):
    """A set of snapshots as the source.

    Attributes
    ----------
    snapshot_set
        Its name.
    elsewhere
        The application is in another Kafka cluster, which is not asked.
    same_input
        The topic that both read; None: each reads one of its own.
    offsets
        Where the new group goes on.
    """

    snapshot_set: str
    elsewhere: bool
    same_input: str | None
    offsets: NewOffsets


class RepartitionSpec(NamedTuple):
    """Source and target of a repartition.

    Attributes
    ----------
    source
        All store partitions of the application that there is.
    new
        The application that is to be made.
    partitions
        Of what it reads.
    inputs
        What the two read; None: what the group has committed, renamed as `renamed` says.
    renamed
        Topics that the new application reads in the place of others.
    any_partitioner
        Rows stay in their partition.
    parallelism
        Pieces of work that are done at the same time.
    cut
        The set that the stores of `source` are copies of: nobody works on these. None: they are those of the
        application, which must be stopped.
    """

    source: Sequence[StorePartitionSpec]
    new: NewApplication
    partitions: int
    inputs: Sequence[InputPair] | None
    renamed: Mapping[str, str]
    reads_from: ReadsFrom | None
    any_partitioner: bool
    run_bytes: int
    started_ms: int
    parallelism: int
    cut: CutSource | None = None


class StorePlan(NamedTuple):
    """Planned change of a store: its old and new partitions, and their content."""

    name: str
    before: int
    after: int
    counted: Counted

    @property
    def rows(self) -> int:
        """Rows of all partitions."""
        return sum(self.counted.rows)

    @property
    def bytes(self) -> int:
        """Bytes of their keys and values."""
        return sum(self.counted.bytes)


class RepartitionPlan(NamedTuple):
    """Plan of a repartition.

    Attributes
    ----------
    snapshot_set
        Name of the set that the stores are of; None: they are those of the application.
    finishes
        An earlier attempt has written all: only the group's offsets and the catalogue may be left.
    discards
        An earlier attempt was interrupted: what it left is thrown away first.
    offsets
        Where the new group goes on.
    said
        What that means, for people.
    disk_needed, disk_free
        Bytes below the state directory.
    """

    source: str
    target: str
    partitions: int
    snapshot_set: str | None
    stores: Sequence[StorePlan]
    finishes: bool
    discards: bool
    offsets: Mapping[TopicPartition, GroupOffset]
    said: Sequence[str]
    seconds: float
    disk_needed: int
    disk_free: int

    @property
    def rows(self) -> int:
        """Rows that are written."""
        return sum(store.rows for store in self.stores)

    @property
    def bytes(self) -> int:
        """Bytes of their keys and values."""
        return sum(store.bytes for store in self.stores)


class MadeStore(NamedTuple):
    """A store partition that was made; `committed` is the offset of its last record, None without one."""

    store: StorePartitionSpec
    rows: int
    committed: int | None
