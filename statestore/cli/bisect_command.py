"""The command bisect: the first record after which the suite of a store no longer passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statestore import clock
from statestore.cli import options, output
from statestore.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from statestore.cli.selection import Chosen, PartitionSelection
    from statestore.definitions.application import ApplicationDefinition
    from statestore.partition.spec import StorePartitionSpec
    from statestore.rewrite.bisection import Bisected

_ONE_CHANGE = (
    "this is one change from pass to fail; if the suite passed and failed several times in between, there are others"
)


@options.with_target
def bisect(
    asked: PartitionSelection,
    suite: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Suite to run: name or file as in `expectations` of a store. If several stores have it, or none, say "
            "--store.",
        ),
    ],
    good: Annotated[str, typer.Option(metavar="TIME", help="Time at which the suite passes: ISO 8601, or ms.")],
    bad: Annotated[str, typer.Option(metavar="TIME", help="Time at which the suite fails, or now.")] = "now",
    scratch: Annotated[
        Path | None,
        typer.Option(help="Directory to build stores in. Default: one below --state-dir.", show_default=False),
    ] = None,
    run_bytes: options.RunBytes = options.RUN_BYTES,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Find the first changelog record after which a suite fails, and name its key, values, and input.

    The store is built as of offsets of its changelog, and the suite runs on each partition alone. Nothing is changed,
    and the application can run.
    """
    from statestore.archive.archive import archive_spec
    from statestore.cli.selection import choose
    from statestore.config import load_settings
    from statestore.rewrite.bisection import Bisection, BisectionSpec
    from statestore.rewrite.point_cut import end_at, require_commits
    from statestore.rewrite.staged_validation import SuiteProgram
    from statestore.statedir.scratch import default_scratch, scratch_directory

    if len(asked.applications) != 1:
        raise InputError("--application: expected one")
    options.require_writable(json=json)
    good_ms, bad_ms = _time("--good", good), None if bad == "now" else _time("--bad", bad)
    topics = asked.where.cluster.topics
    where = archive_spec(archive, archive_timeout_s, topics)
    chosen = choose(replace(asked, archive=where), topics, certain=True)
    definition, stores = _stores(chosen, suite)
    stores = [store.model_copy(update={"archive": where}) for store in stores]
    require_commits(topics, definition, stores, good_ms)
    place = default_scratch(asked.where.state_dir.absolute()) if scratch is None else scratch
    console = output.console(json)
    found: list[Bisected] = []
    with scratch_directory(place) as directory, SuiteProgram(directory) as program:
        settings = load_settings(
            bootstrap_servers=asked.where.cluster.servers,
            state_dir=directory,
            reports_dir=directory / "reports",
            data_docs_dir=directory / "data-docs",
            kafka_timeout_s=asked.where.cluster.timeout_s,
        )

        def passes(store: StorePartitionSpec) -> bool:
            verdict = program.run(definition, [store], settings, "bisect")
            if verdict.verdict not in ("passed", "failed"):
                raise InputError(f"{store.store_partition}: suite {suite} cannot be evaluated: {verdict.detail}")
            return verdict.verdict == "passed"

        for store in stores:
            end = None if bad_ms is None else end_at(topics, store, bad_ms) or 0
            spec = BisectionSpec(store, end_at(topics, store, good_ms), end, passes, directory, run_bytes)
            search = Bisection(spec)
            if search.fails_at_end():
                found.append(search.find())
    if not found:
        raise InputError(
            f"suite {suite} passes in each partition of {definition.name}/{stores[0].store.name} at --bad. A rule that "
            "only all partitions together break cannot be searched for"
        )
    for one in found:
        _show(console, one)
    times = [one.record.before_ms for one in found if one.record is not None and one.record.before_ms is not None]
    if times:
        restore = f"statestore restore --application {definition.name} --to {clock.iso(min(times))} --dry-run"
        output.say_next([(restore, "put the application back to just before it")], json)
    output.write_content(json, {"suite": suite, "rows": [_content(one) for one in found]})


def _time(option: str, text: str) -> int:
    try:
        return clock.ms_of(text)
    except ValueError as error:
        raise InputError(
            f"{option}: expected a time in ISO 8601 or ms, such as 2026-01-31T12:00:00+00:00, found {text!r}"
        ) from error


def _stores(chosen: Chosen, suite: str) -> tuple[ApplicationDefinition, list[StorePartitionSpec]]:
    """Return the partitions of the one store whose suite it is, with this suite."""
    if not chosen.defined:
        raise InputError(f"{', '.join(chosen.applications)} has no definition, so its stores have no suite")
    (definition,) = chosen.defined
    names = sorted(chosen.named) or [
        store.name for store in definition.stores if suite in (store.expectations, Path(store.expectations or "").stem)
    ]
    if len(names) != 1:
        which = f"found {', '.join(names)}" if names else "no store has it"
        raise InputError(f"--suite: expected the suite of one store of {definition.name}, {which}: say --store")
    found = [spec for spec in chosen.specs if spec.store.name == names[0] and spec.changelog is not None]
    if not found:
        raise InputError(f"{definition.name}/{names[0]} has no task yet, or is kept in memory")
    own = definition.store(names[0]).expectations
    said = own if own is not None and suite == Path(own).stem else suite
    stores = tuple(
        store.model_copy(update={"expectations": said}) if store.name == names[0] else store
        for store in definition.stores
    )
    specs = [spec.model_copy(update={"store": spec.store.model_copy(update={"expectations": said})}) for spec in found]
    return definition.model_copy(update={"stores": stores}), specs


def _show(console: Console, found: Bisected) -> None:
    from statestore.cli import tables

    name, record = found.store.store_partition, found.record
    if record is None:
        output.say(
            console,
            f"{name}: the suite passes at offset {found.passed - 1} of {found.store.partition}, and fails at "
            f"{found.failed - 1}. Compaction has removed records of the {found.failed - found.passed} offsets between, "
            f"so the first bad one is not known; {_ONE_CHANGE}",
        )
        return
    output.say(
        console, f"{name}: the suite fails from offset {record.offset} of {found.store.partition} on; {_ONE_CHANGE}"
    )
    rows: Sequence[tuple[str, Any]] = (
        ("key", record.key),
        ("old value", record.old),
        ("new value", record.new),
        ("timestamp", clock.iso(record.timestamp)),
        ("input offsets of its commit", record.inputs and f"{record.inputs[0]} to {record.inputs[1]}"),
        ("last of these with this key", record.input_record),
    )
    console.print(tables.table("first bad record", ("field", "value"), [(label, str(value)) for label, value in rows]))


def _content(found: Bisected) -> dict[str, Any]:
    record, store = found.record, found.store
    content: dict[str, Any] = {
        "application": store.application,
        "store": store.store.name,
        "task": str(store.task),
        "changelog": str(store.partition),
        "passes_at": found.passed - 1,
        "fails_at": found.failed - 1,
        "probes": found.probes,
        "record": None,
    }
    if record is not None:
        values = {name: value and value.hex() for name, value in (("old", record.old), ("new", record.new))}
        content["record"] = {**record._asdict(), **values, "key": record.key.hex()}
    return content
