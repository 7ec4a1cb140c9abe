"""A real Kafka Streams application of the DSL: one store that cannot be determined is its own trouble, and no other's.

It has what the DSL makes (`java/DslTopology.java`): sessions and windows that are emitted when they close, a versioned
table, the buffer of a join with a grace period, and a suppression; beside them a store in memory, one that has had no
row yet, and two that we know. Keys have 8 bytes, and every store has one live segment at most.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from kafka_streams import KEPT, Command, KafkaStreams, Store
from shared_state import contents_of
from stopped import Stopped

from statestore.cli.app import main
from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.verification import exit_code
from statestore.errors import InputError
from statestore.reports import Action, Status
from statestore.verification.options import Depth
from tests.integration.broker import T0, create_topic, produce
from tests.integration.restored import restored_here

pytestmark = pytest.mark.long  # its topology takes half a minute to run

STORES = [Store("plain-kv"), Store("mem", layout="in-memory"), Store("young", "window")]
#: By store that is not known or not determined: what the row of it says.
LEFT_ALONE = {
    "prices": "versioned",
    "young": "--store young:kind=window|session",
}
HEALTHY = {"plain-kv", "counts", "closed", "closed-windows", "priced-Buffer"}


@pytest.fixture(scope="module")
def stopped(
    kafka_streams: Callable[..., KafkaStreams], bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Stopped:
    name = uuid4().hex[:8]
    stream, table = (create_topic(bootstrap_servers, f"{what}-{name}", 1, KEPT) for what in ("stream", "table"))
    keys = [struct.pack(">q", number) for number in range(40)]
    produce(bootstrap_servers, table, [(key, b"price") for key in keys], partition=0, timestamp=T0)
    for number in range(100):
        rows = [(keys[(number + at) % len(keys)], b"v") for at in range(5)]
        produce(bootstrap_servers, stream, rows, partition=0, timestamp=T0 + number * 2_000)
    app = kafka_streams(changelog_config={}, dsl=(stream, table))
    state_dir = tmp_path_factory.mktemp("dsl") / "state"
    app.write(state_dir, STORES, [Command(store, b"key", b"value", T0) for store in ("plain-kv", "mem")])
    return Stopped(app, state_dir)


@pytest.mark.parametrize("depth", ["offsets", pytest.param("deep", marks=pytest.mark.long)])
def test_stores_that_cannot_be_determined_are_rows_beside_the_healthy_ones(stopped: Stopped, depth: Depth) -> None:
    rows = stopped.verified(depth=depth)
    assert {name: (rows[name].status, rows[name].detail) for name in HEALTHY} == dict.fromkeys(HEALTHY, (Status.OK, ""))
    for name, said in LEFT_ALONE.items():
        assert (rows[name].status, rows[name].action) == (Status.UNKNOWN_FORMAT, Action.BY_HAND), name
        assert said in rows[name].detail


def test_one_that_is_named_needs_to_be_described_first(stopped: Stopped) -> None:
    with pytest.raises(InputError, match=r"young: .* --store young:kind=window\|session"):
        stopped.verified("young")
    with pytest.raises(InputError, match=r"young: .* --store young:kind=window\|session"):
        stores_to_restore(stopped.chosen("young", "plain-kv"), stopped.topics)


def test_the_stores_that_are_known_are_restored_beside_the_others_and_these_are_left_alone(
    stopped: Stopped, tmp_path: Path
) -> None:
    state = stopped.copy(tmp_path / "state")
    before = {path: of for path, of in contents_of(state.directory).items() if {*path.split("/")} & {*LEFT_ALONE}}
    rows = restored_here(stores_to_restore(state.chosen(), state.topics), mode="full", force=True)
    assert {(row.store, row.outcome, row.failure) for row in rows} == {(name, "restored", None) for name in HEALTHY}
    after = contents_of(state.directory)
    assert {path: after[path] for path in before} == before
    assert exit_code([row for row in state.verified().values() if row.store in HEALTHY | set(LEFT_ALONE)]) == 0


def test_one_that_cannot_be_read_at_all_is_damage_and_is_left_for_somebody_to_describe(
    stopped: Stopped, tmp_path: Path
) -> None:
    state = stopped.copy(tmp_path / "state")
    (current,) = state.directory.glob("*/rocksdb/plain-kv/CURRENT")
    current.unlink()
    row = state.verified()["plain-kv"]
    assert (row.status, row.action) == (Status.CORRUPT, Action.BY_HAND)
    assert "no database of it can be read" in row.detail
    assert exit_code([row]) == 1
    with pytest.raises(InputError, match="plain-kv: no database of it can be read"):
        stores_to_restore(state.chosen("plain-kv"), state.topics)
    [row] = restored_here(stores_to_restore(state.chosen("plain-kv:format=plain"), state.topics))
    assert (row.outcome, row.failure) == ("restored", None)


def test_suppressions_are_told_by_their_logs_and_stores_in_memory_are_named_once(
    stopped: Stopped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    state = stopped.copy(tmp_path / "state")

    def verify(*said: str) -> tuple[object, str]:
        where = ["--state-dir", str(state.state_dir), "--bootstrap-servers", state.app.bootstrap_servers]
        argv = ["statestore", "verify", "--depth", "offsets", "--parallel", "1", *where]
        monkeypatch.setattr(sys, "argv", [*argv, "--application", state.app.application_id, *said])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capfd.readouterr().err

    code, said = verify()
    assert code == 1, "a store in memory cannot be told from a lost one"
    assert "held-store is skipped: records of its changelog are those of a suppression" in said
    assert {name for name, row in state.verified().items() if row.status is Status.MISSING} == {"mem"}
    assert verify("--store", "mem:engine=in_memory")[0] == 0
    assert verify() == (0, ""), "both are remembered"
