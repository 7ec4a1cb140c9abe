"""Drift: what is not as the catalogue says is listed, whatever else is done, and mended by command alone."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from statestore.archive.archive import archive_spec
from statestore.cli.selection import Where
from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.metastore.command_topic import CONFIG
from statestore.metastore.commands import PutApplication
from statestore.metastore.drift import find_drift, topic_deletion
from statestore.metastore.evolution import partitions_of
from tests.archive.snapshots import manifest, publish
from tests.integration.broker import (
    add_partitions,
    create_topic,
    delete_topic,
    produce,
    set_topic_config,
    wait_for,
)
from tests.integration.catalogued import BY_VALUE, CatalogueCommand, changed
from tests.integration.commands import rows

WINDOW = {"name": "windows", "kind": "window", "retention_ms": 7_200_000, "window_size_ms": 3_600_000}
#: What the changelog of a window store of two hours keeps.
KEPT_MS = 7_200_000 + 86_400_000


class Installation(CatalogueCommand):
    """The command for a service that has an application."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.definition = self.applied(aggregations=[BY_VALUE], stores=[{"name": "counts"}, WINDOW])
        self.name = self.definition.name

    def drift(self, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
        """Exit code, and what was found by topic or directory."""
        ran = self("drift", "--json", "-", *options)
        return ran.code, {item["subject"]: item for item in json.loads(ran.out)["drift"]}

    def found(self, subject: str) -> dict[str, Any]:
        """The one thing that is found, of this topic or directory."""
        code, found = self.drift()
        assert (code, list(found)) == (1, [subject])
        return found[subject]

    def recorded(self, topic: str) -> str:
        return self.catalogue.entry(self.name).topics[topic]

    def config(self, topic: str) -> dict[str, str]:
        return self.topics.topic_configs([topic])[topic]


@pytest.fixture
def installation(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Installation:
    return Installation(monkeypatch, capfd, bootstrap_servers, tmp_path)


@pytest.mark.long
def test_an_installation_that_is_as_its_catalogue_says_has_none(installation: Installation) -> None:
    assert installation.drift() == (0, {})
    assert installation.drift("--repair", "--yes") == (0, {})


@pytest.mark.behaviour("C18")
def test_drift_is_reported_and_repaired_only_by_command(installation: Installation) -> None:
    servers, name = installation.servers, installation.name
    gone, replaced = f"{name}-counts-changelog", f"{name}-by-value-changelog"
    commands, windows = installation.topic, f"{name}-windows-changelog"
    delete_topic(servers, gone)
    delete_topic(servers, replaced)
    before = installation.recorded(replaced)
    installation.topics.create(replaced, 2, {"cleanup.policy": "compact"})
    set_topic_config(servers, windows, retention_ms="1000")
    set_topic_config(servers, commands, retention_ms="604800000")
    delete_topic(servers, f"{name}-out")
    left = installation.state_dir / name / "0_0" / "rocksdb" / "no-store-of-it"
    left.mkdir(parents=True)
    wait_for(lambda: installation.config(commands)["retention.ms"] == "604800000", "the settings")
    wait_for(lambda: replaced in installation.topics.describe([replaced]), "the topic that is there instead")
    wrong = {
        gone: ("missing", "ask"),
        replaced: ("replaced", "ask"),
        windows: ("settings", "repair"),
        commands: ("settings", "repair"),
        f"{name}-out": ("missing", "manual"),
        str(left): ("left directory", "manual"),
    }

    def listed() -> dict[str, tuple[str, str]]:
        code, found = installation.drift()
        assert code == 1
        return {subject: (item["kind"], item["remedy"]) for subject, item in found.items()}

    # Nothing else that is done mends anything.
    assert listed() == wrong
    for arguments in (["list"], ["describe", name], ["history"], ["metastore", "status"], ["partitions"], ["drift"]):
        installation(*arguments)
    assert listed() == wrong

    code, found = installation.drift("--repair")
    assert code == 1
    assert {subject for subject, item in found.items() if item["remedy"] != "manual"} == {gone, replaced}
    assert installation.config(windows)["retention.ms"] == str(KEPT_MS)
    assert {key: installation.config(commands)[key] for key in CONFIG} == CONFIG
    assert installation.recorded(replaced) == before, "nobody was asked"

    code, found = installation.drift("--repair", "--yes")
    assert (code, set(found)) == (1, {f"{name}-out", str(left)})
    there = installation.topics.describe([gone, replaced])
    assert {topic: installation.recorded(topic) for topic in (gone, replaced)} == {
        topic: there[topic].topic_id for topic in (gone, replaced)
    }
    assert there[gone].partitions == 2
    assert left.exists()

    create_topic(servers, f"{name}-out", 2)
    assert installation.drift()[0] == 0, "what is left over does no harm"


@pytest.mark.long
@pytest.mark.short_for("n")
@pytest.mark.parametrize(("answer", "made"), [("n", False), ("y", True)])
def test_a_log_that_is_gone_is_made_anew_only_if_somebody_agrees(
    installation: Installation, answer: str, made: bool
) -> None:
    topic = f"{installation.name}-counts-changelog"
    delete_topic(installation.servers, topic)
    assert installation.found(topic)["kind"] == "missing"
    ran = installation.answered(answer, "drift", "--repair")
    assert "create it, empty" in ran.err
    assert ran.code == (0 if made else 1)
    assert (topic in installation.topics.describe([topic])) is made
    end = installation.log_end
    installation.drift()
    assert installation.log_end == end


@pytest.mark.long
def test_topics_that_were_not_recorded_are_made_by_a_repair(installation: Installation) -> None:
    definition = changed(installation.definition, stores=[*installation.definition.stores, {"name": "more"}])
    metastore = installation.metastore
    partitions = metastore.view().catalogue.entry(installation.name).partitions
    metastore.submit(lambda _: PutApplication(definition=definition, partitions=partitions))
    topic = f"{installation.name}-more-changelog"
    assert installation.found(topic)["kind"] == "not recorded"
    assert installation.drift("--repair") == (0, {})
    assert installation.recorded(topic) == installation.topics.require(topic).topic_id


@pytest.mark.long
@pytest.mark.short_for(every=2)
@pytest.mark.parametrize("suffix", ["-in", "-counts-changelog"])
def test_partitions_that_do_not_fit_are_for_people(installation: Installation, suffix: str) -> None:
    topic = f"{installation.name}{suffix}"
    add_partitions(installation.servers, topic, 3)
    found = installation.found(topic)
    assert (found["kind"], found["expected"], found["found"]) == ("partitions", "2 partitions", "3 partitions")
    assert installation.drift("--repair", "--yes")[0] == 1


@pytest.mark.short_for("compact,delete--1-ask")
@pytest.mark.parametrize(
    ("policy", "retention_ms", "remedy"),
    [
        ("compact,delete", KEPT_MS - 1, "repair"),
        ("compact,delete", KEPT_MS + 1, "ask"),
        ("compact,delete", -1, "ask"),
        ("compact", KEPT_MS, "ask"),
        ("delete", KEPT_MS, "ask"),
    ],
)
def test_settings_under_which_kafka_would_delete_more_are_set_only_if_somebody_agrees(
    installation: Installation, policy: str, retention_ms: int, remedy: str
) -> None:
    topic = f"{installation.name}-windows-changelog"
    set_topic_config(installation.servers, topic, cleanup_policy=policy, retention_ms=str(retention_ms))
    wait_for(lambda: installation.config(topic)["cleanup.policy"] == policy, "the settings")
    found = installation.found(topic)
    assert (found["kind"], found["remedy"]) == ("settings", remedy)
    assert installation.drift("--repair")[0] == (0 if remedy == "repair" else 1)
    assert installation.drift("--repair", "--yes") == (0, {})


@pytest.mark.long
@pytest.mark.behaviour("C19")
def test_what_a_dropped_application_leaves_is_listed_with_the_command_that_removes_it(
    installation: Installation,
) -> None:
    name, state_dir = installation.name, installation.state_dir
    (state_dir / name / "0_0").mkdir(parents=True)
    (state_dir / ".statestore" / name / "0_0").mkdir(parents=True)
    (state_dir / "of-kafka-streams" / "0_0").mkdir(parents=True)
    other = create_topic(installation.servers, f"{name}-of-kafka-streams-changelog", 1)
    assert installation("drop", name, "--yes").code == 0
    code, found = installation.drift()
    assert code == 0
    topics = [f"{name}-{end}" for end in ("by-value-repartition", "by-value-changelog", "counts-changelog")]
    topics += [f"{name}-{end}" for end in ("windows-changelog", "input-offsets", "by-value-repartition-offsets")]
    assert {subject: item["todo"] for subject, item in found.items()} == {
        **{topic: topic_deletion(installation.servers, topic) for topic in topics},
        str(state_dir / name): f"rm -r {state_dir / name} {state_dir / '.statestore' / name}",
        str(state_dir / "of-kafka-streams"): "nothing, if this is a Kafka Streams application; otherwise "
        f"rm -r {state_dir / 'of-kafka-streams'}",
    }
    assert other not in found, "it may be of an application whose name only begins like this one's"
    assert installation("metastore", "compact").code == 0
    assert installation.drift() == (0, found)
    installation.drift("--repair", "--yes")
    assert set(topics) <= set(installation.topics.names())
    assert (state_dir / name).exists()
    # Kafka's programs are not on the PATH of this test: what is said works without them.
    subprocess.run(shlex.split(found[topics[0]]["todo"]), check=True, timeout=60)
    assert topics[0] not in installation.topics.names()


@pytest.mark.long
def test_of_a_catalogue_that_is_not_whole_nothing_is_said_to_be_left_over(installation: Installation) -> None:
    servers, later = installation.servers, installation.define()
    changelog = create_topic(servers, f"{later.name}-counts-changelog", 2)
    (installation.state_dir / later.name / "0_0").mkdir(parents=True)
    put = PutApplication(definition=later, partitions=partitions_of(later, 2))
    produce(servers, installation.topic, [(b"application/x", b"{"), *rows(put, next_id=3)])
    ran = installation("drift", "--json", "-")
    found = json.loads(ran.out)
    assert (ran.code, found["health"], found["drift"]) == (1, "DEGRADED", [])
    assert "the metastore is DEGRADED: " in ran.err
    assert changelog not in ran.out
    delete_topic(servers, f"{installation.name}-counts-changelog")
    assert installation.found(f"{installation.name}-counts-changelog")["kind"] == "missing"
    ran = installation("drift", "--repair", "--yes")
    assert (ran.code, "MetastoreDegradedError" in ran.err) == (2, True)


@pytest.mark.long
def test_an_application_that_is_applied_while_drift_is_looked_for_is_not_left_over(installation: Installation) -> None:
    metastore = installation.metastore
    view = metastore.view()
    installation.apply(installation.define())
    where = Where(Cluster(installation.servers, 10), installation.state_dir)
    assert find_drift(where, installation.service_id, view, installation.topics) == []


@pytest.mark.long
def test_snapshots_that_are_too_rare_for_the_tombstones_are_warned_of(installation: Installation) -> None:
    topics = (f"{installation.name}-counts-changelog", f"{installation.name}-windows-changelog")
    url = f"file://{installation.state_dir.parent}/archive"
    archive = archive_spec(url, 10, installation.topics)
    assert archive is not None
    objects = archive.open()
    for store, task in (("counts", "0_0"), ("windows", "0_0")):
        made = manifest(application=installation.name, definition=StoreDefinition(name=store), task=task)
        made = made.model_copy(update={"cluster": archive.cluster})
        publish(objects, made, installation.state_dir)
        day_ms = 24 * 60 * 60 * 1000
        path = installation.state_dir.parent / "archive" / made.directory.snapshot(made.name)
        os.utime(path, (0, path.stat().st_mtime - day_ms / 2 / 1000))
    assert installation.drift() == (0, {})
    code, found = installation.drift("--archive", url)
    # A window store's changelog is compacted, too, and keeps its tombstones as long.
    assert (code, set(found)) == (0, set(topics))
    assert {item["kind"] for item in found.values()} == {"rare snapshots"}
    assert found[topics[0]]["found"] == "delete.retention.ms=86400000"
    needed = int(found[topics[0]]["expected"].partition("delete.retention.ms of ")[2].split()[0])
    assert 3 * day_ms / 2 <= needed < 3 * day_ms / 2 + 600_000
    set_topic_config(installation.servers, topics[0], delete_retention_ms=str(needed + 600_000))
    assert set(installation.drift("--archive", url)[1]) == {topics[1]}
