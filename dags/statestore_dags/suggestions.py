"""Names that forms suggest: the applications and stores that the last run found in the catalogue.

    <reports_dir>/metastore/names.json      {"<application>": ["<store>", ...], ...}

Kafka is not asked while a DAG file is parsed, so a form may be behind the catalogue; *plan* checks what was chosen.
Without the file, or with one that cannot be read, a form suggests nothing; nor if it lies in object storage, which
is not asked either. A field of one name takes any name; one of
several offers what is known and nothing else, and other names can be written into the form's JSON.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any

from statestore.definitions.application import ApplicationDefinition
from statestore.environments import active_environment
from statestore.objects.path import TROUBLE, Location, is_url, location, write_whole

log = logging.getLogger(__name__)


def _path(reports_dir: Location) -> Location:
    return reports_dir / "metastore" / "names.json"


def remember(reports_dir: Location, applications: Mapping[str, ApplicationDefinition]) -> None:
    """Keep the names for the forms; where they cannot be written, the forms suggest what they did before."""
    path = _path(reports_dir)
    before, environment = _read(path), active_environment()
    # Those of other environments stay as they are.
    names = {name: stores for name, stores in before.items() if not environment.has(name)}
    names |= {name: [store.name for store in found.stores] for name, found in applications.items()}
    if names == before:
        return
    try:
        write_whole(path, json.dumps(dict(sorted(names.items()))), durable=False)
    except TROUBLE as error:
        log.warning("names for the forms could not be written: %s", error)


def suggested_applications(*, without_definition: bool = False) -> dict[str, Any]:
    """Return what a form's field of one application adds to its schema.

    Parameters
    ----------
    without_definition
        Also suggest the Kafka Streams applications of the environment.
    """
    listed = active_environment().kafka_streams if without_definition else ()
    names = sorted({*_known(), *listed})
    return {"examples": names} if names else {}


def suggested_stores() -> dict[str, Any]:
    """Return what a form's field of stores adds to its schema."""
    names = sorted({store for stores in _known().values() for store in stores})
    return {"examples": names} if names else {}


def _known() -> dict[str, list[str]]:
    directory = os.environ.get("STATESTORE_REPORTS_DIR", "").strip()
    return active_environment().own(_read(_path(location(directory)))) if directory and not is_url(directory) else {}


def _read(path: Location) -> dict[str, list[str]]:
    try:
        found = json.loads(path.read_bytes())
    except (*TROUBLE, ValueError):
        return {}
    whole = isinstance(found, dict) and all(
        isinstance(stores, list) and all(isinstance(store, str) for store in stores) for stores in found.values()
    )
    return found if whole else {}
