"""Kafka Streams applications without a definition, which an environment lists: their DAGs, forms, and jobs."""

from __future__ import annotations

import json

import pytest

from statestore.environments import environments
from statestore.errors import InputError
from statestore.reports import Action, RestoreReport, Status, VerifyReport, read_report
from tests.dags.test_several_applications import prepare, report_of
from tests.integration.broker import unique

FILE = """
streams:
  kafka_streams:
    billing: {{state_dir: {state}, here_only: true}}
    orders: {{}}
  settings:
    STATESTORE_VERIFY_ALERT_AT: 0.5
"""


@pytest.fixture
def listed(monkeypatch, tmp_path):
    """An environment whose applications have no definition, and no catalogue to look for one."""
    path = tmp_path / "environments.yaml"
    path.write_text(FILE.format(state=tmp_path / "kafka-streams"))
    monkeypatch.setenv("STATESTORE_ENVIRONMENTS", str(path))
    monkeypatch.setenv("STATESTORE_SERVICE_ID", unique("streams"))
    return {"state_dir": str(tmp_path / "kafka-streams"), "here_only": True}


def test_an_environment_without_definitions_has_only_the_dags_that_it_needs(listed, load_dags):
    dags = {name: dag for name, dag in load_dags().items() if name.startswith("streams.")}
    assert dags.keys() == {
        "streams.verify",
        "streams.verify.deep",
        "streams.restore",
        "streams.drill",
        "streams.survey",
    }
    assert type(dags["streams.verify"].timetable).__name__ == "CronTriggerTimetable"
    assert dags["streams.verify"].params["alert_at"] == 0.5
    schema = dags["streams.restore"].params.get_param("application").schema
    assert schema["examples"] == ["billing", "orders"]


@pytest.mark.long
def test_a_schedule_verifies_what_the_jobs_see_and_restores_nothing(listed, installation, runner):
    prepare(runner, billing=report_of("billing", status=Status.MISSING, action=Action.FULL))
    for dag_id, request in (("streams.verify", []), ("streams.verify.deep", ["--depth", "deep"])):
        states = runner.run(dag_id, started_by="scheduled")
        assert states["spark"] == [("billing", "success")]
        assert states["check"] == [("billing/totals/0_0", "failed")]
        assert states["needs_restore"] == "success"
        assert runner.triggered("streams.restore") == []
        flag, text, *rest = runner.chosen[-1]
        assert (flag, json.loads(text)) == ("--kafka-streams", listed)
        assert rest == ["--application", "billing", *request, "--live", "--alert-at", "0.5"]


@pytest.mark.long
def test_a_form_restores_a_stopped_application_and_no_validation_follows(listed, installation, runner):
    report = report_of("billing", RestoreReport, outcome="restored", mode="full")
    states = runner.run("streams.restore", {"application": "billing", "stores": ["totals"]}, report)
    assert states["spark"] == [("billing", "success")]
    assert runner.chosen[-1][0] == "--kafka-streams"
    assert runner.chosen[-1][2:] == ["--application", "billing", "--store", "totals"]
    assert runner.triggered("streams.validate") == []


@pytest.mark.long
@pytest.mark.parametrize("dag_id", ["streams.verify", "verify"])
def test_an_application_that_the_dag_cannot_verify_fails_its_plan(listed, installation, runner, dag_id):
    application = {"streams.verify": "orders", "verify": "billing"}[dag_id]
    assert runner.run(dag_id, {"application": application})["plan"] == "failed"


@pytest.mark.long
def test_a_warning_before_an_expensive_kill_fails_the_mapped_task(listed, installation, runner):
    report = report_of(
        "billing", status=Status.PROVEN, action=Action.NONE, live=True, kill_risk="a kill now would lose data"
    )
    states = runner.run("streams.verify", report=report)
    assert states["check"] == [("billing/totals/0_0", "failed")]
    assert runner.dag_run.state == "failed"


def test_rows_without_a_definition_are_no_reason_to_restore(listed):
    from statestore_dags.row_summaries import damaged_applications, wants_restore, wants_validation

    damaged = report_of("billing", status=Status.MISSING, action=Action.FULL)
    restored = report_of("billing", RestoreReport, outcome="restored", mode="full")
    (_, streams) = environments()
    assert wants_restore(damaged)
    assert wants_validation(restored)
    with streams.active():
        assert not wants_restore(damaged)
        assert not wants_validation(restored)
        other = report_of("shop", status=Status.MISSING, action=Action.FULL)
        both = damaged.model_copy(update={"rows": (*damaged.rows, *other.rows)})
        assert damaged_applications(both) == ["shop"]


def test_only_a_form_takes_the_locks_of_an_application_that_may_start(listed):
    from statestore_dags.arguments import verify_request

    (_, streams) = environments()
    with streams.active():
        assert verify_request({}, "billing", by_time=True).live
        assert verify_request({"live": True}, "billing").live
        assert not verify_request({}, "billing").live
        assert not verify_request({}, "shop", by_time=True).live


def test_no_state_directory_is_needed_for_listed_applications(listed, monkeypatch):
    from statestore_dags.arguments import state_dir_without_definition

    monkeypatch.delenv("STATESTORE_STATE_DIR", raising=False)
    (others, streams) = environments()
    with streams.active():
        assert str(state_dir_without_definition({"application": "billing"})["state_dir"]) == listed["state_dir"]
        assert state_dir_without_definition({}).keys() == {"state_dir"}
    with others.active():
        assert state_dir_without_definition({"application": "shop"}) == {}
    monkeypatch.setenv("STATESTORE_STATE_DIR", "/state")
    with streams.active():
        assert state_dir_without_definition({"application": "billing"}) == {}


def test_jobs_that_need_a_definition_refuse_an_application_without_one(listed):
    from statestore_dags.arguments import require_work_without_definition

    (_, streams) = environments()
    with streams.active():
        require_work_without_definition({"application": "billing"}, "verify")
        with pytest.raises(InputError, match="billing has no definition: only verify, restore, and drill work on it"):
            require_work_without_definition({"application": "billing"}, "validate")
        with pytest.raises(InputError, match="has no state_dir for orders"):
            require_work_without_definition({"application": "orders"}, "restore")


def test_drills_cover_listed_applications_with_objectives(listed):
    from statestore_dags.arguments import drill_requests

    (rest, streams) = environments()
    with streams.active():
        objectives = {"billing": None, "orders": None, "shop": None}
        assert list(drill_requests({}, {}, objectives, by_time=True)) == ["billing"], "no job sees the others"
        assert drill_requests({}, {}, by_time=True) == {}
        assert list(drill_requests({}, {}, by_time=False)) == ["billing"]
        (request,) = drill_requests({"application": "billing", "stores": ["totals"]}, {}, by_time=False).values()
        assert (request.applications, request.stores) == (("billing",), ("totals",))
        with pytest.raises(InputError, match="choose the one that the stores are of; there are: billing"):
            drill_requests({"stores": ["totals"]}, {}, by_time=False)
    with rest.active():
        assert drill_requests({}, {}, objectives, by_time=True) == {}


def test_a_restore_by_report_leaves_out_applications_without_a_definition(listed, tmp_path):
    from statestore_dags.jobs import _restores

    from statestore.reports import write_report
    from statestore.requests.restore import RestoreRequest

    rows = [report_of(name, status=Status.MISSING, action=Action.FULL).rows[0] for name in ("billing", "shop")]
    found = VerifyReport(run_id="r", applications=("billing", "shop"), started_ms=0, finished_ms=1, rows=tuple(rows))
    write_report(tmp_path / "verify" / "r.json", found)
    (_, streams) = environments()
    with streams.active():
        work = _restores(RestoreRequest(verify_report=tmp_path / "verify" / "r.json"), tmp_path / "r.json", ())
    assert list(work) == ["shop"]
    part = read_report(work["shop"].verify_report, VerifyReport)
    assert [row.application for row in part.rows] == ["shop"]
