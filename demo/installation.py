"""One installation of the embedded default in one directory: Kafka, Airflow, stores, snapshots, reports and logs.

`make demo` has one in build/demo, `make up` one in build/up. Nothing of it lies elsewhere, so deleting the directory
deletes the installation. `exclusive` keeps two commands from working on one installation at the same time.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.processes import stop_run
from statestore.cli.spark_jvm import spark_jvm
from statestore.errors import LockedError

REPOSITORY = Path(__file__).resolve().parent.parent
# Settings of the user's shell that would lead the demo's Airflow or Spark elsewhere.
_FOREIGN = ("AIRFLOW_", "SPARK_", "PYSPARK_", "STATESTORE_", "PYTHONPATH", "PYTHONHOME")


class Installation:
    """The directories of one installation below `root`, and the environment of its processes.

    Parameters
    ----------
    archived
        True: snapshots of its stores are kept, in a directory.
    code_dir
        The user's own code, which its processes can import; made if it is not there, and never deleted.
    """

    def __init__(self, root: Path, *, archived: bool = False, code_dir: Path | None = None) -> None:
        self.root = root.absolute()
        self.code_dir = None if code_dir is None else code_dir.absolute()
        self.kafka_dir = self.root / "kafka"
        self.airflow_dir = self.root / "airflow"
        self.state_dir = self.root / "state"
        self.reports_dir = self.root / "reports"
        self.data_docs_dir = self.root / "data_docs"
        self.logs_dir = self.root / "logs"
        self.scratch_dir = self.root / "scratch"
        self.archive_dir = self.root / "archive" if archived else None

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Own the installation: nobody else works on it, and nothing of an earlier run that died is left.

        Raises
        ------
        LockedError
            If another process owns it.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise LockedError(
                    f"another command is using {self.root}: wait until it ends, then run this command again"
                ) from error
            yield

    def clear(self) -> None:
        """End what an earlier run left behind and delete all its files; only inside `exclusive`."""
        stop_run(self.root)
        for path in self.root.iterdir():
            if path.name == ".lock":
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def create(self) -> None:
        """Make the directories that are not there yet. They are the owner's alone: passwords and data lie in them."""
        for path in vars(self).values():
            if path is not None:
                path.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)

    def environment(self, bootstrap_servers: str) -> dict[str, str]:
        """Return the complete environment of the installation's processes, `STATESTORE_*` included."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        # Local services are spoken to directly, also where the user has a proxy.
        no_proxy = ",".join(filter(None, [inherited.get("NO_PROXY", inherited.get("no_proxy")), "127.0.0.1,localhost"]))
        return {
            **inherited,
            # spark-submit and python must be this environment's.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', os.defpath)}",
            "NO_PROXY": no_proxy,
            "no_proxy": no_proxy,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_SUBMIT_OPTS": spark_jvm(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.scratch_dir),
            "STATESTORE_JOBS_DIR": str(REPOSITORY / "jobs"),
            **self.settings(bootstrap_servers),
            **({} if self.code_dir is None else {"PYTHONPATH": str(self.code_dir)}),
        }

    def settings(self, bootstrap_servers: str) -> dict[str, str]:
        """Return the settings by which the command `statestore` works with the installation."""
        return {
            "STATESTORE_BOOTSTRAP_SERVERS": bootstrap_servers,
            "STATESTORE_STATE_DIR": str(self.state_dir),
            "STATESTORE_REPORTS_DIR": str(self.reports_dir),
            "STATESTORE_DATA_DOCS_DIR": str(self.data_docs_dir),
            **({} if self.archive_dir is None else {"STATESTORE_ARCHIVE": self.archive_dir.as_uri()}),
        }

    def exports(self, bootstrap_servers: str) -> list[str]:
        """Return the lines by which a shell has these settings, the command itself, and the user's own code."""
        lines = [f"export {name}={shlex.quote(value)}" for name, value in self.settings(bootstrap_servers).items()]
        lines.append(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH")
        if self.code_dir is not None:
            lines.append(f"export PYTHONPATH={shlex.quote(str(self.code_dir))}${{PYTHONPATH:+:$PYTHONPATH}}")
        return lines
