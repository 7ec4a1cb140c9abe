"""A store of any kind is divided among other partitions as its changelog would have been."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.kafka.cluster import Cluster
from statestore.kafka.partitioner import partition_of
from statestore.model import StoreFormat, TaskId
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import restore
from statestore.reports import Status
from statestore.rewrite.group_offsets import InputPair
from statestore.rewrite.new_application import NewApplication
from statestore.rewrite.repartition import repartition
from statestore.rewrite.repartition_plan import RepartitionSpec
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration.broker import T0, unique
from tests.integration.kinds import MINUTE, changes, stored
from tests.integration.support import STORE, Application
from tests.integration.test_reseed_kinds import KINDS

IN_THE_GATE = ("window",)


def one_after_the_other(pieces: Sequence[Any], work: Callable[[Any], Any], *_: Any) -> list[Any]:
    """Do the pieces in this process."""
    return [work(piece) for piece in pieces]


def user_key(definition: StoreDefinition, key: bytes) -> bytes:
    behind = definition.store_kind.suffix_bytes
    return key[:-behind] if behind else key


class Kind:
    """An application of which there is a store of a kind, restored from the changes that were logged."""

    def __init__(self, servers: str, directory: Path, definition: StoreDefinition, rows: list[Any], count: int) -> None:
        like = definition.model_copy(update={"kind": definition.store_kind.ordinary_kin or definition.kind})
        if definition.store_kind.layout is not None:
            like = like.model_copy(update={"format": StoreFormat.TIMESTAMPED})
        self.application = Application(servers, directory, stores=[like], processor="echo", partitions=count)
        self.definition, self.count = definition, count
        producer = Producer({"bootstrap.servers": servers})
        for at, (key, value, *headers) in enumerate(rows):  # the same timestamps, however many partitions there are
            where = partition_of(user_key(definition, key), count)
            noted = {"headers": headers[0]} if headers and headers[0] else {}
            producer.produce(self.application.changelog, value, key, partition=where, timestamp=T0 + at, **noted)
        assert producer.flush(60) == 0
        for task in range(count):
            spec = self.application.restore_spec(force=True)._replace(store=self.store(task))
            assert restore(spec).failure is None

    def store(self, task: int) -> StorePartitionSpec:
        spec = self.application.store_spec(task)
        assert spec.changelog is not None
        changelog = spec.changelog.model_copy(update={"partitions": self.count})
        return spec.model_copy(update={"store": self.definition, "changelog": changelog, "owned": False})

    @property
    def stores(self) -> list[StorePartitionSpec]:
        return [self.store(task) for task in range(self.count)]


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in IN_THE_GATE else pytest.mark.long) for kind in KINDS]
)
@pytest.mark.parametrize(("before", "after"), [(2, 3), pytest.param(3, 2, marks=pytest.mark.long)])
def test_every_kind_has_the_rows_that_its_divided_changelog_gives(
    bootstrap_servers: str, tmp_path: Path, kind: str, before: int, after: int
) -> None:
    definition = KINDS[kind]
    like = definition.model_copy(update={"kind": definition.store_kind.ordinary_kin or definition.kind})
    if definition.store_kind.layout is not None:
        like = like.model_copy(update={"format": StoreFormat.TIMESTAMPED})
    # Short of the retention, nothing expires: how far time has come differs between partitions.
    rows = changes(like, 30, 1)
    old = Kind(bootstrap_servers, tmp_path, definition, rows, before)
    expected = Kind(bootstrap_servers, tmp_path / "other", definition, rows, after)
    name = unique("new")
    new = [
        store.model_copy(update={"application": name, "state_dir": old.application.state_dir, "changelog": None})
        for store in expected.stores
    ]
    spec = RepartitionSpec(
        source=old.stores,
        new=NewApplication(name, {STORE: new}, None),
        partitions=after,
        inputs=[InputPair(old.application.input, expected.application.input)],
        renamed={},
        reads_from=None,
        any_partitioner=False,
        run_bytes=1 << 24,
        started_ms=T0,
        parallelism=1,
    )
    kept = [stored(store, store.live) for store in old.stores]
    with repartition(spec, one_after_the_other) as work:
        done = work.carry_out(lambda topics: None)
    assert [row.store.task for row in done] == [TaskId(0, number) for number in range(after)]
    for row, other in zip(done, expected.stores, strict=True):
        store = row.store
        found, wanted = stored(store, store.live), stored(other, other.live)
        assert found == wanted
        status = verify(store, VerifyOptions("deep"))
        assert (status.status, status.detail) in ((Status.OK, ""), (Status.EMPTY, ""))
    assert [stored(store, store.live) for store in old.stores] == kept
    config = Cluster(bootstrap_servers, 60).topics.topic_configs([f"{name}-{STORE}-changelog"])[
        f"{name}-{STORE}-changelog"
    ]
    assert config["cleanup.policy"] == "compact"  # as the tests' own changelogs have it, whatever the kind


@pytest.mark.long
@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (StoreDefinition(name=STORE, kind="versioned", retention_ms=MINUTE), "several records for a row"),
        (
            StoreDefinition(name=STORE, kind="time-ordered-buffer", format=StoreFormat.PLAIN),
            "records that a join holds back",
        ),
    ],
)
def test_kinds_whose_rows_do_not_make_a_changelog_are_refused(
    bootstrap_servers: str, tmp_path: Path, definition: StoreDefinition, reason: str
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    store = application.store_spec().model_copy(update={"store": definition})
    new = NewApplication("new", {STORE: [store]}, None)
    spec = RepartitionSpec([store], new, 1, [], {}, None, False, 1 << 24, T0, 1)
    with pytest.raises(InputError, match=reason), repartition(spec, one_after_the_other):
        pass
