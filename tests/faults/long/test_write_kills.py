"""Jobs that write a store as a DataFrame, killed in a Spark task, in the commit, with an executor, with their driver.

Whatever was killed, and where: each store partition has the old rows or the new ones, never some of both, deep
verification agrees, and the same write completes when it is run again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from statestore.kafka.partitioner import partition_of
from statestore.reports import Status
from statestore.rewrite.row_stage import writes_of
from tests.faults import spark_writing
from tests.integration.broker import T0, wait_for
from tests.integration.support import STORE
from tests.integration.test_overwrite import KEYS, ROWS, Overwritable
from tests.spark.test_jobs import QUICKLY, SUBMIT

#: Two jobs, each with a second session for the suite.
pytestmark = pytest.mark.timeout(1_800)
_JOB_S = 900.0
#: Behind these, the catalogue has the new changelog.
_ADOPTED = ("rewrite, adopted", "swap, old store in quarantine", "rewrite, store replaced", "rewrite, settings made")
#: What an append puts and deletes.
CHANGES = {**dict.fromkeys(KEYS[:6], b"41"), **dict.fromkeys(KEYS[6:9])}


def _changed() -> dict[bytes, bytes]:
    """Rows after an append."""
    rows = {**dict.fromkeys(KEYS, b"1"), **CHANGES}
    return {key: value for key, value in rows.items() if value is not None}


class Write:
    """A job that writes, with a kill switch in its Python processes."""

    def __init__(self, store: Overwritable, directory: Path, mode: str, master: str, **environment: str) -> None:
        self.mark, self._log = directory / "mark", directory / "job.log"
        rows = ROWS if mode == "overwrite" else CHANGES
        options = {"application": store.app.name, "store": store.write.store}
        told = {key.decode(): value and value.decode() for key, value in rows.items()}
        asked = {"mode": mode, "options": options, "rows": told, "at": T0 + 5}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [SUBMIT, "--master", master, *QUICKLY, spark_writing.__file__, json.dumps(asked)],
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "STATESTORE_BOOTSTRAP_SERVERS": store.write.servers,
                    "STATESTORE_STATE_DIR": str(store.write.state_dir),
                    "STATESTORE_SERVICE_ID": store.write.service_id,
                    "STATESTORE_REPORTS_DIR": str(directory / "reports"),
                    "STATESTORE_DATA_DOCS_DIR": str(directory / "docs"),
                    "STATESTORE_KAFKA_TIMEOUT_S": "60",
                    "STATESTORE_KILL_MARK": str(self.mark),
                    **environment,
                },
                cwd=directory,
                stdout=log,
                stderr=log,
            )

    def exit_code(self) -> int:
        """Wait for the end of spark-submit; if it does not come, kill the job."""
        try:
            return self.process.wait(_JOB_S)
        finally:
            self._kill(self._family)

    @property
    def _family(self) -> list[psutil.Process]:
        """All processes of the job but spark-submit itself."""
        return psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []

    def _kill(self, family: Sequence[psutil.Process], but: psutil.Process | None = None) -> None:
        self.process.kill()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                if process != but:
                    process.kill()

    @property
    def log(self) -> str:
        """What it has printed, the last of it."""
        return self._log.read_text(errors="replace")[-4_000:]

    def stopped(self) -> psutil.Process:
        """Wait until a process has stopped itself, and return it."""

        def found() -> psutil.Process | None:
            assert self.process.poll() is None, self.log
            process = psutil.Process(int(self.mark.read_text().split("\n")[1])) if self.mark.exists() else None
            return process if process is not None and process.status() == psutil.STATUS_STOPPED else None

        try:
            process = wait_for(found, "a process to stop itself", _JOB_S)
        except BaseException:
            self._kill(self._family)
            raise
        assert process is not None
        return process

    def kill_executor(self) -> None:
        """When a Spark task has stopped itself, kill its executor with all that this runs."""
        worker = self.stopped()
        (executor,) = [
            above for above in worker.parents() if "CoarseGrainedExecutorBackend" in " ".join(above.cmdline())
        ]
        for process in (executor, *executor.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def kill_driver(self) -> None:
        """When a process has stopped itself, kill the driver with all that it runs; that process goes on alone."""
        alone = self.stopped()
        family = self._family
        self._kill(family, but=alone)
        with suppress(psutil.NoSuchProcess):
            alone.send_signal(signal.SIGCONT)
        _, alive = psutil.wait_procs([*family, alone], timeout=_JOB_S)
        assert alive == []


def _assert_old_or_new(store: Overwritable, before: str) -> bool:
    """Each partition has the rows of before, or the new ones, as the catalogue says; return what that says."""
    adopted = store.now() != before
    for task in range(2):
        found = store.values(task)
        old = {key: b"1" for key in KEYS if partition_of(key, 2) == task}
        new = {key: value for key, value in ROWS.items() if partition_of(key, 2) == task}
        assert found == old or (adopted and found == new)
    if not adopted:
        assert store.statuses() == [Status.OK, Status.OK]
    return adopted


def _completes(store: Overwritable, directory: Path, before: str) -> None:
    directory.mkdir()
    again = Write(store, directory, "overwrite", "local[2]")
    assert again.exit_code() == 0, again.log
    after = store.now()
    assert after.startswith(f"{before}-")
    store.assert_written(after)


@pytest.mark.parametrize("point", ["write, batch staged", "write, batch staged:2"])
def test_a_spark_task_that_stages_rows_is_repeated_and_nothing_is_written_twice(
    bootstrap_servers: str, tmp_path: Path, point: str
) -> None:
    store = Overwritable(bootstrap_servers, tmp_path)
    before = store.now()
    job = Write(store, tmp_path, "overwrite", "local[2,3]", STATESTORE_KILL_AT=point)
    assert job.exit_code() == 0, job.log
    assert job.mark.exists() == (point == "write, batch staged")  # one batch for each task
    store.assert_written(f"{before}-2")


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_an_executor_that_is_killed_is_replaced_and_nothing_of_its_rows_counts(
    bootstrap_servers: str, tmp_path: Path, mode: str
) -> None:
    store = Overwritable(bootstrap_servers, tmp_path)
    before = store.now()
    job = Write(store, tmp_path, mode, "local-cluster[2,1,1024]", STATESTORE_PAUSE_AT="write, batch staged")
    job.kill_executor()
    assert job.exit_code() == 0, job.log
    if mode == "overwrite":
        store.assert_written(f"{before}-2")
    else:
        assert {**store.values(0), **store.values(1)} == _changed()
        assert store.statuses() == [Status.OK, Status.OK]
    assert [*writes_of(store.app.state_dir, store.app.name, STORE).glob("*")] == []


@pytest.mark.parametrize(
    "point",
    [
        "write, all staged",
        "rewrite, topic in the journal",
        "columns produced",
        "rewrite, store built:2",
        "rewrite, judged",
        *_ADOPTED,
    ],
)
def test_a_commit_that_is_killed_leaves_old_or_new_stores_and_is_run_again(
    bootstrap_servers: str, tmp_path: Path, point: str
) -> None:
    store = Overwritable(bootstrap_servers, tmp_path)
    before = store.now()
    job = Write(store, tmp_path, "overwrite", "local[2]", STATESTORE_KILL_AT=point)
    assert job.exit_code() != 0, job.log
    assert job.mark.exists(), job.log
    assert _assert_old_or_new(store, before) == (point in _ADOPTED)
    _completes(store, tmp_path / "again", before)


@pytest.mark.parametrize("point", ["write, batch staged", "rewrite, batch sent", "rewrite, judged", "rewrite, adopted"])
def test_a_driver_that_is_killed_leaves_old_or_new_stores_and_the_job_is_run_again(
    bootstrap_servers: str, tmp_path: Path, point: str
) -> None:
    store = Overwritable(bootstrap_servers, tmp_path)
    before = store.now()
    job = Write(store, tmp_path, "overwrite", "local[2]", STATESTORE_PAUSE_AT=point)
    job.kill_driver()
    adopted = _assert_old_or_new(store, before)
    assert adopted or point not in _ADOPTED
    _completes(store, tmp_path / "again", before)


@pytest.mark.share_for("upsert, partition written", why="the shortest job; test_overwrite kills all steps of the rest")
@pytest.mark.parametrize("point", ["upsert, batch sent", "upsert, partition written", "upsert, store caught up"])
def test_an_append_that_is_killed_has_written_whole_partitions_and_is_run_again(
    bootstrap_servers: str, tmp_path: Path, point: str
) -> None:
    store = Overwritable(bootstrap_servers, tmp_path)
    before = store.now()
    job = Write(store, tmp_path, "append", "local[2]", STATESTORE_KILL_AT=point)
    assert job.exit_code() != 0, job.log
    assert store.now() == before
    old, expected = dict.fromkeys(KEYS, b"1"), _changed()
    for task in range(2):
        of_task = (
            {key: value for key, value in rows.items() if partition_of(key, 2) == task} for rows in (old, expected)
        )
        assert store.values(task) in list(of_task)
    assert set(store.statuses()) <= {Status.OK, Status.LAGGING}
    directory = tmp_path / "again"
    directory.mkdir()
    again = Write(store, directory, "append", "local[2]")
    assert again.exit_code() == 0, again.log
    assert {**store.values(0), **store.values(1)} == expected
    assert store.statuses() == [Status.OK, Status.OK]
