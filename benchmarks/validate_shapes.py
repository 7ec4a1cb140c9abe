"""What `make bench-validate` measures: how many rows, and what the cases are called."""

from __future__ import annotations

from benchmarks.measure import SMALL

#: Rows of the stores that are validated, and of the one that the sources read.
SIZES = (40_000,) if SMALL else (1_000_000, 3_000_000, 10_000_000)
SOURCE_ROWS = SIZES[len(SIZES) // 2]
#: What is done.
COUNT, CHECKSUM, VALIDATE, MEMORY = "count", "checksum", "validate", "peak memory: validate"
#: Parts of a validation, one after the other.
PARTS = ("read", "compare", "suite")


def case_of(work: str, rows: int) -> str:
    """Name of the case in which this is done with so many rows."""
    return f"{work} {rows / 1e6:g} M rows"
