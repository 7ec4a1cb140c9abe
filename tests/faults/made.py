"""Subjects as most tests want them, and what their runs have rebuilt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statestore.definitions.fields import Engine, Guarantee
from statestore.model import StoreFormat
from statestore.reports import ProcessRow
from tests.faults.applications import with_aggregations, with_processor
from tests.faults.subject import Subject
from tests.integration.broker import unique

STORES = ("counts", "latest", "hourly", "visits")


def rebuilt(row: ProcessRow) -> set[str]:
    """Return the stores that a run has rebuilt."""
    return {figures.store for figures in row.stores if figures.rebuilt}


def processor_subject(
    servers: str,
    directory: Path,
    engine: Engine = "txn_rocksDB",
    *,
    others: dict[str, Engine] | None = None,
    guarantee: Guarantee = "exactly_once_v2",
    partitions: int = 1,
    archive: str | None = None,
    **settings: Any,
) -> Subject:
    """Make the application with the processor, all stores of one engine but for `others`."""
    engines = {**dict.fromkeys(STORES, engine), **(others or {})}
    formats = {**dict.fromkeys(STORES, StoreFormat.TIMESTAMPED), "visits": StoreFormat.PLAIN}
    settings = {"commit_interval_ms": 600_000, **settings}
    definition = with_processor(unique("fault"), engines, formats, guarantee, **settings)
    return Subject(servers, directory, definition, seed=7, partitions=partitions, archive=archive)


def aggregation_subject(servers: str, directory: Path, engine: Engine = "txn_rocksDB", partitions: int = 1) -> Subject:
    """Make the application with the aggregations, all stores of one engine."""
    engines = dict.fromkeys(("counts", "grouped", "hourly", "visits"), engine)
    definition = with_aggregations(unique("fault"), engines, commit_interval_ms=600_000)
    return Subject(servers, directory, definition, seed=7, partitions=partitions)
