"""The next step in each situation of a store or of a task: the same sentence and command wherever it is shown.

`partition/advice.py` finds the situation of a store partition, and `tasks/input_position.py` that of an input.
"""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import Literal, NamedTuple

from statestore.reports import Action, Advice

Button = Literal["restore", "verify", "process", "reseed"]


class Situation(StrEnum):
    """Situation in which something is to be done."""

    BEHIND = "behind"
    DAMAGED = "damaged"
    ROWS_DIFFER = "rows differ"
    IN_USE = "in use"
    UNCONFIRMED = "unconfirmed"
    DIFFERS_IN_USE = "differs in use"
    LAST_COPY = "last copy"
    SNAPSHOT_HAS_ALL = "snapshot has all"
    CHANGELOG_RECREATED = "changelog recreated"
    CHANGELOG_MISSING = "changelog missing"
    RESEED_INTERRUPTED = "reseed interrupted"
    RECREATED_WITH_RECORDS = "changelog recreated, with records"
    RECREATED_NO_RESEED = "changelog recreated, no reseed"
    MISSING_NO_RESEED = "changelog missing, no reseed"
    STORE_AND_LOG_GONE = "store and changelog gone"
    STORE_GONE_NO_TOPIC = "store gone, no changelog topic"
    TOPIC_NOT_RECORDED = "changelog topic not recorded"
    ONLY_SNAPSHOT = "only a snapshot is left"
    LOG_LOST_START = "changelog lost its start"
    LOG_LOST_START_ARCHIVE = "changelog lost its start, with archive"
    LOG_CUT = "changelog cut"
    DAMAGED_AND_LOSING = "damaged, and a rebuild loses data"
    IN_MEMORY = "in memory, and its changelog lost data"
    ROWS_DIFFER_AND_LOSING = "rows differ, and a rebuild loses data"
    UNLOGGED = "no changelog"
    UNLOGGED_LOST = "no changelog, and store lost or damaged"
    UNLOGGED_LOST_ALONE = "no changelog, no snapshot, and store lost or damaged"
    INSTALLED_DIVERGED = "manually installed, and rows differ"
    REPARTITIONED = "repartitioned"
    UNKNOWN_FORMAT = "unknown format"
    UNDETERMINED = "undetermined"
    UNFINISHED_SWAP = "unfinished swap"
    GLOBAL = "global store"
    MANUAL = "manual"
    INPUT_RECREATED = "input recreated"
    INPUT_OFFSET_LOST = "input offset lost"
    INPUT_POSITION_UNKNOWN = "input position unknown"
    INPUT_SENT_ON = "input sent to repartition topics"
    INPUT_LOST_RECORDS = "input lost records"
    ONE_REPLICA = "changelog has one replica"
    ONE_BROKER = "cluster has one broker"
    REPLICA_OUT_OF_SYNC = "replica out of sync"
    ONE_ACKNOWLEDGES = "one replica acknowledges writes"
    WRITES_REFUSED = "more replicas required than there are"
    UNCLEAN_ELECTION = "unclean leader election"
    DELETED_BY_AGE = "changelog deleted by age"
    DELETED_BY_SIZE = "changelog deleted by size"
    BROKERS_RETENTION = "retention of the brokers"
    UNPROCESSED_DELETED = "unprocessed records deleted"
    LOG_STARTS_LATE = "changelog starts after 0"
    CLEANER_OFF = "log cleaner off"
    NEVER_COMPACTED = "never compacted"
    TOMBSTONES_BEFORE_RESTORE = "tombstones deleted before a restore ends"
    TOMBSTONES_WHILE_STOPPED = "tombstones deleted while the application is stopped"
    SNAPSHOT_TOO_OLD = "snapshot older than the tombstones"
    OFFSETS_EXPIRE = "committed offsets expire"
    OFFSETS_GONE = "no committed offsets"
    NO_APPLICATION = "changelog of no application"
    PARTITIONS_DISAGREE = "partition counts disagree"
    NAME_IS_PREFIX = "name begins with that of another application"
    OWNER_UNDECIDED = "owner undecided"
    NO_SNAPSHOT = "no snapshot"
    NEVER_VERIFIED = "never verified"


class Target(NamedTuple):
    """The store partition or input that a command names.

    Attributes
    ----------
    task
        Empty for all tasks.
    snapshot
        Name of the snapshot to start from.
    bootstrap_servers, input
        Kafka, and the partition of the input as `topic:number`.
    topic
        Changelog, or another topic of the application.
    value
        Value that a setting is to have, or the reassignment of a topic as JSON.
    archive
        URL of the archive.
    reports_dir
        Directory or URL of the reports.
    """

    application: str
    store: str = ""
    task: str = ""
    snapshot: str = ""
    bootstrap_servers: str = ""
    input: str = ""
    topic: str = ""
    value: str = ""
    archive: str = ""
    reports_dir: str = ""


class _Text(NamedTuple):
    sentence: str
    command: str | None = None
    button: Button | None = None


NO_ACTION = "No action is needed."
_RESTORE = "statestore restore {selection}"
_ACCEPT = "statestore restore {selection} --accept-loss"
_RESEED = "statestore rewrite reseed --application {application} --store {store}"
_VERIFY = "statestore verify {selection}"
_DIVERGED = (
    "statestore verify {selection} --depth deep --json found.json; statestore restore {selection} --verify-report "
    "found.json"
)
_RESET = (
    "kafka-consumer-groups.sh --bootstrap-server {bootstrap_servers} --group {application} --topic {input} "
    "--reset-offsets {to} --execute"
)
_SET = (
    "kafka-configs.sh --bootstrap-server {bootstrap_servers} --alter --entity-type topics --entity-name {topic} "
    "--add-config {value}"
)
_TO_EARLIEST, _TO_OFFSET = _RESET.replace("{to}", "--to-earliest"), _RESET.replace("{to}", "--to-offset OFFSET")

_TEXTS: dict[Situation, _Text] = {
    Situation.BEHIND: _Text("The store is behind its changelog. Restore it, or run process.", _RESTORE, "restore"),
    Situation.DAMAGED: _Text("The store must be rebuilt. Restore it.", _RESTORE, "restore"),
    Situation.ROWS_DIFFER: _Text(
        "The rows of the store are not those of its changelog. Restore it with the report of a deep verification.",
        _DIVERGED,
        "verify",
    ),
    Situation.IN_USE: _Text(
        f"{NO_ACTION.removesuffix('.')}: the store was in use. The next verification checks it again.",
        _VERIFY,
        "verify",
    ),
    Situation.UNCONFIRMED: _Text(
        f"{NO_ACTION.removesuffix('.')}: a write in progress can explain it. The next verification checks it again.",
        _VERIFY,
        "verify",
    ),
    Situation.DIFFERS_IN_USE: _Text(
        "The store is damaged, and its application runs. Stop it, then verify.", _VERIFY, "verify"
    ),
    Situation.LAST_COPY: _Text("Do not delete this store: its changelog no longer contains all of its data."),
    Situation.SNAPSHOT_HAS_ALL: _Text(
        "A snapshot has what the changelog has lost. Restore the store.", _RESTORE, "restore"
    ),
    Situation.CHANGELOG_RECREATED: _Text(
        "The changelog topic was recreated, and only the stores have its rows. Reseed the changelog from them.",
        _RESEED,
        "reseed",
    ),
    Situation.CHANGELOG_MISSING: _Text(
        "The changelog topic does not exist, and only the stores have its rows. Reseed the changelog from them.",
        _RESEED,
        "reseed",
    ),
    Situation.RESEED_INTERRUPTED: _Text(
        "A reseed of the changelog was interrupted. Run it again before you start the application.", _RESEED, "reseed"
    ),
    Situation.RECREATED_WITH_RECORDS: _Text(
        "The changelog topic was recreated and has new records. Back up the store, then restore it and accept the "
        "loss.",
        _ACCEPT,
        "restore",
    ),
    Situation.RECREATED_NO_RESEED: _Text(
        "The changelog topic was recreated, and a store of this kind cannot reseed it. Back up the store, then restore "
        "it and accept the loss.",
        _ACCEPT,
        "restore",
    ),
    Situation.MISSING_NO_RESEED: _Text(
        "The changelog topic does not exist, and a store of this kind cannot reseed it. Back up the store, then "
        "recreate the topic.",
        "statestore drift --repair",
    ),
    Situation.STORE_AND_LOG_GONE: _Text(
        "The store does not exist, and its changelog topic was recreated. Restore what the new topic has, and accept "
        "the loss.",
        _ACCEPT,
        "restore",
    ),
    Situation.STORE_GONE_NO_TOPIC: _Text(
        "Neither the store nor its changelog topic exists. Recreate the topic.", "statestore drift --repair"
    ),
    Situation.TOPIC_NOT_RECORDED: _Text(
        "The changelog topic was recreated, and no store here has rows of the former one. Record the new topic.",
        "statestore drift --repair",
    ),
    Situation.ONLY_SNAPSHOT: _Text(
        "The changelog topic was recreated, and only a snapshot has the rows of the store. Build the store from it in "
        "a separate directory.",
        "statestore restore {selection} --mode as-of --snapshot {snapshot} --target restored",
    ),
    Situation.LOG_LOST_START: _Text(
        "The changelog has lost records that the store needs. Back up the store, then restore it and accept the loss.",
        _ACCEPT,
        "restore",
    ),
    Situation.LOG_LOST_START_ARCHIVE: _Text(
        "The changelog has lost records that the store needs. Restore the store from a snapshot that has them.",
        _RESTORE,
        "restore",
    ),
    Situation.LOG_CUT: _Text(
        "The changelog no longer has the last records of the store. Back up the store, then restore it and accept the "
        "loss.",
        _ACCEPT,
        "restore",
    ),
    Situation.DAMAGED_AND_LOSING: _Text(
        "The store cannot be used, and its changelog no longer has all of its rows. Back up the store, then restore it "
        "and accept the loss.",
        _ACCEPT,
        "restore",
    ),
    Situation.IN_MEMORY: _Text(
        "The changelog has lost rows of this in-memory store. Run process once, and accept the loss.",
        "STATESTORE_ACCEPT_LOSS=true statestore process --application {application}",
    ),
    Situation.ROWS_DIFFER_AND_LOSING: _Text(
        "The rows of the store are not those of its changelog, which has lost some. Back up the store, then restore it "
        "and accept the loss.",
        f"{_DIVERGED} --accept-loss",
    ),
    Situation.UNLOGGED: _Text("Do not delete this store: it has no changelog, so only a snapshot can replace it."),
    Situation.UNLOGGED_LOST: _Text(
        "The store has no changelog, so only a snapshot can replace it. Restore it.", _RESTORE, "restore"
    ),
    Situation.UNLOGGED_LOST_ALONE: _Text(
        "The store has neither a changelog nor a snapshot. Remove it if it is damaged, then run process once and "
        "accept the loss.",
        "STATESTORE_ACCEPT_LOSS=true statestore process --application {application}",
    ),
    Situation.INSTALLED_DIVERGED: _Text(
        "The store was installed manually, and its rows are not those of its changelog. Keep it, or restore it and "
        "accept the loss.",
        f"{_DIVERGED} --accept-loss",
    ),
    Situation.REPARTITIONED: _Text(
        "The changelog does not have one partition for each task. Recreate the topic with its former number of "
        "partitions, or process the input again as a new application."
    ),
    Situation.UNKNOWN_FORMAT: _Text("It is not known what the store is. Describe it, or acknowledge it."),
    Situation.UNDETERMINED: _Text(
        "The store could not be examined. Remove the cause that the finding names, then verify it again.",
        "statestore verify --application {application}",
        "verify",
    ),
    Situation.UNFINISHED_SWAP: _Text(
        "A replacement of the store could not be finished. Follow the finding, then verify the store again.",
        _VERIFY,
        "verify",
    ),
    Situation.GLOBAL: _Text(
        "Only Kafka Streams can fill this store. Remove its directory, then start the application."
    ),
    Situation.MANUAL: _Text("The store is not rebuilt automatically. Read the finding, then decide."),
    Situation.INPUT_RECREATED: _Text(
        "The input topic was recreated, so the known offset is of other records. Set the offset of the group in the "
        "new topic.",
        _TO_EARLIEST,
    ),
    Situation.INPUT_OFFSET_LOST: _Text(
        "No offset of the input is known, but the stores show where to continue. Continue from their position.",
        "statestore process --application {application} --resume-from-position",
    ),
    Situation.INPUT_POSITION_UNKNOWN: _Text(
        "No offset of the input is known, and the stores do not show it. Set the offset of the group to the first "
        "record to process.",
        _TO_OFFSET,
    ),
    Situation.INPUT_SENT_ON: _Text(
        "No offset of the input is known, and records were already sent to repartition topics. Set the offset of the "
        "group to the first record to process.",
        _TO_OFFSET,
    ),
    Situation.INPUT_LOST_RECORDS: _Text(
        "The input no longer has the next record to process. Set the offset of the group to the first record that it "
        "has.",
        _TO_EARLIEST,
    ),
    Situation.ONE_REPLICA: _Text(
        "The loss of one disk loses the changelog. Increase its replication factor.",
        "echo {value} > reassignment.json; kafka-reassign-partitions.sh --bootstrap-server {bootstrap_servers} "
        "--reassignment-json-file reassignment.json --execute",
    ),
    Situation.ONE_BROKER: _Text(
        "The loss of one disk loses the changelog. Add brokers, then increase the replication factor of the topic."
    ),
    Situation.REPLICA_OUT_OF_SYNC: _Text(
        "A replica of the changelog does not have its last records. Start its broker, or see the log of the broker."
    ),
    Situation.ONE_ACKNOWLEDGES: _Text(
        "A write counts as committed although only one replica has it, so the loss of one broker can lose it. Require "
        "two replicas.",
        _SET,
    ),
    Situation.WRITES_REFUSED: _Text(
        "Brokers refuse every write, so the application stops. Require fewer replicas than there are.", _SET
    ),
    Situation.UNCLEAN_ELECTION: _Text(
        "A replica without the last records can become the leader, and they are lost. Forbid it.", _SET
    ),
    Situation.DELETED_BY_AGE: _Text(
        "Records are deleted when they are old, also the last one of a key. Compact the changelog instead.", _SET
    ),
    Situation.DELETED_BY_SIZE: _Text(
        "Records are deleted when the log is large, also the last one of a key. Remove the limit.", _SET
    ),
    Situation.BROKERS_RETENTION: _Text(
        "The retention of the brokers decides when rows are deleted, and not the retention of the store. Keep the rows "
        "until you know it.",
        _SET,
    ),
    Situation.UNPROCESSED_DELETED: _Text(
        "Records that wait too long to be processed are deleted. Keep them until they are processed.", _SET
    ),
    Situation.LOG_STARTS_LATE: _Text(
        "The first records of the changelog are deleted, so a restore can lack rows. Reseed the changelog from intact "
        "stores.",
        _RESEED,
    ),
    Situation.CLEANER_OFF: _Text(
        "The broker compacts no log, so changelogs grow and restores take ever longer. Set log.cleaner.enable=true in "
        "its configuration, and restart it."
    ),
    Situation.NEVER_COMPACTED: _Text(
        "The changelog is never compacted, so it grows and a restore takes ever longer. Correct the setting.", _SET
    ),
    Situation.TOMBSTONES_BEFORE_RESTORE: _Text(
        "Tombstones can be deleted while a restore reads the log, and deleted rows return. Keep tombstones longer.",
        _SET,
    ),
    Situation.TOMBSTONES_WHILE_STOPPED: _Text(
        "Tombstones can be deleted before the stores of the stopped application read them, and deleted rows return. "
        "Restore the stores before you start the application.",
        "statestore restore --application {application}",
    ),
    Situation.SNAPSHOT_TOO_OLD: _Text(
        "Tombstones after the snapshot can be deleted, so a restore cannot continue from it. Create a snapshot.",
        "statestore snapshot create --application {application} --archive {archive}",
    ),
    Situation.OFFSETS_EXPIRE: _Text(
        "If the offsets expire, the application reads its input from the beginning or the end. Start the application, "
        "or let a consumer join its group for a moment.",
        "kafka-console-consumer.sh --bootstrap-server {bootstrap_servers} --group {application} --topic {input} "
        "--consumer-property enable.auto.commit=false --timeout-ms 10000",
    ),
    Situation.OFFSETS_GONE: _Text(
        "The application would read its input from the beginning or the end, although its stores have rows. Set the "
        "offsets of the group before you start it, or delete its topics if it is gone."
    ),
    Situation.NO_APPLICATION: _Text(
        "No consumer group shows whose changelog it is. If its application is gone, delete the topic; else set the "
        "offsets of its group before you start it."
    ),
    Situation.PARTITIONS_DISAGREE: _Text(
        "The changelog does not have one partition for each task, so the application does not start, or finds keys in "
        "the wrong partition. Repartition the application.",
        "statestore rewrite repartition --application {application} --to NEW_NAME --partitions {value} --dry-run",
    ),
    Situation.NAME_IS_PREFIX: _Text(
        "A reset of the other application by kafka-streams-application-reset also deletes these topics. Do not reset "
        "it, or give one of the two another name."
    ),
    Situation.OWNER_UNDECIDED: _Text(
        "The topic can belong to several applications. Name the owner in every command, or run its application with "
        "exactly-once processing, whose transactional ids show it."
    ),
    Situation.NO_SNAPSHOT: _Text(
        "Only the changelog can rebuild the store. Create a snapshot.",
        "statestore snapshot create --application {application} --archive {archive}",
    ),
    Situation.NEVER_VERIFIED: _Text(
        "Nobody knows whether the store equals its changelog. Verify it where its state directory is.",
        "statestore verify --application {application} --store {store} --reports-dir {reports_dir}",
    ),
}

#: Advice on rows of earlier reports, which had none.
_BY_ACTION = {
    Action.TAIL: Situation.BEHIND,
    Action.FULL: Situation.DAMAGED,
    Action.LATER: Situation.IN_USE,
    Action.BY_HAND: Situation.MANUAL,
}


def advice(situation: Situation, *targets: Target) -> Advice:
    """Return the next step in a situation.

    Parameters
    ----------
    targets
        The store partitions in this situation; the command names all of them.
    """
    text = _TEXTS[situation]
    return Advice(
        situation=situation,
        sentence=text.sentence,
        command=None if text.command is None else _filled(text.command, targets),
        button=text.button,
    )


def of_action(action: Action) -> Advice | None:
    """Return the advice for a row with an action but no situation; None if no action is needed."""
    return None if action is Action.NONE else advice(_BY_ACTION[action])


def message(what: str, step: Advice) -> str:
    """Return the message of an error: its subject, the advice, and the command."""
    said = f"{what}: {step.sentence}"
    return said if step.command is None else f"{said} Next: {step.command}"


def selection(targets: tuple[Target, ...]) -> str:
    """Return the arguments that select store partitions, or whole applications if there are many."""
    named = [target for target in targets if target.task and target.store]
    if len(named) == len(targets) <= MOST_LABELS:
        return shlex.join(f"{target.application}/{target.store}/{target.task}" for target in named)
    names = dict.fromkeys(target.application for target in targets)
    arguments = [text for name in names for text in ("--application", name)]
    if len(names) == 1 and len({target.store for target in targets}) == 1 and targets[0].store:
        arguments += ["--store", targets[0].store]
    return shlex.join(arguments)


#: So many store partitions are named one by one.
MOST_LABELS = 5


def _filled(command: str, targets: tuple[Target, ...]) -> str | None:
    if not targets:
        return None
    first = targets[0]
    fields = {name: shlex.quote(value) for name, value in first._asdict().items()}
    return command.format(**fields, selection=selection(targets))
