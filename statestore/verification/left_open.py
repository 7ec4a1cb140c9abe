"""Finds the offsets of its changelog that a store equals which was left open, and so has no committed offset."""

from __future__ import annotations

from statestore.errors import (
    StoreBehindLogStartError,
    StoreCorruptedError,
    TopicMismatchError,
    UnknownFormatError,
)
from statestore.kafka.topics import LogRange
from statestore.partition.inspection import damaged_file
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import Verdict, damaged
from statestore.reports import Contents, Status
from statestore.verification.contents import databases
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.closed import Proof, is_provable, prove, why_not_comparable
from statestore.verification.proof.memory import describe, find_behind_memory
from statestore.verification.proof.unproven import unproven_keys


def with_position(spec: StorePartitionSpec, verdict: Verdict, log: LogRange, options: VerifyOptions) -> Verdict:
    """Add to the verdict on a store that was left open where its rows are in its log.

    If it has lost rows that were on disk, or cannot be read, it is CORRUPT. The caller holds the task's lock.
    """
    if not is_provable(spec) or spec.store.store_kind.has_history or options.sample is not None:
        return verdict
    if why := why_not_comparable(spec):
        return verdict._replace(contents=Contents(not_proven=why))
    try:
        proof = prove(spec, databases(spec), log, options, most_passes=options.most_passes, name_suspects=True)
    except StoreCorruptedError as error:
        return damaged(verdict, Status.CORRUPT, str(error), damaged_file(error, spec.live))
    except (StoreBehindLogStartError, TopicMismatchError, UnknownFormatError):  # it stays UNCLEAN
        return verdict
    if proof is None:
        return verdict
    behind = [
        (each, describe(each, spec.store.store_kind.segments(spec.live), spec.live))
        for each in find_behind_memory(spec, proof, log, options)[:1]
    ]
    if any(each.was_applied for each, _ in behind):
        return damaged(verdict, Status.CORRUPT, behind[0][1])
    offsets = proof.offsets
    rows, unproven = proof.digest.rows, proof.unproven_at(offsets[-1].last) if offsets else 0
    contents = Contents(
        store_rows=rows,
        log_rows=rows if offsets else 0,
        equal=rows if offsets else 0,
        unproven=unproven,
        store_digest=proof.digest.hexdigest(),
        offsets=tuple((first, last) for first, last in offsets) if rows else (),
        not_proven="" if offsets and rows else _why_not(proof),
        brokers_timestamps=proof.append_times,
    )
    said = [verdict.detail, _where(proof), *(text for _, text in behind), unproven_keys(unproven)]
    return verdict._replace(contents=contents, keys=rows, detail="; ".join(filter(None, said)))


def _where(proof: Proof) -> str:
    if not proof.offsets:
        return "its rows are not those of one offset of its changelog"
    where = ", ".join(f"{first} to {last}" for first, last in proof.offsets[:3])
    return f"its rows are those of its changelog at offsets {where}"


def _why_not(proof: Proof) -> str:
    if not proof.digest.rows:
        return "the store has no rows on disk"
    if proof.unexplained:
        return f"no record explains {proof.unexplained} rows"
    return "no offset is common to all rows"
