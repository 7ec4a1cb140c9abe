"""Validation of versioned stores: by what they answer within their history, beside what their changelog says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from statestore_jobs import validate

from statestore.changelog.topic_settings import changelog_config
from statestore.config import Settings
from statestore.formats import versioned_row as layout
from statestore.formats.offsets import STATUS_CLOSED
from statestore.formats.versioned_row import SegmentRow, Version, row_key, segment_of
from statestore.reports import ValidatedStore, ValidateReport
from statestore.requests.validate import ValidateRequest
from statestore.statedir.seal import break_seal
from statestore.stores.rocksdb import RocksDB
from tests.integration.archived import Archived
from tests.integration.broker import set_topic_config
from tests.integration.support import Application, catalogue_of
from tests.integration.test_versioned_jobs import BEGIN, MINUTE, VERSIONED, versions

INTERVAL_MS = layout.default_segment_interval_ms(VERSIONED.retention_ms or 0)


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    config = changelog_config(VERSIONED)
    made = Application(bootstrap_servers, tmp_path, stores=[VERSIONED], changelog_config=config, partitions=2)
    return made.defined(processor="tests.integration.test_versioned_jobs:keep")


def _run(made: Application, directory: Path, run_id: str = "run", **where: object) -> ValidateReport:
    settings = Settings(
        bootstrap_servers=made.servers,
        state_dir=made.state_dir,
        reports_dir=directory / "reports",
        data_docs_dir=directory / "data_docs",
        **where,
    )
    request = ValidateRequest.read({"applications": [made.name], "stores": [VERSIONED.name]})
    return validate.run(request, settings, catalogue_of(made.definition, partitions=made.partitions), run_id)


def _validated(made: Application, directory: Path, run_id: str = "run") -> ValidatedStore:
    [store] = _run(made, directory, run_id).stores
    return store


def _process(made: Application, *sent: tuple[bytes, bytes | None, int]) -> None:
    rows = [(key, b"%013d" % (BEGIN + at) + (value or b"")) for key, value, at in sent]
    assert made.process(rows).failure is None


def _change(made: Application, changes: dict[bytes, bytes | None]) -> None:
    """Change rows of partition 0 behind the back of the store's log."""
    spec = made.store_spec()
    break_seal(spec.paths, spec.store.name)
    database = RocksDB(spec.live, ["default"])
    database.write({"default": changes}, status=STATUS_CLOSED)
    database.sync()
    database.close()


def _ended(at: int, *versions: tuple[int, bytes | None]) -> dict[bytes, bytes | None]:
    """The row of key k in the segment of a time, with versions that ended until then; newest first."""
    found = SegmentRow(BEGIN + at, tuple(Version(BEGIN + begun, value) for begun, value in versions))
    return {row_key(segment_of(BEGIN + at, INTERVAL_MS), b"k"): layout.encode_segment_row(found)}


def _k(end: int) -> list[tuple[bytes, bytes | None, int]]:
    return [(b"k", b"one", end), (b"k", b"two", end + 5), (b"k", None, end + 9), (b"k", b"three", end + 20)]


@pytest.mark.long
@pytest.mark.behaviour("V5")
def test_a_changed_value_and_a_missing_delete_are_named_and_all_else_holds(
    spark: SparkSession, application: Application, tmp_path: Path
) -> None:
    assert application.process(versions(300, 1)).failure is None  # over an hour, some late, some too late
    end = 62 * MINUTE
    _process(application, *_k(end))
    _change(application, _ended(end + 20, (end + 5, b"other"), (end, b"one")))

    broken = _validated(application, tmp_path, "broken")

    assert broken.verdict == "failed"
    assert broken.detail == (
        f"partition 0: key b'k', valid_from {BEGIN + end + 5} has another value than in the changelog; "
        f"partition 0: key b'k', valid_from {BEGIN + end + 9} is missing from the store"
    )
    assert set(broken.failed_expectations) == {
        "each partition has the changelog's row count and checksum",
        "no row of the changelog is missing from the store",
        "values are those of the changelog",
    }


@pytest.mark.behaviour("V5")
@pytest.mark.long
def test_a_processed_store_passes(spark: SparkSession, application: Application, tmp_path: Path) -> None:
    assert application.process(versions(600, 1)).failure is None
    _process(application, *_k(62 * MINUTE))

    whole = _run(application, tmp_path)

    assert [(row.task, row.verdict, row.detail) for row in whole.rows] == [("0_0", "passed", ""), ("0_1", "passed", "")]
    assert whole.stores[0].keys > 4


@pytest.mark.long
def test_a_rebuilt_store_passes_and_one_that_is_missing_fails(
    spark: SparkSession, application: Application, tmp_path: Path
) -> None:
    assert application.process(versions(600, 2)).failure is None
    shutil.rmtree(application.live)
    missing = _validated(application, tmp_path, "missing")
    assert missing.verdict == "failed"
    assert "is missing from the store" in missing.detail
    assert application.restore().failure is None
    assert (found := _validated(application, tmp_path, "restored")).verdict == "passed", found.detail


@pytest.mark.long
def test_versions_that_overlap_are_named(spark: SparkSession, application: Application, tmp_path: Path) -> None:
    _process(application, (b"k", b"one", 0), (b"k", b"two", 5 * MINUTE), (b"k", b"three", 6 * MINUTE))
    _change(application, _ended(3 * MINUTE, (0, b"one")))

    found = _validated(application, tmp_path)

    assert "the versions of a key do not overlap" in found.failed_expectations
    assert "each row key occurs once in its partition" in found.failed_expectations


@pytest.mark.long
def test_what_is_older_than_the_history_is_not_compared(
    spark: SparkSession, application: Application, tmp_path: Path
) -> None:
    _process(application, (b"k", b"old", 0), (b"k", b"new", 2 * MINUTE), (b"other", b"far", 20 * MINUTE))
    _change(application, _ended(2 * MINUTE, (0, b"anything")))

    found = _validated(application, tmp_path)

    assert (found.verdict, found.not_compared) == ("passed", 0), found.detail


@pytest.mark.long
@pytest.mark.parametrize(("lag_ms", "verdict", "not_compared"), [("0", "passed", 1), ("86400000", "failed", 0)])
def test_what_compaction_may_have_removed_is_counted_and_not_judged(
    spark: SparkSession, application: Application, tmp_path: Path, lag_ms: str, verdict: str, not_compared: int
) -> None:
    _process(application, (b"k", b"one", 0), (b"k", b"two", 5))
    set_topic_config(application.servers, application.changelog, min_compaction_lag_ms=lag_ms)
    _change(application, _ended(5, (3, b"logged once"), (0, b"one")))

    found = _validated(application, tmp_path)

    assert (found.verdict, found.not_compared) == (verdict, not_compared), found.detail


@pytest.mark.long
def test_a_row_that_cannot_be_read_is_an_error_that_names_its_key(
    spark: SparkSession, application: Application, tmp_path: Path
) -> None:
    _process(application, (b"k", b"one", 0), (b"k", b"two", 5))
    _change(application, {row_key(segment_of(BEGIN + 5, INTERVAL_MS), b"k"): b"cut"})

    found = _validated(application, tmp_path)

    assert found.verdict == "error"
    assert "key b'k'" in found.detail


@pytest.mark.long
def test_a_store_that_lives_in_the_archive_is_judged_by_its_newest_snapshot(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    made = Archived(bootstrap_servers, tmp_path, stores=[VERSIONED], changelog_config=changelog_config(VERSIONED))
    made.defined(processor="tests.integration.test_versioned_jobs:keep")
    (published,) = made.process(versions(300, 3)).snapshots
    assert published.failure is None
    made.lose_all()

    report = _run(made, tmp_path, archive=made.archive.url, node_local_state=True)

    [row], [store] = report.rows, report.stores
    assert (row.verdict, row.detail) == ("passed", "")
    assert store.keys > 20
