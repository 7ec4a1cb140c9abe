"""`make up`: start the demo's Kafka and Airflow and leave them running; data and password outlive `make down`.

Their jobs run the user's own code from the directory APPLICATIONS_DIR, by default `applications` in the checkout.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

from rich.table import Table

from demo.airflow import USER, Airflow
from demo.console import console, run
from demo.flights import produce_flights
from demo.installation import REPOSITORY, Installation
from demo.kafka import Kafka
from demo.processes import Processes, running, stop_run
from demo.registering import register
from statestore.durable import write_atomically
from statestore.errors import StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.metastore.metastore import Metastore

APPLICATION = "flight-delays"
UP = REPOSITORY / "build" / "up"
CODE = REPOSITORY / "applications"
_DAGS = ["metastore", "process", "verify", "restore", "validate"]
_PARSED_S = 120


def up() -> int:
    """Start Kafka and Airflow, unless they run already, and say where they are."""
    code_dir = Path(os.environ.get("APPLICATIONS_DIR") or CODE)
    installation = Installation(UP, archived=True, code_dir=code_dir)
    addresses = UP / "addresses.json"
    with installation.exclusive():
        services = running(UP)
        if services and all(services.values()) and addresses.exists():
            console.print("Kafka and Airflow are already running.")
            found = json.loads(addresses.read_text(encoding="utf-8"))
            if found.get("code_dir") != str(installation.code_dir):
                console.print(
                    f"They run code from {found.get('code_dir', 'no directory')}. To use code from "
                    f"{installation.code_dir}, run `make down` first, then `make up` again.",
                    style="yellow",
                    markup=False,
                    soft_wrap=True,
                )
                installation = Installation(UP, archived=True, code_dir=Path(found.get("code_dir", CODE)))
            _show(found, installation)
            return 0
        if dead := [name for name, alive in services.items() if not alive]:
            console.print(f"Restarting all services, because these have ended: {', '.join(dead)}.", soft_wrap=True)
        stop_run(UP)
        addresses.unlink(missing_ok=True)
        installation.create()
        with Processes(UP) as processes:
            console.print("Starting Kafka ...")
            servers = Kafka(processes, installation.kafka_dir).start()
            if not (UP / "flights.json").exists():
                console.print("Producing the demo's flights ...")
                produce_flights(servers, UP / "flights.json")
            _register(processes, installation, servers)
            console.print("Starting Airflow, which takes about half a minute ...")
            airflow = Airflow(processes, installation, servers)
            airflow.start().wait_for_dags(_DAGS, _PARSED_S)
            found = {
                "url": airflow.url,
                "password": airflow.password,
                "bootstrap_servers": servers,
                "code_dir": str(installation.code_dir),
            }
            addresses.touch(mode=0o600)
            addresses.write_text(json.dumps(found), encoding="utf-8")
            processes.leave_running()
        _show(found, installation)
    return 0


def _register(processes: Processes, installation: Installation, servers: str) -> None:
    """Register the sample application, unless the catalogue has it: somebody may have changed it since."""
    try:
        if APPLICATION in Metastore(Cluster(servers), "default").view().catalogue.applications:
            return
        console.print("Applying the demo's definition ...")
        console.print(register(processes, installation, servers), markup=False)
    except StateStoreError as error:
        # A metastore that takes no commands is mended while Kafka runs.
        console.print(str(error), style="yellow", markup=False, soft_wrap=True)


def _show(found: dict[str, str], installation: Installation) -> None:
    exports, file = installation.exports(found["bootstrap_servers"]), UP / "environment.sh"
    write_atomically(file, "\n".join(exports) + "\n")
    table = Table(show_header=False, box=None)
    for name, value in {
        "Airflow": found["url"],
        "user": USER,
        "password": found["password"],
        "Kafka": found["bootstrap_servers"],
        "your code": str(installation.code_dir),
        "files": str(UP),
        "to stop": "make down",
    }.items():
        table.add_row(name, value)
    console.print(table)
    lines = [
        f"To use it from a shell, `. {shlex.quote(str(file))}`, or:",
        *(f"  {line}" for line in exports),
        f"To create your own application: statestore init {shlex.quote(str(installation.code_dir))}",
    ]
    for line in lines:  # to be copied: not wrapped, and not coloured
        console.print(line, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    run(up)
