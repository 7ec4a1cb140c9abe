"""Command, drift, error, and report give the same next step, and running its command works."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from statestore_jobs.planning import prepare

from statestore.advice import Situation, Target, advice
from statestore.changelog.topic_settings import OFFSETS_CONFIG
from statestore.errors import TopicMismatchError
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, commit_offsets
from statestore.model import TopicPartition, input_offsets_topic
from statestore.reports import Advice, Status, VerifyRow
from tests.integration import broker
from tests.integration.catalogued import CatalogueCommand
from tests.integration.support import STORE, Application
from tests.integration.test_reseed import KEYS, Lost

INPUT = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]


@pytest.fixture
def lost(command: CatalogueCommand, tmp_path: Path) -> Lost:
    found = Lost(command, tmp_path)
    found.process()
    return found


def verified(lost: Lost) -> list[VerifyRow]:
    """Verify the application with the command, and return the rows of its report."""
    ran = lost.command("verify", "--application", lost.app.name, "--json", "-")
    return [VerifyRow.model_validate(row) for row in json.loads(ran.out)["rows"]]


def drifted(lost: Lost) -> dict[str, object]:
    """Return what `drift` finds about the changelog."""
    found = json.loads(lost.command("drift", "--json", "-").out)["drift"]
    return next(item for item in found if item["subject"] == lost.app.changelog)


def stopped(lost: Lost) -> TopicMismatchError:
    """Return the error with which the job `process` stops before its tasks."""
    entry = lost.command.catalogue.entry(lost.app.name)
    with pytest.raises(TopicMismatchError) as raised:
        prepare(Cluster(lost.app.servers, 60).topics, lost.command.metastore, [entry], state_dir=lost.app.state_dir)
    return raised.value


def assert_everybody_says(lost: Lost, situation: Situation) -> Advice:
    """Verification, its report, drift, and both errors of `process` give the same advice."""
    rows = verified(lost)
    step = rows[0].advice
    assert step is not None
    assert {row.advice for row in rows} == {step}
    assert step.situation == situation
    assert step.command is not None
    shown = lost.command("verify", "--application", lost.app.name).err
    assert f"Next: {step.command}  # {step.sentence}" in shown
    item = drifted(lost)
    assert item["advice"] == step.model_dump(mode="json")
    assert item["remedy"] == "manual"
    shown = lost.command("drift")
    assert f"Next: {step.command}  # {step.sentence}" in shown.err
    assert step.sentence in shown.out
    said = f"{step.sentence} Next: {step.command}"
    error = stopped(lost)
    assert said in str(error)
    return step


@pytest.mark.parametrize("made_again", [True, False])
def test_a_lost_changelog_has_one_next_step_everywhere_and_it_works(lost: Lost, made_again: bool) -> None:
    rows, before = lost.rows(), lost.recorded
    lost.lose(make_again=made_again)
    step = assert_everybody_says(lost, Situation.CHANGELOG_RECREATED if made_again else Situation.CHANGELOG_MISSING)
    if made_again:
        now = Cluster(lost.app.servers, 60).topics.require(lost.app.changelog).topic_id
        found = verified(lost)[0]
        assert (found.store_topic_id, found.topic_id) == (before, now)
        for text in (before, now):
            assert text is not None
            assert text not in step.sentence
            assert text in stopped(lost).evidence
        lost.app.send([(KEYS[0], b"1")])
        failure = lost.app.run().failure
        assert failure is not None
        assert f"{step.sentence} Next: {step.command}" in failure.message
        assert now not in failure.message
        assert now in failure.evidence
    # The repair would let tasks log to the new topic, which a reseed then refuses.
    assert lost.command("drift", "--repair", "--yes").code == 1
    assert lost.recorded == before
    assert step.command is not None
    ran = lost.command(*shlex.split(step.command)[1:], "--yes")
    assert ran.code == 0, ran.err
    lost.assert_whole(rows)
    assert lost.command("drift").code == 0
    lost.assert_counts_on()


def test_an_interrupted_reseed_is_run_again_and_no_repair_adopts_its_topic(lost: Lost) -> None:
    rows, before = lost.rows(), lost.recorded
    lost.lose(make_again=True)
    lost.die("rewrite, batch sent")
    step = assert_everybody_says(lost, Situation.RESEED_INTERRUPTED)
    assert lost.command("drift", "--repair", "--yes").code == 1
    assert lost.recorded == before
    assert step.command is not None
    assert lost.command(*shlex.split(step.command)[1:], "--yes").code == 0
    lost.assert_whole(rows)


def test_a_recreated_changelog_with_records_is_not_reseeded_and_the_accepted_loss_ends_it(lost: Lost) -> None:
    lost.lose(make_again=True)
    broker.produce(lost.app.servers, lost.app.changelog, [(b"new", b"row")], 1)
    rows = verified(lost)
    steps = [row.advice for row in rows]
    assert {step.situation for step in steps if step is not None} == {Situation.RECREATED_WITH_RECORDS}
    item = drifted(lost)
    assert (item["remedy"], item["todo"]) == ("manual", steps[0].sentence if steps[0] else None)
    assert "is not empty" in lost.refused()
    for step in steps:
        assert step is not None
        assert step.command is not None
        ran = lost.command(*shlex.split(step.command)[1:])
        assert ran.code == 0, ran.err
    assert drifted(lost)["advice"]["situation"] == Situation.TOPIC_NOT_RECORDED  # type: ignore[index]
    assert lost.command("drift", "--repair", "--yes").code == 0
    assert lost.statuses() <= {Status.OK, Status.EMPTY}
    lost.prepare()


def test_drift_adopts_a_recreated_changelog_if_no_store_has_rows_of_the_former_one(
    command: CatalogueCommand, tmp_path: Path
) -> None:
    lost = Lost(command, tmp_path)
    lost.prepare()
    before = lost.recorded
    lost.lose(make_again=True)
    item = drifted(lost)
    assert (item["remedy"], item["advice"]["situation"]) == ("ask", Situation.TOPIC_NOT_RECORDED)  # type: ignore[index]
    assert lost.command("drift", "--repair", "--yes").code == 0
    assert lost.recorded != before


# -- inputs ---------------------------------------------------------------------------------------------------------


def asked_of(application: Application, situation: Situation) -> Advice:
    where = f"{application.input}:0"
    return advice(situation, Target(application.name, bootstrap_servers=application.servers, input=where))


def test_a_recreated_input_is_never_resumed_from_a_position_and_the_advised_offset_works(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application, topics = Application(bootstrap_servers, tmp_path), Cluster(bootstrap_servers, 60).topics
    application.send(INPUT)
    before = topics.require(application.input).topic_id
    assert application.run(input_id=before).failure is None
    broker.delete_topic(bootstrap_servers, application.input)
    broker.create_topic(bootstrap_servers, application.input)
    application.send(INPUT[:2])
    after = topics.require(application.input).topic_id
    step = asked_of(application, Situation.INPUT_RECREATED)
    for resume in (False, True):
        failure = application.run(input_id=after, resume_from_position=resume).failure
        assert failure is not None
        assert f"{step.sentence} Next: {step.command}" in failure.message
        assert "--resume-from-position" not in failure.message
        assert f"expected the topic id {before}, found {after}" in failure.evidence
    assert step.command is not None
    assert "--to-earliest" in step.command
    to_earliest(application)
    row = application.run(input_id=after)
    assert (row.failure, row.records_in) == (None, 2)


def to_earliest(application: Application) -> None:
    """Do what `kafka-consumer-groups.sh --reset-offsets --to-earliest --execute` does: it is no part of the tests."""
    partition = TopicPartition(application.input, 0)
    start = Cluster(application.servers, 60).topics.log_starts([partition])[partition].offset
    commit_offsets(Cluster(application.servers), application.name, {partition: GroupOffset(start)})


def forget_offsets(application: Application) -> None:
    """Forget the group's offsets, and the topic of input offsets."""
    application.forget_group()
    offsets = input_offsets_topic(application.name)
    broker.delete_topic(application.servers, offsets)
    broker.create_topic(application.servers, offsets, 1, OFFSETS_CONFIG)


def test_resuming_from_the_position_is_advised_only_if_it_then_works(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process(INPUT)
    forget_offsets(application)
    application.send(INPUT)
    step = asked_of(application, Situation.INPUT_OFFSET_LOST)
    message = application.fails("InputOffsetError")
    assert f"{step.sentence} Next: {step.command}" in message
    row = application.run(resume_from_position=True)
    assert (row.failure, row.records_in) == (None, len(INPUT))


def test_resuming_is_not_advised_if_the_position_is_unknown_or_no_longer_in_the_input(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    application.process(INPUT)
    application.restore("full", force=True)  # at least once, records have no positions
    forget_offsets(application)
    application.send(INPUT)
    step = asked_of(application, Situation.INPUT_POSITION_UNKNOWN)
    for resume in (False, True):
        failure = application.run(resume_from_position=resume).failure
        assert failure is not None
        assert f"{step.sentence} Next: {step.command}" in failure.message


def test_resuming_is_not_advised_if_the_input_has_lost_the_next_record(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process(INPUT)
    forget_offsets(application)
    application.send(INPUT)
    broker.delete_records(bootstrap_servers, application.input, 5)
    step = asked_of(application, Situation.INPUT_LOST_RECORDS)
    for resume in (False, True):
        failure = application.run(resume_from_position=resume).failure
        assert failure is not None
        assert f"{step.sentence} Next: {step.command}" in failure.message
    to_earliest(application)
    row = application.run()
    assert (row.failure, row.records_in) == (None, 1)
    assert application.store_spec().store.name == STORE
