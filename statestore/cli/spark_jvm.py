"""What the JVM of a local Spark is told, so that jobs of seconds do not spend most of them on starting it.

Much of a short job's time goes into loading, checking and compiling some 15,000 classes. Java's class data sharing
keeps them in a file (JEP 350), which `demo/environment.sh` makes once for an environment; a JVM whose class path or
version differs does without it.
"""

from __future__ import annotations

import sys
from pathlib import Path

#: Spark's own variable for options of the JVM.
VARIABLE = "SPARK_SUBMIT_OPTS"
#: The file of this environment's classes.
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
#: Jobs of seconds: compiling them thoroughly costs more than it gains.
SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: A JVM that cannot use an archive warns of it on standard output, where programs expect other things.
SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def spark_jvm() -> str:
    """Return the options for short Spark jobs of this environment."""
    # A JVM that is told of a file that does not exist shares no classes at all, not even Java's own.
    return f"{SHORT} {SILENT} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else SHORT
