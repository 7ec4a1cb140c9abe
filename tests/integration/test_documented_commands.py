"""The commands that docs/restoring.md and docs/command.md show for an application `shop` do what is said of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.documents import in_bash, to_run
from tests.session.broker import running_broker

pytestmark = [pytest.mark.long, pytest.mark.documents]

FILES = {
    "orders.py": """
import json
from statestore.tasks import ValueAndTimestamp

def process(record, context):
    totals = context.state_store("totals")
    found = totals.get(record.key)
    total = (json.loads(found.value) if found else 0) + json.loads(record.value)
    totals.put(record.key, ValueAndTimestamp(json.dumps(total).encode(), record.timestamp))
""",
    "shop.yaml": """
name: shop
input_topic: orders
processor: orders:process
stores:
  - name: totals
""",
    "send.py": """
import os
from datetime import datetime, timedelta, timezone
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

servers = {"bootstrap.servers": os.environ["STATESTORE_BOOTSTRAP_SERVERS"]}
admin = AdminClient(servers)  # which must live until the topic is there
admin.create_topics([NewTopic("orders", 4)])["orders"].result()
producer = Producer({**servers, "partitioner": "murmur2_random"})
for customer, cents, hours in [("anna", 5, 20), ("ben", 3, 20), ("dora", 4, 20), ("anna", 2, 10)]:
    time = datetime.now(timezone.utc) - timedelta(hours=hours)  # of days ago, the broker would begin to compact
    producer.produce("orders", str(cents), customer, timestamp=int(time.timestamp() * 1000))
producer.flush()
""",
}


@dataclass(frozen=True)
class Shop:
    """A directory with the application, and the settings of its commands."""

    directory: Path
    settings: dict[str, str]

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run the text in bash, which ends at the first command that fails."""
        return in_bash(text, self.directory, self.settings)

    def codes(self, texts: list[str]) -> list[int]:
        """Run each text, and return how it ended."""
        return [self.run(text).returncode for text in texts]

    def must(self, text: str) -> str:
        done = self.run(text)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    @property
    def store(self) -> Path:
        return self.directory / "state" / "shop" / "0_3" / "rocksdb" / "totals"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    directory = tmp_path_factory.mktemp("shop")
    for name, text in FILES.items():
        (directory / name).write_text(text, encoding="utf-8")
    with running_broker(directory / "broker") as servers:
        shop = Shop(
            directory,
            {
                "STATESTORE_BOOTSTRAP_SERVERS": servers,
                **{f"STATESTORE_{name.upper()}_DIR": str(directory / name) for name in ("state", "reports")},
            },
        )
        shop.must("python send.py; statestore apply --yes shop.yaml; statestore process --application shop")
        yield shop


def test_a_lost_store_is_found_planned_restored_and_validated(shop: Shop) -> None:
    shutil.rmtree(shop.store)
    assert shop.codes(to_run("docs/restoring.md", "bash", heading="Restore damaged or outdated stores")) == [1, 0, 0, 0]
    assert shop.store.exists()


def test_a_replaced_store_is_put_back_and_what_it_replaced_is_removed(shop: Shop) -> None:
    shop.must("statestore restore --application shop --mode full --force")
    rollback, release = to_run("docs/restoring.md", "bash", heading="Put a replaced store back")
    assert "│ OK" in shop.must(rollback)
    shop.must(release)
    assert shop.run(rollback).returncode == 2


def test_a_store_is_built_as_it_was_in_the_past(shop: Shop, tmp_path: Path) -> None:
    [past] = to_run("docs/restoring.md", "bash", heading="Build a store as it was in the past")
    between = datetime.now(UTC) - timedelta(hours=15)
    past = past.replace("2026-01-31T12:00:00+00:00", between.isoformat(timespec="seconds"))
    out = shop.must(past.replace("/var/tmp/then", str(tmp_path / "then")))
    assert f"│ {b'5'.hex()} " in out  # the definition says bytes
    assert "│ 7 " in shop.must("statestore read totals anna --application shop --key-serde utf8 --value-serde utf8")


def test_the_commands_on_an_application_with_a_definition_end_well(shop: Shop) -> None:
    assert "│ 7 " in shop.must("\n".join(to_run("docs/command.md", "bash", heading="Applications with a definition")))
