"""What goes into the wheel besides packages: the files that lie beside them in the tree are put inside them.

`statestore/packages.py` finds them in both places.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_INSIDE = {
    "jobs/*.py": "statestore_jobs/programs",
    "dags/*.py": "statestore_dags/dags",
    "expectations/suites/*.json": "statestore_expectations/suites",
}


class WheelFiles(BuildHookInterface):
    """Adds the files to a wheel; an editable install has the tree."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name each file, and its place in the wheel."""
        if version != "standard":
            return
        for pattern, folder in _INSIDE.items():
            for file in sorted(Path(self.root).glob(pattern)):
                build_data["force_include"][str(file)] = f"{folder}/{file.name}"
