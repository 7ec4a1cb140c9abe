"""The example of deploy/kubernetes/verify-live: schemas, arguments, settings, volumes, without a cluster."""

from __future__ import annotations

import kubernetes_validate
import pytest
from typer.main import get_command

from statestore.cli.app import app
from statestore.objects.credentials import ARCHIVE_CONFIG
from statestore.private_config import KAFKA_CONFIG
from tests.kubernetes.manifests import Manifest, composed, of_kind

EXAMPLES = {"verify-live": ["ConfigMap", "StatefulSet"], "verify-live-cronjob": ["CronJob"]}


def job_pod() -> Manifest:
    """Return the pod of the CronJob."""
    (found,) = of_kind(composed("verify-live-cronjob"), "CronJob").values()
    pod: Manifest = found["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return pod


@pytest.fixture(scope="module")
def pod() -> Manifest:
    (found,) = of_kind(composed("verify-live"), "StatefulSet").values()
    pod: Manifest = found["spec"]["template"]["spec"]
    return pod


@pytest.mark.short_for("1.34")
@pytest.mark.parametrize("version", ["1.34", "1.37"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_manifest_follows_the_schemas_of_kubernetes(version, example):
    manifests = composed(example)
    assert sorted(manifest["kind"] for manifest in manifests) == EXAMPLES[example]
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_container_runs_the_command_with_options_that_it_has(pod, example):
    sidecar = (pod if example == "verify-live" else job_pod())["containers"][-1]
    name, *arguments = sidecar["args"]
    command = get_command(app).commands[name]
    names = {option for parameter in command.params for option in parameter.opts}
    assert [argument for argument in arguments if argument.partition("=")[0] not in names] == []
    variables = {parameter.envvar for parameter in command.params} | {KAFKA_CONFIG, ARCHIVE_CONFIG, "NUMBA_CACHE_DIR"}
    others = {name for each in sidecar["env"] if (name := each["name"]) not in variables}
    assert {name for name in others if not name.startswith("OTEL_")} <= {"POD_NAME"}


def test_the_sidecar_cannot_write_into_the_state_directory(pod):
    application, sidecar = (
        {mount["name"]: mount for mount in container["volumeMounts"]} for container in pod["containers"]
    )
    assert application["state"]["mountPath"] == sidecar["state"]["mountPath"]
    assert sidecar["state"]["readOnly"]
    assert not application["state"].get("readOnly")


def test_the_job_reads_the_volume_of_a_pod_on_its_node(pod):
    (job,) = job_pod()["containers"]
    volumes = {volume["name"]: volume for volume in job_pod()["volumes"]}
    (state,) = [mount for mount in job["volumeMounts"] if mount["name"] == "state"]
    assert state["readOnly"]
    ((set_name, found),) = of_kind(composed("verify-live"), "StatefulSet").items()
    (claim,) = found["spec"]["volumeClaimTemplates"]
    assert volumes["state"]["persistentVolumeClaim"]["claimName"] == f"{claim['metadata']['name']}-{set_name}-0"
    assert job_pod()["securityContext"]["runAsUser"] == pod["securityContext"]["runAsUser"]
    affinity = job_pod()["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (labels,) = [each["labelSelector"]["matchLabels"] for each in affinity]
    assert labels == {"statefulset.kubernetes.io/pod-name": f"{set_name}-0"}
