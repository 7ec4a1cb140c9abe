"""Environments of applications, and DAG ids: what the file may say, and what is refused with the reason."""

from __future__ import annotations

import os
import re

import pytest

from statestore.environments import (
    COMMON,
    OWN,
    DagName,
    KafkaStreamsApplication,
    active_environment,
    dag_prefix,
    environment_of,
    environment_of_dag,
    environments,
)
from statestore.errors import InputError
from tests.documents import text_of

TWO = """
payments:
  applications: [orders, invoices]
  settings:
    STATESTORE_STATE_DIR: /payments
    STATESTORE_SPARK_JOBS: 4
    STATESTORE_RESTORE_APPROVAL: true
    STATESTORE_ARCHIVE: ""
weather:
  applications: [sensors]
"""


@pytest.fixture
def said(monkeypatch, tmp_path):
    """Write the file, and name it."""
    monkeypatch.delenv("STATESTORE_SERVICE_ID", raising=False)
    monkeypatch.delenv("STATESTORE_DAG_PREFIX", raising=False)

    def write(text: str) -> None:
        path = tmp_path / "environments.yaml"
        path.write_text(text)
        monkeypatch.setenv("STATESTORE_ENVIRONMENTS", str(path))

    return write


def test_without_a_file_there_is_one_environment_with_every_application(monkeypatch):
    monkeypatch.delenv("STATESTORE_ENVIRONMENTS", raising=False)
    (only,) = environments()
    assert (only.name, only.has("anything"), only.dag_id("restore")) == ("", True, "restore")


def test_a_file_is_parsed_once_until_it_changes(said, monkeypatch):
    import yaml

    parsed = []
    load = yaml.safe_load
    monkeypatch.setattr(yaml, "safe_load", lambda text: parsed.append(text) or load(text))
    said(TWO)
    before = [environments() for _ in range(3)]
    assert before == before[:1] * 3
    said("weather: {applications: [sensors]}")
    assert [each.name for each in environments()] == ["", "weather"]
    assert len(parsed) == 2
    said("weather: {applications: [")
    for _ in range(2):  # a malformed file is refused each time
        with pytest.raises(InputError, match="is not YAML"):
            environments()


def test_an_application_has_one_environment_and_the_others_have_the_one_without_a_name(said):
    said(TWO)
    assert [each.name for each in environments()] == ["", "payments", "weather"]
    assert {name: environment_of(name).name for name in ("orders", "sensors", "others")} == {
        "orders": "payments",
        "sensors": "weather",
        "others": "",
    }
    rest, payments, _ = environments()
    assert payments.own({"orders": 1, "others": 2}) == {"orders": 1}
    assert rest.own({"orders": 1, "others": 2}) == {"others": 2}
    with pytest.raises(
        InputError, match=r"orders belongs to environment payments .* start its DAG, such as payments\.verify"
    ):
        rest.require(["others", "orders"])
    with pytest.raises(
        InputError, match=r"others belongs to no environment .* such as verify, instead of that of payments"
    ):
        payments.require(["others"])


def test_an_active_environment_is_that_of_the_process_and_of_those_it_starts_and_then_all_is_as_before(
    said, monkeypatch
):
    said(TWO)
    monkeypatch.setenv("STATESTORE_STATE_DIR", "/all")
    monkeypatch.setenv("STATESTORE_ARCHIVE", "file:///all")
    monkeypatch.delenv("STATESTORE_SPARK_JOBS", raising=False)
    before = dict(os.environ)
    with environment_of("orders").active():
        assert active_environment().name == "payments"
        named = ("STATE_DIR", "ARCHIVE", "SPARK_JOBS", "RESTORE_APPROVAL")
        assert [os.environ[f"STATESTORE_{name}"] for name in named] == ["/payments", "", "4", "true"]
    assert dict(os.environ) == before
    assert active_environment().name == ""


@pytest.mark.parametrize("prefix", ["", "stores.", "team_"])
@pytest.mark.parametrize(
    ("environment", "dag", "rest"),
    [
        ("", "verify", ""),
        ("", "verify", "deep"),
        ("", "process", "my.shop"),
        ("payments", "restore", ""),
        ("payments", "process", "my.shop"),
    ],
)
def test_a_dag_id_says_its_environment_and_its_job(said, monkeypatch, prefix, environment, dag, rest):
    said(TWO)
    monkeypatch.setenv("STATESTORE_DAG_PREFIX", prefix)
    (found,) = [each for each in environments() if each.name == environment]
    dag_id = found.dag_id(f"{dag}.{rest}" if rest else dag)
    assert dag_id.startswith(prefix)
    assert DagName.parse(dag_id) == (environment, dag, rest)
    assert environment_of_dag(dag_id) == found


def test_a_dag_of_an_environment_that_is_gone_says_so(said):
    said(TWO)
    with pytest.raises(InputError, match=r"DAG gone\.verify: .* has no environment 'gone'"):
        environment_of_dag("gone.verify")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a]", "expected environments by their names, found list"),
        ("a: [", "is not YAML"),
        ("verify: {applications: [a]}", "environment 'verify': expected a name"),
        ("a.b: {applications: [a]}", "environment 'a.b': expected a name"),
        ("a: {}", "expected names below applications or kafka_streams, found neither"),
        ("a: {applications: []}", "expected names below applications or kafka_streams, found neither"),
        ("a: {kafka_streams: [x]}", "kafka_streams: Input should be a valid dictionary"),
        ("a: {kafka_streams: {../x: {}}}", "is not a valid name"),
        (
            "a: {kafka_streams: {x: {state_dir: here}}}",
            "x.state_dir: Value error, expected an absolute path, found 'here'",
        ),
        ("a: {kafka_streams: {x: {directory: /s}}}", "x.directory: Extra inputs are not permitted"),
        ("a: {kafka_streams: {x: {shapes: /s}}}", "shapes is of no use without state_dir"),
        ("a: {kafka_streams: {x: {verified_within_hours: soon}}}", "expected a duration such as"),
        ("a: {kafka_streams: {x: {state_dir: /s, version: four}}}", "x.version: String should match pattern"),
        ("a: {applications: [x], kafka_streams: {x: {}}}", "x is below applications and kafka_streams"),
        ("a: {applications: [x]}\nb: {kafka_streams: {x: {}}}", "application x is in two environments, a and b"),
        ("a: {applications: [x], pool: y}", "pool: Extra inputs are not permitted"),
        ("a: {applications: [x], settings: {STATESTORE_POOL: y}}", "there is no setting STATESTORE_POOL"),
        ("a: {applications: [x], settings: {STATESTORE_REPORTS_DIR: y}}", "STATESTORE_REPORTS_DIR is one for all"),
        ("a: {applications: [x]}\nb: {applications: [x]}", "application x is in two environments, a and b"),
        ("a: {applications: [x], settings: {STATESTORE_KAFKA_CONN_ID: k}}", "set STATESTORE_SERVICE_ID"),
        (
            "a: {applications: [x], settings: {STATESTORE_KAFKA_CONN_ID: k, STATESTORE_SERVICE_ID: default}}",
            "'default' of the settings of Airflow, but another connection to Kafka",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_what_was_expected(said, text, expected):
    said(text)
    with pytest.raises(InputError, match=re.escape(expected)):
        environments()


def test_an_environment_can_list_applications_without_a_definition(said):
    said(
        "streams:\n  kafka_streams:\n    billing: {state_dir: /state, here_only: true, verified_within_hours: 2d}\n"
        "    orders: {}\nboth:\n  applications: [shop]\n  kafka_streams: {sums: {state_dir: /s}}\n"
    )
    rest, streams, both = environments()
    assert environment_of("billing") == streams
    assert [each.has_definitions for each in (rest, streams, both)] == [True, False, True]
    found = streams.kafka_streams["billing"]
    assert (str(found.state_dir), found.here_only, found.verified_within_hours) == ("/state", True, 48)
    assert KafkaStreamsApplication.model_validate_json(found.model_dump_json(exclude_defaults=True)) == found
    assert streams.kafka_streams["orders"].state_dir is None
    streams.require_undefined(["shop"])
    with pytest.raises(InputError, match="billing is below kafka_streams, and the catalogue has its definition"):
        streams.require_undefined(["shop", "billing"])


def test_a_file_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("STATESTORE_ENVIRONMENTS", "/nowhere.yaml")
    with pytest.raises(InputError, match=r"/nowhere\.yaml cannot be read"):
        environments()


def test_a_prefix_that_airflow_would_not_take_is_refused(monkeypatch):
    monkeypatch.setenv("STATESTORE_DAG_PREFIX", "team a/")
    with pytest.raises(InputError, match="STATESTORE_DAG_PREFIX"):
        dag_prefix()


@pytest.mark.documents
def test_each_setting_is_one_for_all_or_may_be_an_environments_own():
    text = text_of("docs/operations.md")
    settings = re.findall(r"^\| `(STATESTORE_\w+)` \|", text, re.MULTILINE)
    assert sorted(settings) == sorted(COMMON | OWN)
