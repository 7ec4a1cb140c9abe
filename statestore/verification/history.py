"""The history of verification results as a Parquet data set: lag and findings over time.

    <reports_dir>/history/verify/run-<run id>.parquet      one row a store partition, columns of `SCHEMA`

A run's file is written at once; a rerun of the run replaces it. Any reader of Parquet reads the directory, or the
prefix in object storage:

    pandas.read_parquet(f"{reports_dir}/history/verify")
    spark.read.parquet(f"{reports_dir}/history/verify")
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from statestore.errors import InputError
from statestore.objects.path import Location, ObjectPath, read_all, write_whole
from statestore.reports import VerifyReport

_KEY = pa.struct(
    [
        pa.field("found", pa.string()),
        pa.field("key", pa.string()),
        pa.field("key_sha256", pa.string()),
        pa.field("store_sha256", pa.string()),
        pa.field("log_sha256", pa.string()),
    ]
)
_CONTENTS = pa.struct(
    [
        *(
            pa.field(name, pa.int64())
            for name in ("store_rows", "log_rows", "equal", "other_value", "only_in_store", "only_in_log", "not_judged")
        ),
        pa.field("store_digest", pa.string()),
        pa.field("log_digest", pa.string()),
        pa.field("sample", pa.float64()),
        pa.field("first", pa.list_(_KEY)),
        pa.field("brokers_timestamps", pa.bool_()),
        pa.field("offsets", pa.list_(pa.list_(pa.int64()))),
        pa.field("partition_offsets", pa.list_(pa.list_(pa.int64()))),
        pa.field("not_proven", pa.string()),
        pa.field("unproven", pa.int64()),
    ]
)
_RESTORE_POINT = pa.struct(
    [
        pa.field("snapshot", pa.string()),
        pa.field("usable", pa.bool_()),
        pa.field("detail", pa.string()),
        *(pa.field(name, pa.int64()) for name in ("committed", "written_ms", "until_ms", "needed_from")),
        pa.field("adopted", pa.bool_()),
        pa.field("fetched", pa.int64()),
        pa.field("offsets", pa.int64()),
    ]
)
_ADVICE = pa.struct([pa.field(name, pa.string()) for name in ("situation", "sentence", "command", "button")])
#: Columns of every file, in this order: those of `VerifyRow`, and of which run it is. Later versions only add some.
SCHEMA = pa.schema(
    [
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("started_ms", pa.int64(), nullable=False),
        pa.field("application", pa.string(), nullable=False),
        pa.field("store", pa.string(), nullable=False),
        pa.field("task", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("depth", pa.string()),
        pa.field("committed", pa.int64()),
        pa.field("start", pa.int64()),
        pa.field("end", pa.int64()),
        pa.field("lag", pa.int64()),
        pa.field("topic_id", pa.string()),
        pa.field("sealed", pa.bool_()),
        pa.field("file", pa.string()),
        pa.field("keys", pa.int64()),
        pa.field("contents", _CONTENTS),
        pa.field("seconds", pa.float64()),
        pa.field("loss", pa.string()),
        pa.field("loss_detail", pa.string()),
        pa.field("loss_cause", pa.string()),
        pa.field("restore_point", _RESTORE_POINT),
        pa.field("global_kind", pa.string()),
        pa.field("acknowledged", pa.string()),
        pa.field("store_topic_id", pa.string()),
        pa.field("advice", _ADVICE),
        pa.field("live", pa.bool_()),
        pa.field("disk_offset", pa.int64()),
        pa.field("disk_lag", pa.int64()),
        pa.field("kill_risk", pa.string()),
        pa.field("host", pa.string()),
    ]
)

#: Runs that are read from object storage.
MOST_OBJECTS = 500


def history_dir(reports_dir: Location) -> Location:
    """Return the data set's directory."""
    return reports_dir / "history" / "verify"


def write_history(reports_dir: Location, report: VerifyReport) -> Location:
    """Add a run's rows to the history; one of the same run id is replaced.

    Returns
    -------
    Path or ObjectPath
        The run's file.

    Raises
    ------
    InputError
        If the run id cannot be the name of a file.
    """
    if Path(report.run_id).name != report.run_id:
        raise InputError(f"run id: expected the name of a file, found {report.run_id!r}")
    path = history_dir(reports_dir) / f"run-{report.run_id}.parquet"
    head = {"run_id": report.run_id, "started_ms": report.started_ms}
    rows = [{**head, **row.model_dump(mode="json")} for row in report.rows]
    content = BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), content, compression="zstd")
    write_whole(path, content.getvalue())
    return path


def read_history(reports_dir: Location) -> pa.Table:
    """Read the history, the oldest run first; what a file of an earlier version lacks is null.

    From object storage that is the newest `MOST_OBJECTS` runs: each is a request.
    """
    import pyarrow.dataset as ds  # loads pandas, which those who only want to know the place do without

    directory = history_dir(reports_dir)
    if isinstance(directory, ObjectPath):
        newest = sorted(directory.glob("run-*.parquet"), key=lambda path: path.stat().st_mtime_ns)[-MOST_OBJECTS:]
        with TemporaryDirectory(prefix="statestore-history-") as name:
            for path, content in zip(newest, read_all(newest), strict=True):
                (Path(name) / path.name).write_bytes(content)
            return _read(ds, Path(name))
    return _read(ds, directory) if directory.exists() else SCHEMA.empty_table()


def _read(ds: Any, directory: Path) -> pa.Table:
    found = ds.dataset(directory, schema=SCHEMA, format="parquet").to_table()
    return found.sort_by([("started_ms", "ascending"), ("run_id", "ascending")])
