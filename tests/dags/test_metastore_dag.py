"""DAG `metastore` in a real Airflow on a real broker: what its form changes in the catalogue, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer
from statestore_dags.registering import plan_definitions

from statestore.config import load_settings
from statestore.metastore.definition_files import parse_definitions
from statestore.metastore.metastore import Metastore
from tests.dags.runner import Runner
from tests.integration.broker import create_topic, unique, wait_for
from tests.integration.support import register


class Service:
    """A catalogue of its own, and the DAG that changes it."""

    def __init__(self, servers: str, runner: Runner) -> None:
        self.servers = servers
        self.runner = runner
        self.name = unique("app")
        create_topic(servers, f"{self.name}-in", 2)
        self.metastore = Metastore.of(load_settings())

    def yaml(self, **changes: str) -> str:
        """A definition, whose input topic is there."""
        processor = "demo.flight_delays:process"
        fields = {"name": self.name, "input_topic": f"{self.name}-in", "processor": processor, **changes}
        return "\n".join([*(f"{name}: {value}" for name, value in fields.items()), "stores: [{name: counts}]"])

    def run(self, text: str, **form: object) -> dict:
        """Run the DAG."""
        return self.runner.run("metastore", {"definitions": text, **form})

    def define(self, text: str) -> None:
        """Apply a definition as the command does."""
        definitions = parse_definitions(text, "the test").values()
        register(self.servers, *definitions, service_id=load_settings().service_id)

    def headline(self) -> str:
        """What the last run says of its only application."""
        (row,) = self.rows("apply")
        assert row["label"] == self.name
        return row["headline"]

    def rows(self, task_id: str) -> list[dict]:
        """What a step of the last run has left."""
        (found,) = [ti for ti in self.runner.dag_run.get_task_instances() if ti.task_id == task_id]
        return found.xcom_pull(task_ids=task_id)

    @property
    def state(self) -> str:
        """How the last run ended."""
        return self.runner.dag_run.state


@pytest.fixture
def service(airflow_home, installation, load_dags, monkeypatch, bootstrap_servers):
    monkeypatch.setenv("STATESTORE_SERVICE_ID", unique("dag"))
    return Service(bootstrap_servers, Runner(installation, load_dags))


def test_a_definition_is_created_changed_and_left_as_it_is(service):
    states = service.run(service.yaml())
    assert (service.state, states["check"]) == ("success", [(service.name, "success")])
    assert service.headline() == "created by command 1, at offset 0"
    entry = service.metastore.view().catalogue.entry(service.name)
    assert set(entry.topics) == {f"{service.name}-counts-changelog", f"{service.name}-input-offsets"}

    service.run(service.yaml(commit_interval_ms="77"))
    assert service.headline().startswith("changed by command 3, ")
    (row,) = service.rows("apply")
    assert row["changes"] == ["commit_interval_ms: 1s -> 77 ms"]
    assert service.metastore.view().catalogue.entry(service.name).definition.commit_interval_ms == 77

    pin = service.metastore.view().pin
    service.run(service.yaml(commit_interval_ms="77"))
    assert (service.headline(), service.metastore.view().pin) == ("unchanged", pin)


@pytest.mark.long
def test_a_dry_run_shows_the_plan_and_changes_nothing(service):
    service.run(service.yaml(), dry_run=True)
    assert (service.state, service.headline()) == ("success", "would create")
    assert service.metastore.view().topic_id is None


@pytest.mark.long
def test_several_applications_have_a_square_each(service, bootstrap_servers):
    other = Service(bootstrap_servers, service.runner)
    states = service.run(f"{service.yaml()}\n---\n{other.yaml()}")
    assert sorted(states["check"]) == sorted([(service.name, "success"), (other.name, "success")])
    assert set(service.metastore.view().catalogue.applications) == {service.name, other.name}


def test_what_is_no_definition_fails_the_plan(service):
    states = service.run("- 3")
    assert (states["plan"], states["apply"]) == ("failed", "upstream_failed")
    assert service.metastore.view().topic_id is None


@pytest.mark.parametrize("text", ["name: [unclosed", "- 3", "name: x\nunknown: 1", "&a [*a]", "# nothing\n"])
def test_what_is_no_definition_is_a_failure_that_is_not_retried(text):
    from airflow.sdk.exceptions import AirflowFailException

    dag = SimpleNamespace(dag_id="metastore", params={})
    with pytest.raises(AirflowFailException, match="the form"):
        plan_definitions.function({"definitions": text}, dag, SimpleNamespace(conf=None))


@pytest.mark.long
def test_a_field_that_the_form_does_not_have_fails_the_plan(service):
    states = service.run(service.yaml(), dryrun=True)
    assert (states["plan"], states["apply"]) == ("failed", "upstream_failed")
    assert service.metastore.view().topic_id is None


@pytest.mark.long
def test_code_that_cannot_be_loaded_fails_the_plan(service):
    states = service.run(service.yaml(processor="no.such_module:process"))
    assert (states["plan"], states["apply"]) == ("failed", "upstream_failed")
    assert service.metastore.view().topic_id is None


def test_nothing_is_applied_if_one_of_several_is_refused(service):
    missing = service.yaml().replace(service.name, "absent")
    states = service.run(f"{service.yaml()}\n---\n{missing}")
    assert (states["plan"], states["apply"]) == ("failed", "upstream_failed")
    assert service.metastore.view().topic_id is None


@pytest.mark.long
def test_a_change_that_needs_a_rebuild_fails_the_plan(service):
    service.define(service.yaml())
    pin = service.metastore.view().pin
    changed = service.yaml().replace("{name: counts}", "{name: counts, kind: session, retention_ms: 1000}")
    assert service.run(changed)["plan"] == "failed"
    assert service.metastore.view().pin == pin


@pytest.mark.long
def test_no_store_is_taken_out_of_an_application_that_is_running(service, bootstrap_servers):
    two = service.yaml().replace("{name: counts}", "{name: counts}, {name: more}")
    service.define(two)
    member = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": service.name})
    try:
        member.subscribe([f"{service.name}-in"])
        wait_for(lambda: (member.poll(0.1), member.assignment())[1], "the member to have joined")
        states = service.run(service.yaml())
    finally:
        member.close()
    assert (states["plan"], states["apply"]) == ("success", "failed")
    assert len(service.metastore.view().catalogue.entry(service.name).definition.stores) == 2
