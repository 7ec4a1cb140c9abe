"""Parts run in turn and keep their results; a red part stops no other, and a run that was ended is continued."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace

import psutil
import pytest

from tests.everything.conftest import Repository
from tests.everything.everything import Everything
from tests.everything.part import Part
from tests.everything.results import load_results
from tests.everything.running import run
from tests.everything.table import BEGIN, END
from tests.everything.tree import ROOT
from tests.integration.broker import wait_for


def part(name: str, script: str, paths: tuple[str, ...] = ("src",), deadline_s: int = 60) -> Part:
    return Part(name, ("sh", "-c", f"echo {name} >> calls; {script}"), paths, deadline_s=deadline_s)


class Run:
    """Runs of parts in a repository; each notes its name in the file `calls`."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        repository.write("docs/testing.md", f"{BEGIN}\n{END}\n")
        repository.write(".gitignore", "/build/\n/calls\n/results.json\n")
        self.told: list[str] = []

    def of(self, *parts: Part) -> Everything:
        root = self.repository.root
        files = {"results": root / "results.json", "document": root / "docs" / "testing.md"}
        return Everything(parts, 7, root / "build", **files, all_parts=parts, root=root, tell=self.told.append)

    def calls(self) -> list[str]:
        path = self.repository.root / "calls"
        calls = path.read_text().split() if path.exists() else []
        path.unlink(missing_ok=True)
        return calls

    def states(self, *parts: Part) -> list[str]:
        return [each.state for each in self.of(*parts).states()]


@pytest.fixture
def runs(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(repository.root)
    return Run(repository)


def test_what_is_green_is_not_run_again_until_its_files_change(runs: Run) -> None:
    parts = part("a", "true"), part("b", "true", ("docs",))
    assert runs.states(*parts) == ["stale", "stale"]
    assert runs.of(*parts).run()
    assert (runs.calls(), runs.states(*parts)) == (["a", "b"], ["green", "green"])
    assert runs.of(*parts).run()
    assert runs.calls() == []
    runs.repository.commit()
    assert runs.states(*parts) == ["green", "green"]
    runs.repository.write("src/a.py", "a = 2\n")
    assert runs.states(*parts) == ["stale", "green"]
    assert runs.of(*parts).run()
    assert runs.calls() == ["a"]


def test_another_command_is_another_test(runs: Run) -> None:
    assert runs.of(part("a", "true")).run()
    assert runs.states(part("a", ":")) == ["stale"]


def test_a_red_part_stops_no_other_and_is_run_again_after_what_is_stale(runs: Run) -> None:
    parts = part("a", "echo broken; exit 3"), part("b", "true"), part("c", "true", ("docs",))
    assert not runs.of(*parts).run()
    assert (runs.calls(), runs.states(*parts)) == (["a", "b", "c"], ["red", "green", "green"])
    told = "\n".join(runs.told)
    assert "a: RED, exit code 3, after 0 s" in told
    assert "broken\nRepeat it: sh -c 'echo a >> calls; echo broken; exit 3'\nWhole output: " in told
    assert (runs.repository.root / "build" / "a.log").read_text().endswith("\nbroken\n")
    assert load_results(runs.repository.root / "results.json")["a"].command.startswith("sh -c ")

    runs.repository.write("docs/more.md", "")
    assert not runs.of(*parts).run()
    assert runs.calls() == ["c", "a"]


def test_the_states_are_told_at_the_beginning_and_at_the_end(runs: Run) -> None:
    parts = part("first", "true"), part("b", "false"), part("c", "true", ("docs",))
    assert not runs.of(*parts).run()
    assert (
        runs.told[0]
        == "first  stale  no result\nb      stale  no result\nc      stale  no result\n0 green, 0 red, 3 stale"
    )
    assert runs.told[-1].splitlines()[0].startswith("first  green  green after 0 s on ")
    assert runs.told[-1].splitlines()[-1] == "2 green, 1 red, 0 stale"
    runs.told.clear()
    assert not runs.of(*parts).show()
    assert runs.told[-1].splitlines()[-1] == "2 green, 1 red, 0 stale"
    assert runs.of(*parts[::2]).show()


def test_the_document_shows_each_result(runs: Run) -> None:
    runs.of(part("a", "true"), part("b", "false")).run()
    text = (runs.repository.root / "docs" / "testing.md").read_text()
    assert "| a | green | 0 |" in text
    assert "| b | red | 0 |" in text


def test_a_result_is_not_kept_if_the_files_change_while_a_part_runs(runs: Run) -> None:
    parts = part("a", "echo >> src/a.py"), part("b", "true", ("docs",))
    assert not runs.of(*parts).run()
    assert (runs.calls(), runs.states(*parts)) == (["a", "b"], ["stale", "green"])
    assert "The files that a tests changed while it ran. Its result is not kept." in runs.told


def test_a_seed_is_part_of_the_command_and_not_of_what_is_tested(runs: Run) -> None:
    seeded = Part("a", ("sh", "-c", "echo {seed} >> calls"), ("src",))
    assert runs.of(seeded).run()
    assert replace(runs.of(seeded), seed=8).run()
    assert runs.calls() == ["7"]


def test_variables_of_make_are_not_passed_on(runs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ARGS", "MAKEFLAGS", "SEED"):
        monkeypatch.setenv(name, "set")
    monkeypatch.setenv("KEPT", "set")
    assert runs.of(part("a", "echo ${ARGS-} ${MAKEFLAGS-} ${SEED-} $KEPT >> calls")).run()
    assert runs.calls() == ["a", "set"]


def test_a_part_that_is_not_done_at_its_deadline_is_red_and_ends_with_all_that_it_started(runs: Run) -> None:
    script = "setsid sleep 300 & echo $! > build/child; sleep 300"
    late = part("late", script, deadline_s=2)
    ended = run(late, 7, runs.repository.root / "build" / "late.log", runs.repository.root / "build" / "work")
    assert ended.why == "not done after 2 s"
    child = int((runs.repository.root / "build" / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


INTERRUPTED: dict[str, Callable[[subprocess.Popen[bytes]], None]] = {
    "Ctrl-C": lambda process: process.send_signal(signal.SIGINT),
    "kill -9": lambda process: process.kill(),
}


@pytest.mark.parametrize("how", INTERRUPTED)
def test_a_run_that_was_ended_is_continued_with_the_unfinished_part(runs: Run, how: str) -> None:
    """A part waits for a file, which the first run never sees."""
    waiting = part("b", "until [ -e build/go ]; do sleep 0.1; done")
    parts = part("a", "false"), waiting, part("c", "true")
    program = runs.repository.write(
        "build/program.py",
        textwrap.dedent(f"""
            import signal
            from pathlib import Path
            from tests.everything.conftest import Repository
            from tests.everything.everything import Everything
            from tests.everything.part import Part

            signal.signal(signal.SIGINT, signal.default_int_handler)
            root = Path({str(runs.repository.root)!r})
            files = dict(results=root / "results.json", document=root / "docs" / "testing.md")
            parts = {[*parts]!r}
            Everything(parts, 7, root / "build", all_parts=parts, root=root, **files).run()
        """),
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (runs.repository.root / "build" / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, program], env=environment, stdout=log, stderr=log)
    calls = runs.repository.root / "calls"
    wait_for(lambda: calls.exists() and calls.read_text().split() == ["a", "b"], "the second part to run")
    INTERRUPTED[how](process)
    process.wait(60)
    assert (runs.calls(), runs.states(*parts)) == (["a", "b"], ["red", "stale", "stale"])

    runs.repository.write("build/go", "")
    assert not runs.of(*parts).run()
    assert (runs.calls(), runs.states(*parts)) == (["b", "c", "a"], ["red", "green", "green"])
