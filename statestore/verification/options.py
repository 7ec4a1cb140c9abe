"""How thoroughly store partitions are verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from statestore.errors import InputError
from statestore.requests.verify import Depth, VerifyRequest
from statestore.verification.gathering import NOT_ASKED, AskedLogs
from statestore.verification.live.pace import Pace


def nobody_waits() -> None:
    """Read on."""


def unpaced(_: int) -> None:
    """Read as fast as possible."""


@dataclass(frozen=True)
class VerifyOptions:
    """How thoroughly to verify.

    Attributes
    ----------
    depth
        `offsets`, `scan` or `deep`.
    sample
        Fraction of the key ranges that `deep` compares; None: all of them.
    seed
        Decides which ranges a sample has.
    run_bytes
        Memory for the part of the log that `deep` sorts at a time.
    first_keys
        How many of the keys that differ are told.
    name_keys
        False leaves these keys out of the report, and tells their digests only.
    give_way
        Called now and then while a store is read; raises LockedError to end that.
    pace
        Called with the number of bytes of each batch of rows or records; may wait.
    most_passes
        How often a proof of a closed store may read the log; 0: compare in key order, without a proof.
    scratch
        Directory for sorted records; None: one of ours next to the store.
    confirm_within_s
        How long stores in use are looked at again, until a difference is confirmed or gone (s).
    alert_at
        Fraction of the way to the loss of data at which a store in use gets an alert.
    before
        Logs that were asked for before any store was looked at; see `log_facts`.
    """

    depth: Depth = "scan"
    sample: float | None = None
    seed: int = 0
    run_bytes: int = 96 * 1024 * 1024
    first_keys: int = 10
    name_keys: bool = True
    give_way: Callable[[], None] = nobody_waits
    pace: Callable[[int], None] = unpaced
    most_passes: int = 2
    scratch: Path | None = None
    confirm_within_s: float = 300.0
    alert_at: float = 0.8
    before: AskedLogs = NOT_ASKED

    def __post_init__(self) -> None:
        if self.first_keys < 0:
            raise InputError(f"first_keys: expected a number from 0, found {self.first_keys}")

    @classmethod
    def of(cls, request: VerifyRequest, started_ms: int, *, run_bytes: int) -> VerifyOptions:
        """Return what a request asks for; if it names no seed, each run has its own."""
        return cls(
            depth=request.depth,
            sample=request.sample,
            seed=started_ms if request.seed is None else request.seed,
            run_bytes=run_bytes,
            name_keys=not request.hide_keys,
            pace=unpaced if request.rate is None else Pace(request.rate * 1e6),
            confirm_within_s=request.confirm_within_s,
            alert_at=request.alert_at,
        )
