"""The last known health of the metastore, for the page, which asks no Kafka.

<reports_dir>/metastore/degraded.json      {"reason": "..."}; no file: the last *plan* succeeded
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from statestore.errors import MetastoreDegradedError
from statestore.objects.path import TROUBLE, Location, write_whole

log = logging.getLogger(__name__)


@contextmanager
def health_told(reports_dir: Location) -> Iterator[None]:
    """Record whether the block finds the metastore DEGRADED; if that cannot be written, the page does not show it."""
    path = reports_dir / "metastore" / "degraded.json"
    try:
        yield
    except MetastoreDegradedError as error:
        _tell(path, str(error))
        raise
    _tell(path, None)


def _tell(path: Location, reason: str | None) -> None:
    try:
        if reason is not None:
            write_whole(path, json.dumps({"reason": reason}), durable=False)
        elif path.exists():
            path.unlink(missing_ok=True)
    except TROUBLE as error:
        log.warning("the health of the metastore could not be written for the page: %s", error)
