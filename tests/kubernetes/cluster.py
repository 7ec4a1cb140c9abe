"""A stand-in for a Kubernetes cluster: what Spark's scheduler asks of its API, with roles; pods are processes.

Real here: Spark's own scheduler, what it asks for and the pods that it makes; tokens, TLS, and the roles of the
manifests; users, modes of files, volumes, addresses. Not here: scheduling on nodes, images, limits, network policies.
"""

from __future__ import annotations

import json
import re
import ssl
import struct
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.integration.secured_broker import make_certificate, pem
from tests.kubernetes.manifests import Manifest, of_kind
from tests.kubernetes.pods import ACCOUNT, Pod, filled_directory, made_directory

#: Where pods expect Kubernetes' API.
_API = "kubernetes.default.svc"
_API_ADDRESS = "127.0.0.9"
_FIRST_POD = 10
_WAIT_S = 60.0
_PATH = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<resource>[a-z]+)(/(?P<name>[^/]+))?")


class Cluster:
    """One namespace with what was applied to it.

    Attributes
    ----------
    allows
        The (account, verb, resource) of its roles.
    used
        The (verb, resource) of each request that was allowed.
    denied
        Of those that were not.
    started
        Every pod there was, by name.
    """

    def __init__(self, applied: tuple[Manifest, ...], secrets: Mapping[str, Mapping[str, str]], place: Path) -> None:
        self.used: set[tuple[str, str]] = set()
        self.denied: set[tuple[str, str]] = set()
        self.started: dict[str, Pod] = {}
        self.jobs = of_kind(applied, "CronJob")
        self.place = place
        self._accounts = of_kind(applied, "ServiceAccount")
        self._secrets = secrets
        self._objects: dict[tuple[str, str], Manifest] = {
            ("configmaps", name): found for name, found in of_kind(applied, "ConfigMap").items()
        }
        self._claims = of_kind(applied, "PersistentVolumeClaim")
        roles, bindings = of_kind(applied, "Role"), of_kind(applied, "RoleBinding").values()
        self.allows = {
            (subject["name"], verb, resource)
            for binding in bindings
            for subject in binding["subjects"]
            for rule in roles[binding["roleRef"]["name"]]["rules"]
            for verb in rule["verbs"]
            for resource in rule["resources"]
        }
        self._events: list[tuple[str, Manifest]] = []
        self._changed = threading.Condition()
        self._closed = False
        self._certificate = place / "api.pem"
        self._key = place / "api.key"

    # -- jobs and pods

    def run(self, job: str, *arguments: str, timeout_s: float) -> Pod:
        """Run a job as its CronJob would, with more arguments; return its pod, which has ended."""
        template = self.jobs[job]["spec"]["jobTemplate"]["spec"]["template"]
        name = f"{job}-{len(self.started)}"
        manifest = {"apiVersion": "v1", "kind": "Pod", **deepcopy(template)}
        manifest["metadata"] |= {"name": name, "namespace": self.jobs[job]["metadata"]["namespace"]}
        manifest["spec"]["containers"][0]["args"] += arguments
        pod = self._start(manifest)
        pod.wait(timeout_s)
        return pod

    def is_there(self, pod: Pod) -> bool:
        """Tell whether a pod was not deleted."""
        with self._changed:
            return ("pods", pod.name) in self._objects

    def _start(self, manifest: Manifest) -> Pod:
        name, spec = manifest["metadata"]["name"], manifest["spec"]
        manifest["metadata"].setdefault("uid", f"uid-of-{name}")
        manifest["status"] = {"phase": "Pending", "containerStatuses": []}
        self._put("ADDED", "pods", manifest)
        configs = [("configmaps", found["configMap"]["name"]) for found in spec["volumes"] if "configMap" in found]
        with self._changed:
            # Spark makes its own when it has asked for the pods.
            assert self._changed.wait_for(lambda: all(found in self._objects for found in configs), _WAIT_S), configs
        account = self._accounts[spec["serviceAccountName"]]
        files = {"etc/hosts": f"{_API_ADDRESS} {_API}\n"}
        if spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True)):
            files |= {
                f"{ACCOUNT}/token": f"token of {account['metadata']['name']}",
                f"{ACCOUNT}/ca.crt": self._certificate.read_text(encoding="utf-8"),
                f"{ACCOUNT}/namespace": manifest["metadata"]["namespace"],
            }
        group = spec["securityContext"]["fsGroup"]

        def volume(found: Manifest, own: Path) -> Path:
            if "persistentVolumeClaim" in found:
                assert found["persistentVolumeClaim"]["claimName"] in self._claims
                return made_directory(self.place / found["persistentVolumeClaim"]["claimName"], 0o2770, group)
            if (secret := found.get("secret")) is not None:
                content = self._secrets[secret["secretName"]]
                return filled_directory(own, content, secret.get("defaultMode", 0o644), group)
            if (config := found.get("configMap")) is not None:
                return filled_directory(own, self._config(config["name"]), 0o644, group)
            assert "emptyDir" in found, found
            return made_directory(own, 0o2777, group)

        with self._changed:
            address = f"127.0.0.{_FIRST_POD + len(self.started)}"
            pod = Pod(manifest, address, self.place / "pods" / name, volume, self._config, files)
            self.started[name] = pod
        ready = {"type": "Ready", "status": "True"}
        manifest["status"] |= {"phase": "Running", "podIP": address, "conditions": [ready]}
        self._put("MODIFIED", "pods", manifest)
        threading.Thread(target=self._reap, args=(pod,), daemon=True).start()
        return pod

    def _config(self, name: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self._objects["configmaps", name]["data"]
        return found

    def _reap(self, pod: Pod) -> None:
        code = pod.wait(3_600)
        with self._changed:
            if ("pods", pod.name) not in self._objects:
                return
        pod.manifest["status"]["phase"] = "Failed" if code else "Succeeded"
        state = {"terminated": {"exitCode": code}}
        names = [container["name"] for container in pod.manifest["spec"]["containers"]]
        pod.manifest["status"]["containerStatuses"] = [
            {"name": name, "state": state, "image": "", "imageID": "", "ready": False, "restartCount": 0}
            for name in names
        ]
        self._put("MODIFIED", "pods", pod.manifest)

    # -- the API

    def answer(self, verb: str, namespace: str, resource: str, name: str | None, query: Any, body: Any) -> Any:
        """Return what a request that is allowed is answered; None: there is no such object."""
        if verb == "create":
            body["metadata"] |= {"namespace": namespace, "uid": f"uid-of-{body['metadata']['name']}"}
            if resource == "pods":
                threading.Thread(target=self._start, args=(deepcopy(body),), daemon=True).start()
            else:
                self._put("ADDED", resource, body)
            return body
        if verb == "get":
            with self._changed:
                return deepcopy(self._objects.get((resource, name or "")))
        chosen = self._chosen(resource, name, query)
        if verb in ("delete", "deletecollection"):
            for found in chosen:
                if resource == "pods" and (pod := self.started.get(found["metadata"]["name"])) is not None:
                    pod.kill()
                self._put("DELETED", resource, found)
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        assert verb == "list", verb
        return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": chosen}

    def _chosen(self, resource: str, name: str | None, query: Mapping[str, list[str]]) -> list[Manifest]:
        selector = query.get("labelSelector", [""])[0]
        with self._changed:
            return [
                deepcopy(found)
                for (kind, its_name), found in self._objects.items()
                if kind == resource and name in (None, its_name) and _selected(found, selector)
            ]

    def _put(self, event: str, resource: str, found: Manifest) -> None:
        key = (resource, found["metadata"]["name"])
        with self._changed:
            if event == "DELETED":
                self._objects.pop(key, None)
            else:
                self._objects[key] = found
            if resource == "pods":
                self._events.append((event, deepcopy(found)))
            self._changed.notify_all()

    def watched(self, query: Mapping[str, list[str]]) -> Iterator[Manifest]:
        """Yield what happens to pods, from the beginning on."""
        seen, selector = 0, query.get("labelSelector", [""])[0]
        while True:
            with self._changed:
                while not self._closed and len(self._events) == seen:
                    self._changed.wait()
                if self._closed:
                    return
                news, seen = self._events[seen:], len(self._events)
            yield from ({"type": event, "object": found} for event, found in news if _selected(found, selector))

    def allowed(self, token: str, verb: str, resource: str) -> bool:
        """Tell whether the roles allow a request to the account of a token, and note it."""
        found = (token.removeprefix("Bearer token of "), verb, resource) in self.allows
        (self.used if found else self.denied).add((verb, resource))
        return found

    @contextmanager
    def served(self) -> Iterator[Cluster]:
        """Serve the API, and end all pods afterwards."""
        self._key.write_bytes(pem(make_certificate(self._certificate, _API)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate, self._key)
        handler = type("Handler", (_Handler,), {"cluster": self})
        with ThreadingHTTPServer((_API_ADDRESS, 443), handler) as server:
            server.daemon_threads = True
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield self
            finally:
                with self._changed:
                    self._closed = True
                    self._changed.notify_all()
                for pod in self.started.values():
                    pod.kill()
                server.shutdown()


def _selected(found: Manifest, selector: str) -> bool:
    labels = found["metadata"].get("labels") or {}
    for name, values in re.findall(r"([\w./-]+) in \(([^)]*)\)", selector):
        if labels.get(name) not in values.split(","):
            return False
    return all(labels.get(name) == value for name, value in re.findall(r"([\w./-]+)=([^,]*)", selector))


class _Handler(BaseHTTPRequestHandler):
    cluster: Cluster
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = _PATH.fullmatch(url.path)
        assert found, self.path
        one = found["name"] is not None
        watch = query.get("watch") == ["true"]
        verb = {
            "POST": "create",
            "GET": "watch" if watch else "get" if one else "list",
            "DELETE": "delete" if one else "deletecollection",
            "PUT": "update",
            "PATCH": "patch",
        }[self.command]
        if not self.cluster.allowed(self.headers.get("Authorization", ""), verb, found["resource"]):
            self._reply(403, {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403})
        elif watch:
            self._watch(query)
        else:
            body = yaml.safe_load(content) if content else {}
            answer = self.cluster.answer(verb, found["namespace"], found["resource"], found["name"], query, body)
            missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
            self._reply(404 if answer is None else 200, answer or missing)

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = _answer

    def _watch(self, query: Mapping[str, list[str]]) -> None:
        """Send events through a WebSocket (RFC 6455); nothing is expected from the other side."""
        digest = sha1(f"{self.headers['Sec-WebSocket-Key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", b64encode(digest).decode())
        self.end_headers()
        with suppress(OSError):
            for event in self.cluster.watched(query):
                text = json.dumps(event).encode()
                size = len(text)
                head = struct.pack("!BBH", 0x81, 126, size) if size < 2**16 else struct.pack("!BBQ", 0x81, 127, size)
                self.wfile.write(head + text)
        self.close_connection = True

    def _reply(self, code: int, found: Manifest) -> None:
        content = json.dumps(found).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
