"""The example of deploy/kubernetes/verify-live: schemas, arguments, settings, volumes, without a cluster."""

from __future__ import annotations

import kubernetes_validate
import pytest
from typer.main import get_command

from statestore.cli.app import app
from statestore.objects.credentials import ARCHIVE_CONFIG
from statestore.private_config import KAFKA_CONFIG
from tests.kubernetes.manifests import Manifest, composed, of_kind


@pytest.fixture(scope="module")
def pod() -> Manifest:
    (found,) = of_kind(composed("verify-live"), "StatefulSet").values()
    pod: Manifest = found["spec"]["template"]["spec"]
    return pod


@pytest.mark.short_for("1.34")
@pytest.mark.parametrize("version", ["1.34", "1.37"])
def test_every_manifest_follows_the_schemas_of_kubernetes(version):
    manifests = composed("verify-live")
    assert sorted(manifest["kind"] for manifest in manifests) == ["ConfigMap", "StatefulSet"]
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_sidecar_runs_the_command_with_options_that_it_has(pod):
    _, sidecar = pod["containers"]
    name, *arguments = sidecar["args"]
    command = get_command(app).commands[name]
    names = {option for parameter in command.params for option in parameter.opts}
    assert [argument for argument in arguments if argument.partition("=")[0] not in names] == []
    variables = {parameter.envvar for parameter in command.params} | {KAFKA_CONFIG, ARCHIVE_CONFIG, "NUMBA_CACHE_DIR"}
    others = {name for each in sidecar["env"] if (name := each["name"]) not in variables}
    assert {name for name in others if not name.startswith("OTEL_")} == {"POD_NAME"}


def test_the_sidecar_cannot_write_into_the_state_directory(pod):
    application, sidecar = (
        {mount["name"]: mount for mount in container["volumeMounts"]} for container in pod["containers"]
    )
    assert application["state"]["mountPath"] == sidecar["state"]["mountPath"]
    assert sidecar["state"]["readOnly"]
    assert not application["state"].get("readOnly")
