"""The command warm: it brings the state directory of a Kafka Streams application up before the application starts.

It is no condition for the start: whatever it cannot do, the application restores by itself. So it ends with 0, unless
it is told that the application must not start without it.
"""

from __future__ import annotations

import re
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from statestore import clock
from statestore.cli import exit_codes, options, output
from statestore.cli.parameters import with_function
from statestore.errors import (
    InputError,
    NotJudgedError,
    RetryError,
    StateStoreError,
    UnknownApplicationError,
    of_os_error,
)
from statestore.model import TaskId

if TYPE_CHECKING:
    from statestore.cli.selection import Chosen, PartitionSelection
    from statestore.cli.warm_server import WarmState
    from statestore.discovery.store import DiscoveredStore
    from statestore.kafka.topics import Topics
    from statestore.recovery.warming import Warming, WarmRow

_SIGTERM_CODE = 128 + signal.SIGTERM
_BYTES = re.compile(r"(\d{1,18})(Ki|Mi|Gi|Ti)?")
#: Who has a task is an application that runs: it does not end soon.
_LOCK_WAIT_S = 1.0
_UNITS = {None: 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}


def _asked(
    *,
    application: Annotated[str, typer.Option(help="Name of the application (its application.id).", show_default=False)],
    state_dir: options.StateDir,
    bootstrap_servers: options.Servers = None,
    store: options.Stores = None,
    changelog: options.Changelogs = None,
    retention: options.Retentions = None,
    shapes: options.Shapes = None,
    at_least_once: options.AtLeastOnce = False,
    kafka_timeout_s: options.TimeoutS = 30.0,
) -> PartitionSelection:
    from statestore.cli.selection import PartitionSelection, Where

    return PartitionSelection(
        where=Where(options.cluster_of(bootstrap_servers, kafka_timeout_s), state_dir),
        applications=(application,),
        changelogs=tuple(changelog or ()),
        retentions=tuple(retention or ()),
        shapes=shapes,
        guarantee="at_least_once" if at_least_once else "exactly_once_v2",
        whole=True,
    ).naming(store or ())


class _Request(NamedTuple):
    tasks: frozenset[TaskId]
    max_bytes: int | None
    acceptable_lag: int
    kafka_streams: str | None
    archive: str | None
    archive_timeout_s: float


def warm(
    asked: PartitionSelection,
    parallel: options.Parallel,
    task: Annotated[
        list[str] | None,
        typer.Option(
            help="Warm this task, even if it has no directory here: 0_3, or APPLICATION/0_3 as in reports. May be "
            "repeated."
        ),
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="Also warm further tasks, as long as the stores of all of them fit into this number of bytes, such "
            "as 40Gi. Default: only tasks that have a directory here or are named with --task.",
            show_default=False,
        ),
    ] = None,
    acceptable_lag: Annotated[
        int, typer.Option(min=0, help="Skip stores that have at most this number of offsets left to read.")
    ] = 10_000,
    require: Annotated[
        bool, typer.Option("--require", help="Exit with a code other than 0 if a store is not warm.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Address on which to answer /ready and /progress over HTTP while warming. Without a host: loopback. "
            "Default: none.",
            show_default=False,
        ),
    ] = None,
    kafka_streams: options.KafkaStreams = None,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Bring the stores of a Kafka Streams application up to date before it starts on this state directory."""
    from statestore.cli import local_processes as local
    from statestore.cli.tables import show_warmed
    from statestore.cli.warm_server import WarmState, answering, parse_address
    from statestore.metrics.export import export_end
    from statestore.recovery.restore_metrics import of_warmed, progress_exported
    from statestore.recovery.warming import Warming

    started_ms = clock.now_ms()
    if asked.partitions:
        raise InputError("--store: tasks are warmed as a whole; name a task with --task, such as --task 0_3")
    request = _Request(
        frozenset(_task(text, asked.applications[0]) for text in task or ()),
        None if max_bytes is None else _bytes_of(max_bytes),
        acceptable_lag,
        kafka_streams,
        archive,
        archive_timeout_s,
    )
    address = None if listen is None else parse_address(listen)
    options.require_writable(json=json)
    rows: list[WarmRow] = []
    failure: StateStoreError | None = None
    with (
        local.forked_runner(parallel) as run,
        tempfile.TemporaryDirectory(prefix="statestore-") as name,
        ended_by_sigterm(),
    ):
        state = WarmState(Path(name))
        with answering(address, state):
            how = Warming(run, parallel, run_bytes, Path(name), f"warm-{started_ms}", request.acceptable_lag)
            try:
                with progress_exported("warm", Path(name)):
                    rows = _warmed(asked, request, how, state)
            except (StateStoreError, OSError) as error:
                failure = of_os_error(error) if isinstance(error, OSError) else error
            show_warmed(output.console(json), rows)
            report = {
                "application": asked.applications[0],
                "started_ms": started_ms,
                "finished_ms": clock.now_ms(),
                "failure": None if failure is None else {"kind": failure.kind, "message": str(failure)},
            }
            output.write_rows(json, rows, **report)
            state.phase = "ended"
        code = _exit_code(rows, failure)
        export_end("warm", asked.applications, code, of_warmed(rows))
    if failure is not None:
        print(f"statestore: warming failed, so the application restores the stores itself: {failure}", file=sys.stderr)
    raise typer.Exit(code if require else 0)


warm = with_function(_asked, warm)


def _task(text: str, application: str) -> TaskId:
    """Read a task id, also behind the names with which reports print it."""
    *names, task = text.split("/")
    if names and names[0] != application:
        raise InputError(f"--task: expected a task of {application}, found {text!r}")
    return TaskId.parse(task)


def _warmed(asked: PartitionSelection, request: _Request, how: Warming, state: WarmState) -> list[WarmRow]:
    from statestore.archive.archive import archive_spec
    from statestore.cli import known_stores
    from statestore.cli import restore_selection as restoring
    from statestore.cli.selection import choose
    from statestore.discovery.directories import tasks_in
    from statestore.recovery.warming import choose_tasks, plan_warming, task_sizes, warm_stores

    topics = asked.where.cluster.topics
    where = known_stores.reachable(archive_spec(request.archive, request.archive_timeout_s, topics))
    try:
        chosen = choose(replace(asked, archive=where), topics, certain=True)
    except UnknownApplicationError as error:
        if _is_new(asked, topics):  # nothing was ever logged: there is nothing to bring up
            print(f"statestore: {error}", file=sys.stderr)
            return []
        raise
    chosen.require_free()
    changes = {"archive": where, "lock_wait_s": _LOCK_WAIT_S}
    specs = [spec.model_copy(update=changes) for spec in chosen.specs if not spec.is_global]
    there = {spec.task for spec in specs}
    if unknown := sorted(request.tasks - there):
        known = ", ".join(map(str, sorted(there))) or "none"
        raise InputError(f"--task: {', '.join(map(str, unknown))} cannot be warmed; the tasks that can be are: {known}")
    here = tasks_in(asked.where.state_dir, asked.applications[0])
    sizes = dict.fromkeys(there, 0) if request.max_bytes is None else task_sizes(specs)
    tasks = choose_tasks(sizes, here, request.tasks, request.max_bytes, _ordinal())
    specs = [spec for spec in specs if spec.task in tasks]
    if not specs:
        _say_nothing_chosen(chosen, sizes, request)
        return _not_judged(chosen, None)
    stores = restoring.stores_to_restore(
        replace(chosen, specs=specs), topics, elsewhere=False, kafka_streams=request.kafka_streams
    )
    planned = plan_warming(stores, how)
    state.phase = "restoring"
    rows = warm_stores(stores, planned, _obstacles(chosen, tasks), how)
    known_stores.keep(chosen, asked.where.state_dir, rows)
    return [*rows, *_not_judged(chosen, tasks)]


def _obstacles(chosen: Chosen, tasks: Sequence[TaskId]) -> Mapping[TaskId, str]:
    """Return tasks of which a store cannot be made, so that Kafka Streams would discard the others, and why."""
    if not any(spec.exactly_once for spec in chosen.specs):
        return {}
    found: dict[TaskId, str] = {}
    for trouble in ("missing", "needed", "damaged", "unknown"):
        for store in chosen.troubled(trouble):
            for task in tasks:
                if _may_have(task, store) and task not in store.here:
                    found.setdefault(task, f"it is not known what its store {store.name} is: {store.problem}")
    return found


def _not_judged(chosen: Chosen, tasks: Sequence[TaskId] | None) -> list[WarmRow]:
    """Return a row for each unknown store of these tasks, or of all tasks if None."""
    from statestore.partition.spec import GLOBAL_TASK
    from statestore.recovery.warming import WarmRow

    rows = []
    for store in [*chosen.not_judged, *chosen.troubled("damaged"), *chosen.troubled("undetermined")]:
        if tasks is None:
            places = [str(task) for task in store.tasks] or ["-"]
        else:
            places = [str(task) for task in tasks if _may_have(task, store)]
            places += [] if store.tasks or store.changelog is not None else ["-"]
        rows += [WarmRow(store.application, store.name, at, "left", store.problem, judged=False) for at in places]
    return [row for row in rows if row.task != str(GLOBAL_TASK)]


def _may_have(task: TaskId, store: DiscoveredStore) -> bool:
    """Return whether a task has a store, or may have it: which sub-topology a store is of, no topic shows."""
    count = store.changelog.partitions or 0 if store.changelog is not None else 0
    return task in store.tasks if store.tasks else task.partition < count


def _is_new(asked: PartitionSelection, topics: Topics) -> bool:
    """Tell whether Kafka answers, so that an application without a topic is one that never ran."""
    topics.cluster_id()
    return not asked.stores and asked.shapes is None


def _say_nothing_chosen(chosen: Chosen, sizes: Mapping[TaskId, int], request: _Request) -> None:
    for store in (*chosen.troubled("missing"), *chosen.troubled("needed"), *chosen.troubled("damaged")):
        print(f"statestore: {store.label} is left to the application: {store.problem}", file=sys.stderr)
    if not sizes:
        why = "no store is known well enough"
    elif request.max_bytes is None:
        why = "no task has a directory here, and none is named: add --task or --max-bytes"
    else:
        why = f"the smallest task has {min(sizes.values())} bytes, and --max-bytes is {request.max_bytes}"
    print(f"statestore: nothing is warmed: {why}", file=sys.stderr)


def _ordinal() -> int:
    """Return the number of the pod in its StatefulSet, which its host name ends with; else 0."""
    found = re.search(r"-(\d{1,6})$", socket.gethostname())
    return int(found[1]) if found else 0


def _bytes_of(text: str) -> int:
    found = _BYTES.fullmatch(text)
    if found is None:
        raise InputError(f"--max-bytes: expected a number of bytes, such as 500Mi or 40Gi, found {text!r}")
    return int(found[1]) << _UNITS[found[2]]


def _exit_code(rows: Sequence[WarmRow], failure: StateStoreError | None) -> int:
    if failure is not None:
        return exit_codes.exit_code(failure)
    left = [row for row in rows if row.outcome in ("left", "failed") and not row.retriable]
    if not left:
        return RetryError.exit_code if any(row.outcome in ("left", "failed") for row in rows) else 0
    waiting = {row.task for row in rows if not row.judged}
    not_judged = all(not row.judged or (row.outcome == "left" and row.task in waiting) for row in left)
    return NotJudgedError.exit_code if not_judged else 1


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """End on SIGTERM, which the first process of a container would not do by itself; what was begun is cleaned up."""

    def end(*_: object) -> None:
        raise SystemExit(_SIGTERM_CODE)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
