"""Finds differences between the catalogue and Kafka or the state directories, without changing anything.

`repair` mends one finding, and only `statestore drift --repair` calls it. Whatever would delete data is left to people.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from statestore.advice import message
from statestore.changelog.topic_settings import OFFSETS_CONFIG, REPARTITION_CONFIG
from statestore.discovery.changelogs import Installation
from statestore.discovery.directories import applications_in, stores_in
from statestore.errors import InputError
from statestore.kafka.topics import Topic, Topics
from statestore.metastore.command_topic import CONFIG, topic_name
from statestore.metastore.commands import Entry
from statestore.metastore.effects import InternalTopic, internal_topics, make_topics, policies, record_topics
from statestore.metastore.evolution import written_topics
from statestore.metastore.lost_changelog import KEEPS_STORES, advise_on_changelog
from statestore.metastore.metastore import Metastore
from statestore.metastore.view import Health, View
from statestore.model import TaskId
from statestore.private_config import KAFKA_CONFIG
from statestore.reports import Advice
from statestore.statedir.paths import OWN_DIRECTORY

#: Of these settings only speed depends.
_FREE_SETTINGS = frozenset({"segment.bytes"})


class Kind(StrEnum):
    """One difference from the catalogue."""

    NOT_RECORDED = "not recorded"
    MISSING = "missing"
    REPLACED = "replaced"
    PARTITIONS = "partitions"
    SETTINGS = "settings"
    LEFT_TOPIC = "left topic"
    LEFT_DIRECTORY = "left directory"
    RARE_SNAPSHOTS = "rare snapshots"


class Remedy(StrEnum):
    """How it is repaired: by `repair` without a question, by `repair` after confirmation, or only by a person."""

    REPAIR = "repair"
    ASK = "ask"
    BY_HAND = "manual"


@dataclass(frozen=True)
class Drift:
    """One finding.

    Attributes
    ----------
    subject
        The topic, or the directory.
    application
        Whose it is; empty for the command topic.
    todo
        What `repair` does, or what people may do: a command where there is one.
    advice
        The next step for a lost changelog, as `verify` and `process` show it.
    """

    kind: Kind
    subject: str
    application: str
    expected: str
    found: str
    remedy: Remedy
    todo: str
    advice: Advice | None = None

    @property
    def is_left(self) -> bool:
        """True if something is there that nobody needs any more: no harm."""
        return self.kind in (Kind.LEFT_TOPIC, Kind.LEFT_DIRECTORY)

    @property
    def is_warning(self) -> bool:
        """True if nothing is wrong yet."""
        return self.is_left or self.kind is Kind.RARE_SNAPSHOTS


def find_drift(
    where: Installation, service_id: str, view: View, topics: Topics, *, node_local: bool = False
) -> list[Drift]:
    """Compare the catalogue with Kafka and the state directory.

    Parameters
    ----------
    node_local
        Stores on disks are copies, and the archive has the stores.

    Notes
    -----
    Of a catalogue that is not known to be whole, nothing is said to be left over: it may be of an application that is
    in use. Names are never guessed by a prefix: `a-b-c-changelog` may be of application `a`, or of `a-b`, which may be
    one of Kafka Streams.
    """
    entries = view.catalogue.applications
    needed = {name: internal_topics(entry.definition, entry.partitions) for name, entry in entries.items()}
    internal = {topic.name for found in needed.values() for topic in found}
    others = {name for entry in entries.values() for name in (*entry.partitions, *written_topics(entry.definition))}
    owners = {name: former.definition.name for name, former in view.catalogue.former.items()}
    left = sorted(owners.keys() - internal - others)
    commands = topic_name(service_id)
    there = topics.describe([commands, *internal, *others, *left])
    configs = topics.topic_configs(name for name in (commands, *internal) if name in there)
    result = _wrong_settings(commands, "", CONFIG, configs[commands]) if commands in there else []
    for name, entry in entries.items():
        result += _external(entry, there)
        for topic in needed[name]:
            items = _internal(entry, topic, there.get(topic.name), configs)
            lost = partial(_with_advice, where.state_dir.absolute(), topics, entry, there, node_local=node_local)
            found = [*map(lost, items)]
            # Settings of a topic that a reseed makes anew do not matter.
            kept = [item for item in found if item.advice is not None and item.remedy is Remedy.BY_HAND]
            result += kept or found
    if view.health is not Health.RUNNING:
        return result
    servers = where.cluster.servers
    result += [
        Drift(Kind.LEFT_TOPIC, name, owners[name], "no topic", "topic", Remedy.BY_HAND, topic_deletion(servers, name))
        for name in left
        if name in there
    ]
    return [*result, *_directories(where.state_dir.absolute(), entries, frozenset(owners.values()))]


def topic_deletion(bootstrap_servers: str, topic: str) -> str:
    """Return a command that deletes a topic.

    It is Kafka's own if that is on the PATH and needs no configuration of the client; else one of this library.
    """
    arguments = ["--bootstrap-server", bootstrap_servers, "--delete", "--topic", topic]
    return _kafka_command("kafka-topics", arguments) or _python(bootstrap_servers, f"delete({topic!r})")


def topic_setting(bootstrap_servers: str, topic: str, name: str, value: str) -> str:
    """Return a command that changes a setting of a topic, as `topic_deletion` does."""
    arguments = [
        "--bootstrap-server",
        bootstrap_servers,
        "--alter",
        "--topic",
        topic,
        "--add-config",
        f"{name}={value}",
    ]
    setting = f"set_config({topic!r}, {{{name!r}: {value!r}}})"
    return _kafka_command("kafka-configs", arguments) or _python(bootstrap_servers, setting)


def _kafka_command(name: str, arguments: Sequence[str]) -> str | None:
    program = next((found for found in (f"{name}.sh", name) if shutil.which(found)), None)
    return None if program is None or os.environ.get(KAFKA_CONFIG) else shlex.join([program, *arguments])


def _python(bootstrap_servers: str, call: str) -> str:
    text = f"from statestore.kafka.cluster import Cluster; Cluster({bootstrap_servers!r}).topics.{call}"
    return shlex.join([sys.executable, "-c", text])


def repair(drift: Drift, topics: Topics, metastore: Metastore) -> None:
    """Mend a finding; the caller has asked where that is needed.

    Raises
    ------
    InputError
        If only people can mend it.
    """
    if drift.remedy is Remedy.BY_HAND:
        step = drift.advice
        raise InputError(message(drift.subject, step) if step else f"{drift.subject} cannot be repaired: {drift.todo}")
    if not drift.application:
        topics.set_config(drift.subject, CONFIG)
        return
    if drift.kind is Kind.NOT_RECORDED:
        make_topics(topics, metastore, drift.application)
        return
    entry = metastore.require_running().catalogue.applications.get(drift.application)
    wanted = [] if entry is None else internal_topics(entry.definition, entry.partitions)
    for topic in wanted:
        if topic.name == drift.subject:
            if drift.kind is Kind.SETTINGS:
                topics.set_config(topic.name, dict(topic.config))
            else:
                found = topics.ensure(topic.name, topic.partitions, dict(topic.config))
                record_topics(metastore, drift.application, [found], replacing=frozenset({topic.name}))
            return
    raise InputError(
        f"{drift.subject} is no longer a topic of application {drift.application}. Run `statestore drift` again"
    )


# -- topics -------------------------------------------------------------------------------------------------------


def _external(entry: Entry, there: Mapping[str, Topic]) -> Iterator[Drift]:
    definition, name = entry.definition, entry.definition.input_topic
    count, found = entry.partitions[name], there.get(name)
    if found is None:
        todo = f"create it with {count} partitions"
        yield Drift(Kind.MISSING, name, definition.name, "input topic", "no topic", Remedy.BY_HAND, todo)
    elif found.partitions != count:
        yield _wrong_partitions(found, definition.name, count)
    for output, role in written_topics(definition).items():
        if output not in there:
            yield Drift(Kind.MISSING, output, definition.name, f"{role} topic", "no topic", Remedy.BY_HAND, "create it")


def _internal(
    entry: Entry, topic: InternalTopic, found: Topic | None, configs: Mapping[str, Mapping[str, str]]
) -> list[Drift]:
    application, recorded = entry.definition.name, (entry.topics or {}).get(topic.name)
    expected = f"id {recorded}" if recorded else "an id in the catalogue"
    lost = "stores elsewhere that were built from the old topic are then REPLACED"
    if topic.config is REPARTITION_CONFIG:
        lost = "records of the old topic that were not processed are lost"
    if topic.config is OFFSETS_CONFIG:
        lost = (
            "tasks continue at the consumer group's offsets. Check first that the group has an offset for each "
            "partition: a task without one stops, or, without state, starts at the beginning of its input"
        )
    if found is None:
        if recorded is None:
            todo = "create and record it"
            return [Drift(Kind.NOT_RECORDED, topic.name, application, expected, "no topic", Remedy.REPAIR, todo)]
        todo = f"create it, empty, and record it; {lost}"
        return [Drift(Kind.MISSING, topic.name, application, expected, "no topic", Remedy.ASK, todo)]
    if found.partitions != topic.partitions:
        return [_wrong_partitions(found, application, topic.partitions)]
    drift = _wrong_settings(topic.name, application, topic.config, configs[topic.name])
    now = f"id {found.topic_id}"
    if recorded is None:
        return [Drift(Kind.NOT_RECORDED, topic.name, application, expected, now, Remedy.REPAIR, "record it"), *drift]
    if recorded != found.topic_id:
        todo = f"record the new id; {lost}"
        return [Drift(Kind.REPLACED, topic.name, application, expected, now, Remedy.ASK, todo), *drift]
    return drift


def _with_advice(
    state_dir: Path, topics: Topics, entry: Entry, there: Mapping[str, Topic], item: Drift, *, node_local: bool
) -> Drift:
    """Add the next step to a lost changelog. If only its stores have its rows, no repair adopts another topic."""
    if item.remedy is not Remedy.ASK or item.kind not in (Kind.MISSING, Kind.REPLACED):
        return item
    found = there.get(item.subject)
    step = advise_on_changelog(state_dir, topics, entry, item.subject, found, node_local=node_local)
    if step is None or step.situation not in KEEPS_STORES:
        return replace(item, advice=step)
    return replace(item, advice=step, remedy=Remedy.BY_HAND, todo=step.sentence)


def _wrong_partitions(found: Topic, application: str, count: int) -> Drift:
    expected, todo = f"{count} partitions", "partitions cannot change while there is state: apply it under another name"
    return Drift(
        Kind.PARTITIONS, found.name, application, expected, f"{found.partitions} partitions", Remedy.BY_HAND, todo
    )


def _wrong_settings(name: str, application: str, expected: Mapping[str, str], found: Mapping[str, str]) -> list[Drift]:
    wrong = [
        key
        for key, value in expected.items()
        if key not in _FREE_SETTINGS and policies(value) != policies(found.get(key, ""))
    ]
    if not wrong:
        return []
    return [
        Drift(
            Kind.SETTINGS,
            name,
            application,
            ", ".join(f"{key}={expected[key]}" for key in wrong),
            ", ".join(f"{key}={found.get(key)}" for key in wrong),
            Remedy.ASK if _deletes_more(expected, found) else Remedy.REPAIR,
            "set what is expected" + (": Kafka may then delete records" if _deletes_more(expected, found) else ""),
        )
    ]


def _deletes_more(expected: Mapping[str, str], found: Mapping[str, str]) -> bool:
    """Tell whether Kafka deletes something under the expected settings that it keeps under those found."""
    before, after = policies(found.get("cleanup.policy", "")), policies(expected.get("cleanup.policy", ""))
    if "compact" in after - before:
        return True
    return "delete" in after and _kept_ms(expected) < (_kept_ms(found) if "delete" in before else float("inf"))


def _kept_ms(config: Mapping[str, str]) -> float:
    kept = int(config.get("retention.ms", -1))
    return float("inf") if kept < 0 else kept


# -- directories --------------------------------------------------------------------------------------------------


def _directories(state_dir: Path, entries: Mapping[str, Entry], known: frozenset[str]) -> Iterator[Drift]:
    own = [path.name for path in (state_dir / OWN_DIRECTORY).glob("*") if path.is_dir()]
    for name in sorted({*applications_in(state_dir), *own}):
        if name in entries:
            yield from _stores(state_dir, entries[name])
            continue
        paths = [path for path in (state_dir / name, state_dir / OWN_DIRECTORY / name) if path.is_dir()]
        todo = f"rm -r {shlex.join(map(str, paths))}"
        if name not in known:
            todo = f"nothing, if this is a Kafka Streams application; otherwise {todo}"
        yield Drift(Kind.LEFT_DIRECTORY, str(paths[0]), name, "no directory", "directory", Remedy.BY_HAND, todo)


def _stores(state_dir: Path, entry: Entry) -> Iterator[Drift]:
    name = entry.definition.name
    tasks = {
        store.name: {TaskId(part.index, number) for number in range(entry.partitions[part.input_topic])}
        for part in entry.definition.subtopologies
        for store in part.stores
    }
    for found in stores_in(state_dir, name)[0]:
        if found.task not in tasks.get(found.name, ()):
            expected = f"no store {found.name} in task {found.task}"
            todo = f"rm -r {shlex.join([str(found.directory)])}"
            yield Drift(Kind.LEFT_DIRECTORY, str(found.directory), name, expected, "directory", Remedy.BY_HAND, todo)
