"""What a validation found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class FailedRows:
    """Where an expectation did not hold.

    Attributes
    ----------
    expectation
        Its description, as in `Verdict.failed`.
    count
        How many rows did not pass; None if the expectation is about all rows together, such as their number.
    rows
        The first of them as values that JSON has, bytes as hexadecimal text; of an expectation about all rows together
        what was observed.
    """

    expectation: str
    count: int | None
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Verdict:
    """What a validation found.

    Attributes
    ----------
    verdict
        `error` if an expectation could not be evaluated, otherwise `failed` if one did not hold.
    expectations
        How many there were.
    failed
        Those that did not hold.
    detail
        Where to look first: rows that differ from the changelog, or why an expectation could not be evaluated.
    data_docs
        Page of this validation; None if it could not be run.
    failed_rows
        Of each expectation that did not hold, a sample.
    """

    verdict: Literal["passed", "failed", "error"]
    expectations: int
    failed: tuple[str, ...]
    detail: str
    data_docs: Path | None
    failed_rows: tuple[FailedRows, ...] = ()
