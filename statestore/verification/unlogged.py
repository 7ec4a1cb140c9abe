"""Verifying stores without a changelog: nothing can be compared with their rows, so no result is ever OK.

It is checked what can be checked: the files are as they were sealed, their blocks can be read, commits that wait in
files are intact, and the store has the last commit that changed it, by the task's record in Kafka.
"""

from __future__ import annotations

import time
from functools import partial

from statestore.errors import StoreCorruptedError
from statestore.model import TopicPartition
from statestore.partition.facts import RebuildLoss
from statestore.partition.inspection import damaged_file, inspect
from statestore.partition.last_commit import LastCommit, find_last_commit
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import Verdict
from statestore.reports import Loss, Status, VerifyRow
from statestore.statedir.record import committed_of, read_record
from statestore.stores.commit_log import Commit, numbers, prepared_commits
from statestore.stores.database import ONLY
from statestore.verification.contents import count_rows
from statestore.verification.options import VerifyOptions
from statestore.verification.report_row import report_row, under_lock

_NO_LOG = RebuildLoss(
    Loss.LIKELY, "it has no changelog, so a rebuild would lose all of it; only a snapshot can replace it"
)


def verify_unlogged(spec: StorePartitionSpec, options: VerifyOptions) -> VerifyRow:
    """Lock the task and verify one of its stores without a changelog."""
    started = time.monotonic()
    verdict = under_lock(spec, options, partial(examine_unlogged, spec))
    return report_row(spec, verdict, options.depth, started)


def examine_unlogged(spec: StorePartitionSpec, options: VerifyOptions, last: LastCommit | None = None) -> Verdict:
    """Look at a store without a changelog, and judge it; the caller holds the task's lock.

    Parameters
    ----------
    last
        The task's last commit; None: Kafka is asked.
    """
    last = find_last_commit(spec) if last is None else last
    offsets = options.depth == "offsets"
    seen = inspect(
        spec, open_sealed=not offsets, contents=not offsets and options.sample is None, between=options.give_way
    )
    found = Verdict(Status.UNLOGGED, committed=seen.committed, sealed=seen.sealed, file=seen.file)
    if not seen.present:
        return _of_missing(spec, found, last)
    if seen.trouble is not None:
        return _lost(found, seen.trouble.status, seen.trouble.detail)
    try:
        reached, waiting = commits_in_files(spec, last, seen.committed)
        keys = None if offsets else count_rows(spec, options.give_way)
        found = _of_present(spec, found, last, reached, waiting, depth=options.depth)._replace(keys=keys)
        if reached is None and seen.empty and found.status is Status.UNLOGGED:
            return found._replace(status=Status.EMPTY, detail="nothing was committed to it yet")
        return found
    except StoreCorruptedError as error:
        damaged = _lost(found, Status.CORRUPT, str(error))
        return damaged._replace(file=damaged_file(error, spec.live) or found.file)


def commits_in_files(spec: StorePartitionSpec, last: LastCommit, committed: int | None) -> tuple[int | None, int]:
    """Return the number of the commit that the store has with those in files, and how many these are.

    A prepared commit that Kafka has not committed does not count.

    Parameters
    ----------
    committed
        Number of the last commit in the database.

    Raises
    ------
    StoreCorruptedError
        If a file is damaged, or follows a commit that the database does not have.
    """
    directory = spec.paths.commits(spec.store.name)
    paths = [directory / str(number) for number in numbers(directory)]
    paths += [path for number, path in prepared_commits(directory).items() if number == last.expected(spec.store.name)]
    found = [committed] if committed is not None and committed >= 0 else []
    waiting, reached = 0, dict[TopicPartition, int]()
    for path in paths:
        with path.open("rb") as file:
            commit = Commit(file, only_copy=True)
        number = commit.offsets.get(TopicPartition(*spec.partition))
        if not spec.store.segmented:  # a segment has no later commits than those that changed it
            commit.require_follows(ONLY, lambda _: committed, reached)
        if number is not None:
            waiting += committed is None or number > committed
            found.append(number)
    return max(found, default=None), waiting


def _of_missing(spec: StorePartitionSpec, found: Verdict, last: LastCommit) -> Verdict:
    why = last.refuted_by(spec.store.name, None)
    had = committed_of(read_record(spec.paths, spec.store.name))
    if not (why or last.unlogged or had is None):
        why = f"it had commit {had}"  # Kafka has lost the task's last commit
    if not why:
        return found._replace(status=Status.EMPTY, detail="nothing was committed to it yet")
    return _lost(found, Status.MISSING, f"{spec.live} does not exist, and {why}")


def _of_present(
    spec: StorePartitionSpec, found: Verdict, last: LastCommit, reached: int | None, waiting: int, *, depth: str
) -> Verdict:
    if why := last.refuted_by(spec.store.name, reached):
        return _lost(found, Status.LAGGING, f"{why}: it is another copy of the store, or Kafka has lost commits")
    looked = "its files were not read" if depth == "offsets" else "all of its rows can be read"
    said = [f"not judged by a changelog, as it has none; {looked}, and it has the last commit that changed it"]
    if waiting:
        said.append(f"{waiting} commits are in files beside it, and the next run of process completes them")
    return found._replace(detail="; ".join(said), loss=_NO_LOG)


def _lost(found: Verdict, status: Status, detail: str) -> Verdict:
    """Leave a store to a user: only a snapshot can replace it."""
    return found._replace(status=status, rebuildable=False, detail=f"{detail}; {_NO_LOG.why}", loss=_NO_LOG)
