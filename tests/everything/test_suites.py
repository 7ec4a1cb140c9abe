"""Each test is in one part of one suite, and each part's hash covers what its tests import."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Set
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.everything.imports import imported
from tests.everything.suites import SUITES, named
from tests.everything.tree import ROOT, files

TEST_FILES = files([":(glob)tests/**/test_*.py"])
#: Where tests with these markers are: nowhere else would a suite run them.
PLACES = {"azure": "tests/archive/", "browser": "tests/ui/", "interop": "tests/interop/test_kafka_streams_compat"}


def running(test_file: str, markers: Set[str]) -> list[str]:
    """Return the names of the parts that run a test."""
    return [
        part.name
        for part in SUITES
        if part.runs_file(test_file) and Expression.compile(part.marks).evaluate(lambda name, **_: name in markers)
    ]


def marked(test_file: str) -> Iterator[frozenset[str]]:
    """Return all markers that a test of a file may have together."""
    special = [name for name, place in PLACES.items() if test_file.startswith(place)]
    long = [True] if test_file.startswith("tests/faults/long/") else [False, True]
    for is_long, is_read, other in product(long, [False, True], ["", *special]):
        chosen = {"long": is_long, "documents": is_read and not other, other: bool(other)}
        yield frozenset(name for name, there in chosen.items() if there)


def test_each_test_is_in_one_part_whatever_its_markers() -> None:
    cases = ((file, markers) for file in TEST_FILES for markers in marked(file))
    found = {(file, *sorted(markers)): running(file, markers) for file, markers in cases}
    assert {case: parts for case, parts in found.items() if len(parts) != 1} == {}


class Collected:
    """A plugin of pytest that prints each collected test with its markers."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        found = [
            (item.nodeid.partition("::")[0], [mark.name for mark in item.iter_markers()]) for item in session.items
        ]
        Path(session.config.option.collected).write_text(json.dumps(found))

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        parser.addoption("--collected")


@pytest.mark.long
def test_each_test_that_pytest_collects_is_in_one_part(tmp_path: Path) -> None:
    program = (
        "import sys, pytest; from tests.everything.test_suites import Collected;"
        "sys.exit(pytest.main(sys.argv[1:], plugins=[Collected()]))"
    )
    arguments = ["--collect-only", "-qq", "-m", "", "-p", "no:cacheprovider", f"--collected={tmp_path}/found"]
    command = [sys.executable, "-c", program, *arguments]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300, stdout=subprocess.DEVNULL)
    found = json.loads((tmp_path / "found").read_text())
    assert len(found) > 10_000
    parts = {(file, tuple(markers)): running(file, {*markers}) for file, markers in found}
    assert {test: names for test, names in parts.items() if len(names) != 1} == {}


@pytest.mark.parametrize("part", [part for part in SUITES if part.tests], ids=lambda part: part.name)
def test_the_hash_of_a_part_covers_all_that_its_tests_import(part) -> None:
    conftests = files([":(glob)tests/**/conftest.py"])
    run = [name for name in TEST_FILES if part.runs_file(name)]
    assert run
    used = {path for path in conftests if any(name.startswith(path.removesuffix("conftest.py")) for name in run)}
    modules = imported(ROOT / name for name in (*run, *used))
    assert sorted({str(path.relative_to(ROOT)) for path in modules} - {*part.files()}) == []


@pytest.mark.parametrize("part", SUITES, ids=lambda part: part.name)
def test_each_path_of_a_part_names_files_and_no_results(part) -> None:
    assert [path for path in part.scope if not files([path])] == []
    assert "tests/everything/results.json" not in part.files()


def test_a_change_of_documents_makes_only_the_suites_stale_that_read_them() -> None:
    documents = {name for name in files(["docs", ":(glob)*.md"]) if name.endswith(".md")}
    readers = {part.name for part in SUITES if documents & {*part.files()}}
    assert readers == {"documents", "docs", "packaging"}, "the wheel contains README.md"
    (packaging,) = named(["packaging"])
    assert documents & {*packaging.files()} == {"README.md"}


def test_tests_that_read_documents_are_marked() -> None:
    readers = {"DOCS", "DOCUMENTS", "blocks", "text_of", "to_run"}
    unmarked = []
    for name in TEST_FILES:
        text = (ROOT / name).read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line.startswith(("from tests.documents import", "DOCUMENT"))]
        if any(reader in line for line in lines for reader in readers) and "mark.documents" not in text:
            unmarked.append(name)
    assert unmarked == []


def test_documents_are_read_by_the_functions_that_are_checked_for() -> None:
    reading = ('ROOT / "docs', 'REPOSITORY / "docs', '[2] / "docs', 'ROOT / "README', 'REPOSITORY / "README')
    allowed = {"tests/documents.py", "tests/interop/compatibility.py", "tests/everything/test_suites.py"}
    found = [name for name in files(["tests/*.py"]) if any(part in (ROOT / name).read_text() for part in reading)]
    assert {*found} - allowed == set()


def test_each_module_that_mutants_are_planted_in_is_in_one_part() -> None:
    planted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]["only_mutate"]
    rooms = [room for part in named(["mutants"]) for room in re.findall(r"'statestore\.(\w+)\.\*'", part.command[-1])]
    assert sorted(rooms) == sorted({path.split("/")[1] for path in planted})


def test_suites_and_parts_are_named_and_nothing_else() -> None:
    assert [part.name for part in named(["ui/long", "spark"])] == ["spark/a-r", "spark/s-z", "ui/long"]
    assert named([""]) == [*SUITES]
    with pytest.raises(ValueError, match=r"unknown: sparkle\. Expected some of: archive-azure, "):
        named(["sparkle"])
