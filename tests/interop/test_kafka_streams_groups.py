"""An application with Kafka Streams' own group protocol (KIP-1071): its group tells who runs it and which tasks log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_streams import Command, KafkaStreams, Store
from stopped import Stopped

from demo.kafka_jars import KAFKA_VERSION
from statestore.cli.restore_selection import stores_to_restore
from statestore.errors import InputError
from statestore.kafka.cluster import Cluster
from statestore.kafka.streams_group import streams_group
from statestore.model import changelog_topic
from tests.integration.broker import T0
from tests.integration.restored import restored_here

pytestmark = pytest.mark.long  # Kafka Streams runs meanwhile

STORE = Store("totals")


@pytest.fixture(scope="module")
def app(kafka_streams: Callable[..., KafkaStreams]) -> KafkaStreams:
    return kafka_streams()


@pytest.fixture(scope="module")
def running(app: KafkaStreams, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    state_dir = tmp_path_factory.mktemp("group") / "state"
    commands = [Command(STORE.name, b"%d" % number, b"value", T0) for number in range(20)]
    with app.running(state_dir, [STORE], commands, config={"group.protocol": "streams"}):
        yield Stopped(app, state_dir)


@pytest.mark.long
def test_whoever_runs_it_is_told_and_nobody_else_may_process(running: Stopped) -> None:
    group = streams_group(Cluster(running.app.bootstrap_servers, 30), running.app.application_id)
    assert group is not None
    assert len(group.members) == 1
    assert group.changelogs == {changelog_topic(running.app.application_id, STORE.name): 0}
    with pytest.raises(InputError, match=rf"has active members: {running.app.application_id}.* on /127.0.0.1"):
        running.topics.require_no_members(running.app.application_id)


def test_of_a_lost_store_its_group_tells_which_tasks_have_it(running: Stopped, tmp_path: Path) -> None:
    lost = running.at(tmp_path / "lost")
    chosen = lost.chosen(f"{STORE.name}:kind=key-value,format=plain")
    [row] = restored_here(stores_to_restore(chosen, lost.topics, kafka_streams=KAFKA_VERSION))
    assert (row.task, row.outcome, row.keys) == ("0_0", "restored", 20)
