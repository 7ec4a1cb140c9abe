"""The suites of stores in restore drills: rules of the user's own, on the restored rows, by a separate program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statestore import packages
from statestore.definitions.objectives import RestoreObjectives
from statestore.definitions.store import StoreDefinition
from statestore.drills.partition import DrillSpec, drill
from statestore.reports import DrillRow
from tests.integration.support import STORE, Application

RULE = "each key was counted once or twice"
SUITES = RestoreObjectives(suites=True)


def application_with_rule(servers: str, directory: Path, condition: str) -> Application:
    """Return an application that has counted ten keys, one of them three times, and has a rule for its store."""
    rule = {"type": "expect_store_rows_to_satisfy", "kwargs": {"condition": condition}, "description": RULE}
    suite = directory / "own.json"
    suite.write_text(json.dumps({"name": "own", "expectations": [rule]}))
    application = Application(servers, directory, stores=(StoreDefinition(name=STORE, expectations=str(suite)),))
    application.process([(b"key-%d" % (number % 10), b"1") for number in range(12)])
    return application


def drilled(application: Application, directory: Path, *, defined: bool = True) -> DrillRow:
    scratch = directory / "drills"
    definition = application.definition if defined else None
    row = drill(DrillSpec(application.store_spec(), SUITES, "run", 1 << 24, scratch, reserve=0, definition=definition))
    assert not [*scratch.iterdir()], "everything is removed"
    return row


@pytest.mark.long
@pytest.mark.behaviour("D8")
def test_a_drill_runs_the_suite_on_the_restored_rows(bootstrap_servers: str, tmp_path: Path) -> None:
    application = application_with_rule(bootstrap_servers, tmp_path, "cast(string(value) as int) <= 2")
    row = drilled(application, tmp_path)
    assert (row.verdict, row.suite, row.suite_failed) == ("proven", "passed", ()), row
    assert row.suite_expectations > 1, "the rules of the kind, and that of the user"
    assert len(row.suite_sha256) == 64
    assert row.suite_seconds > 0


@pytest.mark.long
@pytest.mark.behaviour("D8")
def test_rows_that_break_a_rule_fail_the_drill_although_they_equal_the_log(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application = application_with_rule(bootstrap_servers, tmp_path, "cast(string(value) as int) < 2")
    row = drilled(application, tmp_path)
    assert (row.verdict, row.suite, row.suite_failed) == ("failed", "failed", (RULE,)), row
    assert RULE in row.detail
    assert (row.rows, row.log_rows) == (10, 10)
    assert row.offsets, "the rows prove the offset"


@pytest.mark.long
@pytest.mark.behaviour("D8")
def test_a_rule_that_cannot_be_evaluated_is_no_pass(bootstrap_servers: str, tmp_path: Path) -> None:
    application = application_with_rule(bootstrap_servers, tmp_path, "no_such_column < 2")
    row = drilled(application, tmp_path)
    assert (row.verdict, row.suite) == ("unproven", "error"), row


@pytest.mark.behaviour("D8")
def test_a_suite_that_was_not_run_is_no_pass(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = application_with_rule(bootstrap_servers, tmp_path, "true")
    unknown = drilled(application, tmp_path, defined=False)
    assert (unknown.verdict, unknown.suite, unknown.suite_sha256) == ("unproven", "not run", "")
    assert "no definition" in unknown.detail
    # As in an installation without the extra.
    monkeypatch.setitem(packages._MODULES, "validate", ("no_such_module",))
    missing = drilled(application, tmp_path)
    assert (missing.verdict, missing.suite) == ("unproven", "not run")
    assert "no_such_module" in missing.detail
