"""The results file has one line for each part; a damaged one is refused. The document shows what it has."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.documents import text_of
from tests.everything.results import Result, ResultsError, load_results, save_results
from tests.everything.suites import SUITES
from tests.everything.table import BEGIN, END, for_document, write_document


def _result(part: str, **changed: object) -> Result:
    given = {
        "result": "green",
        "tree": "t",
        "commit": "c",
        "seconds": 1_234,
        "date": date(2026, 11, 29),
        "command": "x",
    }
    return Result.model_validate({"part": part, **given, **changed})


BOTH = {"docs": _result("docs"), "lint": _result("lint", result="red")}


def test_results_are_read_as_they_were_saved_one_line_each(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert load_results(path) == {}
    save_results({"lint": BOTH["lint"], "docs": BOTH["docs"]}, path)
    assert load_results(path) == BOTH
    assert [line[:15] for line in path.read_text().splitlines()] == ["[", '{"part":"docs",', '{"part":"lint",', "]"]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: "", "EOF"),
        (lambda text: text[:-9], "EOF"),
        (lambda text: text.replace("green", "blue"), "green"),
        (lambda text: text.replace('"lint"', '"docs"'), "twice"),
        (lambda text: text.replace('"tree":"t",', ""), "tree"),
    ],
)
def test_damaged_results_are_refused(tmp_path: Path, damage, why: str) -> None:
    path = tmp_path / "results.json"
    save_results(BOTH, path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(ResultsError, match=why) as refused:
        load_results(path)
    assert str(path) in str(refused.value)


def test_the_table_replaces_an_older_one(tmp_path: Path) -> None:
    document = tmp_path / "testing.md"
    document.write_text(f"before\n{BEGIN}\nolder\n{END}\nafter\n")
    parts = [part for part in SUITES if part.name in ("lint", "docs", "mutants/formats")]
    write_document(parts, BOTH, document)
    text = document.read_text()
    assert "| lint | red | 1,234 | 2026-11-29 | `c` | `t` |\n| docs | green |" in text
    assert "| mutants/formats | not run | | | | |\n" in text
    assert "older" not in text
    write_document(parts, BOTH, document)
    assert document.read_text() == text
    document.write_text("before")
    with pytest.raises(ResultsError, match="once each"):
        write_document(parts, BOTH, document)


@pytest.mark.documents
def test_the_page_shows_the_results_file() -> None:
    expected = f"{BEGIN}\n{for_document(SUITES, load_results())}\n{END}"
    assert expected in text_of("docs/testing.md"), 'run `make everything ARGS="--table"`'


def test_each_result_is_of_a_part_that_is_there() -> None:
    assert {*load_results()} - {part.name for part in SUITES} == set(), "delete the lines of other parts"
