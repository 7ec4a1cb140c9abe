"""The result of a validation."""

from __future__ import annotations

from dataclasses import dataclass

from statestore.objects.path import Location
from statestore.reports import FailedRows, ValidationVerdict


@dataclass(frozen=True)
class Verdict:
    """What a validation found.

    Attributes
    ----------
    verdict
        `error` if an expectation could not be evaluated, otherwise `failed` if one did not hold; `not judged` if no
        suite was run.
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
    differs
        Whether rows differ from the changelog; None if no expectation was found to fail.
    """

    verdict: ValidationVerdict
    expectations: int
    failed: tuple[str, ...]
    detail: str
    data_docs: Location | None
    failed_rows: tuple[FailedRows, ...] = ()
    differs: bool | None = None
