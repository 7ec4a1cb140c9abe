"""The directory in Spark itself that the executors of local-cluster work in: all of a machine's runs share it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from statestore.statedir.lock import locked_file

_WORK = Path(pyspark.__file__).parent / "work"
_WAIT_S = 500


@contextmanager
def alone_in_spark() -> Iterator[None]:
    """Keep other tests from local-cluster, and remove what its executors leave."""
    with locked_file(_WORK.with_name("work.lock"), _WAIT_S):
        before = set(_WORK.glob("*"))
        try:
            yield
        finally:
            for left in set(_WORK.glob("*")) - before:
                shutil.rmtree(left)
