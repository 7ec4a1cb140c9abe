"""A look at what `make faults` does at length: damage is found and mended, and where there is none, none is seen."""

from __future__ import annotations

import os
from pathlib import Path

from tests.faults.damage import judging, places
from tests.faults.damage.restarts import Restarts
from tests.faults.damage.stores import FORMATS, Original

SEED = os.environ.get("FAULTS_SEED", "1")
PLACES, RESTARTS = 24, 8


def test_files_damaged_at_24_places_are_found_or_do_no_harm_and_the_stores_are_restored(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    original = Original(bootstrap_servers, tmp_path, seed=int(SEED), runs=2)
    for sealed in (True, False):
        drawn = [place for store in FORMATS for place in places.draw(original, store, sealed=sealed, seed=SEED, each=2)]
        taken = places.sample(drawn, PLACES // 2, SEED)
        assert len(taken) == PLACES // 2
        assert judging.failures(original, taken, "scan" if sealed else "deep") == []


def test_8_restarts_raise_no_alarm(bootstrap_servers: str, tmp_path: Path) -> None:
    restarts = Restarts(bootstrap_servers, tmp_path, 2 * int(SEED))  # an even one has one task only
    restarts.verify_before_anything()
    for _ in range(RESTARTS):
        restarts.restart()
    restarts.end()
