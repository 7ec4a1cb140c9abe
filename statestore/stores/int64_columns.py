"""Int64 values of rows as they are stored, in columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from statestore.formats.timestamped_value import UNKNOWN_TIMESTAMP

Int64s = npt.NDArray[np.int64]


def stored_int64s(stored: Sequence[bytes | None], timestamped: bool) -> tuple[Int64s, Int64s]:
    """Values and timestamps (ms; -1: unknown) in the store's layout; where there is none, 0 and -1.

    Raises
    ------
    ValueError
        If one of them has another length than an int64.
    """
    width = 2 if timestamped else 1
    totals, timestamps = np.zeros(len(stored), np.int64), np.full(len(stored), UNKNOWN_TIMESTAMP, np.int64)
    found = [value for value in stored if value is not None]
    if not found:
        return totals, timestamps
    if set(map(len, found)) != {8 * width}:
        raise ValueError(f"expected values of {8 * width} bytes")
    table = np.frombuffer(b"".join(found), ">i8").reshape(-1, width)
    where = (
        slice(None) if len(found) == len(stored) else [index for index, value in enumerate(stored) if value is not None]
    )
    totals[where] = table[:, -1]
    if timestamped:
        timestamps[where] = table[:, 0]
    return totals, timestamps


def to_bytes(values: Int64s) -> list[bytes]:
    """Values as an INT64 serde writes them."""
    result: list[bytes] = values.astype(">i8").view("V8").tolist()
    return result
