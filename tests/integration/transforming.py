"""Transforms as the command does them, without Spark: no suite is asked. And functions that rows are given to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from statestore import clock
from statestore.config import Settings
from statestore.discovery.partitions import store_partition_specs
from statestore.kafka.cluster import Cluster
from statestore.metastore.adoption import adoption_hooks
from statestore.metastore.metastore import Metastore
from statestore.model import StoreFormat
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.staged_stores import Rewritten
from statestore.rewrite.transform import TransformPlan, TransformSpec, transform
from statestore.rewrite.user_rows import Row


def times_ten(row: Row) -> Row | None:
    """Ten times as much; without `key-03`."""
    if row.key == b"key-03":
        return None
    return replace(row, value=b"%d" % (int(row.value) * 10))


def fail_on_one(row: Row) -> Row:
    if row.key == b"key-07":
        raise KeyError("no such customer")
    return row


def move(row: Row) -> Row:
    return replace(row, key=row.key + b"-moved")


def one_for_all(row: Row) -> Row:
    return replace(row, key=b"key-00")


def as_it_is(row: Row) -> Row:
    return row


def with_trace(row: Row) -> Row:
    """A header, and a timestamp for rows that had none."""
    return replace(row, headers=(("trace", b"1"),), timestamp=row.timestamp or 1_700_000_000_000)


def nothing_of_it(row: Row) -> Any:
    return row.value


class Transforming(NamedTuple):
    """What is done."""

    servers: str
    service_id: str
    application: str
    state_dir: Path
    function: str = "times_ten"
    stores: Sequence[str] = ()
    format: StoreFormat | None = None
    as_bytes: bool = False

    @property
    def metastore(self) -> Metastore:
        return Metastore(Cluster(self.servers, 60), self.service_id)

    def carry_out(
        self,
        judge: Callable[[Sequence[StorePartitionSpec]], None] = lambda _: None,
        asked: Callable[[TransformPlan], None] = lambda _: None,
    ) -> list[Rewritten]:
        definition = self.metastore.view().catalogue.entry(self.application).definition
        settings = Settings(
            bootstrap_servers=self.servers,
            state_dir=self.state_dir,
            reports_dir=self.state_dir.with_name("reports"),
            data_docs_dir=self.state_dir.with_name("data_docs"),
        )
        spec = TransformSpec(
            stores=store_partition_specs(settings, Cluster(self.servers, 60).topics, [definition], self.stores),
            format=self.format,
            function=f"{__name__}:{self.function}",
            as_bytes=self.as_bytes,
            inputs=[definition.input_topic],
            run_bytes=1 << 24,
            started_ms=clock.now_ms(),
        )
        hooks = adoption_hooks(self.metastore, self.application, judge)
        with transform(spec, hooks, lambda pieces, work, *_: [work(piece) for piece in pieces]) as work:
            asked(work.plan)
            return work.carry_out()


def run_transform(work: Transforming) -> None:
    """Do it; in a child process that is killed."""
    work.carry_out()
