"""A sorted run as a file.

    run-<first offset>-<offset behind it>-<digest>.arrow      Arrow IPC, LZ4, sorted by (segment, key), deletes included

What else is known of the range is in the schema's metadata. A file gets its name when it is complete; the digest
(XXH64) tells whether it still is when an interrupted build goes on, also after a power cut.
"""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.bulk.routing import Routing
from statestore.compiled.memory import xxh64
from statestore.errors import StoreCorruptedError, of_os_error
from statestore.kafka.record_columns import SCHEMA

_FACTS = b"statestore.run"
#: How the name of a run ends while it is written.
PARTIAL = ".partial"
#: What a process may run into without any fault of the file.
_NOT_DAMAGE = frozenset({errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.EIO})


class RunFacts(NamedTuple):
    """Facts about a run besides its rows; see `Runs`."""

    start: int
    end: int
    records: int
    skipped: int
    last_offset: int | None
    stream_time: int


def write_run(directory: Path, batches: Iterable[pa.RecordBatch], facts: RunFacts, routing: Routing) -> Path:
    """Write a run; return its file.

    Raises
    ------
    DiskSpaceError, StoreAccessError
        If it cannot be written.
    """
    metadata = {_FACTS: json.dumps({"facts": facts, "routing": routing})}
    partial = directory / f"run-{facts.start:020d}-{facts.end:020d}{PARTIAL}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        with (
            pa.OSFile(str(partial), "wb") as sink,
            pa.ipc.new_file(sink, SCHEMA.with_metadata(metadata), options=options) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
        return partial.rename(partial.with_name(f"{partial.stem}-{_digest(partial)}.arrow"))
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise of_os_error(error) from error


def read_run(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a run.

    Raises
    ------
    StoreCorruptedError
        If it is not as it was written.
    """
    try:
        # Not mapped into memory: what is mapped counts as memory of the process.
        with pa.OSFile(str(path)) as source, _opened(source) as reader:
            for at in range(reader.num_record_batches):
                yield reader.get_batch(at)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno in _NOT_DAMAGE:
            raise of_os_error(error) from error
        raise StoreCorruptedError(f"{path} cannot be read: {error}; remove it, then run again") from error


def read_facts(path: Path) -> tuple[RunFacts, Routing]:
    """Return what is known of a run, and how its rows are ordered."""
    try:
        with pa.OSFile(str(path)) as source, _opened(source) as reader:
            found = json.loads(reader.schema.metadata[_FACTS])
    except (pa.ArrowException, OSError) as error:
        raise StoreCorruptedError(f"{path} cannot be read: {error}; remove it, then run again") from error
    return RunFacts(*found["facts"]), Routing(*found["routing"])


def whole_runs(directory: Path) -> list[tuple[Path, RunFacts]]:
    """Return the runs that follow each other from the first offset on, up to a gap or a damaged file."""
    result: list[tuple[Path, RunFacts]] = []
    for path in sorted(directory.glob("run-*-*-*.arrow")):
        start, _, digest = path.stem.removeprefix("run-").split("-")
        position = result[-1][1].end if result else int(start)
        if int(start) == position:
            if _digest(path) != digest:
                break
            result.append((path, read_facts(path)[0]))
        elif int(start) > position:
            break
    return result


def _opened(source: Any) -> Any:
    return pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(use_threads=False))


def _digest(path: Path) -> str:
    raw = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    return f"{int(xxh64(raw.ctypes.data, len(raw))):016x}"
