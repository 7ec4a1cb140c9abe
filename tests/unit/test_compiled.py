"""Compiled loops that are kept on disk: used again, and never when anything that they are made of has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from subprocess import PIPE

import pytest

_PARTS = """
from typing import NamedTuple
from statestore.compiled.loops import compiled

STEP = {step}

class {name}(NamedTuple):
    {fields}

@compiled
def inner(number):
    return number + {inner}
"""
_WHOLE = """
from __future__ import annotations
from statestore.compiled.loops import compiled
from parts import STEP, {name} as Place, inner

@compiled
def whole(number: int, place: Place) -> int:
    return 100 * behind(number) + 10 * STEP + place.one

@compiled
def behind(number):
    return inner(number)
"""
_RUN = """
from whole import Place, whole
print(whole(1, Place(one=4, two=5)), sum(whole.stats.cache_hits.values()))
"""


@pytest.mark.long
def test_what_is_kept_is_used_until_something_in_another_file_changes(tmp_path):
    parts = {"step": 2, "inner": 1, "name": "Place", "fields": "one: int; two: int"}

    def run(**changes):
        parts.update(changes)
        (tmp_path / "parts.py").write_text(_PARTS.format(**parts))
        (tmp_path / "whole.py").write_text(_WHOLE.format(**parts))
        # Without Python's own bytecode, which looks at a file's size and the second of its change alone.
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("NUMBA_CACHE_DIR", None)
        done = subprocess.run(
            [sys.executable, "-c", _RUN], env=environment, capture_output=True, text=True, timeout=120, check=True
        )
        value, hits = map(int, done.stdout.split())
        return value, hits > 0

    assert run() == (224, False)
    assert run() == (224, True)
    assert run(inner=2) == (324, False)
    assert run(step=3) == (334, False)
    assert run(fields="two: int; one: int") == (334, False)
    assert run() == (334, True)
    assert run(name="Spot") == (334, False)  # what was kept names a class that is gone
    assert run() == (334, True)


@pytest.mark.long
def test_of_processes_that_begin_together_one_compiles_and_the_others_load_what_it_kept(tmp_path):
    (tmp_path / "parts.py").write_text(_PARTS.format(step=2, inner=1, name="Place", fields="one: int; two: int"))
    (tmp_path / "whole.py").write_text(_WHOLE.format(name="Place"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)
    ready = "from whole import Place, whole\nprint('ready', flush=True)\ninput()\n"
    begun = [
        subprocess.Popen([sys.executable, "-c", ready + _RUN], env=environment, stdin=PIPE, stdout=PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.stdout.readline() for process in begun] == ["ready\n"] * 3
    for process in begun:
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=120)[0].split() for process in begun]
    assert [value for value, _ in said] == ["224"] * 3
    assert sorted(int(hits) > 0 for _, hits in said) == [False, True, True]
