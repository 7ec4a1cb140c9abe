"""Runs a command at an interval, until it is ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from statestore.cli.warm_command import ended_by_sigterm
from statestore.errors import StateStoreError


def run_every(interval_s: float, once: Callable[[], int]) -> None:
    """Run at an interval (s); a run that takes longer is followed by the next one at once.

    An error ends one run only: a broker that does not answer may answer the next one.
    """
    with ended_by_sigterm():
        while True:
            began = time.monotonic()
            try:
                once()
            except (StateStoreError, OSError) as error:
                print(f"statestore: {error}", file=sys.stderr, flush=True)
            time.sleep(max(interval_s - (time.monotonic() - began), 0))
