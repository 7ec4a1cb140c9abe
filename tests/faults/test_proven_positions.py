"""The proof finds the offset that the store of a killed application has on disk, which its notes show as well."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statestore.changelog.topic_settings import changelog_config
from statestore.definitions.store import StoreDefinition
from statestore.reports import Status
from statestore.verification.contents import databases
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.closed import prove
from tests.faults.proof_oracle import MINUTE, expected, log_of, run_until_killed
from tests.integration.kinds import stored
from tests.integration.support import STORE, Application

SEED = int(os.environ.get("FAULTS_SEED", "1"))
STORES = {
    "key-value": StoreDefinition(name=STORE),
    "window": StoreDefinition(name=STORE, kind="window", retention_ms=10 * MINUTE, window_size_ms=MINUTE),
    "session": StoreDefinition(name=STORE, kind="session", retention_ms=10 * MINUTE),
    "versioned": StoreDefinition(name=STORE, kind="versioned", retention_ms=10 * MINUTE),
    "headers": StoreDefinition(name=STORE, format="headers"),
}
CELLS = [
    (kind, guarantee, kill) for kind in STORES for guarantee in ("exactly-once", "at-least-once") for kill in range(5)
]
QUICK = ("key-value-exactly-once-kill0", "window-at-least-once-kill0", "versioned-exactly-once-kill0")


@pytest.mark.short_for(*QUICK)
@pytest.mark.parametrize(
    ("kind", "guarantee", "kill"), [pytest.param(*cell, id="{}-{}-kill{}".format(*cell)) for cell in CELLS]
)
def test_the_proven_offsets_are_those_of_the_puts_on_disk(
    bootstrap_servers: str, tmp_path: Path, kind: str, guarantee: str, kill: int
) -> None:
    store = STORES[kind]
    application = Application(
        bootstrap_servers, tmp_path, stores=[store], processor="echo", changelog_config=changelog_config(store)
    )
    spec = application.store_spec(exactly_once=guarantee == "exactly-once")
    fence = kill != 1  # one cell looks while the transaction is still open
    seed = SEED * 1_000 + list(STORES).index(kind) * 100 + kill * 10 + (guarantee == "exactly-once")
    killed = run_until_killed(spec, seed, tmp_path, exactly_once=spec.exactly_once, fence=fence)
    log, required = log_of(spec)
    proof = prove(spec, databases(spec), log, VerifyOptions(), claim=None)
    assert proof is not None
    truths = expected(killed, spec, required, proof.end)
    assert any(truth.first > 0 for truth in truths.values()), "no put is on disk"
    for segment, truth in truths.items():
        found = proof.prefixes[segment]
        if truth.offset is None:  # the last puts on disk were never logged
            assert not found.is_prefix
            continue
        ranges = [(one.first, one.last) for one in found.offsets if truth.offset in one]
        assert (ranges, found.unexplained) == ([(truth.first, truth.last)], 0), (segment, truth)
    if fence:
        done = application.restore(label="caught up")
        assert done.before is Status.UNCLEAN
        rows = stored(spec, spec.live)
        assert application.verify("deep").status is Status.OK
        application.restore("full", force=True, label="rebuilt")
        if not store.store_kind.has_history:
            assert stored(spec, spec.live) == rows
