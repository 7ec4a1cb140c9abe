"""`make recording`: damage stores, verify and restore them on a real Kafka, and draw the session for the documentation.

The stores are those of the sample application, with all flights processed. Each command runs in a pseudo-terminal, and
its standard output is drawn unchanged. Standard error, where the commands show their progress, is left out. The
directory of the installation is mounted as /srv for the commands, so that no path of this machine is shown.
"""

from __future__ import annotations

import os
import pty
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from demo.console import console, run
from demo.flights import produce_flights
from demo.installation import REPOSITORY, Installation
from demo.kafka import Kafka
from demo.machine import Machine
from demo.processes import Processes, ServiceError
from demo.registering import DEFINITION, register
from demo.terminal_svg import Command, draw
from statestore.durable import write_atomically
from statestore.metastore.definition_files import load_definitions

ROOT = REPOSITORY / "build" / "recording"
PICTURE = REPOSITORY / "docs" / "pictures" / "recording.svg"
_COLUMNS = 120
_STORE = "--application flight-delays --store aircraft"
#: A mount point that each Linux has. The commands have a mount namespace of their own.
_MOUNTED = "/srv"
_ENTER = 'mount --bind "$0" "$1" && cd "$1" && exec bash -c "$2"'


def main() -> int:
    """Record the session; return the exit code."""
    installation = Installation(ROOT)
    with installation.exclusive():
        installation.clear()
        installation.create()
        with Processes(installation.root) as processes:
            console.print("Starting Kafka, and processing the flights ...")
            servers = Kafka(processes, installation.kafka_dir).start()
            produce_flights(servers, ROOT / "flights.json")
            register(processes, installation, servers)
            Machine(installation, servers, load_definitions(DEFINITION)["flight-delays"]).process()
            terminal = _Terminal(ROOT, installation.environment(servers))
            # The first restore of an installation compiles its loops.
            terminal.run(f"statestore restore {_STORE} --mode full --force")
            session = _session(terminal)
    write_atomically(
        PICTURE,
        draw(
            session,
            _COLUMNS,
            "Damage, verify, restore",
            "A store partition is deleted and another one is damaged. statestore verify finds both, statestore restore "
            "rebuilds them, and a deep verification finds all store partitions equal to their changelog.",
        ),
    )
    console.print(f"written: {PICTURE}", soft_wrap=True)
    return 0


def _session(terminal: _Terminal) -> list[Command]:
    stores = terminal.directory / "state" / "flight-delays"
    table = max((stores / "0_1" / "rocksdb" / "aircraft").glob("*.sst"), key=lambda file: file.stat().st_size)
    damaged = table.relative_to(terminal.directory)
    return [
        Command("# lose one store partition, and damage another one"),
        terminal.run("rm -r state/flight-delays/0_0/rocksdb/aircraft"),
        terminal.run(f"echo damage | dd of={damaged} bs=1 seek=5000 conv=notrunc status=none"),
        terminal.run(f"statestore verify {_STORE}", expected=1),
        terminal.run(f"statestore restore {_STORE}"),
        terminal.run(f"statestore verify {_STORE} --depth deep"),
    ]


class _Terminal:
    """A terminal in the directory of an installation."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self._environment = {
            **environment,
            "STATESTORE_STATE_DIR": f"{_MOUNTED}/state",
            "TERM": "xterm-256color",
            "COLUMNS": str(_COLUMNS),
            "LINES": "50",
        }

    def run(self, text: str, *, expected: int = 0) -> Command:
        """Run a command and return it with what the terminal showed.

        Raises
        ------
        ServiceError
            If its exit code is not the expected one, or this machine permits no mount namespace.
        """
        console.print(f"$ {text}", markup=False, soft_wrap=True)
        ours, its = pty.openpty()
        began_s = time.monotonic()
        process = subprocess.Popen(
            ["unshare", "--map-root-user", "--mount", "bash", "-c", _ENTER, str(self.directory), _MOUNTED, text],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=its,
            stderr=subprocess.PIPE,
        )
        os.close(its)
        try:
            output = b"".join(iter(lambda: _read(ours), b"")).decode()
        finally:
            os.close(ours)
        _, progress = process.communicate()
        seconds = time.monotonic() - began_s
        if process.returncode != expected:
            said = output + progress.decode()
            raise ServiceError(f"`{text}` ended with {process.returncode}, expected {expected}: {said}")
        return Command(text, output, seconds)


def _read(terminal: int) -> bytes:
    """Return what a terminal shows next; nothing once its last process has ended."""
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux says so of a terminal that no process has open
        return b""


if __name__ == "__main__":
    run(main)
