"""A process of its own that stages one large transaction, reads it, commits it, and prints what that took.

python spilling.py <directory> <rows> <bytes of a value> <uncommitted_max_bytes>
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from statestore.model import TaskId, TopicPartition
from statestore.stores import builders, suppliers
from statestore.stores.api import StoreContext
from statestore.stores.serdes import BYTES

_CHANGELOG = TopicPartition("app-s-changelog", 0)
_PROC = Path("/proc/self")


class Phase:
    """Seconds of a phase, and the process's peak of memory in it above the level before the first (bytes)."""

    def __init__(self, base: int) -> None:
        self._base = base
        (_PROC / "clear_refs").write_text("5")  # the kernel's way to set VmHWM to what is resident now
        self._started = time.perf_counter()

    def end(self) -> dict[str, float]:
        return {
            "seconds": time.perf_counter() - self._started,
            "peak_growth_bytes": resident("VmHWM") - self._base,
        }


def resident(field: str) -> int:
    """VmRSS, or VmHWM for the peak (bytes)."""
    for line in (_PROC / "status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"{_PROC}/status has no {field}")


def key_of(row: int) -> bytes:
    """Keys of 16 bytes that come in no order, each once."""
    return (row * 2_654_435_761 % (1 << 32)).to_bytes(8, "big") + row.to_bytes(8, "big")


def main(directory: Path, rows: int, value_bytes: int, max_bytes: int) -> dict[str, object]:
    supplier = suppliers.persistent_key_value_store("s", transactional=True)
    store = builders.key_value_store_builder(supplier, BYTES, BYTES).build()
    own = directory / "own"
    store.init(StoreContext("app", TaskId(0, 0), directory / "task", own, uncommitted_max_bytes=max_bytes))
    noise = os.urandom(value_bytes + 1_000)
    base = resident("VmRSS")

    phase = Phase(base)
    for row in range(rows):
        at = row % 1_000
        store.put(key_of(row), noise[at : at + value_bytes])
    figures: dict[str, object] = {"stage": phase.end()}

    phase = Phase(base)
    found = sum(1 for _ in store.all())
    assert found == rows, f"{found} rows in the transaction"
    figures["read"] = phase.end()

    phase = Phase(base)
    store.commit({_CHANGELOG: rows - 1})
    figures["commit"] = phase.end()

    left = list((own / "spill").rglob("*"))
    figures["spill_files_left"] = sum(path.is_file() for path in left)
    figures["last_row_is_there"] = store.get(key_of(rows - 1)) == noise[(rows - 1) % 1_000 :][:value_bytes]
    figures["committed_offset"] = store.committed_offset(_CHANGELOG)
    store.close()
    return figures


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), *(int(argument) for argument in sys.argv[2:]))))
