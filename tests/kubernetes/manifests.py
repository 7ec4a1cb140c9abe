"""The manifests of deploy/kubernetes as Kustomize composes them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = ROOT / "deploy" / "kubernetes"
#: The checkout in the image.
IN_IMAGE = "/opt/statestore"
Manifest = dict[str, Any]


@cache
def composed(directory: str | Path) -> tuple[Manifest, ...]:
    """Return the manifests of a directory below deploy/kubernetes, or of another one."""
    command = [Path(sys.executable).parent / "kubectl", "kustomize", DIRECTORY / directory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def of_kind(manifests: tuple[Manifest, ...], kind: str) -> dict[str, Manifest]:
    """Return the manifests of a kind by their names."""
    return {found["metadata"]["name"]: found for found in manifests if found["kind"] == kind}


def executor_template(manifests: tuple[Manifest, ...]) -> Manifest:
    """Return the pod that Spark makes executors from."""
    found: Manifest = yaml.safe_load(of_kind(manifests, "ConfigMap")["statestore-spark"]["data"]["executor.yaml"])
    return found


def spark_defaults(manifests: tuple[Manifest, ...]) -> dict[str, str]:
    """Return the properties of spark-defaults.conf."""
    text = of_kind(manifests, "ConfigMap")["statestore-spark"]["data"]["spark-defaults.conf"]
    lines = (line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value.strip() for name, value in lines}


def pods(manifests: tuple[Manifest, ...]) -> Iterator[tuple[str, Manifest]]:
    """Yield the name of each CronJob, and what its pods are made of; last the executors'."""
    for name, job in of_kind(manifests, "CronJob").items():
        yield name, job["spec"]["jobTemplate"]["spec"]["template"]
    yield "executor", executor_template(manifests)
