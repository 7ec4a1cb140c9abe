"""Pods without containers: a process with a root directory, a user, volumes and an address on loopback of its own.

A pod sees the files of this machine, but what it writes outside of its volumes goes with it; the checkout is mounted
where the image has it. It needs root, for mounts.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from tests.kubernetes.manifests import IN_IMAGE, ROOT, Manifest

ACCOUNT = "run/secrets/kubernetes.io/serviceaccount"
#: As in the image, see Dockerfile.
_IMAGE = {
    "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/home/airflow",
    "PYTHONPATH": f"{IN_IMAGE}:/opt/applications",
    "LANG": "C.UTF-8",
}
_DUMB_INIT = '#!/bin/sh\nshift\nexec "$@"\n'


class Pod:
    """One pod, started.

    Attributes
    ----------
    manifest
        What was asked for.
    address
        Its IP address.
    """

    def __init__(
        self,
        manifest: Manifest,
        address: str,
        directory: Path,
        volume: Callable[[Manifest, Path], Path],
        config: Callable[[str], Mapping[str, str]],
        files: Mapping[str, str],
    ) -> None:
        """Start it.

        Parameters
        ----------
        directory
            An empty one, for its log and what it needs.
        volume
            Returns the directory of a volume; it is given one that may be it.
        config
            Returns the content of a ConfigMap.
        files
            That its root directory has, by their paths without a slash in front.
        """
        self.manifest, self.address, self.log = manifest, address, directory / "log"
        directory.mkdir(parents=True)
        spec = manifest["spec"]
        (container,) = spec["containers"]
        user = spec["securityContext"]
        at = {found["name"]: volume(found, directory / found["name"]) for found in spec["volumes"]}
        mounts = [
            f"mount_at {shlex.quote(str(at[found['name']]))} {shlex.quote(found['mountPath'])} "
            f"{'ro' if found.get('readOnly') else 'rw'}"
            for found in container["volumeMounts"]
        ]
        self.environment = {**_IMAGE, **self._environment(container, config)}
        said = [f"{name}={value}" for name, value in self.environment.items()]
        command = [*container["command"], *container["args"]]
        root = "$own/root"
        own_files = {
            **files,
            "usr/bin/dumb-init": _DUMB_INIT,
            "etc/hosts": f"{files.get('etc/hosts', '')}127.0.0.1 localhost\n{address} {self.name}\n",
        }
        for number, (name, content) in enumerate(own_files.items()):
            (directory / f"file-{number}").write_text(content, encoding="utf-8")
            mounts.append(f"install -D -m 755 {directory}/file-{number} {root}/{name}")
        groups = str(user["fsGroup"])
        script = f"""
            set -eu
            own={shlex.quote(str(directory / "own"))}
            mkdir "$own" && mount -t tmpfs tmpfs "$own" && mkdir "$own/upper" "$own/work" {root}
            mount -t overlay overlay -o "lowerdir=/,upperdir=$own/upper,workdir=$own/work" {root}
            mount --rbind /dev {root}/dev && mount -t proc proc {root}/proc
            chmod 755 {root}/root && install -d -o {user["runAsUser"]} {root}/home/airflow
            echo 'airflow:x:{user["runAsUser"]}:{user["runAsGroup"]}::/home/airflow:/bin/bash' >> {root}/etc/passwd
            mount_at() {{
                mkdir -p "{root}$2" && mount --bind "$1" "{root}$2"
                [ "$3" = rw ] || mount -o remount,bind,ro "{root}$2"
            }}
            mount_at {shlex.quote(str(ROOT))} {IN_IMAGE} ro
            {chr(10).join(mounts)}
            hostname {shlex.quote(self.name)}
            exec chroot {root} setpriv --reuid {user["runAsUser"]} --regid {user["runAsGroup"]} --groups {groups} \\
                --no-new-privs --bounding-set=-all --inh-caps=-all env -i -C / {shlex.join(said)} {shlex.join(command)}
        """
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "--uts", "--pid", "--fork", "bash", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.manifest["metadata"]["name"])

    @property
    def exit_code(self) -> int | None:
        """How it ended; None: it has not."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int:
        """Wait for its end, and return its exit code."""
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """End it, and all that it has started.

        All of it ends with the first process of its namespace. `--kill-child` does not reach that: the kernel forgets
        the signal of a process that becomes another user.
        """
        if self._process.poll() is None:
            for first in psutil.Process(self._process.pid).children():
                first.kill()
            self._process.kill()
            self._process.wait(60)

    def _environment(self, container: Manifest, config: Callable[[str], Mapping[str, str]]) -> dict[str, str]:
        fields = {
            "metadata.name": self.name,
            "metadata.namespace": self.manifest["metadata"]["namespace"],
            "status.podIP": self.address,
        }
        found: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            if "secretRef" in source:
                assert source["secretRef"]["optional"], source  # no test has one
                continue
            found |= config(source["configMapRef"]["name"])
        for variable in container.get("env", ()):
            source = variable.get("valueFrom")
            found[variable["name"]] = (
                fields[source["fieldRef"]["fieldPath"]] if source else str(variable.get("value") or "")
            )
        return found


def made_directory(place: Path, mode: int, group: int) -> Path:
    """Make a volume that a group may write, unless it is there."""
    place.mkdir(parents=True, exist_ok=True)
    os.chown(place, 0, group)
    place.chmod(mode)
    return place


def filled_directory(place: Path, content: Mapping[str, str], mode: int, group: int) -> Path:
    """Make a volume with the files of a ConfigMap or a Secret, behind links as the kubelet's."""
    data = made_directory(place / "..data", 0o755, group)
    for name, text in content.items():
        (data / name).write_text(text, encoding="utf-8")
        os.chown(data / name, 0, group)
        (data / name).chmod(mode)
        (place / name).symlink_to(Path("..data") / name)
    return place
