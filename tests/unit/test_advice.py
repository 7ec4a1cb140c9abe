"""Each situation has one next step: the wording is in one file, and the situation follows from the verdict alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from statestore.advice import NO_ACTION, Situation, Target, advice, message, of_action
from statestore.archive.archive import ArchiveSpec
from statestore.definitions.store import StoreDefinition
from statestore.errors import StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange
from statestore.model import TaskId
from statestore.partition.advice import LostLog, advise, situation
from statestore.partition.facts import RebuildLoss
from statestore.partition.plan import advised
from statestore.partition.spec import GLOBAL_TASK, ChangelogSpec, StorePartitionSpec
from statestore.partition.verdict import Verdict
from statestore.reports import Action, Failure, Loss, Status

#: The wording of every advice. Regenerate after an intended change: `python -m tests.unit.test_advice`.
SNAPSHOT = Path(__file__).parent / "resources" / "advice.json"
TARGET = Target("shop", "totals", "0_1", "NAME", "kafka:9092", "orders:1")
EMPTY, LOG = LogRange(0, 0, 0), LogRange(0, 10, 10)


def wording() -> dict[str, dict[str, str | None]]:
    """Return the advice for each situation."""
    return {each.value: advice(each, TARGET).model_dump(exclude={"situation"}) for each in Situation}


def spec(**fields) -> StorePartitionSpec:
    given = {"store": StoreDefinition(name="totals"), "task": TaskId(0, 1), **fields}
    changelog = ChangelogSpec(topic="shop-totals-changelog", topic_id="new", partitions=2, delete_retention_ms=1)
    return StorePartitionSpec(
        **{
            "application": "shop",
            "changelog": changelog,
            "cluster": Cluster("kafka:9092", 1),
            "state_dir": Path("/state"),
            **given,
        }
    )


def lost(status: Status, cause: Status, log: LogRange | None = LOG, **fields) -> Verdict:
    return Verdict(status, "evidence", RebuildLoss(Loss.LIKELY, "why", cause), log=log, **fields)


ARCHIVE = ArchiveSpec(url="file:///archive", cluster="c", timeout_s=1.0)
VERSIONED = StoreDefinition(name="totals", kind="versioned", retention_ms=1_000)
UNLOGGED = StoreDefinition(name="totals", logged=False)
IN_MEMORY = StoreDefinition(name="totals", engine="in_memory")

CASES = [
    (None, spec(), Verdict(Status.OK)),
    (None, spec(), Verdict(Status.MISSING, refills=True)),
    (Situation.LAST_COPY, spec(), lost(Status.OK, Status.TRUNCATED)),
    (Situation.UNLOGGED, spec(store=UNLOGGED, changelog=None), lost(Status.UNLOGGED, Status.OK, None)),
    (
        Situation.UNLOGGED_LOST,
        spec(store=UNLOGGED, changelog=None, archive=ARCHIVE),
        lost(Status.MISSING, Status.OK, None, rebuildable=False),
    ),
    (
        Situation.UNLOGGED_LOST_ALONE,
        spec(store=UNLOGGED, changelog=None),
        lost(Status.CORRUPT, Status.OK, None, rebuildable=False),
    ),
    (Situation.BEHIND, spec(), Verdict(Status.LAGGING, catches_up=True)),
    (Situation.DAMAGED, spec(), Verdict(Status.CORRUPT, loss=RebuildLoss(Loss.UNPROVEN))),
    (Situation.ROWS_DIFFER, spec(), Verdict(Status.DIVERGED, loss=RebuildLoss(Loss.NONE))),
    (Situation.IN_USE, spec(), Verdict(Status.LOCKED)),
    (Situation.CHANGELOG_RECREATED, spec(), lost(Status.REPLACED, Status.REPLACED, EMPTY)),
    (Situation.CHANGELOG_RECREATED, spec(), lost(Status.AHEAD, Status.AHEAD, EMPTY)),
    (Situation.CHANGELOG_MISSING, spec(changelog=None), lost(Status.REPLACED, Status.REPLACED, None)),
    (Situation.RECREATED_WITH_RECORDS, spec(), lost(Status.REPLACED, Status.REPLACED)),
    (Situation.RECREATED_NO_RESEED, spec(store=VERSIONED), lost(Status.REPLACED, Status.REPLACED, EMPTY)),
    (
        Situation.RECREATED_NO_RESEED,
        spec(archive=ARCHIVE.model_copy(update={"node_local": True})),
        lost(Status.REPLACED, Status.REPLACED, EMPTY),
    ),
    (Situation.MISSING_NO_RESEED, spec(store=VERSIONED), lost(Status.REPLACED, Status.REPLACED, None)),
    (Situation.STORE_AND_LOG_GONE, spec(), lost(Status.MISSING, Status.REPLACED, EMPTY)),
    (Situation.STORE_AND_LOG_GONE, spec(), lost(Status.REPLACED, Status.REPLACED, EMPTY, holds_nothing=True)),
    (Situation.STORE_GONE_NO_TOPIC, spec(changelog=None), lost(Status.MISSING, Status.REPLACED, None)),
    (Situation.DAMAGED_AND_LOSING, spec(), lost(Status.CORRUPT, Status.REPLACED, EMPTY)),
    (Situation.DAMAGED_AND_LOSING, spec(), lost(Status.CORRUPT, Status.AHEAD)),
    (Situation.LOG_LOST_START, spec(), lost(Status.TRUNCATED, Status.TRUNCATED)),
    (Situation.LOG_LOST_START_ARCHIVE, spec(archive=ARCHIVE), lost(Status.CORRUPT, Status.TRUNCATED)),
    (Situation.LOG_CUT, spec(), lost(Status.AHEAD, Status.AHEAD)),
    (Situation.IN_MEMORY, spec(store=IN_MEMORY), lost(Status.TRUNCATED, Status.TRUNCATED)),
    (Situation.ROWS_DIFFER_AND_LOSING, spec(), lost(Status.DIVERGED, Status.TRUNCATED)),
    (Situation.INSTALLED_DIVERGED, spec(), lost(Status.DIVERGED, Status.DIVERGED)),
    (Situation.REPARTITIONED, spec(), Verdict(Status.REPARTITIONED, rebuildable=False)),
    (Situation.UNKNOWN_FORMAT, spec(), Verdict(Status.UNKNOWN_FORMAT, rebuildable=False)),
    (Situation.UNFINISHED_SWAP, spec(), Verdict(Status.CORRUPT, rebuildable=False)),
    (Situation.GLOBAL, spec(task=GLOBAL_TASK), Verdict(Status.REPLACED, rebuildable=False)),
    (Situation.MANUAL, spec(), Verdict(Status.DIVERGED, rebuildable=False)),
]
#: Found by a survey (test_survey_risks.py, tests/integration/planted_risks.py).
_SURVEYED = tuple(Situation)[tuple(Situation).index(Situation.ONE_REPLICA) :]
#: Found elsewhere: by a listing of snapshots, by the catalogue, by a look at a store in use, or by a task.
ELSEWHERE = {
    Situation.SNAPSHOT_HAS_ALL,
    Situation.ONLY_SNAPSHOT,
    Situation.TOPIC_NOT_RECORDED,
    Situation.RESEED_INTERRUPTED,
    Situation.UNDETERMINED,
    Situation.UNCONFIRMED,
    Situation.DIFFERS_IN_USE,
    *(each for each in Situation if each.name.startswith("INPUT_")),
    *_SURVEYED,
}


def test_the_wording_of_each_advice_is_as_recorded():
    assert wording() == json.loads(SNAPSHOT.read_text(encoding="utf-8"))


@pytest.mark.parametrize("found", Situation)
def test_advice_is_at_most_two_short_sentences_and_one_command(found):
    step = advice(found, TARGET)
    sentences = re.split(r"(?<=\.) ", step.sentence)
    assert len(sentences) <= 2
    assert all(len(sentence.split()) <= 25 and sentence.endswith(".") for sentence in sentences)
    assert "{" not in (step.command or "")
    assert "{" not in step.sentence


@pytest.mark.parametrize(("expected", "store", "verdict"), CASES)
def test_a_situation_follows_from_the_verdict(expected, store, verdict):
    assert situation(store, verdict, advised(verdict)) == expected
    step = advise(store, verdict, advised(verdict))
    assert (None if step is None else step.situation) == expected


def test_every_situation_is_found_somewhere():
    assert {expected for expected, *_ in CASES if expected is not None} | ELSEWHERE == set(Situation)


def test_an_interrupted_reseed_is_run_again_whatever_its_topic_has():
    for verdict in (lost(Status.REPLACED, Status.REPLACED, EMPTY), lost(Status.CORRUPT, Status.REPLACED)):
        for written in (True, False):
            log = LostLog(written, reseeding=True)
            assert situation(spec(), verdict, Action.BY_HAND, lost=log) == Situation.RESEED_INTERRUPTED


def test_records_in_another_partition_of_a_recreated_changelog_rule_out_a_reseed():
    verdict = lost(Status.REPLACED, Status.REPLACED, EMPTY)
    assert situation(spec(), verdict, Action.BY_HAND, lost=LostLog(written=True)) == Situation.RECREATED_WITH_RECORDS


def test_commands_quote_names_and_select_many_store_partitions_by_their_store():
    assert advice(Situation.DAMAGED, Target("a b", "s", "0_0")).command == "statestore restore 'a b/s/0_0'"
    many = [Target("shop", "totals", f"0_{task}") for task in range(6)]
    assert advice(Situation.DAMAGED, *many).command == "statestore restore --application shop --store totals"
    assert advice(Situation.DAMAGED).command is None


def test_a_message_has_the_sentence_and_the_command_and_a_report_the_evidence():
    step = advice(Situation.CHANGELOG_RECREATED, TARGET)
    said = message("shop/totals/0_1", step)
    assert said == f"shop/totals/0_1: {step.sentence} Next: {step.command}"
    error = StateStoreError(said).with_evidence("topic id a, then b")
    failure = Failure.of(error)
    assert (failure.message, failure.evidence) == (said, "topic id a, then b")


@pytest.mark.parametrize("action", Action)
def test_rows_of_earlier_reports_have_the_sentence_of_their_action(action):
    step = of_action(action)
    assert (step is None) == (action is Action.NONE)
    assert step is None or step.command is None
    assert step is None or (NO_ACTION.removesuffix(".") in step.sentence) == (action is Action.LATER)


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(wording(), indent=1) + "\n", encoding="utf-8")
