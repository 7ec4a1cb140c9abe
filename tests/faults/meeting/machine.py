"""Features meet at random: a state machine of hypothesis works on one task, and an oracle looks after each step.

The oracle has three clauses:

kept
    Every row that was ever committed, and is not past its retention, is in the live store, in quarantine or in the
    log: no step of ours removes it from the last place that it is in. Damage from outside may, and a person who says
    so.
counted once
    What a store holds after a run or a restore is what its rows of before and the input give.
seen
    Verification never says that a store is well that has damage which its depth promises to see, and says it of one
    that nothing has happened to. No store is begun with the rest of a log that has lost rows of it, unless a person
    accepts that. A processor that uses what belongs to the task ends it.

What is in the places is read without the code under test (`places.py`), and counted in plain Python (`counting.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar, Literal, TypeVar

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from statestore.partition.quarantine import clean_quarantine, last_replaced, release_validated
from statestore.partition.rollback import RollbackRow, RollbackSpec, roll_back
from statestore.recovery.restore import restore
from statestore.reports import Loss, ProcessRow, RestoreRow, Status, WriteRow
from statestore.requests.verify import DEPTHS, Depth
from statestore.statedir.lock import locked
from statestore.statedir.seal import break_seal
from statestore.statedir.swap import finish_swaps
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.faults.meeting.counting import COUNTS, DEFINED, HOURLY, NOTHING, REFUSED, RETENTION_MS, STEPS, Rows, counted
from tests.faults.meeting.mortal import Row, killed_or
from tests.faults.meeting.rewrites import APPEND, OVERWRITE
from tests.faults.meeting.rocksdb_options import OPTIONS
from tests.faults.meeting.world import SEGMENT_LOST, Damage, Held, World
from tests.integration.broker import Logged, settle
from tests.integration.dying import AFTER_COMMIT
from tests.interop.kafka_streams import Driver
from tests.oracle.rows import fold, unexpired

T = TypeVar("T")
#: So often at most does a sequence have what decides on all that follows.
_AT_MOST = {
    "Kafka Streams": 3,
    "lose .statestore": 1,
    "lose a record": 2,
    "cut a log": 4,
    "recreate a log": 2,
    "shift the clock": 5,
    "rest for months": 4,
    "bring back an archive": 1,
    "outlive a delete": 1,
    "lose a disk": 3,
    "misbehave": 3,
    "change an engine": 5,
    "change options": 8,
    "append": 4,
    "overwrite": 2,
    "change the guarantee": 2,
}
_STORES = st.sampled_from([COUNTS, HOURLY])
_INPUT = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.sampled_from([b"1", b"1", b"1", None])), max_size=5
)
_ROWS = st.dictionaries(
    st.sampled_from([b"a", b"b", b"c", b"e"]), st.sampled_from([b"40", b"50", None]), min_size=1, max_size=3
)
_LATER_MS = st.sampled_from([0, 0, 0, 3_000, 70_000, 3 * RETENTION_MS])
_HOURS = [0, 0, -1, 1, 26, -48, 24 * 40]
_SWAP = [
    "swap, journal written",
    "swap, old store in quarantine",
    "swap, old segments in quarantine",
    "swap, before the last rename",
    "swap, new store live",
    "swap, before the journal goes",
]
#: Where a task is killed: before its commit in Kafka, and after.
_BEFORE_COMMIT = [
    "task begun",
    "task not idle",
    "databases about to be opened",
    "database opened, not recorded",
    "databases recorded, not marked open",
    "database marked open",
    "transactions initialized",
    "replayed, not committed",
    "replayed",
    "store being rebuilt",
    "store rebuilt, not in its place",
    *_SWAP,
    "store rebuilt, the old one in quarantine",
    "recovered",
    "before produce",
    "during produce",
    "before the flush",
    "flushed, input offsets not sent",
    "flushed, not committed",
]
_RESTORE = [
    "restore, range read",
    "restore, tail replayed",
    "restore, before the databases",
    "restore, databases written",
    "restore, built, not swapped",
    *_SWAP,
    "restore, swapped, not sealed",
    "restore, sealed, runs still there",
]


class FeaturesMeet(RuleBasedStateMachine):
    """A task, its two stores, and all that works on them.

    Attributes
    ----------
    truth
        Rows that each store has, or will have when it is mended; None: not known until it has worked again.
    others
        Committed rows that a store was rebuilt without: they are in quarantine until a person lets them go.
    lost
        Rows that were in each store when its disk was lost, until the store is there again.
    """

    servers: ClassVar[str]
    directory: ClassVar[Path]
    counts: ClassVar[Counter[str]]
    driver: ClassVar[Driver | None]

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.servers, Path(mkdtemp(prefix="sequence-", dir=self.directory)), self.driver)
        self.truth: dict[str, Rows | None] = {COUNTS: {}, HOURLY: {}}
        self.others: dict[str, set[tuple[bytes, tuple[bytes, int]]]] = {COUNTS: set(), HOURLY: set()}
        self.lost: dict[str, Rows] = {COUNTS: {}, HOURLY: {}}
        self._in_commit: set[str] = set()
        self._recreated: set[str] = set()
        self.damages: dict[str, list[Damage]] = {COUNTS: [], HOURLY: []}
        self.held, _ = self.world.look()
        self._processed = 0
        self._well = {COUNTS, HOURLY}
        self._forgotten: set[str] = set()
        self._may_count_again = False
        self._killed = self._taken_over = self._foreign = False
        self._number = 0
        self._left = Counter(_AT_MOST)

    def teardown(self) -> None:
        """Delete the topics and the state."""
        self.world.close()

    # -- process ------------------------------------------------------------------------------------------------------

    @rule(rows=_INPUT, later_ms=_LATER_MS, runs=st.sampled_from([1, 1, 2, 3]))
    def process(self, rows: list[tuple[bytes, bytes | None]], later_ms: int, runs: int = 1) -> None:
        """Send input, and run the task; perhaps again and again."""
        for _ in range(runs):
            self.world.send(rows, later_ms)
            self._ran(lambda: self.world.application.run())
            self._took("process")

    @rule(
        rows=_INPUT.filter(bool),
        later_ms=_LATER_MS,
        point=st.sampled_from([*_BEFORE_COMMIT, *AFTER_COMMIT]),
        times=st.sampled_from([1, 1, 2]),
        on_disk=st.booleans(),
    )
    def process_and_die(
        self, rows: list[tuple[bytes, bytes | None]], later_ms: int, point: str, times: int, on_disk: bool
    ) -> None:
        """Send input, and run the task in a process that is killed, if it comes to the point."""
        self.world.send(rows, later_ms)
        world = self.world

        def work() -> ProcessRow | None:
            row = self._killed_or(ProcessRow, world.application.task_spec(), f"{point}:{times}", on_disk=on_disk)
            if row is None and point in AFTER_COMMIT:
                self._settle()
            return row

        self._ran(work)
        self._took(f"process, killed {'before' if point in _BEFORE_COMMIT else 'after'} its commit")

    def _ran(self, work: Callable[[], ProcessRow | None]) -> None:
        inputs = self.world.inputs[self._processed :]
        well = len(self._well) == len(self.truth)
        short = {name: self._short(name) for name in self.truth}
        unseen = {name: [at for at in self.damages[name] if self._promised(name, at) == "deep"] for name in self.truth}
        seen = {name for name in self.truth if not unseen[name]}

        def settled() -> ProcessRow | None:
            row = work()
            if row is not None and row.failure is None:
                self._settle()
            return row

        row, before, new = self._watch(settled)
        done = row is not None and row.failure is None
        if row is not None and row.failure is not None:
            assert not well, f"a run of stores that nothing had happened to failed: {row.failure}"
        for name in self.truth:
            assert not (done and short[name]), f"seen: {name} was begun without {short[name]}, which are not in its log"
            self._account_for_run(name, before[name], new[name], inputs, done=done, seen=name in seen)
            dirty = not done and self.world.engine(name) == "rocksDB"
            self._assert_kept(name, before[name], new[name], inputs, overwritten=dirty, falsified=name not in seen)
        if done or (new[COUNTS] and self.world.exactly_once):
            assert row is None or row.lag in (0, None)
            self._processed = len(self.world.inputs)
        if done:
            self._killed = self._may_count_again = self._taken_over = False
            for name, damages in unseen.items():  # the seal of this run vouches for the store as it is now
                self.damages[name] = [at._replace(sealed="deep") if at in damages else at for at in self.damages[name]]
            self._find_well(*self.truth)
            self._forgotten.clear()
            self._not_lost(*self.truth)
            self._in_commit = {name for name in self.truth if self.held[name].live} if inputs else self._in_commit
        else:
            self._well.clear()
            self._killed = True
            self._may_count_again |= not self.world.exactly_once

    def _settle(self) -> None:
        """Wait for the markers of what was committed: they come after the answer to the commit."""
        settle(self.world.servers, *(log.topic for log in self.world.logs.values()))

    def _account_for_run(
        self, name: str, before: Held, new: list[Logged], inputs: list[Logged], *, done: bool, seen: bool
    ) -> None:
        """Counted once: what the store has now is what its rows of before and the input give.

        Parameters
        ----------
        seen
            Whether a run promises to see what was damaged.
        """
        again = self._may_count_again or (not self.world.exactly_once and not done)
        base = self._base(name, before)
        if not done:
            self.truth[name] = None if base is None or again else fold(new, base)
            if before.present != self.held[name].present:
                self._demote(name)
            return
        if base is None or again:
            self._learn(name)
            return
        if not seen:
            self.truth[name] = fold(new, base)
            return
        expected = counted(name, base, inputs)
        if name == COUNTS:
            assert len(new) == len(inputs), f"counted once: {len(new)} changes were logged for {len(inputs)} inputs"
        self._assert_holds(name, expected)
        self.truth[name] = expected

    # -- Kafka Streams ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.driver is not None and not self._killed and self._may("Kafka Streams"))
    @rule(
        keys=st.lists(st.sampled_from([b"a", b"b", b"e"]), min_size=1, max_size=3),
        how=st.sampled_from(["write", "crash", "die"]),
    )
    def take_over(self, keys: list[bytes], how: Literal["write", "crash", "die"]) -> None:
        """Let Kafka Streams take the application over, which then ends well or not; what it loses is not ours."""
        inodes = {name: self._inode(name) for name in self.truth}
        self._not_lost(*self.truth)
        self.world.take_over(keys, how)
        self.held, new = self.world.look()
        for name, truth in self.truth.items():
            if truth is None or self._inode(name) != inodes[name] or self.damages[name]:
                self._demote(name)
                # What it rebuilds a store without, nobody tells us: copies that we judged before are not kept for that.
                self._owe_only(name, self.held[name]._replace(quarantined={}))
            else:
                self.truth[name] = fold(new[name], truth)
            written = {record.key for record in new[name]}
            self.others[name] = {item for item in self.others[name] if item[0] not in written}
        self._well.clear()
        self._taken_over = True
        # At least once, a store that was left open is used as it is, with rows that were never committed.
        self._may_count_again |= how == "die" and not self.world.exactly_once
        self._took("Kafka Streams")

    def _inode(self, name: str) -> int | None:
        live = self._spec(name).live
        return live.stat().st_ino if live.exists() else None

    # -- verify -------------------------------------------------------------------------------------------------------

    @rule(name=_STORES, depth=st.sampled_from(DEPTHS))
    def verify(self, name: str, depth: Depth) -> None:
        """Verify a store."""
        spec = self._spec(name)
        at = DEPTHS.index(depth)
        due = [damage for damage in self.damages[name] if DEPTHS.index(self._promised(name, damage)) <= at]
        row, before, new = self._watch(lambda: verify(spec, VerifyOptions(depth=depth)))
        self._assert_kept(name, before[name], new[name], [])
        assert row.status is not Status.LOCKED, row.detail
        for damage in due:
            if damage.still():
                assert not row.status.healthy, f"seen: {name} is {row.status} at depth {depth}, and was {damage.name}"
        if self._short(name):
            assert row.loss is Loss.LIKELY, f"seen: {name} lost rows with its disk, and verify says {row.loss}: {row}"
        if name in self._well:
            assert row.status.healthy, f"seen: {name} is {row.status} ({row.detail}), and nothing has happened to it"
        self._took(f"verify, {depth}")

    # -- restore, roll back -------------------------------------------------------------------------------------------

    @rule(
        name=_STORES,
        mode=st.sampled_from(["auto", "auto", "tail", "full"]),
        force=st.booleans(),
        accept_loss=st.sampled_from([False, False, True]),
        point=st.sampled_from([None, None, *_RESTORE]),
    )
    def restore(
        self,
        name: str,
        mode: Literal["auto", "tail", "full", "snapshot"],
        force: bool,
        accept_loss: bool,
        point: str | None,
    ) -> None:
        """Restore a store, perhaps in a process that is killed."""
        spec = self.world.application.restore_spec(
            mode, force=force, label=self._label("restore"), accept_loss=accept_loss, store=name
        )
        row, before, new = self._watch(
            lambda: restore(spec) if point is None else self._killed_or(RestoreRow, spec, point)
        )
        if name in self._well and not force:
            assert row is None or row.outcome == "skipped", f"seen: a store that is well was {row.outcome}: {row}"
        done = row is not None and row.outcome == "restored"
        if accept_loss:
            self._not_lost(name)
        assert not (done and self._short(name)), f"seen: {name} was restored without {self._short(name)}: {row}"
        self._account_for_restore(name, before[name], done=done)
        self._assert_kept(name, before[name], new[name], [])
        self._took("restore, killed" if row is None else f"restore, {row.outcome}")

    def _account_for_restore(self, name: str, before: Held, *, done: bool) -> None:
        base = self._base(name, before, mended=done)
        self.truth[name] = base
        if done:
            if base is None:
                self._learn(name)
            else:
                self._assert_holds(name, base)
            self._find_well(name)
        elif before.present != self.held[name].present:
            self._demote(name)
        if not done and before.quarantined.keys() != self.held[name].quarantined.keys():
            self._well.discard(name)

    @rule(name=_STORES, point=st.sampled_from([None, *_SWAP]))
    def roll_back(self, name: str, point: str | None) -> None:
        """Put back the store that was replaced last, perhaps in a process that is killed."""
        spec = RollbackSpec(self._spec(name), self._label("back"))
        row, before, new = self._watch(
            lambda: roll_back(spec) if point is None else self._killed_or(RollbackRow, spec, point)
        )
        if row is None or row.failure is None:
            self._demote(name)
            self._well.discard(name)
            self._not_lost(name)
        self._assert_kept(name, before[name], new[name], [])
        self._took("roll back, killed" if row is None else "roll back, refused" if row.failure else "roll back")

    # -- rewrites -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._may_be_rewritten and self._may("append"))
    @rule(rows=_ROWS, point=st.sampled_from([None, *APPEND]), meanwhile=st.booleans())
    def append(self, rows: dict[bytes, bytes | None], point: str | None, meanwhile: bool) -> None:
        """Put and delete rows of the counts; a killed append is done again, perhaps after a run of the task."""
        if point is not None:
            self._appended(rows, point)
            if meanwhile:
                self.process([(b"a", b"1"), (b"e", b"1")], 0)
        self._appended(rows, None)
        self._took("append")

    def _appended(self, rows: dict[bytes, bytes | None], point: str | None) -> None:
        work = self.world.append(rows)

        def settled() -> WriteRow | None:
            row = work.carry_out() if point is None else self._killed_or(WriteRow, work, point)
            if point != "upsert, batch sent":  # that leaves a transaction open
                self._settle()
            return row

        row, before, new = self._watch(settled)
        assert row is None or row.healthy, f"an append to stores that nothing had happened to failed: {row}"
        assert len(new[COUNTS]) in ((0, len(rows)) if row is None else (len(rows),)), f"kept: a part of {rows}: {new}"
        assert not new[HOURLY]
        truth = self.truth[COUNTS]
        assert truth is not None
        self.truth[COUNTS] = fold(new[COUNTS], truth)
        self._assert_kept(COUNTS, before[COUNTS], new[COUNTS], [], falsified=True)
        if row is not None:
            self._assert_holds(COUNTS, self.truth[COUNTS] or {})
        else:
            self._killed = self._killed or point == "upsert, batch sent"

    @precondition(lambda self: self._may_be_rewritten and self.driver is None and self._may("overwrite"))
    @rule(rows=_ROWS, point=st.sampled_from([None, *OVERWRITE]), meanwhile=st.sampled_from(["run", "append", None]))
    def overwrite(self, rows: dict[bytes, bytes | None], point: str | None, meanwhile: str | None) -> None:
        """Give the counts other rows; a killed overwrite is corrected, perhaps after a run or an append."""
        given = {key: value or b"0" for key, value in rows.items()}
        if point is not None:
            self._overwritten(given, point)
            if meanwhile == "run":
                self.process([(b"a", b"1"), (b"e", b"1")], 0)
            elif meanwhile == "append" and COUNTS in self._well:
                self._appended({b"e": b"5"}, None)
        self._overwritten({**given, b"f": b"3"}, None)
        self._find_well(COUNTS)
        self._took("overwrite")

    def _overwritten(self, rows: dict[bytes, bytes | None], point: str | None) -> None:
        work = self.world.overwrite(rows)
        row, before, new = self._watch(
            lambda: work.carry_out() if point is None else self._killed_or(WriteRow, work, point)
        )
        assert not any(new.values()), f"counted once: an overwrite has logged {new} to the changelogs of before"
        if self.world.adopt():
            self._demote(COUNTS)  # its former rows wait in quarantine
            self.truth[COUNTS] = {key: (value or b"", work.at) for key, value in rows.items()}
            if row is None:
                self._well.discard(COUNTS)
            self.held, _ = self.world.look()
            logged = self.held[COUNTS].logged
            assert logged == self.truth[COUNTS], f"counted once: the log has {logged}, and {rows} were given"
        self._assert_kept(COUNTS, before[COUNTS], new[COUNTS], [])
        if row is not None:
            self._assert_holds(COUNTS, self.truth[COUNTS] or {})

    @property
    def _may_be_rewritten(self) -> bool:
        """Whether the counts are whole, and have a changelog that is the task's."""
        whole = len(self._well) == len(self.truth) and self.truth[COUNTS] is not None and self.held[COUNTS].present
        return whole and not self._killed and not self._taken_over and not self._recreated and not self._foreign

    # -- quarantine ---------------------------------------------------------------------------------------------------

    @rule(name=_STORES)
    def validate(self, name: str) -> None:
        """Release what was replaced last, as a validation does that has passed: its Spark job takes seconds."""
        spec = self._spec(name)
        last = last_replaced(spec.paths, name)
        if last is None or not self.held[name].present or self._is_damaged(name):
            return  # it would not pass

        def work() -> None:
            with locked(spec.paths, spec.lock_wait_s):
                release_validated(spec.paths, spec.store, last.name)

        _, before, new = self._watch(work)
        self._assert_kept(name, before[name], new[name], [])
        self._took("validate")

    @rule(name=_STORES)
    def clean_quarantine(self, name: str) -> None:
        """Remove what is old in quarantine: all is."""
        _, before, new = self._watch(lambda: self._cleaned(name, accept_loss=False))
        self._assert_kept(name, before[name], new[name], [])
        self._took("clean quarantine")

    @rule(name=_STORES)
    def release(self, name: str) -> None:
        """Have a person let go of all that is in quarantine."""
        self._watch(lambda: self._cleaned(name, accept_loss=True))
        self._owe_only(name, self.held[name])
        self._took("release from quarantine")

    def _cleaned(self, name: str, *, accept_loss: bool) -> None:
        spec = self._spec(name)
        with locked(spec.paths, spec.lock_wait_s):
            finish_swaps(spec.paths)
            clean_quarantine(spec.paths, spec.store, -1e12, accept_loss=accept_loss)

    # -- faults -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._processed > 0)
    @rule(
        name=_STORES,
        how=st.sampled_from(
            ["leave_open", "lose_current", "lose_table", "lose_blob", "lose_segment", "flip", "lose_store", "tamper"]
        ),
    )
    def damage(self, name: str, how: str) -> None:
        """Damage a live store."""
        world = self.world
        if not world.databases(name):
            name = HOURLY if name == COUNTS else COUNTS
        if not world.databases(name):
            return
        if how in ("leave_open", "tamper"):
            if self._is_damaged(name) or self.held[name].live is None:
                return  # it could not be opened
            break_seal(self._spec(name).paths, name)
        had = bool(self.truth[name]) or self.truth[name] is None
        found: Damage | None = getattr(world, how)(name)
        if found is None:
            return
        if how == "leave_open" and not world.exactly_once:
            found = None  # at least once, a store may be left so
        if found and how == "lose_segment" and self._taken_over:
            found = found._replace(sealed="deep")  # Kafka Streams writes down nowhere which segments there were
        if how == "lose_store" and (not had or self._forgotten):
            found = None  # nobody can know of it
        self._leave_out_mended(name)
        self.damages[name] += [found] if found else []
        self._well.discard(name)
        self._look_after_fault()
        self._took(f"damage, {how.replace('_', ' ')}")

    @precondition(lambda self: self._may("lose .statestore"))
    @rule()
    def forget(self) -> None:
        """Lose our own directory."""
        if not (self.world.application.state_dir / ".statestore").exists():
            return
        self.world.forget()
        for name in self.truth:
            self._lost_record(name)
            self.damages[name] = [
                damage._replace(unsealed="deep") if damage.name == SEGMENT_LOST else damage
                for damage in self.damages[name]
            ]
        self._look_after_fault()
        self._took("lose .statestore")

    @precondition(lambda self: self._may("lose a record"))
    @rule(name=_STORES)
    def forget_record(self, name: str) -> None:
        """Lose the record of a store."""
        self._spec(name).paths.record(name).unlink(missing_ok=True)
        self._lost_record(name)
        self._look_after_fault()
        self._took("lose a record")

    def _lost_record(self, name: str) -> None:
        self.damages[name] = [damage for damage in self.damages[name] if damage.name not in _KNOWN_BY_RECORD]
        self._forgotten.add(name)
        self._well.discard(name)

    @precondition(lambda self: self._may("cut a log"))
    @rule(name=_STORES, share=st.sampled_from([0.3, 0.7, 1]))
    def cut_log(self, name: str, share: float) -> None:
        """Delete records from the start of a log."""
        self.world.cut(name, int(len(self.world.logs[name].records) * share))
        self._look_after_fault()
        self._took("cut a log")

    @precondition(lambda self: not self._killed and self._may("lose a disk"))  # no transaction is open
    @rule(records=st.booleans(), share=st.sampled_from([0, 0, 0.3, 1]))
    def lose_disk(self, records: bool, share: float) -> None:
        """Lose all stores, perhaps with our own directory, and perhaps records from the start of the logs."""
        for name, truth in self.truth.items():
            self.lost[name] = dict(truth or {}) if self.held[name].present else self.lost[name]
        self.world.lose_disk()
        if records:
            self.world.forget()
        for name in self.truth:
            self.damages[name].clear()
            if records:
                self._lost_record(name)
            if share:
                self.world.cut(name, int(len(self.world.logs[name].records) * share))
        self._well.clear()
        self._look_after_fault()
        self._took("lose a disk")

    @precondition(lambda self: not self._killed and self._may("recreate a log"))  # nor is a transaction open in it
    @rule(name=_STORES, records=st.sampled_from([0, 0, 20]))
    def recreate_log(self, name: str, records: int) -> None:
        """Make a log anew, with records that are somebody else's."""
        record = self._spec(name).paths.record(name)
        known = record.exists() and self.truth[name] and self.held[name].present
        topic_id = self._topic_id(name)
        if name in self._in_commit:
            self._recreated.add(name)
        else:
            self._not_lost(name)
        self.world.recreate(name, records)
        self._foreign |= name == COUNTS
        self._well.discard(name)
        if known and name not in self._forgotten:
            spec = self._spec(name)
            inode = spec.live.stat().st_ino

            def still() -> bool:
                same = spec.live.exists() and spec.live.stat().st_ino == inode
                return same and record.exists() and topic_id in record.read_text()

            self.damages[name].append(Damage("the store of another log", "offsets", "offsets", still))
        if name in self._forgotten or not known:
            self._demote(name)
        self._look_after_fault()
        self._took("recreate a log")

    @precondition(lambda self: self._may("shift the clock"))
    @rule(hours=st.sampled_from(_HOURS))
    def shift_clock(self, hours: int) -> None:
        """Put our clock ahead or back."""
        self.world.ahead_s = hours * 3_600
        self._took("shift the clock")

    @precondition(lambda self: self._logs_give_all and self.world.exactly_once and self._may("bring back an archive"))
    @rule(lost=st.sampled_from(["nothing", "stores", "stores and records"]), cut=st.booleans())
    def bring_back_an_archive(self, lost: str, cut: bool) -> None:
        """Have an archive, put an earlier copy of it in its place, and perhaps lose all that it does not have."""
        with self.world.archived() as bucket:
            self.process([(b"a", b"1"), (b"b", b"1")], 0)
            bucket.back_up()
            self.process([(b"a", b"1"), (b"b", b"1")], 0)
            bucket.bring_back()
            if lost != "nothing":
                self.lose_disk(lost == "stores and records", 1 if cut else 0)
            for name in self.truth:
                self.restore(name, "auto", False, False, None)
            self.process([(b"a", b"1")], 0)
            for name in self._well.copy():
                self.restore(name, "snapshot", True, False, None)
        self._took("bring back an archive")

    @property
    def _logs_give_all(self) -> bool:
        """Whether both stores are whole, and their logs alone give what they have."""
        whole = (
            self._may_be_rewritten and self.driver is None and not any(log.start for log in self.world.logs.values())
        )
        return whole and all(
            self._unexpired(name, truth or {}) == self._unexpired(name, self.held[name].logged)
            for name, truth in self.truth.items()
        )

    @precondition(lambda self: self._logs_give_all and self.world.exactly_once and self._may("outlive a delete"))
    @rule(hours=st.sampled_from([-1, -30 / 3_600, 1]))
    def outlive_a_delete(self, hours: float) -> None:
        """Log a delete that a store lacks until compaction has removed it, then run on a host with another clock."""
        keys = [key for key in (self.truth[COUNTS] or {}) if key in (b"a", b"b", b"c", b"d")]
        if not keys:
            return
        with self.world.compacting() as forget:
            self.process_and_die([(min(keys), None)], 0, "Kafka committed, stores not", 1, False)
            forget(min(keys))
            self.held, new = self.world.look()
            self.truth[COUNTS] = None if self.truth[COUNTS] is None else fold(new[COUNTS], self.truth[COUNTS])
            right_s = self.world.ahead_s
            self.world.ahead_s = hours * 3_600
            self.process([], 0)
            self.world.ahead_s = right_s
        self._took("outlive a delete")

    @precondition(lambda self: not self._killed and self._may("rest for months"))  # no transaction is open by then
    @rule()
    def rest(self) -> None:
        """Rest until Kafka has deleted the group's offsets."""
        self.world.rest()
        self._took("rest for months")

    @precondition(lambda self: len(self._well) == len(self.truth) and self._may("misbehave"))
    @rule(call=st.sampled_from(sorted(REFUSED)), caught=st.booleans())
    def misbehave(self, call: str, caught: bool) -> None:
        """Have the processor use what belongs to the task; a person then skips the record."""
        self.process([], 0)
        self.world.send([(b"a" if self.world.exactly_once else NOTHING, (b"?" if caught else b"!") + call.encode())], 0)
        row, _, new = self._watch(self.world.application.run)
        assert row.failure is not None, f"seen: a processor has used {call}, and its task has not failed"
        assert not any(new.values()), f"counted once: what failed has logged {new}"
        if self.world.exactly_once:  # a store without transactions may now hold what was never committed
            self._well -= {name for name in self.truth if self.world.engine(name) == "rocksDB"}
        self.world.skip_input()
        self._processed = len(self.world.inputs)
        self.process([], 0)
        self._took("misbehave")

    @precondition(lambda self: self._may("change an engine"))
    @rule(name=_STORES)
    def change_engine(self, name: str) -> None:
        """Keep a store with transactions, or without."""
        self.world.change_engine(name)
        self._took("change an engine")

    @precondition(lambda self: self._may("change options"))
    @rule(setter=st.sampled_from(OPTIONS))
    def change_options(self, setter: str | None) -> None:
        """Open stores with other options of RocksDB."""
        self.world.change_options(setter)
        self._took("change options")

    @precondition(lambda self: not self._killed and self._may("change the guarantee"))
    @rule()
    def change_guarantee(self) -> None:
        """Process at least once, or exactly once."""
        self.world.change_guarantee()
        for name in self.truth:
            self.damages[name] = [damage for damage in self.damages[name] if damage.name != "left open"]
        self._took("change the guarantee")

    # -- the oracle ---------------------------------------------------------------------------------------------------

    def _took(self, step: str) -> None:
        self.counts[step] += 1
        self._left[step] -= 1

    def _may(self, step: str) -> bool:
        return self._processed > 0 and self._left[step] > 0

    def _watch(self, work: Callable[[], T]) -> tuple[T, dict[str, Held], dict[str, list[Logged]]]:
        """Let something of ours work; return what came of it, where rows were before, and what was logged."""
        before = self.held
        with self.world.clock():
            result = work()
        self.held, new = self.world.look()
        return result, before, new

    def _killed_or(self, kind: type[Row], spec: Any, point: str, *, on_disk: bool = False) -> Row | None:
        said = self.world.directory / "said.json"
        return killed_or(kind, spec, point, said, ahead_s=self.world.ahead_s, on_disk=on_disk)

    def _look_after_fault(self) -> None:
        self.held, _ = self.world.look()

    def _base(self, name: str, before: Held, *, mended: bool = True) -> Rows | None:
        """Rows that a store was to go on from, if it was replaced, and what that has shown."""
        held = self.held[name]
        losses = [self.world.loss(name, label) for label in held.quarantined.keys() - before.quarantined.keys()]
        truth = self.truth[name]
        if any(loss is not Loss.NONE for loss in losses) or (not before.present and held.present and mended):
            self._demote(name)
            return before.logged
        if losses and truth is not None and held.live is not None and held.present:
            for key, row in self._unexpired(name, truth).items():
                kept = row in (held.live.get(key), before.logged.get(key))
                assert kept, f"kept: {name} was replaced as if nothing could be lost, and {key!r}: {row} was"
        return truth

    def _not_lost(self, *names: str) -> None:
        """Forget that disks were lost: the stores are there again, or a person has decided."""
        for name in names:
            self.lost[name] = {}
            self._recreated.discard(name)

    def _short(self, name: str) -> Rows:
        """Rows that a store had when its disk was lost, and that neither its log nor the store has now.

        The log has lost its start, or is new. Other work on the task may have put a rebuilt store in place.
        """
        log = self.world.logs[name]
        held = self.held[name].logged | (self.held[name].live or {})
        lost = self._unexpired(name, self.lost[name]) if log.start or name in self._recreated else {}
        return {key: row for key, row in lost.items() if held.get(key) != row}

    def _demote(self, name: str) -> None:
        """Forget what a store should have; all that it had is still owed."""
        self.others[name] |= set((self.truth[name] or {}).items())
        self.truth[name] = None

    def _learn(self, name: str) -> None:
        """Take what a store has for what it should have, if nothing is wrong with it that is still there."""
        self.truth[name] = None if self._is_damaged(name) else self.held[name].live

    def _owe_only(self, name: str, held: Held) -> None:
        self.others[name] = {(key, row) for key, row in self.others[name] if held.has(key, row)}

    def _assert_kept(
        self,
        name: str,
        before: Held,
        new: list[Logged],
        inputs: list[Logged],
        *,
        overwritten: bool = False,
        falsified: bool = False,
    ) -> None:
        """Kept: what was anywhere is somewhere, but for what the input has superseded or retention has ended.

        Parameters
        ----------
        overwritten
            Rows of these inputs may be gone from a store without transactions whose run did not end: it had them
            overwritten. They are in the log, unless that was cut.
        falsified
            The store has damage that a run does not promise to see: the input was counted on rows that it has, and what
            came of that supersedes the rows that it should have.
        """
        held = self.held[name]

        def is_superseded(key: bytes, row: tuple[bytes, int]) -> bool:
            if falsified and any(record.key == key for record in new):
                return True
            return self._is_superseded(name, key, row, new, inputs)

        self.others[name] -= {item for item in self.others[name] if is_superseded(*item)}
        owed = {*self.others[name], *(self.truth[name] or {}).items()}
        owed |= {item for item in (before.live or {}).items() if before.logged.get(item[0]) == item[1]}
        touched = {record.key for record in inputs}
        for key, row in owed:
            if not before.has(key, row) or held.has(key, row) or not self._unexpired(name, {key: row}):
                continue
            if is_superseded(key, row):
                continue
            if overwritten and any(_is_of(name, key, one) for one in touched):
                continue
            where = before.where(key, row)
            raise AssertionError(f"kept: {key!r}: {row} of {name} was in {where}, and is nowhere now")

    def _is_superseded(
        self, name: str, key: bytes, row: tuple[bytes, int], new: list[Logged], inputs: list[Logged]
    ) -> bool:
        """Whether what was logged is what the input makes of the row; at least once, whether anything was logged."""
        if all(record.key != key for record in new):
            return False
        return not self.world.exactly_once or fold(new).get(key) == counted(name, {key: row}, inputs).get(key)

    def _assert_holds(self, name: str, expected: Rows) -> None:
        live = self.held[name].live
        if live is None:
            return  # damage that nobody has seen yet
        found, expected = self._unexpired(name, live), self._unexpired(name, expected)
        wrong = {key: (found.get(key), expected.get(key)) for key in {**found, **expected}}
        wrong = {key: rows for key, rows in wrong.items() if rows[0] != rows[1]}
        assert not wrong, f"counted once: {name} has (found, expected) {wrong}"

    def _unexpired(self, name: str, rows: Rows) -> Rows:
        return unexpired(DEFINED[name], rows, self.world.stream_time)

    def _is_damaged(self, name: str) -> bool:
        return any(damage.still() for damage in self.damages[name])

    def _promised(self, name: str, damage: Damage) -> Depth:
        """The least depth that promises to see a damage now."""
        return damage.sealed if self._spec(name).paths.seal(name).exists() else damage.unsealed

    def _leave_out_mended(self, name: str) -> None:
        self.damages[name] = [damage for damage in self.damages[name] if damage.still()]

    def _find_well(self, *names: str) -> None:
        for name in names:
            self._leave_out_mended(name)
            if not self.damages[name]:
                self._well.add(name)

    # -- small things -------------------------------------------------------------------------------------------------

    def _spec(self, name: str) -> Any:
        return self.world.application.store_spec(store=name)

    def _topic_id(self, name: str) -> str:
        spec = self.world.application.changelog_spec(name)
        return spec.topic_id

    def _label(self, name: str) -> str:
        self._number += 1
        return f"{name}-{self._number}"


#: Damage that nobody can see without the record.
_KNOWN_BY_RECORD = ("the store of another log", "lost")


def _is_of(name: str, row_key: bytes, key: bytes | None) -> bool:
    return key is not None and (row_key == key if name == COUNTS else row_key.startswith(key))


def machine_on(
    servers: str, directory: Path, *, counts: Counter[str] | None = None, driver: Driver | None = None
) -> type[FeaturesMeet]:
    """Return the machine that works on a broker, and below a directory.

    Parameters
    ----------
    counts
        Gets the steps that are taken.
    driver
        Of Kafka Streams; None: it takes nothing over.
    """
    counts = Counter() if counts is None else counts
    of_its_own = {"servers": servers, "directory": directory, "counts": counts, "driver": driver}
    return type("Meeting", (FeaturesMeet,), of_its_own)


def run_sequences(servers: str, directory: Path, number: int, of_seed: int, **how: Any) -> int:
    """Run sequences of steps that a seed draws; return how many steps were taken.

    A sequence that hypothesis begins with comes on top: it has one step again and again, the simplest there is.
    """
    machine = machine_on(servers, directory, **how)
    drawn = settings(
        max_examples=number + 1,
        stateful_step_count=STEPS,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    run_state_machine_as_test(seed(of_seed)(machine), settings=drawn)
    return machine.counts.total()
