"""Decides which directories of a store are live, if a former topology has left other directories.

A task's id begins with the number of its sub-topology. If a topology gets another sub-topology in front, its stores
move: `0_0/rocksdb/store` becomes `1_0/rocksdb/store`. A store that changes its kind moves from `rocksdb/<store>` to
`<store>`, or back. With at-least-once processing, Kafka Streams leaves the former directories as they are.

A *place* of a store is its sub-topology and the form of its directories. A topology has each store once, so one place
is live, and the others are stale. The first evidence that decides counts, in this order:

1. the user's description of the store
2. the topology that a group of `group.protocol=streams` has
3. the last verification: directories that were stale then, and were not used since, still are
4. use: the live place was written last, and has applied more of the same changelog partitions
5. topics: the changelog's `cleanup.policy` fits one place alone, or the store has a repartition topic, which no task of
   sub-topology 0 reads; and this place was written last
6. the last verification, if it knew only one of two places: the other one appeared since, was written last, and has
   applied no less of the same changelog

Weaker evidence, such as the times of files alone, decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from statestore.discovery.hints import Hint
from statestore.discovery.known_store import KnownStore
from statestore.discovery.shape import shape_of
from statestore.discovery.store_directory import LiveStore
from statestore.errors import LockedError, StoreCorruptedError, UnknownFormatError, unreadable_is_damaged
from statestore.formats.database_files import has_rows
from statestore.kinds.known import BUILT_IN
from statestore.model import TopicPartition
from statestore.partition.spec import GLOBAL_TASK
from statestore.statedir.legacy import legacy_offsets


class Use(NamedTuple):
    """Use of a store's directory.

    Attributes
    ----------
    committed
        Offset of the last applied changelog record; -1 if unknown.
    written_ns
        Time of the last write of a file with rows, ns since the epoch.
    """

    committed: int
    written_ns: int


class Place(NamedTuple):
    """Place of a store."""

    subtopology: int
    segmented: bool

    @classmethod
    def of(cls, store: LiveStore) -> Place:
        """Return the place of a directory."""
        return cls(store.task.subtopology, store.segmented)


class Placed(NamedTuple):
    """The directories of a store, live and stale ones.

    Attributes
    ----------
    live
        Directories that the application uses, or may use.
    stale
        Directories of other places.
    subtopology
        Sub-topology of the live place; None if unknown.
    offsets
        Offset of the last applied changelog record, by stale directory (relative to the application's directory).
    why
        Evidence that they are stale.
    problem
        Why it is unknown which place is live; empty if it is known.
    """

    live: Sequence[LiveStore]
    stale: Sequence[LiveStore] = ()
    subtopology: int | None = None
    offsets: Mapping[str, int] = {}
    why: str = ""
    problem: str = ""


def place_of(known: KnownStore | None) -> Place | None:
    """Return the place that was live when a store was last verified; None if that is unknown."""
    if known is None or known.definition is None or known.subtopology is None:
        return None
    return Place(known.subtopology, known.definition.segmented)


#: Returns the use of a directory.
Look = Callable[[LiveStore], Use]


def placed(
    here: Sequence[LiveStore],
    by_user: Hint,
    group: int | None,
    known: KnownStore | None,
    look: Look,
    *,
    same_log: bool = True,
    policy: str = "",
    repartitioned: bool = False,
) -> Placed:
    """Decide which directories of a store are live.

    Parameters
    ----------
    here
        All directories of the store.
    by_user
        The user's description of the store.
    group
        Sub-topology of the store in the application's group; None if unknown.
    known
        Description recorded by the last verification; None if there was no verification.
    same_log
        Whether the changelog is still the recorded topic. Offsets of another topic cannot be compared.
    policy
        `cleanup.policy` of the changelog; empty: unknown.
    repartitioned
        Whether the application has a repartition topic named after the store.

    Raises
    ------
    LockedError
        If a directory that must be examined is in use.
    """
    if any(store.task == GLOBAL_TASK for store in here):
        return Placed(here)
    found = _Places(here, look)
    left = [place for place in found.places if _fits(place, by_user)]
    if (by_user.subtopology is not None or by_user.kind is not None) and len(left) == 1:
        return found.decided(left[0], "you described the other directory")
    left = left or [*found.places]
    if group is not None and by_user.subtopology is None:
        left = [place for place in left if place.subtopology == group]
        if len(left) <= 1:
            why = f"the application's group has the store in sub-topology {group}"
            return found.decided(left[0] if left else None, why, group)
    unused = [] if known is None else [place for place in left if found.is_unused(place, known)]
    left = [place for place in left if place not in unused]
    if known is not None and len(left) <= 1:
        why = "the last verification found it stale, and nothing has used it since"
        return found.decided(left[0] if left else None, why, known.subtopology)
    if len(left) <= 1:
        return found.decided(left[0] if left else None, "")
    if same_log and (last := found.last_used(left)) is not None:
        return found.decided(last, "the other one was written later and has applied more of the changelog")
    fitting = [place for place in left if place.segmented is ("delete" in policy)] if policy else []
    if len(fitting) == 1 and found.is_newest(fitting[0], left):
        return found.decided(fitting[0], f"the other one was written later, and cleanup.policy={policy} fits its kind")
    behind = [place for place in left if place.subtopology > 0] if repartitioned else []
    if len(behind) == 1 and found.is_newest(behind[0], left):
        return found.decided(behind[0], "the other one was written later, and a repartition topic is named after it")
    if known is not None and (appeared := found.appeared(left, known, same_log=same_log)) is not None:
        return found.decided(appeared, "the other one appeared after the last verification and was written later")
    paths = " and ".join(str(found.places[place][0].directory) for place in left)
    options = {"subtopology": {str(place.subtopology) for place in left}}
    if len(options["subtopology"]) == 1:
        options = {"kind": {"window|session" if place.segmented else "key-value" for place in left}}
    (option,) = (f"{name}={'|'.join(sorted(values))}" for name, values in options.items())
    return Placed(
        here,
        problem=f"it has the directories {paths}. The topology was changed, and one of them is left from the former "
        f"one, but nothing shows which. Nothing was changed. Add --store {here[0].name}:{option} as the application "
        "has it now",
    )


def use_of(store: LiveStore, changelog: str) -> Use:
    """Return the use of a directory; its offset is -1 if it cannot be read.

    Parameters
    ----------
    changelog
        Name of the store's changelog topic.
    """
    try:
        with unreadable_is_damaged():
            offsets = {**shape_of(store).offsets, **legacy_offsets(store.paths)}
    except (StoreCorruptedError, UnknownFormatError):
        offsets = {}
    committed = offsets.get(TopicPartition(changelog, store.task.partition))
    return Use(-1 if committed is None else committed, _written_ns(store))


def _written_ns(store: LiveStore) -> int:
    """Return when a file of the store that only writers write was last written; 0 if it has none."""
    found = [0]
    with suppress(FileNotFoundError):
        for database in store.databases().values():
            for path in database.iterdir():
                if has_rows(path.name) or path.name.startswith("MANIFEST-"):
                    found.append(path.stat().st_mtime_ns)
    return max(found)


class _Places:
    """The places of a store, and the use of its directories."""

    def __init__(self, here: Sequence[LiveStore], look: Look) -> None:
        self._look = look
        self._uses: dict[LiveStore, Use] = {}
        self.places: dict[Place, list[LiveStore]] = {}
        for store in here:
            self.places.setdefault(Place.of(store), []).append(store)

    def use(self, store: LiveStore) -> Use:
        if store not in self._uses:
            self._uses[store] = self._look(store)
        return self._uses[store]

    def decided(self, live: Place | None, why: str, subtopology: int | None = None) -> Placed:
        """Return the live and stale directories; `live` is None if all are stale."""
        stale = [store for place, stores in self.places.items() if place != live for store in stores]
        offsets = {}
        for store in stale:
            with suppress(LockedError):
                offsets[place_name(store)] = self.use(store).committed
        if live is not None:
            return Placed(self.places[live], stale, live.subtopology, offsets, why)
        return Placed((), stale, subtopology, offsets, why)

    def is_unused(self, place: Place, known: KnownStore) -> bool:
        """Return whether the last verification found all directories of a place stale, and none was used since."""
        stores = self.places[place]
        recorded = [known.stale.get(place_name(store)) for store in stores]
        return None not in recorded and recorded == [self.use(store).committed for store in stores]

    def last_used(self, left: Sequence[Place]) -> Place | None:
        """Return the place that its files and its offsets show was used last; None if they do not agree."""
        found = [place for place in left if self.is_newest(place, left) and self._is_ahead(place, left)]
        return found[0] if found else None

    def appeared(self, left: Sequence[Place], known: KnownStore, *, same_log: bool) -> Place | None:
        """Return the only place that is new since the last verification, if it was written last; otherwise None."""
        before = place_of(known)
        new = [place for place in left if place != before]
        if before is None or len(new) != 1 or any(place_name(store) in known.stale for store in self.places[new[0]]):
            return None
        no_less = all(one.committed >= other.committed for one, other in self._pairs(new[0], before))
        return new[0] if self.is_newest(new[0], left) and (no_less or not same_log) else None

    def is_newest(self, place: Place, left: Sequence[Place]) -> bool:
        """Return whether a place was written after all others, in each partition that both have."""
        others = [self._pairs(place, other) for other in left if other != place]
        return all(pairs and all(one.written_ns > before.written_ns for one, before in pairs) for pairs in others)

    def _is_ahead(self, place: Place, left: Sequence[Place]) -> bool:
        """Return whether a place has applied more than each other one: never less, and in one partition more."""
        for other in left:
            pairs = [] if other == place else self._pairs(place, other)
            if any(one.committed < before.committed for one, before in pairs):
                return False
            if pairs and not any(one.committed > before.committed for one, before in pairs):
                return False
        return True

    def _pairs(self, place: Place, other: Place) -> list[tuple[Use, Use]]:
        there = {store.task.partition: store for store in self.places.get(other, ())}
        return [
            (self.use(store), self.use(there[store.task.partition]))
            for store in self.places[place]
            if store.task.partition in there
        ]


def _fits(place: Place, by_user: Hint) -> bool:
    """Return whether a user describes a store in this place."""
    return by_user.subtopology in (None, place.subtopology) and (
        by_user.kind is None or BUILT_IN[by_user.kind].segmented is place.segmented
    )


def place_name(store: LiveStore) -> str:
    """Directory of a store below the application's."""
    return str(store.directory.relative_to(store.state_dir / store.application))
