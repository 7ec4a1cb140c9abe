"""Plant all mutants that mutmut makes in the rules that data depends on, and say which of them no test notices.

    python -m tests.mutants               all, from the start; this is `make mutants`
    python -m tests.mutants PATTERN...    those whose mutmut name matches, such as 'statestore.statedir.seal.*'
    python -m tests.mutants --fresh PATTERN...    these from the start; they must be all mutants of some modules

What is changed and which tests run is in pyproject.toml under [tool.mutmut].
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import get_module_from_key, orig_function_and_class_names_from_key
from rich.console import Console
from rich.table import Table

from tests.mutants.survivors import LEAST_NOTICED, SURVIVORS_FILE, Mutant, Verdict, judge, load_reasons, reasons_of

_ROOT = Path(__file__).parents[2]
_PLANTED = _ROOT / "mutants"
_NOT_NOTICED = {"survived", "no tests"}
_NOTICED = {"killed", "timeout", "segfault"}
#: What a worker ends with that could not run its tests at all; mutmut calls it a timeout.
_COULD_NOT_RUN = 255
_FRESH = "--fresh"


def main(patterns: Sequence[str]) -> int:
    """Run the mutants and print what came of them."""
    started = time.monotonic()
    patterns, is_fresh = [pattern for pattern in patterns if pattern != _FRESH], _FRESH in patterns or not patterns
    reasons = reasons_of(load_reasons(), patterns)
    if is_fresh and _PLANTED.exists():  # mutmut would take over what it found out before the tests were changed
        shutil.rmtree(_PLANTED)
    _run(patterns)
    found = list(_mutants(patterns))
    _print_modules(found)
    verdict = judge(found, reasons)
    if not is_fresh:
        verdict = verdict._replace(stale=())  # most are of mutants that were not run
    _print_verdict(verdict, time.monotonic() - started)
    return 0 if verdict.passed else 1


def _run(patterns: Sequence[str]) -> None:
    _PLANTED.mkdir(exist_ok=True)  # Python looks no more into a directory of its path that was not there
    # Workers that are ended by a signal clean up nothing; the path is short, as sockets lie in it.
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        # Scripts that tests start find the changed code first, too.
        environment = {**os.environ, "TMPDIR": scratch, "PYTHONPATH": str(_PLANTED)}
        workers = str(len(os.sched_getaffinity(0)))
        mutmut = [sys.executable, "-P", str(Path(__file__).with_name("limited.py"))]
        subprocess.run([*mutmut, "run", "--max-children", workers, *patterns], env=environment, check=True)


def _mutants(patterns: Sequence[str]) -> Iterator[Mutant]:
    for path in sorted(walk_mutatable_files()):
        data = SourceFileMutationData(path=path)
        data.load()
        alike: Counter[str] = Counter()
        for key, exit_code in data.exit_code_by_key.items():
            status = "could not run" if exit_code == _COULD_NOT_RUN else status_by_exit_code[exit_code]
            name = _name(key, path)
            alike[name] += 1
            name = name if alike[name] == 1 else f"{name} #{alike[name]}"
            if patterns and not any(fnmatch(key, pattern) for pattern in patterns):
                continue
            if status not in _NOTICED | _NOT_NOTICED:
                raise SystemExit(f"{key}: {status}; see `mutmut show {key}`, and run it again")
            yield Mutant(str(path), name, status in _NOTICED)


def _name(key: str, path: Path) -> str:
    """Name a mutant by the function and the lines that it changes."""
    function, of_class = orig_function_and_class_names_from_key(key)
    place = ".".join(part for part in (get_module_from_key(key), of_class, function) if part)
    lines = get_diff_for_mutant(key, path=path).splitlines()[3:]  # behind the names of the files and of the hunk
    before, after = (" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return f"{place}: {before} => {after}"


def _print_modules(mutants: Sequence[Mutant]) -> None:
    table = Table("module", "mutants", "noticed", "survived")
    planted = Counter(mutant.module for mutant in mutants)
    noticed = Counter(mutant.module for mutant in mutants if mutant.noticed)
    for module, count in planted.items():
        table.add_row(module, str(count), str(noticed[module]), str(count - noticed[module]))
    Console().print(table)


def _print_verdict(verdict: Verdict, seconds: float) -> None:
    for title, names in (
        (f"Survived, and not argued in {SURVIVORS_FILE.relative_to(_ROOT)}", verdict.unargued),
        (f"Argued in {SURVIVORS_FILE.relative_to(_ROOT)}, and noticed or not there any more", verdict.stale),
    ):
        if names:
            print(f"{title}:", *(f"    '''{name}'''," for name in names), sep="\n")
    noticed = verdict.mutants - len(verdict.survivors)
    print(
        f"{verdict.mutants} mutants, {noticed} noticed ({verdict.share:.1%}, expected {LEAST_NOTICED:.0%} or more), "
        f"{len(verdict.survivors)} survived, of these {len(verdict.unargued)} without a reason; "
        f"{len(verdict.stale)} reasons are stale; {seconds / 60:.0f} minutes"
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
