"""Checks that the rows of a store are its whole state, and can become records unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from statestore.discovery.older_versions import shown_layout
from statestore.errors import InputError, RebuildError
from statestore.model import TopicPartition
from statestore.partition.advice import reseed_refused
from statestore.partition.inspection import inspect
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Status
from statestore.rewrite.rows import Contents, survey
from statestore.stores.open import build_store, opened
from statestore.verification.check import examine as look_at
from statestore.verification.options import VerifyOptions


class Examined(NamedTuple):
    """One store partition, which may be written anew.

    Attributes
    ----------
    present
        It has a directory; if not, it never had a row.
    position
        Input offsets that its rows are of; empty: they are not known.
    """

    store: StorePartitionSpec
    present: bool
    contents: Contents
    position: Mapping[TopicPartition, int]


def require_rewritable(stores: Sequence[StorePartitionSpec], *, versions: bool = False) -> None:
    """Refuse stores of which it is plain from what they are that their rows do not make a changelog.

    Parameters
    ----------
    versions
        The versions of a versioned store are given, so those that it has need not be read.

    Raises
    ------
    InputError
        With the reason.
    """
    store = stores[0]
    name = f"{store.application}/{store.store.name}"
    why = reseed_refused(store, versions=versions)
    if why is None and store.origin.may_be_older and shown_layout(store.state_dir, store.application).offsets_beside:
        why = (
            "Kafka Streams before 4.3 wrote it, which does not say in the store whether it was closed in order. Start "
            "the application with 4.3 or later, stop it, and run again"
        )
    if why is not None:
        raise InputError(f"{name} cannot be rewritten: {why}")


def examine(store: StorePartitionSpec, partitions: int | None) -> Examined:
    """Read a store partition, whose task is locked, and refuse one that is not whole.

    Parameters
    ----------
    partitions
        Of the changelog: each key must lie where Kafka's partitioner puts it; None: keys may lie anywhere.

    Raises
    ------
    InputError
        If it is missing, was not closed in order, is behind what is known of it, or has keys of other partitions.
    StoreCorruptedError
        If a block of it is damaged.
    """
    label, seen = store.store_partition, inspect(store, contents=True)
    if seen.trouble is not None:
        raise InputError(f"{label} is {seen.trouble.status}: {seen.trouble.detail}. {_WHOLE}")
    if not seen.present:
        if seen.known.anything or seen.record is None:
            raise InputError(f"{label} is MISSING: {store.live} does not exist. {_WHOLE}")
        return Examined(store, False, Contents(), {})
    known = None if seen.record is None else seen.record.committed
    if known is not None and (seen.committed is None or seen.committed < known):
        raise InputError(
            f"{label} is at offset {seen.committed} of its lost changelog, but was at {known} before: it is an older "
            f"copy, and later changes are lost. {_WHOLE}"
        )
    contents = survey(store, partitions)
    if (wrong := contents.misplaced) is not None:
        raise InputError(
            f"{label} has {wrong.keys} keys that Kafka's partitioner puts elsewhere, such as {wrong.key!r:.120}, "
            f"which belongs to partition {wrong.partition} of {partitions}. If the application has its own "
            "partitioner, or the store is one of a foreign-key join, say --partitioner any"
        )
    with opened(store.store, store.context(read_only=True)) as found:
        return Examined(store, True, contents, found.position())


def require_caught_up(store: StorePartitionSpec, why: str) -> None:
    """Refuse a store partition that has not all of its changelog; one that never had a row may be missing.

    Parameters
    ----------
    why
        What needs it, as a sentence.

    Raises
    ------
    InputError
        With its status.
    """
    _, found = look_at(store, VerifyOptions(depth="offsets"))
    nothing_logged = found.log is not None and found.log.last_stable == 0
    if not found.status.healthy and not (found.status is Status.MISSING and nothing_logged):
        raise InputError(
            f"{store.store_partition} is {found.status}: {found.detail}. Expected a store that has all of its "
            f"changelog. {why}; `statestore verify` says what to do. Nothing was changed"
        )


def known_position(store: StorePartitionSpec) -> Mapping[TopicPartition, int] | None:
    """Return the input that the live store's rows are of; None: it cannot be told."""
    seen = inspect(store)
    if not seen.present:
        return {}
    if seen.trouble is not None:
        return None
    opened = build_store(store.store)
    try:
        opened.init(store.context(read_only=True))
        return opened.position()
    except RebuildError:
        return None
    finally:
        opened.close(clean=False)


_WHOLE = "A changelog can only be rewritten from intact stores, and from every partition of them; nothing was changed"
