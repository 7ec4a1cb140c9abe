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

    from statestore.advice import Situation
    from statestore.cli.selection import Chosen
    from statestore.reports import Advice, ProcessRow, RestorePlanRow, RestoreRow, VerifyRow

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
    from statestore.advice import Situation

    groups: dict[tuple[str, str, str], list[VerifyRow]] = {}
    for row in rows:
        step = row.advice
        if step is not None and step.command is not None:
            what = step.situation if step.situation not in _RESTORED else Situation.DAMAGED
            one_store = what in _OF_ONE_STORE
            where = (row.application, row.store) if one_store else ("", "")
            groups.setdefault((what, *where), []).append(row)
    steps: list[Step] = []
    for (what, *_), group in groups.items():
        steps += _advised(Situation(what), group, report, named=named)
    return steps


#: Situations whose command names one store.
_OF_ONE_STORE = ("changelog recreated", "changelog missing", "reseed interrupted", "only a snapshot is left")
#: Situations that one `restore` repairs together.
_RESTORED = ("behind", "damaged", "rows differ", "snapshot has all")


def _advised(situation: Situation, rows: Sequence[VerifyRow], report: Location | None, *, named: bool) -> list[Step]:
    """Return the steps for store partitions in the same situation."""
    from statestore.advice import Situation, Target, advice

    if situation is Situation.ONLY_SNAPSHOT:  # each has its own
        return advised([row.advice for row in rows if row.advice is not None])
    if situation is not Situation.DAMAGED:
        return advised([advice(situation, *(Target(row.application, row.store, row.task) for row in rows))])
    labels = [row.label for row in rows]
    which = [*(labels if named and len(labels) <= _LABELS else _of_applications(rows)), *_carried(_SELECTING)]
    sentences = {row.advice.sentence for row in rows if row.advice is not None}
    what = sentences.pop() if len(sentences) == 1 else f"restore {_count(rows)}"
    if not any(row.status.is_found_by_rows for row in rows):
        return [(_command("restore", *which), what)]
    found = "found.json" if report is None else str(report)  # found only by deep verification
    step = (_command("restore", *which, "--verify-report", found), what)
    if report is not None:
        return [step]
    return [(_command("verify", *which, "--depth", "deep", "--json", found), "save the findings"), step]


def advised(advice: Sequence[Advice]) -> list[Step]:
    """Return the commands of advice, each once, with the options that say where everything is."""
    steps = {each.command: each.sentence for each in advice if each.command is not None}
    return [("; ".join(map(_with_place, command.split("; "))), sentence) for command, sentence in steps.items()]


def _with_place(command: str) -> str:
    """Add the options of this command that the other one has as well."""
    selects = command.startswith(("statestore restore", "statestore verify"))
    more = shlex.join(_carried(_SELECTING if selects else _PLACE))
    return f"{command} {more}" if more and command.startswith("statestore") else command


def after_plan(rows: Sequence[RestorePlanRow], plan: Location | None = None) -> list[Step]:
    """Return what carries out the plan of a restore.

    Parameters
    ----------
    plan
        File with the plan; None: nowhere.
    """
    planned = [row for row in rows if row.mode is not None and row.failure is None]
    if not planned:
        return []
    if plan is None or any(row.mode == "as-of" for row in planned):
        return [(again(without="--dry-run"), f"restore {_count(planned)}")]
    repeated = [each for each in _without_json(sys.argv[1:]) if each != "--dry-run"]
    return [(_command(*repeated, "--plan", str(plan)), f"restore {_count(planned)}, and do nothing bolder")]


def _without_json(arguments: Sequence[str]) -> list[str]:
    """Return arguments without the file of the report, which has the plan."""
    kept: list[str] = []
    for at, argument in enumerate(arguments):
        if argument != "--json" and not argument.startswith("--json=") and arguments[at - 1 : at] != ["--json"]:
            kept.append(argument)
    return kept


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
