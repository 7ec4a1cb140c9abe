"""How the command ends: its exit code, and what it says of an error to people and, with `--json`, to programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping

from statestore.errors import GiveUpError, InputError, NotJudgedError, RebuildError, RetryError, StateStoreError

#: What each exit code says. A job has one more, that of `RebuildError`: to the command it is damage like any other.
CODES: Mapping[int, str] = {
    0: "no damage found; the request was completed",
    1: (
        "damage found, part of the request failed, no such key, or snapshots differ; "
        "with a traceback, a bug: please report it"
    ),
    InputError.exit_code: (
        "cannot succeed until you correct something: options, definitions, application code, permissions, or disk space"
    ),
    RetryError.exit_code: (
        "try again later: a store is in use and cannot be read, a difference of a store in use is not confirmed, or "
        "Kafka or object storage does not answer"
    ),
    NotJudgedError.exit_code: (
        "a store was not judged, because it is not known what it is; describe it, or acknowledge it with "
        "`statestore partitions --acknowledge`"
    ),
    GiveUpError.exit_code: "fenced: a later run has taken over",
    10: "drill: a store partition was never proven restorable",
    11: "drill: a store partition was proven too long ago",
    12: "drill: a restore took too long",
    13: "drill: a restore began with a snapshot that was too old",
    14: "drill: a restored store could not be compared in full",
    130: "ended by Ctrl-C",
}


def exit_code(error: StateStoreError) -> int:
    """Exit code of a command that ends with this error."""
    return 1 if isinstance(error, RebuildError) else error.exit_code


def say_error(
    kind: str, message: str, code: int, *, retriable: bool = False, said: bool = False, evidence: str = ""
) -> None:
    """Say why the command ends, on standard error; with `--json` its last line is the same for programs.

    Parameters
    ----------
    said
        People have been told already.
    evidence
        Details for programs.
    """
    if not said:
        print(f"statestore: {kind}: {message}", file=sys.stderr, flush=True)
    if _json_asked_for():
        found = {"kind": kind, "message": message, "retriable": retriable, "exit_code": code}
        found |= {"evidence": evidence} if evidence else {}
        print(json.dumps(found, ensure_ascii=False), file=sys.stderr, flush=True)


def end_with(error: StateStoreError) -> int:
    """Say the error, and return the exit code."""
    code = exit_code(error)
    say_error(error.kind, str(error), code, retriable=isinstance(error, RetryError), evidence=error.evidence)
    return code


def errors() -> Iterator[type[StateStoreError]]:
    """Every error of the library, each before what is derived from it."""
    found: list[type[StateStoreError]] = [StateStoreError]
    while found:
        error = found.pop(0)
        yield error
        found = [each for each in error.__subclasses__() if each.__module__ == StateStoreError.__module__] + found


def _json_asked_for() -> bool:
    # Not from what was parsed: it is what could not be parsed that ends with an error, too.
    return any(argument == "--json" or argument.startswith("--json=") for argument in sys.argv[1:])
