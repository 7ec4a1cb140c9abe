"""The home of a store partition: which of its copies counts.

The home of most stores is the disk of their task. If each node has its own disk, the home of a store is the archive,
and what lies on a disk is a copy.
"""

from __future__ import annotations

from typing import NamedTuple


class Home(NamedTuple):
    """Home of a store partition.

    Attributes
    ----------
    has_archive
        There is an archive that can have snapshots of it.
    in_archive
        The archive has the store, and disks have copies.
    """

    has_archive: bool
    in_archive: bool


class Origin(NamedTuple):
    """Who writes a store partition, and what follows from that.

    Attributes
    ----------
    makes_empty_stores
        Its application discards a task of which a store is missing, so an empty one is created.
    tail_is_trusted
        A store that was caught up has the rows of its log, even if nobody compared them.
    may_be_published
        A restored store has its offsets inside, as snapshots need it.
    """

    makes_empty_stores: bool
    tail_is_trusted: bool
    may_be_published: bool
