"""What DAG runs have left of the metastore for the page, which asks no Kafka.

    <reports_dir>/metastore/names.json      applications and stores of the catalogue (`statestore_dags/suggestions.py`)
    <reports_dir>/metastore/degraded.json   what is wrong with it (`statestore_dags/metastore_health.py`)

Before the first run there is neither.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from statestore.errors import StateStoreError
from statestore.objects.path import Location

T = TypeVar("T")


class Defined(NamedTuple):
    """Applications and stores of the catalogue, as a DAG run has found them (dags/statestore_dags/suggestions.py)."""

    stores: dict[str, list[str]]
    found_ms: int

    def has(self, application: str, store: str) -> bool:
        """Tell whether the catalogue had this store."""
        return store in self.stores.get(application, [])


def metastore_files(reports_dir: Location) -> dict[str, Location] | None:
    """Return the files by their names; None if object storage gives no answer. One listing says how old all are."""
    try:
        return {path.name: path for path in (reports_dir / "metastore").iterdir()}
    except StateStoreError:
        return None
    except OSError:
        return {}


class Changing(Generic[T]):
    """Reads a small file, and again only if it was written again."""

    def __init__(self, name: str, parse: Callable[[bytes, int], T]) -> None:
        self._name, self._parse = name, parse
        self._read: tuple[Location, int, int, T | None] | None = None

    def get(self, files: dict[str, Location] | None) -> T | None:
        """Return what the file says, or said before if object storage gives no answer; None if it is missing or torn.

        Parameters
        ----------
        files
            What `metastore_files` has returned.
        """
        path = None if files is None else files.get(self._name)
        try:
            if files is not None and path is None:
                self._read = None
            elif path is not None:
                stat = path.stat()
                known = path, stat.st_mtime_ns, stat.st_ctime_ns
                if self._read is None or self._read[:3] != known:
                    self._read = (*known, self._parsed(path.read_bytes(), stat.st_mtime_ns // 1_000_000))
        except StateStoreError:
            pass
        except OSError:
            self._read = None
        return None if self._read is None else self._read[3]

    def _parsed(self, content: bytes, written_ms: int) -> T | None:
        try:
            return self._parse(content, written_ms)
        except (ValueError, AttributeError, TypeError, KeyError):
            return None


def defined(content: bytes, written_ms: int) -> Defined:
    """Read `names.json`."""
    stores = {str(name): [str(store) for store in found] for name, found in json.loads(content).items()}
    return Defined(stores, written_ms)


def degraded(content: bytes, written_ms: int) -> dict[str, Any]:
    """Read `degraded.json`."""
    return {"reason": str(json.loads(content)["reason"]), "found_ms": written_ms}
