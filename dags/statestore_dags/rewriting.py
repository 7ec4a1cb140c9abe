"""The steps of DAG `rewrite`: the command `statestore rewrite`, first to show its plan, then to carry it out.

A restore to a point is the command `statestore restore --to`.

It runs in a process of its own: it loads the user's code, and Airflow's process must know neither Kafka nor RocksDB.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from statestore.audit import REQUESTED_BY
from statestore.config import load_settings
from statestore.environments import environment_of
from statestore.errors import InputError, RetryError
from statestore_dags.archive_connection import archive_connection, reports_access
from statestore_dags.arguments import Applications, Params, require_known_fields
from statestore_dags.auditing import requested_by
from statestore_dags.connections import kafka_connection
from statestore_dags.retrying import RETRIED, in_environment
from statestore_dags.suggestions import remember

if TYPE_CHECKING:
    from statestore.rewrite.journal import RewriteJournal

log = logging.getLogger(__name__)

#: By kind, the fields of the form that go with it, and the options that they are; those with a star must be filled in.
KINDS: Mapping[str, Mapping[str, str]] = {
    "reseed": {"*stores": "--store", "any_partitioner": "--partitioner=any"},
    "transform": {"stores": "--store", "*function": "--function", "format": "--format", "as_bytes": "--bytes"},
    "repartition": {"*to": "--to", "reads_from": "--reads-from", "any_partitioner": "--partitioner=any"},
    "clone": {
        "*to": "--to",
        "snapshot_set": "--set",
        "from_cluster": "--from-cluster",
        "reads_from": "--reads-from",
        "any_partitioner": "--partitioner=any",
    },
    "point": {"*point": "--to"},
    "undo": {"stores": "--store", "accept_loss": "--accept-loss"},
}
#: Kinds that replace the changelogs of an application that is there. Repeated, they would replace them once more.
_REPLACING: tuple[Literal["transform", "point", "undo"], ...] = ("transform", "point", "undo")
_FIELDS = {field.lstrip("*") for fields in KINDS.values() for field in fields}


def rewrite_arguments(params: Params, applications: Applications) -> list[str]:
    """Return the kind of rewrite that a form means, and the arguments of its command.

    Raises
    ------
    InputError
        If it names an application that is not defined, lacks a field, or has one that does not go with the kind. What
        is cloned from another Kafka cluster is not defined here.
    """
    kind, application = str(params.get("what")), str(params.get("application") or "").strip()
    if kind not in KINDS:
        raise InputError(f"what: expected {', '.join(KINDS)}, found {kind!r}")
    elsewhere = kind == "clone" and bool(params.get("from_cluster"))
    if application not in applications and not (elsewhere and application):
        known = ", ".join(sorted(applications))
        raise InputError(f"application: no {application!r} is defined; the applications are: {known}")
    options, found = KINDS[kind], [kind, "--application", application]
    if excess := [field for field in sorted(_FIELDS - {name.lstrip("*") for name in options}) if params.get(field)]:
        raise InputError(f"{', '.join(excess)}: not used by {kind}, leave blank")
    for name, option in options.items():
        field = name.lstrip("*")
        value = params.get(field)
        if not value and name != field:
            raise InputError(f"{field}: {kind} needs it")
        if isinstance(value, bool):
            found += [option] if value else []
        elif value:
            found += [text for one in (value if isinstance(value, list) else [value]) for text in (option, str(one))]
    return found


@task(task_id="plan", **RETRIED)
def plan_rewrite(params: Any = None, dag: Any = None, dag_run: Any = None, ti: Any = None) -> dict[str, Any]:
    """Check the form, and show what would be done; return the arguments, and the changelogs of the application."""
    from statestore.metastore.metastore import Metastore

    with in_environment(dag.dag_id) as environment, kafka_connection(), archive_connection(), reports_access():
        require_known_fields(dag_run.conf, dag.params)
        settings = load_settings()
        applications = environment.own(Metastore.of(settings).require_running().catalogue.definitions())
        remember(settings.reports_dir, applications)
        arguments = rewrite_arguments(params, applications)
        if (to := params.get("to")) is not None:
            environment.require([to])
        if environment_of(arguments[2]).name:  # what is cloned from another cluster may be another team's
            environment.require([arguments[2]])
        changelogs, begun = _changelogs(arguments), _begun(arguments)
        finishes = begun is not None and begun.topics.keys() <= set(changelogs.values())
        _run([*arguments, "--dry-run"])
    ti.xcom_push("summary", f"statestore {' '.join(_command(arguments))}")
    return {"arguments": arguments, "changelogs": changelogs, "finishes": finishes}


@task(task_id="rewrite")
def run_rewrite(
    planned: dict[str, Any], params: Any = None, dag: Any = None, dag_run: Any = None
) -> list[dict[str, Any]]:
    """Carry out what was planned; return a row for each store partition."""
    if params.get("dry_run"):
        raise AirflowSkipException("only the plan was asked for")
    arguments = planned["arguments"]
    with in_environment(dag.dag_id), kafka_connection(), archive_connection(), reports_access():
        if is_done(planned, _changelogs(arguments), begun=_begun(arguments) is not None):
            raise AirflowFailException(
                "an earlier attempt of this run, or somebody else, has replaced the changelogs of the stores since it "
                "was planned, so nothing is done again. `statestore verify` says whether the stores are healthy; if "
                "so, nothing is left to do"
            )
        content = _run([*arguments, "--yes"], requested_by(dag_run))
    return [
        {
            "label": f"{row['application']}/{row['store']}/{row['task']}",
            "health": "healthy",
            "headline": _headline(row),
            **row,
        }
        for row in content["rows"]
    ]


def _headline(row: Mapping[str, Any]) -> str:
    if "put_back" in row:
        return f"went back to {row['put_back'] or 'what its former changelog gives'}"
    return f"{row['rows']} rows, changelog up to offset {row['committed']}"


def is_done(planned: Mapping[str, Any], changelogs: Mapping[str, str], *, begun: bool) -> bool:
    """Tell whether what was planned has been done since; once more would replace the changelogs that it has made.

    Parameters
    ----------
    planned
        Of an interrupted rewrite, perhaps, whose changelogs the catalogue already had: then it `finishes` that.
    changelogs, begun
        As they are now: those of the application, and whether there is an interrupted rewrite.
    """
    return not begun and (planned.get("finishes", False) or changelogs != planned["changelogs"])


def _changelogs(arguments: Sequence[str]) -> dict[str, str]:
    """Return the changelogs of an application of which some are replaced, by store."""
    if arguments[0] not in _REPLACING:
        return {}
    from statestore.metastore.metastore import Metastore

    definition = Metastore.of(load_settings()).require_running().catalogue.entry(arguments[2]).definition
    return {store.name: store.changelog_of(definition.name) for store in definition.logged_stores}


def _begun(arguments: Sequence[str]) -> RewriteJournal | None:
    """Return the journal of an earlier attempt to replace changelogs that was interrupted; None: there is none."""
    from statestore.rewrite.journal import Rewrite, read_journal

    for kind in _REPLACING:
        if kind == arguments[0]:
            return read_journal(load_settings().state_dir, Rewrite(kind, arguments[2]))
    return None


def _command(arguments: Sequence[str]) -> list[str]:
    return ["restore", *arguments[1:]] if arguments[0] == "point" else ["rewrite", *arguments]


def _run(arguments: Sequence[str], by: str = "") -> dict[str, Any]:
    """Run the command, put what it prints into the log, and return what it says as JSON.

    Parameters
    ----------
    by
        User of the audit record.

    Raises
    ------
    InputError, RetryError, AirflowFailException
        If it fails, as its exit code says.
    """
    with TemporaryDirectory(prefix="statestore-rewrite-") as directory:
        said = Path(directory) / "said.json"
        command = [sys.executable, "-P", "-m", "statestore.cli", *_command(arguments), "--json", str(said)]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, REQUESTED_BY: by},
        ) as program:
            assert program.stdout is not None
            lines = []
            try:
                for line in program.stdout:
                    lines.append(line.rstrip())
                    log.info("%s", lines[-1])
            except BaseException:
                program.terminate()  # as any kill: the next attempt throws away or finishes what was begun
                raise
        last = lines[-1] if lines else "it said nothing"
        if program.returncode == InputError.exit_code:
            raise InputError(last)
        if program.returncode == RetryError.exit_code:
            raise RetryError(last)
        if program.returncode:
            raise AirflowFailException(
                f"`statestore {' '.join(_command(arguments)[:2])}` ended with {program.returncode}: {last}"
            )
        content: dict[str, Any] = json.loads(said.read_text())
        return content
