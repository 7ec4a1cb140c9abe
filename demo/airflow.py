"""Airflow 3 for the demo: SQLite, LocalExecutor, and each of its four components a process that we supervise.

`airflow standalone` is not used: it leaves its children behind when it ends. Everything listens on loopback only, and
keys and the password are made per installation, in files that only their owner can read.
"""

from __future__ import annotations

import base64
import json
import secrets
import sys
from importlib.metadata import version

from demo.airflow_client import AirflowClient
from demo.installation import REPOSITORY, Installation
from demo.kafka import HOST, free_port, is_free
from demo.processes import Processes, ServiceError, ServiceProcess, wait_until
from statestore.durable import write_atomically

USER = "admin"
_COMPONENTS = {
    "api-server": ["api-server"],
    # The API server reads the logs from disk, so nobody needs to serve them.
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
_PORT_ATTEMPTS = 3
#: The file with the version of the database.
_STAMP, _VERSION = "migrated", version("apache-airflow")
_PRIVATE = 0o600
_MIGRATE_S = 240
_HEALTHY_S = 240
#: What DAGs would do by time.
_SCHEDULED = ("PROCESS", "VERIFY", "VERIFY_DEEP", "VALIDATE", "SNAPSHOT", "MAINTENANCE")


class Airflow:
    """The Airflow of one installation.

    Parameters
    ----------
    bootstrap_servers
        The Kafka that its jobs work with.
    schedules
        False: DAGs run only when something triggers them.
    """

    def __init__(
        self, processes: Processes, installation: Installation, bootstrap_servers: str, *, schedules: bool = True
    ) -> None:
        self._processes = processes
        self._installation = installation
        self._schedules = schedules
        self._services: list[ServiceProcess] = []
        self._base = installation.environment(bootstrap_servers)
        self._home = installation.airflow_dir
        self._migration: ServiceProcess | None = None
        self.password = ""
        self.url = ""

    def begin(self) -> None:
        """Begin to make the database, which takes a while; `start` waits for it."""
        self._installation.create()
        keys = self._keys()
        self._begin_migration(self.environment(int(keys["port"]), keys))

    def start(self) -> AirflowClient:
        """Start all components and return a client, once Airflow says that all of them are healthy.

        Raises
        ------
        ServiceError
            If a component ends, or does not become healthy in time.
        """
        self._installation.create()
        keys = self._keys()
        self.password = keys["password"]
        port = int(keys["port"])
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            if not is_free(port):
                port = free_port()
            write_atomically(self._home / "keys.json", json.dumps({**keys, "port": str(port)}), mode=_PRIVATE)
            self.url = f"http://{HOST}:{port}"
            environment = self.environment(port, keys)
            self._migrate(environment)
            client = AirflowClient(self.url, USER, self.password, self.check)
            try:
                for name, arguments in _COMPONENTS.items():
                    self._services.append(self._run(name, arguments, environment))
                client.wait_healthy(_HEALTHY_S)
            except ServiceError:
                server_died = self._services[0].poll() is not None
                self.stop()
                # Somebody may have taken the port between our look and the server's: then another is tried.
                if not server_died or is_free(port) or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                return client
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """Stop all components."""
        for service in self._services[::-1]:
            self._processes.stop_service(service)
        self._services.clear()

    def check(self) -> None:
        """Raise ServiceError if a component has ended."""
        for service in self._services:
            if service.poll() is not None:
                wait_until(lambda: False, 0, f"{service.name} to run on", service)  # raises with the end of its log

    def environment(self, port: int, keys: dict[str, str]) -> dict[str, str]:
        """Return the complete environment of Airflow's processes; all of Airflow's settings are in it."""
        settings = {
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__PARALLELISM": "4",
            "CORE__LOAD_EXAMPLES": "False",
            # On a slow machine an import takes longer than Airflow allows; the process that imports must have more.
            "CORE__DAGBAG_IMPORT_TIMEOUT": "300",
            "DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "400",
            "CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
            "CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
            "CORE__EXECUTION_API_SERVER_URL": f"http://{HOST}:{port}/execution/",
            "CORE__FERNET_KEY": keys["fernet_key"],
            # The default asks the name service, which may be slow or absent.
            "CORE__HOSTNAME_CALLABLE": "socket.gethostname",
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self._home / "passwords.json"),
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self._home / 'airflow.db'}",
            "LOGGING__BASE_LOG_FOLDER": str(self._home / "logs"),
            "API__HOST": HOST,
            "API__PORT": str(port),
            "API__BASE_URL": f"http://{HOST}:{port}",
            "API__WORKERS": "1",
            "API__SECRET_KEY": keys["api_secret"],
            "API_AUTH__JWT_SECRET": keys["jwt_secret"],
            # A changed DAG shows after seconds, not after five minutes.
            "DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "2",
            "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            # With two cores and a Spark job, five seconds for an answer are too few.
            "WORKERS__EXECUTION_API_TIMEOUT": "30",
        }
        environment = {
            **self._base,
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
            "AIRFLOW_HOME": str(self._home),
            # As JSON: the URI form spark://local[2] would silently mean YARN.
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "AIRFLOW_CONN_KAFKA": json.dumps(
                {"conn_type": "kafka", "extra": {"bootstrap.servers": self._base["STATESTORE_BOOTSTRAP_SERVERS"]}}
            ),
            "STATESTORE_KAFKA_CONN_ID": "kafka",
        }
        if not self._schedules:
            environment |= {f"STATESTORE_{job}_SCHEDULE": "" for job in _SCHEDULED}
        return environment

    def _keys(self) -> dict[str, str]:
        path = self._home / "keys.json"
        if path.exists():
            keys: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        else:
            keys = {
                "password": secrets.token_urlsafe(12),
                "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
                "jwt_secret": secrets.token_urlsafe(48),
                "api_secret": secrets.token_urlsafe(32),
                "port": str(free_port()),
            }
        write_atomically(self._home / "passwords.json", json.dumps({USER: keys["password"]}), mode=_PRIVATE)
        return keys

    def _migrate(self, environment: dict[str, str]) -> None:
        self._begin_migration(environment)
        if (service := self._migration) is None:
            return
        try:
            wait_until(lambda: service.poll() is not None, _MIGRATE_S, "Airflow's database to be made", service)
            if service.returncode != 0:
                wait_until(lambda: False, 0, "Airflow's database to be made", service)
        finally:
            self._processes.stop_service(service)
            self._migration = None
        (self._home / _STAMP).write_text(_VERSION, encoding="utf-8")

    def _begin_migration(self, environment: dict[str, str]) -> None:
        """Make or upgrade the database, unless it is of this version; one that was half made is made anew."""
        stamp = self._home / _STAMP
        if self._migration is not None or (stamp.exists() and stamp.read_text(encoding="utf-8") == _VERSION):
            return
        if not stamp.exists():
            for path in self._home.glob("airflow.db*"):
                path.unlink()
        self._migration = self._run("db-migrate", ["db", "migrate"], environment)

    def _run(self, name: str, arguments: list[str], environment: dict[str, str]) -> ServiceProcess:
        log_path = self._installation.logs_dir / f"airflow-{name}.log"
        return self._processes.start(name, [sys.executable, "-m", "airflow", *arguments], environment, log_path)
