"""docker-compose.yml and Dockerfile, without a container engine: the schema, the ports, the secrets, the versions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from demo.kafka_jars import KAFKA_VERSION

REPOSITORY = Path(__file__).resolve().parents[2]
COMPOSE_FILE = REPOSITORY / "docker-compose.yml"
COMPOSE_TEXT = COMPOSE_FILE.read_text(encoding="utf-8")
SERVICES = yaml.safe_load(COMPOSE_TEXT)["services"]
SECRET = re.compile(r"PASSWORD(?!S_FILE)|SECRET|FERNET|TOKEN")


def pinned(package: str) -> str:
    """Version of a package in pyproject.toml."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    (version,) = [d.split("==")[1] for extra in extras for d in extra if d.split("==")[0] == package]
    return version


def environment():
    """Every variable of every service that has a value; the others come from .env as they are."""
    return [
        (name, key, str(value))
        for name, service in SERVICES.items()
        for key, value in service["environment"].items()
        if value is not None
    ]


def test_the_compose_file_follows_the_compose_specification():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE_FILE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_published_port_is_on_loopback():
    ports = [str(port) for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports), ports
    assert not any(service.get("network_mode") for service in SERVICES.values())


def test_no_secret_has_a_default_and_each_is_required():
    references = re.findall(r"\$\{(\w+)([^}]*)\}", COMPOSE_TEXT)
    secrets = {name: rest for name, rest in references if SECRET.search(name) or name.endswith("_KEY")}
    assert set(secrets) == {
        "POSTGRES_PASSWORD",
        "AIRFLOW_ADMIN_PASSWORD",
        "AIRFLOW_API_SECRET_KEY",
        "AIRFLOW_JWT_SECRET",
        "AIRFLOW_FERNET_KEY",
    }
    assert all(rest.startswith(":?") for name, rest in references if name in secrets), references


def test_no_secret_is_written_into_the_compose_file():
    values = [(service, key, value) for service, key, value in environment() if SECRET.search(key)]
    assert {service for service, _, _ in values} >= {"postgres", "airflow-apiserver"}
    assert all(re.fullmatch(r"\$\{\w+:\?[^}]+\}", value) for _, _, value in values), values
    # Nor within an address: whatever stands between a user's colon and the at sign is a reference.
    addresses = [value for _, _, value in environment() if re.search(r"://[^/@]*:.*@", value)]
    assert addresses
    assert all(re.search(r"://\w+:\$\{\w+:\?[^}]+\}@", value) for value in addresses), addresses


def test_the_example_environment_names_every_variable_and_holds_no_secret():
    lines = (REPOSITORY / ".env.example").read_text(encoding="utf-8").splitlines()
    example = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert set(example) == set(re.findall(r"(?<!\$)\$\{(\w+)", COMPOSE_TEXT))
    assert [name for name, value in example.items() if value and (SECRET.search(name) or "KEY" in name)] == []


def passed_on(prefixes):
    """Variables without a value here, by service, and those that the example has."""
    given = {
        name: {key for key, value in service["environment"].items() if value is None and key.startswith(prefixes)}
        for name, service in SERVICES.items()
    }
    example = re.findall(r"^# ([A-Z_]+)=$", (REPOSITORY / ".env.example").read_text(encoding="utf-8"), re.M)
    return {name: keys for name, keys in given.items() if keys}, {key for key in example if key.startswith(prefixes)}


def test_variables_of_opentelemetry_reach_the_drivers_which_export_and_the_example_names_them():
    given, example = passed_on(("OTEL_",))
    assert given == {"airflow-scheduler": example}
    assert {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME"} <= example


def test_credentials_of_the_archive_reach_drivers_and_executors_alone_and_the_example_names_them():
    with_them, example = passed_on(("AWS_", "AZURE_"))
    assert with_them == dict.fromkeys(["airflow-scheduler", "spark-worker"], example)
    archive = "archive:/var/lib/statestore/archive"
    assert {name for name, service in SERVICES.items() if archive in service.get("volumes", [])} == set(with_them)


def test_the_versions_are_those_of_the_project():
    dockerfile = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    lock = (REPOSITORY / "requirements" / "demo.txt").read_text(encoding="utf-8")
    assert f"FROM apache/airflow:{pinned('apache-airflow')}-python3.11\n" in dockerfile
    assert "FROM eclipse-temurin:17-jre AS java\n" in dockerfile
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"
    # Spark comes from the lock, for master, worker and drivers alike: all of them run on the one image.
    assert re.search(rf"^pyspark=={re.escape(pinned('pyspark'))} ", lock, re.MULTILINE)
    assert {service["image"] for name, service in SERVICES.items() if name.startswith(("spark", "airflow"))} == {
        "statestore:local"
    }


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in ("airflow-init", "definitions")])
def test_every_lasting_service_has_a_health_check_with_deadlines(name):
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    assert {"interval", "timeout", "retries"} <= set(check)


def test_services_wait_until_what_they_need_is_healthy():
    for name, service in SERVICES.items():
        for needed, how in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if needed == "airflow-init" else "service_healthy"
            assert how == {"condition": expected}, (name, needed)


def test_definitions_are_applied_once_by_a_command_that_there_is(monkeypatch):
    from typer.main import get_command

    from statestore.cli.app import app

    service = SERVICES["definitions"]
    program, *arguments = service["command"]
    assert (program, service["restart"]) == ("statestore", "on-failure")
    for name, value in service["environment"].items():
        monkeypatch.setenv(name, value)
    with get_command(app).commands[arguments[0]].make_context(program, arguments[1:]) as context:
        assert context.params["yes"]
        assert context.params["bootstrap_servers"] == "kafka:9092"
    # The backup of the command topic is one for all that write it; locks tell whether an application is running.
    assert {f"{name}:/var/lib/statestore/{name}" for name in ("reports", "state")} <= set(service["volumes"])


def test_mounted_volumes_are_declared_and_secrets_stay_out_of_the_image():
    named = {
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if "$" not in volume
    }
    assert named == set(yaml.safe_load(COMPOSE_TEXT)["volumes"])
    assert ".env" in (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
