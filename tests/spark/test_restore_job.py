"""The job `restore` in Spark: ranges in Spark tasks of their own, plans, points, and what is refused."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from statestore_jobs import restore as job

from statestore.config import Settings
from statestore.errors import InputError, TopicMismatchError
from statestore.reports import (
    Action,
    RestorePlanReport,
    RestoreReport,
    Status,
    VerifyReport,
    VerifyRow,
    write_report,
)
from statestore.requests.arguments import add_arguments, from_namespace
from statestore.requests.restore import RestoreRequest
from statestore.verification.check import verify_many
from statestore.verification.options import VerifyOptions
from tests.integration import broker
from tests.integration.broker import consume, transaction
from tests.integration.support import Application, catalogue_of
from tests.oracle.rows import fold
from tests.spark.parcels import restore_or_die

Run = Callable[..., Any]


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    """Two store partitions, of which one has a longer log."""
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    for partition, keys in ((0, 40), (1, 3)):
        rows = [(b"key-%02d" % number, b"%d" % number) for number in range(keys)]
        transaction(bootstrap_servers, application.changelog, rows, partition=partition)
    return application


@pytest.fixture
def run(spark: SparkSession, application: Application, tmp_path: Path) -> Run:
    """Run the job with arguments as on its command line."""
    settings = Settings(
        bootstrap_servers=application.servers,
        state_dir=application.state_dir,
        reports_dir=tmp_path / "reports",
        data_docs_dir=tmp_path / "docs",
        kafka_timeout_s=60,
    )
    parser = ArgumentParser()
    add_arguments(parser, RestoreRequest)

    def call(*arguments: str) -> Any:
        what = [] if "--verify-report" in arguments else ["--application", application.name]
        request = from_namespace(RestoreRequest, parser.parse_args([*what, *arguments]))
        return job.run(request, settings, catalogue_of(application.definition, partitions=2), "run")

    return call


def test_r9_ranges_in_spark_tasks_of_their_own_give_the_same_stores(application: Application, run: Run) -> None:
    report: RestoreReport = run()
    assert [(row.task, row.outcome, row.keys, row.resumed) for row in report.rows] == [
        ("0_0", "restored", 40, 0),
        ("0_1", "restored", 3, 0),
    ]
    again: RestoreReport = run("--force", "--ranges", "3", "--check", "deep")
    assert [(row.before, row.resumed, row.checked) for row in again.rows] == [
        (Status.OK, 40, "deep"),
        (Status.OK, 3, "deep"),
    ]
    assert [row.digest for row in again.rows] == [row.digest for row in report.rows]
    for partition in range(2):
        assert application.contents(partition) == fold(
            consume(application.servers, application.changelog, partition)[0]
        )
    assert not list((application.state_dir.parent / "reports").rglob("*.json"))
    # Another attempt at the same run: it has nothing to do, and says what the run has done.
    assert [(row.outcome, row.mode, row.records) for row in run("--ranges", "3").rows] == [("restored", None, 0)] * 2


@pytest.mark.long
def test_a_suppliers_store_is_rebuilt_in_spark_tasks_by_a_replay_whatever_ranges_are_asked_for(
    application: Application, run: Run
) -> None:
    store = application.definition.stores[0]
    supplied = {"engine": "rocksDB", "supplier": "tests.integration.file_store:timestamped"}
    application.defined(stores=(store.model_copy(update=supplied),))
    plan: RestorePlanReport = run("--dry-run", "--ranges", "3")
    assert [(row.task, row.mode, row.failure) for row in plan.rows] == [("0_0", "full", None), ("0_1", "full", None)]
    report: RestoreReport = run("--ranges", "3")
    assert [(row.task, row.outcome, row.keys, row.checked) for row in report.rows] == [
        ("0_0", "restored", 40, "rows"),
        ("0_1", "restored", 3, "rows"),
    ]
    found = verify_many([application.store_spec(partition) for partition in range(2)], VerifyOptions(depth="deep"), {})
    assert [(row.status, row.contents and row.contents.equal) for row in found] == [(Status.OK, 40), (Status.OK, 3)]


@pytest.mark.long
def test_a_worker_that_dies_leaves_the_rows_of_the_others_in_the_report(
    application: Application, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statestore.recovery.many._restore_tasks", restore_or_die)
    report: RestoreReport = run("--ranges", "1")
    assert [(row.task, row.outcome, row.failure and row.failure.kind) for row in report.rows] == [
        ("0_0", "restored", None),
        ("0_1", "failed", "WorkerLostError"),
    ]
    monkeypatch.undo()
    again: RestoreReport = run("--ranges", "1")
    assert [(row.task, row.mode, row.outcome, row.keys) for row in again.rows] == [
        ("0_0", None, "restored", 40),  # by the run before
        ("0_1", "full", "restored", 3),
    ]


@pytest.mark.long
def test_a_store_that_was_found_to_diverge_is_rebuilt_although_it_looks_whole(
    application: Application, run: Run, tmp_path: Path
) -> None:
    run()
    named = {"application": application.name, "store": "counts"}
    rows = (
        VerifyRow(**named, task="0_0", status=Status.DIVERGED, action=Action.FULL),
        VerifyRow(**named, task="0_1", status=Status.MISSING, action=Action.FULL),
    )
    found = VerifyReport(run_id="v", applications=(application.name,), started_ms=1, finished_ms=2, rows=rows)
    write_report(tmp_path / "found.json", found)
    report: RestoreReport = run("--verify-report", str(tmp_path / "found.json"))
    assert [(row.task, row.mode) for row in report.rows] == [("0_0", "full"), ("0_1", None)]


@pytest.mark.long
def test_a_dry_run_reports_what_would_be_done(application: Application, run: Run, capsys: Any) -> None:
    report: RestorePlanReport = run("--dry-run", "--ranges", "2")
    assert [(row.task, row.status, row.mode, row.offsets, row.ranges) for row in report.rows] == [
        ("0_0", Status.MISSING, "full", 41, 2),
        ("0_1", Status.MISSING, "full", 4, 2),
    ]
    assert not application.live.exists()
    assert "MISSING" in capsys.readouterr().out


@pytest.mark.long
def test_as_of_goes_into_a_directory_of_its_own(application: Application, run: Run, tmp_path: Path) -> None:
    target = tmp_path / "then"
    point = ("--mode", "as-of", "--target", str(target))
    report: RestoreReport = run(*point, "--as-of-offset", "2")
    assert [(row.task, row.exact, row.keys, row.committed) for row in report.rows] == [
        ("0_0", True, 3, 2),
        ("0_1", True, 3, 2),
    ]
    assert (target / application.name / "0_1" / "rocksdb" / "counts" / "CURRENT").exists()
    assert not application.live.exists()
    with pytest.raises(InputError, match=r"expected stores of .* as of offset 1 in"):
        run(*point, "--as-of-offset", "1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mode", "as-of", "--as-of-offset", "1"), "mode as-of: expected --target"),
        (("--target", "elsewhere"), "--target: expected mode as-of, found mode auto"),
        (("--ranges", "0"), "--ranges: expected a whole number from 1, found '0'"),
        (("--partition", "2"), r"partitions \[2\] do not exist"),
        (("--store", "unknown"), "no store 'unknown'"),
        # The other partition's log is long enough; both are refused.
        (("--mode", "as-of", "--as-of-offset", "30", "--target", "THEN"), "has the offsets 0 to 3"),
    ],
)
def test_bad_input_is_refused_before_anything_is_touched(
    application: Application, run: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(*(str(tmp_path / "then") if argument == "THEN" else argument for argument in arguments))
    assert not application.state_dir.exists()
    assert not (tmp_path / "then").exists()


@pytest.mark.behaviour("R10")
def test_r10_a_changelog_with_more_partitions_than_tasks_is_refused(application: Application, run: Run) -> None:
    broker.add_partitions(application.servers, application.changelog, 3)
    with pytest.raises(TopicMismatchError, match=r"has 3 partitions, .* has 2 tasks"):
        run()
    assert not application.state_dir.exists()
