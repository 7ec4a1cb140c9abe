"""A pytest plugin that holds the tests against the catalogue of behaviours.

`@pytest.mark.behaviour("K14", "T3")` on a test, a class or a parameter says what it proves. An id that the catalogue
does not know ends the collection, so that a slip of the pen is no proof. `pytest --conformance` runs the marked tests
alone and prints where each id stands, and how many cases each composition of a store has; a run of the whole suite
checks the same at its end and prints what is violated. Runs of a part of the suite, or that were stopped early, say
nothing about an id and are not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.catalogue import Catalogue, CatalogueError, load_catalogue
from tests.conformance.coverage import Coverage, coverage
from tests.conformance.judging import Outcome, Result, Verdict, judge, worse
from tests.conformance.table import print_coverage, print_table, print_violations

_MARKER = "behaviour"
#: Under these names a worker of pytest-xdist hands its count, and the ids of all collected tests, to the controller.
_COVERAGE, _MARKED = "statestore-coverage", "statestore-marked"
#: Options that leave tests out, some of them before pytest tells of any that are deselected. So does a mark expression,
#: unless it is the suite's own. Ids whose tests it leaves out are not judged.
_SELECTING = ("deselect", "ignore", "ignore_glob", "keyword", "lf", "stepwise")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--conformance`, and the directory of the catalogue."""
    parser.addoption("--conformance", action="store_true", help="run the tests that prove a behaviour; print each id")
    parser.addini("conformance", "directory of behaviours.toml and pending.toml", default="tests/conformance")


def pytest_configure(config: pytest.Config) -> None:
    """Read the catalogue and start to record."""
    try:
        catalogue = load_catalogue(config.rootpath / str(config.getini("conformance")))
    except CatalogueError as error:
        raise pytest.UsageError(str(error)) from error
    config.pluginmanager.register(Conformance(config, catalogue), "conformance-recorder")


class Conformance:
    """What this run has found out about each id."""

    def __init__(self, config: pytest.Config, catalogue: Catalogue) -> None:
        self._alone = bool(config.getoption("--conformance"))
        self._whole = _is_whole(config)
        self._leaves_out_marked = bool(config.option.markexpr)
        self._catalogue = catalogue
        self._proves: dict[str, tuple[str, ...]] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._marked: set[str] = set()
        self._deselecting = False
        self._verdicts: list[Verdict] | None = None
        self._coverage: Coverage = {}
        if self._alone and not self._whole:
            raise pytest.UsageError("--conformance runs every marked test: leave out paths, -k, -m and the like")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Read the markers; under `--conformance` leave the unmarked tests out."""
        self._proves = {item.nodeid: ids for item in items if (ids := tuple(_ids(item)))}
        self._marked.update(name for ids in self._proves.values() for name in ids)
        for item in items:  # with pytest-xdist another process collects; what a case proves comes with its report
            item.user_properties.append((_MARKER, self._proves.get(item.nodeid, ())))
        unknown = [
            f"{case}: {name!r}"
            for case, ids in self._proves.items()
            for name in ids
            if name not in self._catalogue.behaviours
        ]
        if unknown:
            raise pytest.UsageError("\n".join(["ids that behaviours.toml does not have:", *unknown]))
        if self._alone:
            self._coverage = coverage(items)
            left_out = [item for item in items if item.nodeid not in self._proves]
            items[:] = [item for item in items if item.nodeid in self._proves]
            self._deselecting = True
            config.hook.pytest_deselected(items=left_out)
            self._deselecting = False

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Remember that a part of the suite was left out."""
        if items and not self._deselecting and not self._leaves_out_marked:
            self._whole = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record how a case ended: its body, or what went wrong before or after it."""
        case = report.nodeid
        ids = tuple(dict(report.user_properties).get(_MARKER, ()))
        if ids and (report.when == "call" or report.outcome != "passed"):
            self._proves[case] = ids
            self._outcomes[case] = worse(self._outcomes.get(case), _outcome(report))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Judge a whole run, and have it fail if an id is violated."""
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
        if hasattr(session.config, "workerinput"):  # a worker of pytest-xdist: its controller judges
            session.config.workeroutput.update({_COVERAGE: self._coverage, _MARKED: sorted(self._marked)})
            return
        if not (self._whole and ended) or session.shouldfail or session.shouldstop or session.config.option.collectonly:
            return
        results = [
            Result(name, case, outcome) for case, outcome in self._outcomes.items() for name in self._proves[case]
        ]
        left_out = self._marked if self._leaves_out_marked else set[str]()
        self._verdicts = judge(self._catalogue.behaviours, self._catalogue.pending, results, left_out)
        if exitstatus == pytest.ExitCode.OK and any(verdict.state.violated for verdict in self._verdicts):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker of pytest-xdist has collected: each collects all tests."""
        output = getattr(node, "workeroutput", {})
        self._coverage = output.get(_COVERAGE) or self._coverage
        self._marked.update(output.get(_MARKED, ()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, or only what is violated."""
        if self._verdicts is None:
            if self._alone:
                terminalreporter.write_line("conformance: not judged, because the run was not complete", red=True)
            return
        terminalreporter.section("conformance")
        if self._alone:
            print_table(self._catalogue, self._verdicts)
            print_coverage(self._coverage)
        print_violations(self._verdicts)


def _ids(item: pytest.Item) -> Iterator[str]:
    """Ids of all the markers of a test, each once."""
    seen: set[str] = set()
    for marker in item.iter_markers(_MARKER):
        if marker.kwargs or not marker.args:
            raise pytest.UsageError(f'{item.nodeid}: expected @pytest.mark.{_MARKER}("K14", ...), found {marker}')
        for name in marker.args:
            if name not in seen:
                seen.add(name)
                yield name


def _outcome(report: pytest.TestReport) -> Outcome:
    if hasattr(report, "wasxfail"):
        return Outcome.EXPECTED_TO_FAIL
    return Outcome(report.outcome)


def _is_whole(config: pytest.Config) -> bool:
    """Whether the command line asks for all of `testpaths` and for nothing less."""
    asked = _resolved(config.invocation_params.dir, config.args)
    if asked != _resolved(config.rootpath, config.getini("testpaths")):
        return False
    if config.option.markexpr not in ("", *_marks_of_every_run(config)):
        return False
    return not any(getattr(config.option, option, None) for option in _SELECTING)


def _marks_of_every_run(config: pytest.Config) -> list[str]:
    """Return what `-m` says in the suite's own `addopts`."""
    arguments = config.getini("addopts")
    return [value for name, value in pairwise(arguments) if name == "-m"]


def _resolved(directory: Path, names: Iterable[str]) -> set[Path]:
    return {(directory / name).resolve() for name in names}
