"""All suites that `make everything` runs, as data, in the order in which they run.

A test that is not in any part, or in two, fails tests/everything/test_suites.py. So does a module that a part's tests
import and that its paths do not name. Paths name also what is not imported: programs that tests start, and files that
they read.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.everything.part import Part

_MINUTE = 60


def _directories(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/{name}" for name in names)


def _faults(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/faults/long/test_{name}.py" for name in names)


LIBRARY = ("statestore", "pyproject.toml", "requirements")
ROOMS = (*LIBRARY, "jobs", "expectations", "demo")
AIRFLOW = (*ROOMS, "dags", "plugins")
#: Files that all tests use, and then files that tests of several directories use.
_PYTEST = (
    ":(glob)tests/*.py",
    ":(glob)tests/*.sha256",
    *_directories("session", "conformance", "oracle"),
    "demo",
    *LIBRARY,
)
_HELPERS = (*_PYTEST, *_directories("archive", "faults", "integration", "interop", "spark"), *ROOMS)
_IMAGE = ("deploy", "Dockerfile", "docker-compose.yml", ".dockerignore", ".env.example")
_DOCUMENTS = ("docs", ":(glob)*.md", "mkdocs.yml")
_WHOLE = (*AIRFLOW, *_IMAGE, "java", "benchmarks", "hatch_build.py", "tests")

_BENCHED = ("store", "process", "restore", "verify", "validate", "metastore", "page", "snapshot", "warm", "rewrite")
BENCHES = (*_BENCHED, "live")

#: What `make faults` runs, but for the tests that read documents.
LONG = "long and not browser and not azure and not interop and not documents"
_COMPATIBILITY = (
    "tests/interop/test_kafka_streams_compatibility.py",
    "tests/interop/test_kafka_streams_compatibility_transactional.py",
)


def _pytest(
    name: str,
    target: tuple[str, ...],
    marks: str,
    tests: tuple[str, ...],
    paths: Iterable[str],
    without: tuple[str, ...] = (),
) -> Part:
    """Return a part that a target of the Makefile runs, with other markers and files."""
    ignored = "".join(f" --ignore={file}" for file in without)
    files = "" if tests == ("tests",) else f" {' '.join(tests)}"
    command = (*target, f"ARGS=-m '{marks}'{ignored}{files}")
    return Part(name, command, tuple(dict.fromkeys((*_HELPERS, *paths))), tests, marks, without)


def _long(name: str, *tests: str, paths: Iterable[str] = (), without: tuple[str, ...] = ()) -> Part:
    """Return a part of `make faults`."""
    return _pytest(name, ("make", "faults", "SEED={seed}"), LONG, tests, paths, without)


def _mutants(name: str, *rooms: str) -> Part:
    """Return a part of `make mutants`, of some rooms of the library."""
    patterns = " ".join(f"'statestore.{room}.*'" for room in rooms)
    paths = (*_PYTEST, "jobs", "expectations", *_directories("mutants", "unit", "contract", "properties"))
    return Part(f"mutants/{name}", ("make", "mutants", f"ARGS=--fresh {patterns}"), paths, deadline_s=60 * _MINUTE)


def _bench(name: str) -> Part:
    return Part(f"bench/{name}", ("make", f"bench-{name}", "SCALE=small"), (*AIRFLOW, "benchmarks"))


SUITES: tuple[Part, ...] = (
    Part("lint", ("make", "lint"), ("*.py", "pyproject.toml", "requirements"), deadline_s=15 * _MINUTE),
    _pytest(
        "test",
        ("make", "test"),
        "not long and not browser and not azure and not interop and not documents",
        ("tests",),
        _WHOLE,
        without=_COMPATIBILITY,  # which interop/versions runs
    ),
    _long(
        "faults/unit",
        *_directories("unit", "properties", "archive", "everything"),
        paths=(*_directories("unit", "properties", "mutants", "everything"), "benchmarks", "tests/ui/made_reports.py"),
    ),
    _long("faults/contract", "tests/contract", paths=("tests/contract",)),
    _long("faults/integration-a-l", "tests/integration/test_[a-l]*.py"),
    _long("faults/integration-m", "tests/integration/test_m*.py"),
    _long("faults/integration-n-r", "tests/integration/test_[n-r]*.py"),
    _long("faults/integration-s-z", "tests/integration/test_[s-z]*.py"),
    _long("faults/processes", "tests/faults/test_*.py", paths=(*AIRFLOW, "tests/everything")),
    _long("faults/damage", *_faults("damage")),
    _long("faults/kills", *_faults("kills", "half_commits", "unlogged", "node_kills", "two_runs", "months_of_silence")),
    _long("faults/archive", *_faults("archive_*")),
    _long("faults/logs", *_faults("broker", "cut_logs", "log_reader_*", "metastore_*")),
    _long("faults/meeting", *_faults("features_meet", "detectors")),
    _long("faults/harness", *_faults("false_alarms", "harness", "soak")),
    _long("faults/spark", *_faults("masters", "spark", "write_kills")),
    Part(
        "interop/versions",
        ("make", "interop"),
        _HELPERS,
        _COMPATIBILITY,
        "interop or not interop",
        deadline_s=120 * _MINUTE,
    ),
    _long("interop/a-g", "tests/interop/test_kafka_streams_[a-g]*.py", without=_COMPATIBILITY),
    _long("interop/h-z", "tests/interop/test_kafka_streams_[h-z]*.py"),
    _long("spark/a-r", "tests/spark/test_[a-r]*.py"),
    _long("spark/s-z", "tests/spark/test_[s-z]*.py"),
    _long("dags", "tests/dags", paths=(*AIRFLOW, "tests/dags", "tests/ui/made_reports.py", "docker-compose.yml")),
    Part(
        "ui/browser",
        ("make", "ui"),
        (*_HELPERS, *AIRFLOW, *_directories("ui", "dags")),
        ("tests/ui",),
        "browser",
    ),
    _long("ui/long", "tests/ui", paths=(*AIRFLOW, *_directories("ui", "dags"))),
    _long("kubernetes", "tests/kubernetes", paths=(*AIRFLOW, *_IMAGE, "tests/kubernetes")),
    _long(
        "packaging",
        "tests/packaging",
        paths=(*AIRFLOW, *_IMAGE, *_directories("packaging", "kubernetes", "dags"), "hatch_build.py", "README.md"),
    ),
    Part("archive-azure", ("make", "archive-azure"), (*_PYTEST, "tests/archive"), ("tests/archive",), "azure"),
    _pytest(
        "documents",
        ("make", "test"),
        "documents and not browser and not azure and not interop",
        ("tests",),
        (*_WHOLE, *_DOCUMENTS),
        without=_COMPATIBILITY,
    ),
    Part(
        "docs",
        ("make", "docs"),
        (*_DOCUMENTS, "requirements/docs.txt", "statestore", "jobs"),
        deadline_s=15 * _MINUTE,
    ),
    _mutants("formats", "formats", "kinds", "sst"),
    _mutants("plans", "changelog", "partition", "recovery", "requests"),
    _mutants("statedir", "statedir", "stores"),
    *map(_bench, BENCHES),
)

#: What `make soak` tests.
SOAK = (*LIBRARY, "demo", "java", *_directories("faults", "integration", "interop", "oracle"))


def named(names: Iterable[str]) -> list[Part]:
    """Return the parts of these names, or of suites of these names; all parts without names.

    Raises
    ------
    ValueError
        If a name is neither.
    """
    asked = [name for name in names if name]
    known = {part.name for part in SUITES} | {part.suite for part in SUITES}
    if unknown := sorted({*asked} - known):
        raise ValueError(f"unknown: {', '.join(unknown)}. Expected some of: {', '.join(sorted(known))}")
    return [part for part in SUITES if part.is_named(asked)]
