"""DAG `rewrite` in a real Airflow on a real broker: what its form shows, asks about, and does."""

from __future__ import annotations

import pytest

from statestore import clock
from statestore.config import load_settings
from tests.dags.runner import Runner
from tests.dags.test_approval import Person
from tests.integration.support import register
from tests.integration.test_repartition import KEYS, Counting
from tests.integration.transforming import Transforming


@pytest.fixture
def two(airflow_home, installation, service_id, bootstrap_servers):
    """An application that has processed its input, and one without anything."""
    source, target = (Counting(bootstrap_servers, installation, partitions=count) for count in (2, 3))
    assert source.state_dir == load_settings().state_dir
    register(bootstrap_servers, source.definition, target.definition, service_id=service_id)
    source.process_all(KEYS)
    return source, target


@pytest.mark.long
def test_a_repartition_is_shown_approved_and_carried_out(two, installation, load_dags, airflow_api):
    source, target = two
    form = {"what": "repartition", "application": source.name, "to": target.name}
    runner = Runner(installation, load_dags)
    states = runner.run("rewrite", {**form, "dry_run": True})
    assert (states["plan"], states["rewrite"]) == ("success", "skipped")
    assert not list((source.state_dir / target.name).glob("*_*"))

    person = Person(airflow_api, "rewrite")
    answer = person.answers("Approve")
    states = runner.run("rewrite", form)
    answer.join()
    assert f"rewrite repartition --application {source.name} --to {target.name}" in person.asked[-1]["body"]
    assert states["check"] == [(f"{target.name}/counts/0_{task}", "success") for task in range(3)]
    rows = [{key: value for rows in app.all_rows() for key, value in rows.items()} for app in two]
    assert rows[0] == rows[1]


@pytest.mark.long
def test_a_field_that_the_form_does_not_have_and_what_speaks_against_it_fail_the_plan(two, installation, load_dags):
    source, target = two
    form = {"what": "repartition", "application": source.name, "to": target.name}
    runner = Runner(installation, load_dags)
    assert runner.run("rewrite", {**form, "dryrun": True})["plan"] == "failed"
    source.send([(b"key-00", b"1")], 1)
    states = runner.run("rewrite", form)
    assert (states["plan"], states["rewrite"]) == ("failed", "upstream_failed")


@pytest.mark.long
def test_an_undo_is_approved_and_carried_out(two, installation, service_id, load_dags, airflow_api):
    source, _ = two
    rows = source.all_rows()
    Transforming(source.servers, service_id, source.name, source.state_dir).carry_out()
    assert source.all_rows() != rows
    runner, person = Runner(installation, load_dags), Person(airflow_api, "rewrite")
    form = {"what": "undo", "application": source.name}
    answer = person.answers("Approve")
    states = runner.run("rewrite", form)
    answer.join()
    assert states["check"] == [(f"{source.name}/counts/0_{task}", "success") for task in range(2)]
    assert source.all_rows() == rows
    assert runner.run("rewrite", form)["plan"] == "failed"  # nothing is left to undo


@pytest.mark.long
def test_a_restore_to_a_point_is_approved_and_carried_out(two, installation, service_id, load_dags, airflow_api):
    source, _ = two
    then, point = source.all_rows(), clock.iso(clock.now_ms())
    source.process_all(KEYS)
    now = source.all_rows()
    runner, person = Runner(installation, load_dags), Person(airflow_api, "rewrite")
    form = {"what": "point", "application": source.name, "point": point}
    answer = person.answers("Approve")
    states = runner.run("rewrite", form)
    answer.join()
    assert f"statestore restore --application {source.name} --to {point}" in person.asked[-1]["body"]
    assert states["check"] == [(f"{source.name}/counts/0_{task}", "success") for task in range(2)]
    assert source.all_rows() == then
    answer = person.answers("Approve")
    states = runner.run("rewrite", {"what": "undo", "application": source.name})
    answer.join()
    assert states["check"] == [(f"{source.name}/counts/0_{task}", "success") for task in range(2)]
    assert source.all_rows() == now
