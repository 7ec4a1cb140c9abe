"""The sample application comes into the catalogue as any other does: by the command `statestore apply`."""

from __future__ import annotations

import sys

from demo.installation import REPOSITORY, Installation
from demo.processes import Processes, wait_until

#: What is applied.
DEFINITION = REPOSITORY / "demo" / "definitions" / "flight-delays.yaml"
_APPLY_S = 120


def register(processes: Processes, installation: Installation, bootstrap_servers: str) -> str:
    """Apply the definition; where the catalogue has it already, nothing is done. Return what the command has printed.

    Raises
    ------
    ServiceError
        If it was refused, or took too long; the message ends with what the command has printed.
    """
    log_path = installation.logs_dir / "apply.log"
    log_path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "statestore.cli", "apply", str(DEFINITION), "--yes"]
    service = processes.start("apply", command, installation.environment(bootstrap_servers), log_path)
    try:
        wait_until(lambda: service.poll() == 0, _APPLY_S, f"{DEFINITION.name} to be applied", service)
    finally:
        processes.stop_service(service)
    return log_path.read_text(encoding="utf-8").rstrip()
