"""Names for the shell's completion: applications and stores that have a directory. Kafka is not asked."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from statestore.errors import StateStoreError


def applications(context: typer.Context) -> list[str]:
    """Applications in the state directory."""
    from statestore.discovery.directories import applications_in

    try:
        return applications_in(_state_dir(context))
    except OSError:  # completion that cannot help says nothing
        return []


def stores(context: typer.Context) -> list[str]:
    """Stores of the applications that were named, or of all."""
    from statestore.discovery.directories import stores_in

    found: set[str] = set()
    said = context.params.get("application") or applications(context)
    for application in [said] if isinstance(said, str) else said:
        try:
            found |= {store.name for store in stores_in(_state_dir(context), application)[0]}
        except (OSError, StateStoreError):
            continue
    return sorted(found)


def _state_dir(context: typer.Context) -> Path:
    # A variable stands for an option that the command has, or has not.
    return Path(context.params.get("state_dir") or os.environ.get("STATESTORE_STATE_DIR") or os.devnull)
