"""A transaction stays within its memory, however large it is (T5).

A process of its own stages, reads and commits it, and its peak of resident memory is held against the bound.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from statestore.stores.rocksdb_options import Memory

MIB = 1 << 20
#: A commit goes through the store's own memtables, which the bound of the transaction does not contain: as many as
#: RocksDB lets stand before it stalls writers. The offsets take another few bytes. The block cache is left out: neither
#: a commit nor a compaction fills it.
MEMTABLES_BYTES = Memory().write_buffer_bytes * Memory().write_buffers
#: Flushes and compactions that a large commit sets off run beside it: a compaction reads 2 MiB ahead (RocksDB's
#: `compaction_readahead_size`) in each of its files, of which four start one, and two may run at a time.
BACKGROUND_BYTES = 2 * 4 * 2 * MIB
#: Index and Bloom filter of the store's files, which RocksDB holds for each open file outside of the block cache: per
#: 4 KiB block an entry of about 35 bytes, per row 10 bits, so about 1% of the data.
INDEX_OF_THE_DATA = 0.01
TIMEOUT_S = 300


def spill(directory: Path, rows: int, value_bytes: int, max_bytes: int) -> dict[str, Any]:
    arguments = [str(argument) for argument in (directory, rows, value_bytes, max_bytes)]
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("spilling.py")), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


@pytest.mark.parametrize(
    ("rows", "value_bytes", "max_bytes"),
    [
        pytest.param(200_000, 1_000, 16 * MIB, id="200 MB under 16 MiB"),
        pytest.param(1_000_000, 8, 16 * MIB, id="many small rows under 16 MiB", marks=pytest.mark.long),
        pytest.param(1_000_000, 1_000, 64 * MIB, id="1 GB under 64 MiB", marks=pytest.mark.long),
    ],
)
@pytest.mark.long
def test_a_transaction_stays_within_its_memory(tmp_path, capsys, rows, value_bytes, max_bytes):
    figures = spill(tmp_path, rows, value_bytes, max_bytes)

    with capsys.disabled():
        print(f"\n  {rows:,} rows of {value_bytes:,} bytes under {max_bytes // MIB} MiB:", end="")
        for phase in ("stage", "read", "commit"):
            seconds, growth = figures[phase]["seconds"], figures[phase]["peak_growth_bytes"] / MIB
            print(f" {phase} {seconds:.1f} s, +{growth:.0f} MiB;", end="")
        print(end=" ")
    index = int(rows * (16 + value_bytes) * INDEX_OF_THE_DATA)
    assert figures["stage"]["peak_growth_bytes"] <= max_bytes
    assert figures["read"]["peak_growth_bytes"] <= max_bytes + index
    assert figures["commit"]["peak_growth_bytes"] <= max_bytes + index + MEMTABLES_BYTES + BACKGROUND_BYTES
    assert figures["last_row_is_there"]
    assert figures["committed_offset"] == rows - 1
    assert figures["spill_files_left"] == 0
