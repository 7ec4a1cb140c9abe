"""An application of ours writes, is killed, and is looked at all the time: no look raises an alarm."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from uuid import uuid4

import pytest

from statestore.changelog.topic_settings import changelog_config
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Status, VerifyRow
from statestore.verification.live.verify import verify_live
from statestore.verification.options import VerifyOptions
from tests.faults import proof_oracle
from tests.faults.proof_oracle import expected, log_of, run_until_killed
from tests.faults.test_proven_positions import SEED, STORES
from tests.integration.broker import T0, wait_for
from tests.integration.dying import start_process
from tests.integration.support import Application

CELLS = [
    (kind, guarantee) for kind in ("key-value", "window", "session") for guarantee in ("exactly-once", "at-least-once")
]
ONE_LOOK = VerifyOptions("deep", confirm_within_s=0)


def look(spec: StorePartitionSpec) -> VerifyRow:
    return verify_live([spec], ONE_LOOK)[0]


@pytest.mark.short_for("window-at-least-once")
@pytest.mark.parametrize(("kind", "guarantee"), [pytest.param(*cell, id="{}-{}".format(*cell)) for cell in CELLS])
def test_looks_at_a_writing_application_find_where_it_is_on_disk(
    bootstrap_servers: str, tmp_path: Path, kind: str, guarantee: str
) -> None:
    store = STORES[kind]
    application = Application(
        bootstrap_servers, tmp_path, stores=[store], processor="echo", changelog_config=changelog_config(store)
    )
    spec = application.store_spec(exactly_once=guarantee == "exactly-once")
    transactional_id = uuid4().hex if spec.exactly_once else None
    process = start_process(proof_oracle._work, spec, SEED, T0, transactional_id, tmp_path / "notes")
    looks: list[VerifyRow] = []

    def looked_often() -> bool:
        assert process.is_alive()
        looks.append(look(spec))
        offsets = [row.disk_offset for row in looks if row.disk_offset is not None]
        return len(looks) >= 20 and len(set(offsets)) > 5

    try:
        wait_for(spec.live.is_dir, "the store")
        wait_for(looked_often, "more on disk")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    # Before its first rows are on disk, a database may not be there yet.
    no_rows = {Status.IN_USE} if not all(row.keys for row in looks) else set()
    alarms = {(row.status, row.detail) for row in looks if row.status not in (Status.PROVEN, Status.LOCKED)}
    assert {status for status, _ in alarms} <= {Status.UNCONFIRMED, *no_rows}
    assert not {row.status for row in looks[5:] if row.keys} - {Status.PROVEN}, alarms


@pytest.mark.short_for(0)
@pytest.mark.parametrize("seed", range(5))
def test_the_offset_on_disk_of_a_killed_application_is_that_of_its_notes(
    bootstrap_servers: str, tmp_path: Path, seed: int
) -> None:
    store = STORES["key-value"]
    application = Application(
        bootstrap_servers, tmp_path, stores=[store], processor="echo", changelog_config=changelog_config(store)
    )
    spec = application.store_spec(exactly_once=False)
    killed = run_until_killed(spec, seed, tmp_path, exactly_once=False, fence=False)
    log, required = log_of(spec)
    (truth,) = expected(killed, spec, required, max(log.high_watermark, log.last_stable)).values()
    found = look(spec)
    assert found.contents is not None
    if truth.offset is None:  # the last puts on disk were never logged
        assert found.status is Status.UNCONFIRMED
    else:
        assert found.status is Status.PROVEN
        assert (truth.first, truth.last) in found.contents.offsets
