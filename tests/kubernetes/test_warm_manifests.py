"""The example of deploy/kubernetes/warm: schemas, arguments, settings, users, volumes, without a cluster."""

from __future__ import annotations

import re
import tomllib

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from statestore.cli.app import app
from statestore.discovery.shapes_file import StoreShapeRow
from statestore.objects.credentials import ARCHIVE_CONFIG
from statestore.private_config import KAFKA_CONFIG
from tests.documents import text_of
from tests.kubernetes.manifests import ROOT, Manifest, composed, of_kind


@pytest.fixture(scope="module")
def pod() -> Manifest:
    (found,) = of_kind(composed("warm"), "StatefulSet").values()
    pod: Manifest = found["spec"]["template"]["spec"]
    return pod


@pytest.mark.short_for("1.34")
@pytest.mark.parametrize("version", ["1.34", "1.37"])
def test_every_manifest_follows_the_schemas_of_kubernetes(version):
    manifests = composed("warm")
    assert sorted(manifest["kind"] for manifest in manifests) == ["ConfigMap", "Service", "StatefulSet"]
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_init_container_runs_the_command_with_options_that_it_has(pod):
    (init,) = pod["initContainers"]
    name, *arguments = init["args"]
    command = get_command(app).commands[name]
    names = {option for parameter in command.params for option in parameter.opts}
    assert [argument for argument in arguments if argument.partition("=")[0] not in names] == []
    variables = {parameter.envvar for parameter in command.params} | {KAFKA_CONFIG, ARCHIVE_CONFIG, "NUMBA_CACHE_DIR"}
    others = {name for each in init["env"] if (name := each["name"]) not in variables}
    assert {name for name in others if not name.startswith("OTEL_")} == {"POD_NAME"}


@pytest.mark.documents
def test_each_pod_exports_metrics_of_its_own(pod):
    environment = {each["name"]: each for each in pod["initContainers"][0]["env"]}
    assert environment["POD_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert environment["OTEL_RESOURCE_ATTRIBUTES"]["value"] == "service.instance.id=$(POD_NAME)"
    document = text_of("docs/metrics.md")
    assert [name for name in environment if name.startswith("OTEL_") and f"`{name}`" not in document] == []


def test_what_it_reads_and_writes_is_mounted_and_the_application_has_the_same_volume_and_user(pod):
    (init,), (application,) = pod["initContainers"], pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in init["volumeMounts"]}
    (claim,) = of_kind(composed("warm"), "StatefulSet")["orders"]["spec"]["volumeClaimTemplates"]
    assert mounts.keys() == {claim["metadata"]["name"], *(volume["name"] for volume in pod["volumes"])}
    environment = {each["name"]: each.get("value") for each in init["env"]}
    assert environment["STATESTORE_STATE_DIR"] == mounts["state"]
    assert [mount for mount in application["volumeMounts"] if mount in init["volumeMounts"]] == [
        {"name": "state", "mountPath": mounts["state"]}
    ]
    for name in (KAFKA_CONFIG, ARCHIVE_CONFIG):
        assert environment[name].startswith(f"{mounts['credentials']}/")
    for container in (init, application):
        context = container["securityContext"]
        assert "runAsUser" not in context
        assert (context["allowPrivilegeEscalation"], context["capabilities"]) == (False, {"drop": ["ALL"]})
    assert pod["securityContext"]["runAsNonRoot"]
    (shapes,) = of_kind(composed("warm"), "ConfigMap").values()
    for row in yaml.safe_load(shapes["data"]["shapes.json"])["shapes"]:
        StoreShapeRow.model_validate(row)


def test_its_image_has_what_the_lock_and_the_project_say():
    dockerfile = (ROOT / "deploy" / "warm" / "Dockerfile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    bootstrap = (ROOT / "requirements" / "bootstrap.txt").read_text(encoding="utf-8")
    (uv,) = re.findall(r"^(uv==\S+)", bootstrap, re.MULTILINE)
    assert f"pip install --no-cache-dir {uv} {project['build-system']['requires'][0]}" in dockerfile
    extras = re.search(r"/wheel/\*\.whl\)\[([a-z,]+)\]", dockerfile)
    assert extras is not None
    assert extras[1] == "metrics", "and nothing of Spark or Airflow"
    assert "metrics" in project["project"]["optional-dependencies"]
    excluded = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {"requirements", "statestore", "pyproject.toml", "hatch_build.py"}.isdisjoint(excluded)
