"""The manifests of deploy/kubernetes, without a cluster: schemas, names, paths, settings, users, what a pod may do."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import kubernetes_validate
import pytest

from statestore import errors
from statestore.config import load_settings
from statestore.objects.credentials import ARCHIVE_CONFIG
from statestore.objects.path import ObjectPath
from statestore.private_config import KAFKA_CONFIG
from statestore.requests.arguments import add_arguments, from_namespace
from statestore.requests.maintenance import MaintenanceRequest
from statestore.requests.process import ProcessRequest
from statestore.requests.restore import RestoreRequest
from statestore.requests.snapshot import SnapshotRequest
from statestore.requests.verify import VerifyRequest
from tests.documents import text_of
from tests.kubernetes.manifests import (
    IN_IMAGE,
    ROOT,
    Manifest,
    composed,
    executor_template,
    of_kind,
    pods,
    spark_defaults,
)

COMPOSED = ("base", "overlays/example", "overlays/shared")
REQUESTS = {
    "process": ProcessRequest,
    "verify": VerifyRequest,
    "restore": RestoreRequest,
    "snapshot": SnapshotRequest,
    "maintenance": MaintenanceRequest,
}


def settings_of(manifests: tuple[Manifest, ...]) -> dict[str, str]:
    """The environment of the jobs."""
    found: dict[str, str] = of_kind(manifests, "ConfigMap")["statestore-settings"]["data"]
    return found


def container_of(pod: Manifest) -> Manifest:
    """The one container of a pod."""
    (container,) = pod["spec"]["containers"]
    return container


def mounts_of(pod: Manifest) -> dict[str, str]:
    """Where a pod has its volumes, by their names."""
    return {found["name"]: found["mountPath"] for found in container_of(pod)["volumeMounts"]}


@pytest.mark.short_for("overlays/shared-1.34")
@pytest.mark.parametrize("version", ["1.34", "1.37"])
@pytest.mark.parametrize("directory", COMPOSED)
def test_every_manifest_follows_the_schemas_of_kubernetes(directory, version):
    manifests = composed(directory)
    assert len(manifests) == (12 if directory == "overlays/shared" else 11)
    for manifest in (*manifests, executor_template(manifests)):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_manifest_that_is_wrong_does_not_follow_them():
    job = of_kind(composed("base"), "CronJob")["statestore-verify"]
    wrong = {**job, "spec": {**job["spec"], "concurencyPolicy": "Forbid"}}
    with pytest.raises(kubernetes_validate.ValidationError, match="concurencyPolicy"):
        kubernetes_validate.validate(wrong, "1.37", strict=True)


@pytest.mark.parametrize("directory", COMPOSED)
def test_all_that_pods_name_is_there_and_the_secret_is_yours(directory):
    manifests = composed(directory)
    for _, pod in pods(manifests):
        assert pod["spec"]["serviceAccountName"] in of_kind(manifests, "ServiceAccount")
        volumes = {found["name"]: found for found in pod["spec"]["volumes"]}
        assert volumes.keys() == mounts_of(pod).keys()
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in of_kind(manifests, "ConfigMap")
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in of_kind(manifests, "PersistentVolumeClaim")
            if "secret" in volume:
                assert volume["secret"] == {"secretName": "statestore-credentials", "defaultMode": 0o440}
        for source in container_of(pod).get("envFrom", ()):
            if "secretRef" in source:
                assert source["secretRef"] == {"name": "statestore-metrics", "optional": True}
            else:
                assert source["configMapRef"]["name"] in of_kind(manifests, "ConfigMap")
    assert of_kind(manifests, "Secret") == {}


def test_executors_mount_the_claim_where_drivers_do():
    manifests = composed("overlays/shared")
    (claim,) = of_kind(manifests, "PersistentVolumeClaim")
    assert settings_of(manifests)["SHARED_CLAIM"] == claim
    mounted = mounts_of(dict(pods(manifests))["statestore-process"])["shared"]
    entrypoint = (ROOT / "deploy" / "kubernetes" / "entrypoint.sh").read_text(encoding="utf-8")
    assert f"$volume.mount.path={mounted}" in entrypoint
    assert of_kind(composed("overlays/example"), "PersistentVolumeClaim") == {}


def test_drivers_and_executors_see_the_same_things_in_the_same_places():
    *drivers, (_, executor) = pods(composed("base"))
    assert len(drivers) == len(REQUESTS)
    for _, driver in drivers:
        assert mounts_of(executor).items() <= mounts_of(driver).items()
        assert driver["spec"]["securityContext"] == executor["spec"]["securityContext"]
        assert container_of(driver)["command"] == container_of(executor)["command"]


SHARED = ("STATESTORE_STATE_DIR", "STATESTORE_REPORTS_DIR", "STATESTORE_DATA_DOCS_DIR", "NUMBA_CACHE_DIR")


@pytest.mark.documents
@pytest.mark.parametrize("directory", ["overlays/example", "overlays/shared"])
def test_settings_are_known_and_lie_in_volumes_or_object_storage(monkeypatch, directory):
    manifests = composed(directory)
    settings = settings_of(manifests)
    for name in [name for name in os.environ if name.startswith("STATESTORE_")]:
        monkeypatch.delenv(name)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    loaded = load_settings()
    table = text_of("docs/operations.md")
    assert [name for name in settings if name.startswith("STATESTORE_") and f"| `{name}` |" not in table] == []
    at = mounts_of(dict(pods(manifests))["statestore-process"])
    shared = directory == "overlays/shared"
    volumes = {KAFKA_CONFIG: "credentials", ARCHIVE_CONFIG: "credentials", "SPARK_CONF_DIR": "spark"}
    volumes |= dict.fromkeys(SHARED, "shared") if shared else dict.fromkeys((SHARED[0], SHARED[3]), "state")
    under = {name: Path(settings[name]).relative_to(at[volume]) for name, volume in volumes.items()}
    others = {"STATESTORE_BOOTSTRAP_SERVERS", "STATESTORE_NODE_LOCAL_STATE"}
    assert settings.keys() - under.keys() == others | (
        {"SHARED_CLAIM"}
        if shared
        else {
            "STATESTORE_ARCHIVE",
            "STATESTORE_REPORTS_DIR",
            "STATESTORE_DATA_DOCS_DIR",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        }
    )
    for place in (loaded.reports_dir, loaded.data_docs_dir):
        assert isinstance(place, Path if shared else ObjectPath)
    said = text_of("docs/kubernetes.md")
    assert [name for name in (KAFKA_CONFIG, ARCHIVE_CONFIG) if f"--from-file={under[name]}" not in said] == []


@pytest.mark.documents
def test_spark_finds_the_template_and_the_ports_that_the_document_names():
    manifests = composed("base")
    properties = spark_defaults(manifests)
    template = Path(properties["spark.kubernetes.executor.podTemplateFile"])
    assert template.parent == Path(settings_of(manifests)["SPARK_CONF_DIR"])
    assert template.name in of_kind(manifests, "ConfigMap")["statestore-spark"]["data"]
    container = container_of(executor_template(manifests))
    assert properties["spark.kubernetes.executor.podTemplateContainerName"] == container["name"]
    assert properties["spark.executorEnv.NUMBA_CACHE_DIR"] == settings_of(manifests)["NUMBA_CACHE_DIR"]
    said = text_of("docs/kubernetes.md")
    assert f"ports {properties['spark.driver.port']} and {properties['spark.blockManager.port']}" in said


@pytest.mark.parametrize("name", [*(f"statestore-{job}" for job in REQUESTS), "executor"])
def test_each_container_runs_a_file_of_the_image_as_its_user(name):
    pod = dict(pods(composed("base")))[name]
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert f"COPY --chown=airflow:root . {IN_IMAGE}\n" in dockerfile
    excluded = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {"deploy", "jobs"}.isdisjoint(excluded)
    init, separator, program = container_of(pod)["command"]
    assert (init, separator) == ("/usr/bin/dumb-init", "--")  # as docker-compose.yml has it
    assert os.access(ROOT / Path(program).relative_to(IN_IMAGE), os.X_OK)
    # What the Pod Security Standard `restricted` asks for. 50000 is the user airflow of the image.
    user, container = pod["spec"]["securityContext"], container_of(pod)["securityContext"]
    assert (user["runAsNonRoot"], user["runAsUser"], user["seccompProfile"]) == (
        True,
        50_000,
        {"type": "RuntimeDefault"},
    )
    assert container == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert all(
        len(volume.keys() & {"emptyDir", "configMap", "secret", "persistentVolumeClaim"}) == 1
        for volume in pod["spec"]["volumes"]
    )


@pytest.mark.documents
@pytest.mark.parametrize("job", REQUESTS)
def test_each_job_is_one_of_ours_with_arguments_that_it_takes(job):
    found = of_kind(composed("base"), "CronJob")[f"statestore-{job}"]["spec"]
    kind, name, *arguments = container_of(found["jobTemplate"]["spec"]["template"])["args"]
    assert (kind, name) == ("job", job)
    assert (ROOT / "jobs" / f"{name}.py").is_file()
    parser = argparse.ArgumentParser()
    add_arguments(parser, REQUESTS[job])
    from_namespace(REQUESTS[job], parser.parse_args(arguments))
    assert (found["concurrencyPolicy"], found["timeZone"]) == ("Forbid", "Etc/UTC")
    assert found.get("suspend", False) == (job == "restore")
    said = text_of("docs/kubernetes.md")
    assert f"| `statestore-{job}` |" in said


def test_a_job_is_tried_again_where_that_may_help_and_only_there():
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.StateStoreError)
    ]
    final = {kind.exit_code for kind in kinds if not issubclass(kind, errors.RetryError)}
    for name, job in of_kind(composed("base"), "CronJob").items():
        spec = job["spec"]["jobTemplate"]["spec"]
        failing, ignored = spec["podFailurePolicy"]["rules"]
        assert (failing["action"], failing["onExitCodes"]["operator"]) == ("FailJob", "In")
        assert set(failing["onExitCodes"]["values"]) == final, name
        assert failing["onExitCodes"]["containerName"] == container_of(spec["template"])["name"]
        assert ignored["action"] == "Ignore"
        assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_only_drivers_may_ask_kubernetes_for_something():
    manifests = composed("base")
    (binding,) = of_kind(manifests, "RoleBinding").values()
    assert [subject["name"] for subject in binding["subjects"]] == ["statestore"]
    *drivers, (_, executor) = pods(manifests)
    assert {driver["spec"]["serviceAccountName"] for _, driver in drivers} == {"statestore"}
    assert executor["spec"]["serviceAccountName"] == "statestore-executor"
    assert executor["spec"]["automountServiceAccountToken"] is False


def test_an_overlay_names_namespace_and_image_once():
    manifests = composed("overlays/example")
    assert {found["metadata"]["namespace"] for found in manifests} == {"streams"}
    images = {
        value
        for name, pod in pods(manifests)
        if name != "executor"
        for value in (
            container_of(pod)["image"],
            next(found["value"] for found in container_of(pod)["env"] if found["name"] == "EXECUTOR_IMAGE"),
        )
    }
    assert images == {"registry.example.org/streams/statestore:1"}
