"""The history of verification: each run's rows as Parquet, complete, and the latest rerun's only."""

from __future__ import annotations

import pandas as pd
import pyarrow.parquet as pq
import pytest

from statestore.errors import InputError
from statestore.reports import Action, Advice, Contents, DifferingKey, RestorePoint, Status, VerifyReport, VerifyRow
from statestore.verification.history import SCHEMA, history_dir, read_history, write_history

DIVERGED = VerifyRow(
    application="app",
    store="s",
    task="0_1",
    status=Status.DIVERGED,
    action=Action.FULL,
    detail="1 row",
    depth="deep",
    committed=4,
    start=0,
    end=6,
    lag=0,
    topic_id="id",
    store_topic_id="id",
    advice=Advice(
        situation="rows differ", sentence="Restore it.", command="statestore restore app/s", button="restore"
    ),
    sealed=False,
    keys=3,
    contents=Contents(equal=2, other_value=1, first=(DifferingKey(found="other value", key="6b", key_sha256="d"),)),
)
LOCKED = VerifyRow(application="app", store="s", task="0_0", status=Status.LOCKED, action=Action.LATER)


def report(run_id, *rows, started_ms=1):
    return VerifyReport(run_id=run_id, applications=("app",), started_ms=started_ms, finished_ms=2, rows=rows)


def test_there_is_no_history_before_the_first_run(tmp_path):
    assert read_history(tmp_path).num_rows == 0
    assert read_history(tmp_path).schema == SCHEMA


def test_every_column_of_a_row_is_in_the_history(tmp_path):
    assert set(VerifyRow.model_fields) | {"run_id", "started_ms"} == set(SCHEMA.names)
    assert set(RestorePoint.model_fields) == {field.name for field in SCHEMA.field("restore_point").type}
    assert set(Advice.model_fields) == {field.name for field in SCHEMA.field("advice").type}
    assert set(Contents.model_fields) == {field.name for field in SCHEMA.field("contents").type}
    write_history(tmp_path, report("r", DIVERGED))
    [row] = read_history(tmp_path).to_pylist()
    assert (row.pop("run_id"), row.pop("started_ms")) == ("r", 1)
    assert row.pop("contents") == DIVERGED.contents.model_dump(mode="json")
    assert row == DIVERGED.model_dump(mode="json", exclude={"contents"})


def test_runs_come_in_the_order_in_which_they_began(tmp_path):
    write_history(tmp_path, report("a", DIVERGED, started_ms=20))
    write_history(tmp_path, report("b", LOCKED, DIVERGED, started_ms=10))
    assert read_history(tmp_path).column("run_id").to_pylist() == ["b", "b", "a"]


def test_a_rerun_of_a_run_replaces_its_rows(tmp_path):
    write_history(tmp_path, report("r", DIVERGED, LOCKED))
    path = write_history(tmp_path, report("r", LOCKED))
    assert read_history(tmp_path).column("status").to_pylist() == ["LOCKED"]
    assert list(history_dir(tmp_path).iterdir()) == [path]


def test_a_run_that_found_nothing_to_verify_leaves_an_empty_file(tmp_path):
    path = write_history(tmp_path, report("r"))
    assert pq.read_schema(path) == SCHEMA
    assert read_history(tmp_path).num_rows == 0


def test_a_file_of_an_earlier_version_lacks_columns_and_is_read_all_the_same(tmp_path):
    path = write_history(tmp_path, report("r", DIVERGED))
    pq.write_table(pq.read_table(path).drop_columns(["lag", "contents"]), path)
    [row] = read_history(tmp_path).to_pylist()
    assert (row["status"], row["lag"], row["contents"]) == ("DIVERGED", None, None)


@pytest.mark.parametrize("run_id", ["_r", ".r"])
def test_pandas_reads_the_directory_also_where_a_run_id_looks_hidden(tmp_path, run_id):
    write_history(tmp_path, report(run_id, DIVERGED, LOCKED))
    frame = pd.read_parquet(history_dir(tmp_path))
    assert frame["run_id"].tolist() == [run_id, run_id]
    assert frame["lag"].tolist()[0] == 0


def test_a_run_id_that_is_a_path_is_refused(tmp_path):
    with pytest.raises(InputError, match="run id"):
        write_history(tmp_path, report("../r"))
