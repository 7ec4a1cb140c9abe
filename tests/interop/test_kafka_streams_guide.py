"""The guide docs/kafka-streams.md, as it is written: its topology runs in Kafka Streams, its commands on the stores.

The steps follow the page: verify, verify while it runs, lose the directory, pre-build, warm, take over, and go back.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_streams import Driver

from demo.processes import wait_until
from statestore.errors import InputError
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import committed_offsets
from tests.documents import in_bash, to_run
from tests.session.broker import running_broker

pytestmark = pytest.mark.documents
GUIDE = "docs/kafka-streams.md"
WAIT_S = 120
NAME = "orders"
#: What surrounds the topology of the guide.
PROGRAM = """
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.*;

public final class Orders {
    static long cents(String order) { return Long.parseLong(order.split(";")[1]); }
    static String city(String order) { return order.split(";")[0]; }

    static StreamsBuilder topology() {
        StreamsBuilder builder = new StreamsBuilder();
        %s
        return builder;
    }

    public static void main(String[] args) {
        Properties properties = new Properties();
        properties.put("application.id", "orders");
        properties.put("bootstrap.servers", args[0]);
        properties.put("state.dir", args[1]);
        properties.put("processing.guarantee", "exactly_once_v2");
        properties.put("auto.offset.reset", "earliest");
        properties.put("session.timeout.ms", "6000");
        properties.put("heartbeat.interval.ms", "1000");
        properties.put("default.key.serde", Serdes.String().getClass());
        properties.put("default.value.serde", Serdes.String().getClass());
        KafkaStreams streams = new KafkaStreams(topology().build(), properties);
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            public void onRestoreStart(TopicPartition partition, String store, long from, long to) { }
            public void onBatchRestored(TopicPartition partition, String store, long to, long count) { }
            public void onRestoreEnd(TopicPartition partition, String store, long count) {
                System.out.println("restored " + count);
            }
        });
        streams.setStateListener((now, before) -> System.out.println(now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(30))));
        streams.start();
    }
}
"""
CITIES = ("Bonn", "Oslo", "Rome")


@dataclass
class Example:
    """The application of the guide, the commands of its reader, and the orders that were sent."""

    servers: str
    directory: Path
    driver: Driver
    sent: int = 0

    @property
    def state_dir(self) -> Path:
        return self.directory / "state"

    @property
    def java(self) -> list[str]:
        classpath = f"{self.directory / 'classes'}:{self.driver.classpath}"
        return [self.driver.java, "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath]

    def compile(self) -> None:
        [topology] = to_run(GUIDE, "java")
        source = self.directory / "Orders.java"
        source.write_text(PROGRAM % topology, encoding="utf-8")
        compiler = "org.eclipse.jdt.internal.compiler.batch.Main"
        options = ["-source", "17", "-target", "17", "-proc:none", "-nowarn", "-cp", self.driver.classpath]
        target = ["-d", str(self.directory / "classes"), str(source)]
        done = subprocess.run([*self.java, compiler, *options, *target], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    def send(self, count: int) -> None:
        """Send orders of the last half hour: seven customers, three cities."""
        producer = Producer({"bootstrap.servers": self.servers, "partitioner": "murmur2_random"})
        for number in range(self.sent, self.sent + count):
            producer.produce(NAME, f"{CITIES[number % 3]};{number}", f"customer-{number % 7}")
        assert producer.flush(WAIT_S) == 0
        self.sent += count

    @contextmanager
    def running(self) -> Iterator[list[int]]:
        """Run the application until it has processed all that was sent; return how many records each store restored."""
        log = self.directory / "streams.log"
        restored: list[int] = []
        arguments = ["Orders", self.servers, str(self.state_dir)]
        service = self.driver.processes.start("orders", [*self.java, *arguments], os.environ, log)
        try:
            wait_until(lambda: "RUNNING\n" in log.read_text(), WAIT_S, "the application to run", service)
            yield restored
            wait_until(self.is_processed, WAIT_S, "the application to process its input", service)
        finally:
            self.driver.processes.stop_service(service)
        lines = log.read_text().splitlines()
        restored += [int(line.removeprefix("restored ")) for line in lines if line.startswith("restored ")]
        log.unlink()

    def is_processed(self) -> bool:
        """Tell whether the application's group has committed all input."""
        committed = committed_offsets(Cluster(self.servers), NAME)
        inputs = {partition: found.next_offset for partition, found in committed.items() if partition.topic == NAME}
        return sum(inputs.values()) == self.sent

    def wait_for_no_members(self) -> None:
        topics = Cluster(self.servers).topics

        def nobody() -> bool:
            try:
                topics.require_no_members(NAME)
            except InputError:
                return False
            return True

        wait_until(nobody, WAIT_S, "the stopped application to be no member any more")

    def rows(self, store: str) -> list[dict[str, Any]]:
        serdes = "--key-serde utf8 --value-serde int64"
        said = self.bash(f"statestore read {NAME}/{store} --limit 1000 {serdes} --json -")
        return list(json.loads(said)["rows"])

    def lose(self) -> None:
        """Lose the whole state directory, with all that was recorded in it."""
        shutil.rmtree(self.state_dir)
        self.state_dir.mkdir()

    def describe(self) -> None:
        """Write what `java/StoreShapes.java` says of the topology, as the guide has it done."""
        done = subprocess.run(
            [*self.java, "StoreShapes", NAME, "Orders::topology"], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        (self.directory / "shapes.json").write_text(done.stdout, encoding="utf-8")

    def bash(self, text: str) -> str:
        """Run commands of the guide, which must succeed."""
        settings = {
            "STATESTORE_BOOTSTRAP_SERVERS": self.servers,
            "STATESTORE_STATE_DIR": str(self.state_dir),
            "STATESTORE_REPORTS_DIR": str(self.directory / "reports"),
        }
        done = in_bash(text, self.directory, settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def commands(self, heading: str) -> list[str]:
        return to_run(GUIDE, "bash", heading=heading)


@pytest.fixture
def example(driver: Driver, tmp_path: Path) -> Iterator[Example]:
    (tmp_path / "state").mkdir()
    with running_broker(tmp_path / "broker") as servers:
        example = Example(servers, tmp_path, driver)
        for topic in (NAME, "customer-totals"):
            Cluster(servers).topics.create(topic, 2, {})
        for text in to_run(GUIDE, "python", "yaml"):
            file = tmp_path / text.splitlines()[0].removeprefix("# ")
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        example.compile()
        yield example


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_each_step_of_the_guide_does_what_it_says(example: Example) -> None:
    example.send(100)
    with example.running() as restored:
        pass
    assert set(restored) == {0}
    for text in example.commands("Verify its stores"):
        assert "MISSING" not in example.bash(text)

    [live] = example.commands("Verify it while it runs")
    with example.running():
        scanned, proven = (example.bash(line) for line in live.splitlines())
    assert scanned.count("│ IN_USE ") == 4
    assert proven.count("│ PROVEN ") == 4

    example.lose()
    plan, restore, verify, by_hand = example.commands("Pre-build its stores")
    example.describe()
    planned = example.bash(plan)
    assert "MISSING" in planned
    assert planned == example.bash(by_hand)
    assert "MISSING │ restored" in example.bash(restore)
    assert "│ OK" in example.bash(verify)
    example.send(50)
    with example.running() as restored:
        pass
    assert len(restored) == 4
    assert set(restored) == {0}

    example.lose()
    [warm] = example.commands("Warm its pods")
    assert "MISSING │ warmed" in example.bash(warm)
    with example.running() as restored:
        pass
    assert set(restored) == {0}

    example.send(30)
    example.wait_for_no_members()
    check, process = example.commands("Take it over")
    assert "MISSING" not in example.bash(check)
    assert "│ orders/0_0 " in example.bash(process)
    example.send(20)
    with example.running() as restored:
        pass
    assert set(restored) == {0}
    example.wait_for_no_members()
    example.bash(process)
    example.bash(f"statestore verify --application {NAME} --depth deep")
    expected = Counter({f"customer-{number % 7}": 0 for number in range(7)})
    for number in range(example.sent):
        expected[f"customer-{number % 7}"] += number
    assert {row["key"]: int(row["value"]) for row in example.rows("totals")} == expected
    assert sum(int(row["value"]) for row in example.rows("per-hour")) == example.sent
