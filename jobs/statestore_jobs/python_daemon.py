"""A `pyspark.daemon` that loads this project before Spark forks its Python workers from it.

By itself, each worker would load numpy, pandas, pyarrow, numba and our compiled loops, which takes seconds. And Spark
invalidates Python's import caches in each Spark task: the directories of `pyspark.zip` and of a JAR on Python's path
are then read anew. Where pip has installed the same modules beside these archives, the archives are left out.

After each Spark task, a worker looks for cyclic garbage. In all that is loaded here, that takes a tenth of a second of
a core, so this is kept out of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

#: The setting of Spark that names this module.
SETTING = "spark.python.daemon.module"
#: With `false`, the workers of queries have the same environment as those of RDDs. Spark starts a daemon for each
#: environment, and this one takes seconds of a core.
SHARED = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"


def without_archives(path: Sequence[str]) -> list[str]:
    """Return Python's path without the archives that belong to the PySpark which is found on the rest of it."""
    rest = [place for place in path if not Path(place).is_file()]
    found = PathFinder.find_spec("pyspark", rest)
    if found is None or found.origin is None or PathFinder.find_spec("py4j", rest) is None:
        return list(path)
    installed = Path(found.origin).parent
    return [place for place in path if place in rest or not Path(place).is_relative_to(installed)]


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()  # it is filled again, from what is left
    import pandas as pd  # noqa: F401 (pyarrow does it when it makes its first array)
    from pyspark.daemon import manager

    import statestore.recovery.restore
    import statestore.tasks.stream_task  # noqa: F401
    import statestore_jobs.sources.register  # noqa: F401
    from statestore.compiled.loops import load_kept
    from statestore.garbage import keep_all

    load_kept()
    keep_all()
    manager()
