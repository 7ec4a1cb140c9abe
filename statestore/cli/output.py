"""Where a command's results go: tables for people, JSON for programs, and what is asked before something is done."""

from __future__ import annotations

import inspect
import json as json_format
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, TextIO

import typer
from rich.console import Console
from rich.text import Text

from statestore.durable import write_durably
from statestore.errors import InputError
from statestore.objects.path import Location

if TYPE_CHECKING:
    from statestore.reports import DrillReport, RestorePlanReport, RestoreReport, SnapshotReport, VerifyReport

    Written = VerifyReport | RestoreReport | RestorePlanReport | SnapshotReport | DrillReport

#: `--json -`.
STANDARD_OUTPUT = Path("-")
_PIPE_COLUMNS = 240
_quiet = ContextVar("quiet", default=False)


def console(json: Path | None = None) -> Console:
    """Return where tables go: standard output, or standard error if JSON goes there.

    Without a terminal lines are long, since nobody scrolls a pipe sideways.
    """
    file = sys.stderr if json == STANDARD_OUTPUT else sys.stdout
    return Console(file=file, width=None if file.isatty() else _PIPE_COLUMNS, quiet=is_quiet())


def say_next(steps: Sequence[tuple[str, str]], json: Path | None = None) -> None:
    """Say on standard error which commands may follow, each with what it does.

    Nothing is said with --quiet, nor where a program reads the result from standard output.
    """
    if is_quiet() or json == STANDARD_OUTPUT or not steps:
        return
    if len(steps) == 1:
        print(f"Next: {steps[0][0]}  # {steps[0][1]}", file=sys.stderr, flush=True)
        return
    width = max(len(command) for command, _ in steps)
    lines = [f"  {command:{width}}  # {what}" for command, what in steps]
    print("Next:", *lines, sep="\n", file=sys.stderr, flush=True)


def is_quiet() -> bool:
    """Tell whether --quiet was said."""
    return _quiet.get()


def with_quiet(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option --quiet."""

    @wraps(command)
    def run(*, quiet: bool, **given: Any) -> None:
        before = _quiet.set(quiet)
        try:
            command(**given)
        finally:
            _quiet.reset(before)

    signature = inspect.signature(command, eval_str=True)
    said = Annotated[bool, typer.Option("--quiet", help="Print only warnings, errors, and the output of --json.")]
    option = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=said)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # type: ignore[attr-defined]
    return run


def say(console: Console, text: Text | str) -> None:
    """Print lines as they are: what is to be copied must not be broken."""
    console.print(text, soft_wrap=True, highlight=False, markup=False)


class RewritePlan(Protocol):
    """What every plan of a rewrite says of its cost."""

    @property
    def rows(self) -> int:
        """Rows that are written."""

    @property
    def bytes(self) -> int:
        """Bytes of their keys and values."""

    @property
    def seconds(self) -> float:
        """How long that may take."""

    @property
    def disk_needed(self) -> int:
        """Bytes that new stores need."""

    @property
    def disk_free(self) -> int:
        """Bytes that are free for them."""


def say_cost(console: Console, plan: RewritePlan, besides: str = "") -> None:
    """Say what a rewrite writes, how long that takes, with what comes on top, and which disk space it needs."""
    say(
        console,
        f"{plan.rows} records of {plan.bytes} bytes, about {plan.seconds:g} s{besides}; needs {plan.disk_needed} bytes "
        f"of disk, {plan.disk_free} are free",
    )


def state_dir(directory: Path) -> dict[str, str]:
    """Return the field of a report that names the state directory: the page shows reports of the live one only."""
    return {"state_dir": str(directory.absolute())}


def write_report(
    json: Path | None,
    reports_dir: Location | None,
    report: Written,
) -> None:
    """Write a report to the file or to standard output, and where those of the jobs are, if that is asked for."""
    from statestore import reports

    if json == STANDARD_OUTPUT:
        print(report.model_dump_json(indent=1), flush=True)
    elif json is not None:
        reports.write_report(json, report)
    if reports_dir is not None:
        reports.write_report(_kept_report(reports_dir, report), report)


def report_path(json: Path | None, reports_dir: Location | None, report: Written) -> Location | None:
    """Return where `write_report` has written a report; None: into no file."""
    if reports_dir is not None:
        return _kept_report(reports_dir, report)
    return None if json == STANDARD_OUTPUT else json


def _kept_report(reports_dir: Location, report: Written) -> Location:
    return reports_dir / report.job / f"{report.run_id}.json"


def write_rows(json: Path | None, rows: Iterable[NamedTuple], **head: Any) -> None:
    """Write rows likewise, by the names of their fields, behind what is said of all of them."""
    write_content(json, {**head, "rows": [row._asdict() for row in rows]})


def write_content(json: Path | None, content: dict[str, Any]) -> None:
    """Write what is no report of a job likewise."""
    text = json_format.dumps(content, ensure_ascii=False, indent=1)
    if json == STANDARD_OUTPUT:
        print(text, flush=True)
    elif json is not None:
        write_durably(json, text + "\n")


def write_lines(json: Path | None, head: dict[str, Any], rows: TextIO) -> None:
    """Write rows likewise that are lines of JSON in a file: there may be more of them than memory holds."""
    if json is None:
        return
    with ExitStack() as opened:
        partial = json.with_name(f".{json.name}.partial")
        out = sys.stdout if json == STANDARD_OUTPUT else opened.enter_context(partial.open("w", encoding="utf-8"))
        out.write(json_format.dumps(head, ensure_ascii=False, indent=1)[:-2] + ',\n "rows": [')
        rows.seek(0)
        for at, line in enumerate(rows):
            out.write(f"{',' if at else ''}\n  {line.rstrip()}")
        out.write("\n ]\n}\n")
        out.flush()
    if json != STANDARD_OUTPUT:
        partial.replace(json)


def on_terminal() -> bool:
    """Tell whether somebody is there to answer."""
    return sys.stdin.isatty()


def confirmed(question: str) -> bool:
    """Ask on the terminal; anything but yes is no."""
    return typer.confirm(question, default=False, err=True)


def require_yes(question: str, *, yes: bool, otherwise: str) -> None:
    """Go on only if the question is answered by yes: by the option, or on the terminal.

    Parameters
    ----------
    otherwise
        What was not done, for the error.

    Raises
    ------
    InputError
        If it is not.
    """
    if yes:
        return
    if not on_terminal():
        raise InputError(f"{otherwise}: there is no terminal to ask for confirmation. Add --yes")
    if not confirmed(question):
        raise InputError(f"{otherwise}: you did not confirm")
