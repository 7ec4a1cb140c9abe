"""What `java/StoreShapes.java` prints of a topology restores an application of which nothing is left but its topics."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from joined_streams import JOINED
from kafka_streams import (
    EVERY_KIND,
    KEPT,
    NEWER_VERSIONS,
    OLDER_VERSIONS,
    Command,
    Driver,
    KafkaStreams,
    Store,
    StorePartition,
    other_driver,
)

from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.selection import PartitionSelection, Where, choose
from statestore.discovery.store import DiscoveredStore
from tests.integration.broker import T0, create_topic, produce
from tests.integration.restored import restored_here

pytestmark = pytest.mark.long  # Kafka Streams prints its topologies

START = T0 - T0 % 60_000


def shapes_of(app: KafkaStreams, stores: list[Store], driver: Driver | None = None) -> dict[str, dict[str, Any]]:
    return {shape["store"]: shape for shape in json.loads(app.shapes(stores, driver=driver))["shapes"]}


def unnumbered(generated: str) -> str:
    """A name that Kafka Streams made, without the number of its place in the topology."""
    return re.sub(r"-\d+(-store)?$", "", generated)


def commands(stores: list[Store]) -> list[Command]:
    return [
        Command(store.name, b"key-%d" % number, b"%d" % number, T0 + number, start=time_ms, end=time_ms + 1_000)
        for store in stores
        for number in range(20)
        for time_ms in [START + number * 60_000]
    ]


def chosen_of(app: KafkaStreams, state_dir: Path, shapes: Path) -> tuple[list[DiscoveredStore], list[Any]]:
    topics = app.cluster.topics
    where = Where(app.cluster, state_dir)
    chosen = choose(PartitionSelection(where, applications=[app.application_id], shapes=shapes), topics)
    return chosen.discovered, stores_to_restore(chosen, topics)


@pytest.mark.long
def test_a_topology_restores_an_application_of_which_nothing_but_its_topics_is_left(
    kafka_streams: Callable[..., KafkaStreams], bootstrap_servers: str, tmp_path: Path
) -> None:
    name = uuid4().hex[:8]
    table, rates, picky = (create_topic(bootstrap_servers, f"{what}-{name}", 1, KEPT) for what in ("t", "r", "p"))
    for topic in (table, rates, picky):
        produce(bootstrap_servers, topic, [(b"%d" % number, b"v") for number in range(50)], partition=0, timestamp=T0)
    app = kafka_streams(
        changelog_config={},
        tables={"by-id": table},
        global_tables={"rates": rates},
        global_processors={"picky": picky},
    )
    stores = [*EVERY_KIND, Store("mem", layout="in-memory")]
    app.write(tmp_path / "before", stores, commands(stores))
    before = app.read(tmp_path / "before", stores)
    shapes = tmp_path / "shapes.json"
    shapes.write_text(app.shapes(stores))
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    _, specs = chosen_of(app, state_dir, shapes)
    assert {spec.store.name for spec in specs} == {store.name for store in EVERY_KIND} | {"by-id", "rates"}
    assert {(row.outcome, row.failure) for row in restored_here(specs)} == {("restored", None)}
    after = app.read(state_dir, stores)
    assert {part: after.restored[part] for part in after.restored if part.store not in ("mem", "picky")} == {
        part: 0 for part in before.restored if part.store not in ("mem", "picky")
    }
    assert after.rows == before.rows
    assert after.rows[StorePartition("rates")]


@pytest.mark.parametrize(
    "version",
    ["4.3.1", *(pytest.param(version, marks=pytest.mark.long) for version in (*OLDER_VERSIONS, *NEWER_VERSIONS))],
)
def test_each_version_tells_what_its_stores_are(
    kafka_streams: Callable[..., KafkaStreams], driver: Driver, tmp_path: Path, version: str
) -> None:
    app = kafka_streams(
        tables={"by-id": "table"},
        global_tables={"rates": "rates"},
        global_processors={"picky": "picky"},
        dsl=("stream", "prices"),
        joins=True,
    )
    stores = [
        *EVERY_KIND,
        Store("versioned", layout="versioned"),
        Store("ordered", "window", layout="time-ordered"),
        Store("sliding", "window", layout="sliding"),
        Store("ordered-session", "session", layout="time-ordered"),
        Store("mem", layout="in-memory"),
    ]
    if version not in OLDER_VERSIONS:
        stores += [Store("headers", layout="headers"), Store("window-headers", "window", layout="headers")]
    found = shapes_of(app, stores, driver if version == "4.3.1" else other_driver(driver, version, tmp_path))
    joined = {name: found.pop(name) for name in [*found] if name.startswith(("KSTREAM-", "KTABLE-"))}
    assert Counter(
        (unnumbered(name), shape["kind"], shape["format"], shape["retain_duplicates"]) for name, shape in joined.items()
    ) == Counter(
        (unnumbered(store.name), "window" if store.duplicates else "key-value", store.format, store.duplicates)
        for store in JOINED
    )
    kinds = {name: (shape["kind"], shape["format"]) for name, shape in found.items() if not shape["in_memory"]}
    headers = {"headers": ("key-value", "headers"), "window-headers": ("window", "headers")}
    buffer = next(name for name in found if name.startswith("priced"))
    assert kinds == {
        "plain-kv": ("key-value", "plain"),
        "ts-kv": ("key-value", "timestamped"),
        "window": ("window", "plain"),
        "ts-window": ("window", "timestamped"),
        "twice": ("window", "plain"),
        "session": ("session", "plain"),
        "by-id": ("key-value", "timestamped"),
        "rates": ("key-value", "timestamped"),
        "picky": ("key-value", "timestamped"),
        "versioned": ("versioned", "plain"),
        "prices": ("versioned", "plain"),
        "ordered": ("time-ordered-window", "timestamped-in-default"),
        "sliding": ("indexed-time-ordered-window", "timestamped-in-default"),
        "ordered-session": ("time-ordered-session", "plain"),
        "closed": ("time-ordered-session", "plain"),
        "closed-windows": ("time-ordered-window", "timestamped-in-default"),
        "counts": ("window", "timestamped"),
        buffer: ("time-ordered-buffer", "plain"),
        **(headers if version not in OLDER_VERSIONS else {}),
    }
    assert {name for name, shape in found.items() if shape["in_memory"]} == {"mem", "held-store"}
    assert {name: shape["global"] for name, shape in found.items() if shape["global"]} == {
        "rates": "table",
        "picky": "processor",
    }
    assert found["by-id"]["changelog"] == "table"
    assert (found["window"]["retention_ms"], found["window"]["segment_interval_ms"]) == (3_600_000, 1_800_000)
    assert (found["window"]["retain_duplicates"], found["twice"]["retain_duplicates"]) == (False, True)
    assert {shape["offsets_beside"] for shape in found.values()} == {version in OLDER_VERSIONS}
