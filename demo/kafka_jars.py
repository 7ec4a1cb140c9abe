"""The jars of the demo's Kafka: fetched once with PySpark's Ivy, cached outside the tree, checked at each use.

A committed file, `kafka_jars.sha256` for the broker, names every jar with its checksum. A directory of jars is complete
and right, or it is not there: the jars are retrieved beside it, compared, and renamed into place.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from demo.processes import Processes, ServiceError, ServiceProcess, wait_until
from statestore.errors import DiskSpaceError, InputError, RetryError

KAFKA_VERSION = "4.3.1"
_SCALA_VERSION = "2.13"
_ATTEMPTS = 3
_SILENT_S = 90  # Ivy prints while it works; longer silence means that the registry does not answer
_LOCK_S = 900
_STEP = re.compile(rb"^\s*(?:found |\[SUCCESSFUL \].*!)", re.MULTILINE)  # one per module resolved, one per jar fetched
_IVY = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="statestore" module="jars" revision="working"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{}
  </dependencies>
</ivy-module>
"""
_DEPENDENCY = '    <dependency org="{0}" name="{1}" rev="{2}" conf="default->default"/>'
#: A jar with a classifier is taken for one that has its dependencies in it.
_CLASSIFIED = """\
    <dependency org="{0}" name="{1}" rev="{2}" conf="default->default" transitive="false">
      <artifact name="{1}" type="{4}" ext="{4}" m:classifier="{3}"/>
    </dependency>"""


class DownloadError(RetryError):
    """Jars could not be fetched."""


@dataclass(frozen=True)
class JarSet:
    """Jars that are fetched, checked and cached together.

    Attributes
    ----------
    title
        What is fetched, with its version, for messages.
    directory
        Name of the set's directory in the cache.
    coordinates
        `group:artifact:version` of each artifact that is wanted; their dependencies come with them. Of
        `group:artifact:version:classifier` the one jar comes alone, and of
        `group:artifact:version:classifier:extension` a file of another type.
    checksums
        File with a line `<SHA-256>  <name>` for every jar, dependencies included.
    megabytes
        Size of all the jars.
    """

    title: str
    directory: str
    coordinates: tuple[str, ...]
    checksums: Traversable
    megabytes: int


KAFKA_JARS = JarSet(
    title=f"Kafka {KAFKA_VERSION}",
    directory=f"kafka-{KAFKA_VERSION}",
    coordinates=(f"org.apache.kafka:kafka_{_SCALA_VERSION}:{KAFKA_VERSION}",),
    checksums=files("demo").joinpath("kafka_jars.sha256"),
    megabytes=44,
)


def find_java() -> str:
    """Return the Java that PySpark would use, too: JAVA_HOME's, else the one on PATH.

    Raises
    ------
    InputError
        If there is none, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    needed = "Kafka and Spark need Java 17 or later"
    advice = "install one (Debian and Ubuntu: openjdk-17-jre-headless) and set JAVA_HOME or PATH to it"
    try:
        shown = subprocess.run(
            [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{needed}, but {java} cannot be run ({error}): {advice}") from error
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", shown.stderr)
    if version is None:
        raise InputError(f"{needed}, but {java} does not report its version: {shown.stderr.strip()[:500]}; {advice}")
    if int(version[1]) < 17:
        raise InputError(f"{needed}, but {java} is Java {version[1]}: {advice}")
    return java


def check_disk(path: Path, needed_gib: float, what: str) -> None:
    """Raise DiskSpaceError if the file system of `path` has less than `needed_gib` GiB free."""
    path.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path).free / 2**30
    if free < needed_gib:
        raise DiskSpaceError(
            f"{what} needs {needed_gib} GiB of free disk space at {path}, found {free:.1f}: free up disk space"
        )


def cache_dir(jar_set: JarSet = KAFKA_JARS) -> Path:
    """Directory of the cache: `$XDG_CACHE_HOME/statestore/<the set's directory>`, such as `kafka-<version>`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "statestore" / jar_set.directory


def expected_jars(jar_set: JarSet = KAFKA_JARS) -> dict[str, str]:
    """Read the committed checksums: SHA-256 by name."""
    lines = jar_set.checksums.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def damaged_jars(directory: Path, jar_set: JarSet = KAFKA_JARS) -> list[str]:
    """Return what is wrong with the jars in `directory`, one sentence each; empty if it is exactly what is expected."""
    expected = expected_jars(jar_set)
    found = {path.name: path for path in directory.glob("*")}
    problems = [f"{name} is not expected" for name in sorted(found.keys() - expected.keys())]
    for name, digest in expected.items():
        if name not in found:
            problems.append(f"{name} is missing")
            continue
        with found[name].open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != digest:
            problems.append(f"{name} has SHA-256 {actual[:12]}, expected {digest[:12]}")
    return problems


def fetch_jars(
    processes: Processes, java: str, log_path: Path, cache: Path | None = None, jar_set: JarSet = KAFKA_JARS
) -> Path:
    """Return the directory with the jars, all of them compared with their checksums; fetch them where needed.

    Parameters
    ----------
    log_path
        Where Ivy's output goes.
    cache
        `cache_dir(jar_set)` if None.

    Raises
    ------
    DownloadError
        If the registry cannot be reached, or what it has is not what is expected.
    DiskSpaceError
        If the cache's file system is full.
    """
    cache = cache or cache_dir(jar_set)
    jars = cache / "jars"
    check_disk(cache, 0.3, "the cache of Kafka's jars")
    with _locked(cache / "lock"):
        if not damaged_jars(jars, jar_set):
            return jars
        problems: list[str] = []
        for _ in range(_ATTEMPTS):
            with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as scratch:
                new = Path(scratch) / "jars"
                try:
                    _run_ivy(processes, java, jar_set, new, Path(scratch) / "ivy", log_path)
                    problems = damaged_jars(new, jar_set)
                except ServiceError as error:
                    problems = [str(error)]
                if not problems:
                    if jars.exists():
                        jars.rename(Path(scratch) / "damaged")
                    new.rename(jars)
                    return jars
    raise DownloadError(
        f"{jar_set.title} could not be fetched from Maven Central in {_ATTEMPTS} attempts: {'; '.join(problems)}."
        " Check the network (to set a proxy, use JAVA_TOOL_OPTIONS), and run this command again; Ivy's log is "
        f"{log_path}"
    )


def _run_ivy(processes: Processes, java: str, jar_set: JarSet, jars: Path, ivy_cache: Path, log_path: Path) -> None:
    ivy_cache.mkdir()
    module = ivy_cache / "ivy.xml"
    wanted = [coordinate.split(":") for coordinate in jar_set.coordinates]
    dependencies = [(_DEPENDENCY if len(parts) == 3 else _CLASSIFIED).format(*parts, "jar") for parts in wanted]
    module.write_text(_IVY.format("\n".join(dependencies)), encoding="utf-8")
    argv = [
        *(java, f"-Divy.default.ivy.user.dir={ivy_cache}", "-jar", str(pyspark_jar("ivy-*.jar"))),
        *("-ivy", str(module), "-confs", "default"),
        *("-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]", "-cache", str(ivy_cache)),
    ]
    log_path.unlink(missing_ok=True)
    service = processes.start("ivy", argv, os.environ, log_path)
    try:
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %")
        with Progress(*columns, TimeElapsedColumn()) as progress:
            _follow(service, progress, jar_set)
    finally:
        processes.stop_service(service)


def _follow(service: ServiceProcess, progress: Progress, jar_set: JarSet) -> None:
    label = f"Fetching {jar_set.title}, {jar_set.megabytes} MB"
    bar = progress.add_task(label, total=2 * len(expected_jars(jar_set)))
    size, changed = 0, time.monotonic()

    def ended() -> bool:
        nonlocal size, changed
        if (now := service.log_path.stat().st_size) != size:
            size, changed = now, time.monotonic()
            progress.update(bar, completed=len(_STEP.findall(service.log_path.read_bytes())))
        if time.monotonic() - changed > _SILENT_S:
            raise ServiceError(f"the registry sent nothing for {_SILENT_S} s")
        return service.poll() is not None

    wait_until(ended, 1_200, "Ivy to fetch Kafka's jars", poll_s=0.2)
    if service.returncode != 0:
        # Ivy names what it could not get on lines that begin so.
        text = service.log_path.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if re.search("error|unresolved|FAILED", line)]
        raise ServiceError(f"Ivy ended with exit code {service.returncode}: {' / '.join(lines[:4])[:600]}")


def pyspark_jar(pattern: str) -> Path:
    """Return the jar of that name pattern that PySpark ships."""
    jars = Path(str(files("pyspark"))) / "jars"
    found = sorted(jars.glob(pattern))
    if not found:
        raise InputError(f"expected PySpark's {pattern} in {jars}, found none: PySpark's installation is broken")
    return found[-1]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:

        def acquired() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        wait_until(acquired, _LOCK_S, f"another process to finish fetching Kafka's jars (it holds {path})")
        yield
