"""A cycle: input, a kill at a point, a run to the end, and the oracle."""

from __future__ import annotations

import shutil
from pathlib import Path

from statestore.model import changelog_topic
from tests.faults import oracle
from tests.faults.children import Hook, Kill
from tests.faults.hooks import to_disk
from tests.faults.plan import Campaign, Fault
from tests.faults.subject import Subject, as_before_kip_1035
from tests.integration.broker import unique, wait_for
from tests.oracle.rows import unexpired

_RECORDS = 40


class Cycles:
    """The cycles of one campaign, one after the other on the same application and state."""

    def __init__(self, servers: str, directory: Path, campaign: Campaign) -> None:
        definition = campaign.application.definition(unique("killed"))
        self.campaign = campaign
        self.subject = Subject(
            servers, directory, definition, seed=campaign.seed, partitions=campaign.application.partitions
        )

    def run(self, fault: Fault) -> None:
        """Kill, run to the end, check; of a point that is met first, what is restored elsewhere, too."""
        subject, point = self.subject, fault.point
        needs_state = point.upgrade or point.legacy or point.jump or point.logged or len(fault.kills) > 1
        if needs_state and not any(subject.state_dir.rglob("CURRENT")):
            subject.produce(_RECORDS)
            subject.run()
        if point.upgrade:
            subject.upgrade("counts")
        if point.legacy:
            stores = [subject.definition.store(name) for name in ("counts", "latest")]
            stores = [store for store in stores if store.engine != "in_memory"]
            as_before_kip_1035(subject.paths(subject.tasks[0]), stores)
        subject.produce(_RECORDS, tombstones=not point.upgrade, jump=point.jump, big=point.big)
        for kill in fault.kills:
            self._kill(kill, [to_disk] if fault.on_disk else [])
        subject.run()
        oracle.check(subject)
        if fault.first:
            self.restored_elsewhere()

    def _kill(self, kill: Kill, hooks: list[Hook]) -> None:
        subject = self.subject
        subject.child(kill=kill, hooks=hooks).killed()
        self._check_behind(subject)

    @staticmethod
    def _check_behind(subject: Subject) -> None:
        """K14, T4: a transactional store is whole at some commit that Kafka has, and nothing beyond is in it."""
        for task in subject.tasks:
            for store in subject.definition.subtopologies[task.subtopology].stores:
                whole = store.engine == "txn_rocksDB" and store.kind == "key-value"
                if not whole or not subject.paths(task).live(store).exists():
                    continue
                found, committed = subject.stored(task, store.name)
                where = changelog_topic(subject.name, store.name), task.partition
                if committed is None:
                    legacy = subject.paths(task).checkpoint.exists()
                    assert legacy or found == {}, f"K14: {store.name} of {task} has rows and no offset"
                    continue

                def logged(where: tuple[str, int] = where, committed: int = committed) -> bool:
                    return subject.logged(where[0])[where][1] > committed  # markers come after the answer to a commit

                wait_for(logged, f"{where} to reach {committed}")
                log = [record for record in subject.logged(where[0])[where][0] if record.offset <= committed]
                expected, _ = oracle.folded_log(store, log)
                values = {key: value for key, (value, _) in found.items()}
                assert values == {key: value for key, (value, _) in expected.items()}, f"K14: {store.name} of {task}"

    def restored_elsewhere(self) -> None:
        """O5: what is restored from the changelogs alone, twice, is what is there."""
        subject = self.subject
        for number in range(2):
            state_dir = subject.directory / f"restored-{number}"
            subject.run(state_dir=state_dir)
            for task in subject.tasks:
                for store in subject.definition.subtopologies[task.subtopology].stores:
                    if store.engine == "in_memory":
                        continue
                    live, restored = (subject.stored(task, store.name, where)[0] for where in (None, state_dir))
                    log = subject.logged(changelog_topic(subject.name, store.name))
                    _, now = oracle.folded_log(store, log[changelog_topic(subject.name, store.name), task.partition][0])
                    live, restored = unexpired(store, live, now), unexpired(store, restored, now)
                    if store.name in subject.upgraded:
                        live, restored = (
                            {key: (row[0], None) for key, row in rows.items()} for rows in (live, restored)
                        )
                    assert restored == live, f"O5: {store.name} of {task}"
            shutil.rmtree(state_dir)
