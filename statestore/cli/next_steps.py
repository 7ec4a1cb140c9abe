"""What is left to do after a command, as commands that can be typed as they are (`output.say_next`)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from statestore.objects.path import Location
from statestore.packages import installation_of

if TYPE_CHECKING:
    from pathlib import Path

    from statestore.cli.selection import Chosen
    from statestore.reports import ProcessRow, RestorePlanRow, RestoreRow, VerifyRow

#: A command, and what it does.
Step = tuple[str, str]

#: As many store partitions are named one by one.
_LABELS = 5
#: Options that say where everything is: they hold for the next command as well.
_PLACE = ("--state-dir", "--bootstrap-servers", "--service-id", "--metastore-backup", "--kafka-timeout-s")
#: Options of commands that select stores, which no other commands have.
_SELECTING = (*_PLACE, "--definitions", "--changelog", "--retention", "--shapes", "--here-only", "--at-least-once")
_FLAGS = frozenset({"--here-only", "--at-least-once"})


def again(*, without: str | None = None) -> str:
    """Return the command that runs now, without one of its flags."""
    return shlex.join(["statestore", *(each for each in sys.argv[1:] if each != without)])


def after_verify(rows: Sequence[VerifyRow], report: Location | None, *, named: bool = False) -> list[Step]:
    """Return what repairs what a verification found.

    Parameters
    ----------
    report
        Where its report is; None: nowhere.
    named
        Only stores that were named were verified.
    """
    from statestore.reports import Action, Loss, Status

    mending = [row for row in rows if row.action in (Action.TAIL, Action.FULL)]
    steps: list[Step] = []
    if mending:
        labels = [row.label for row in mending]
        names = labels if named and len(labels) <= _LABELS else _of_applications(mending)
        which = [*names, *_carried(_SELECTING)]
        if not any(row.status.is_found_by_rows for row in mending):
            steps.append((_command("restore", *which), f"restore {_count(mending)}"))
        else:  # what only deep verification finds, a restore knows from the report
            found = "found.json" if report is None else str(report)
            if report is None:
                steps.append((_command("verify", *which, "--depth", "deep", "--json", found), "save the findings"))
            steps.append((_command("restore", *which, "--verify-report", found), f"restore {_count(mending)}"))
    lost = [row for row in rows if row.action is Action.BY_HAND and row.status is Status.REPLACED]
    for application, store in dict.fromkeys((row.application, row.store) for row in lost):
        which = ["--application", application, "--store", store, *_carried(_PLACE)]
        steps.append((_command("rewrite", "reseed", *which, "--dry-run"), "plan a new changelog from the store"))
    losing = [row for row in rows if row.action is Action.BY_HAND and row.loss is Loss.LIKELY and row not in lost]
    if losing:
        labels = [row.label for row in losing]
        which = labels if len(labels) <= _LABELS else _of_applications(losing)
        plan = _command("restore", *which, *_carried(_SELECTING), "--dry-run")
        steps.append((plan, f"see why {_count(losing)} cannot be rebuilt without loss; nothing is changed"))
    if any(row.action is Action.LATER for row in rows):
        steps.append((again(), "verify the stores that are in use, once they are released"))
    return steps


def after_plan(rows: Sequence[RestorePlanRow]) -> list[Step]:
    """Return what carries out the plan of a restore."""
    planned = [row for row in rows if row.mode is not None and row.failure is None]
    return [(again(without="--dry-run"), f"restore {_count(planned)}")] if planned else []


def after_restore(
    rows: Sequence[RestoreRow], chosen: Chosen, report: Location | None, target: Path | None
) -> list[Step]:
    """Return what judges restored stores, or restores those that failed only for now.

    Parameters
    ----------
    report
        Report that `validate` can go by; None: there is none.
    target
        State directory of stores as of a point; None: the live ones were replaced.
    """
    restored = [row for row in rows if row.outcome == "restored"]
    steps: list[Step] = []
    if any(row.failure is not None and row.failure.retriable for row in rows):
        steps.append((again(), "retry what failed temporarily"))
    if target is not None:
        places = [*_carried([each for each in _SELECTING if each != "--state-dir"]), "--state-dir", str(target)]
        names = dict.fromkeys(f"{row.application}/{row.store}" for row in restored)
        return [*steps, *((_command("read", name, *places), "read the store as it was") for name in names)]
    if not restored:
        return steps
    defined = {application.name for application in chosen.defined}
    if report is not None and all(row.application in defined for row in restored):
        places = _carried([*_PLACE, "--reports-dir", "--data-docs-dir"])
        judge = _command("validate", "--restore-report", str(report), *places)
        return [*steps, with_extra("validate", judge, f"validate {_count(restored)}")]
    check = _command("verify", *_of_applications(restored), *_carried(_SELECTING), "--depth", "deep")
    return [*steps, (check, f"compare {_count(restored)} with the changelog")]


def after_rollback(labels: Iterable[str]) -> list[Step]:
    """Return what tells how stores are that were put back."""
    names = list(labels)
    return (
        [(_command("verify", *names, *_carried(_SELECTING)), "verify the stores that were put back")] if names else []
    )


def after_process(rows: Sequence[ProcessRow]) -> list[Step]:
    """Return what processes what is left."""
    if any(row.failure is not None and row.failure.retriable for row in rows):
        return [(again(), "retry what failed temporarily")]
    return [(again(), "process the remaining records")] if any(row.lag for row in rows) else []


def with_extra(extra: str, command: str, what: str) -> Step:
    """Return a command that needs an extra; behind what installs it, where it is missing."""
    install = installation_of(extra)
    return (command, what) if install is None else (f"{install} && {command}", f"{what}; needs the extra {extra}")


def carried() -> str:
    """Return the options of this command that say where everything is, for a command that has the same."""
    return "".join(f" {shlex.quote(each)}" for each in _carried(_PLACE))


def _carried(names: Collection[str]) -> list[str]:
    found: list[str] = []
    arguments = sys.argv[1:]
    for at, argument in enumerate(arguments):
        name, equals, _ = argument.partition("=")
        if name in names:
            found.append(argument)
            if not equals and name not in _FLAGS:
                found += arguments[at + 1 : at + 2]
        elif name == "--store" and "--definitions" in names:
            text = argument if equals else "=".join([name, *arguments[at + 1 : at + 2]])
            found += [text] if ":" in text else []
    return found


def _of_applications(rows: Iterable[VerifyRow | RestoreRow]) -> list[str]:
    return [text for name in dict.fromkeys(row.application for row in rows) for text in ("--application", name)]


def _count(rows: Sequence[object]) -> str:
    return "1 store partition" if len(rows) == 1 else f"{len(rows)} store partitions"


def _command(*words: str) -> str:
    return shlex.join(["statestore", *words])
