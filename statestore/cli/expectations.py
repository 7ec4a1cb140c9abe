"""The commands on suites of expectations: suggest."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statestore.cli import completion, options, output
from statestore.cli.programs import run_program
from statestore.durable import write_durably
from statestore.errors import InputError
from statestore.model import StoreSelector
from statestore.packages import require_extra

if TYPE_CHECKING:
    from statestore.cli.selection import Chosen, PartitionSelection
    from statestore.partition.spec import StorePartitionSpec

_JOB = "statestore_jobs.suggest"

app = typer.Typer(help="Propose expectation suites for `validate`.", no_args_is_help=True, add_completion=False)


@app.callback()
def _expectations() -> None:
    """Keep `suggest` a command of its own: an app of one command would be that command."""


@app.command()
@options.with_target
def suggest(
    asked: PartitionSelection,
    name: Annotated[
        str,
        typer.Argument(
            metavar="STORE", help="Name of a store of any kind that is on disk.", autocompletion=completion.stores
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write the suite to this file, which must not exist.", show_default=False)
    ] = None,
) -> None:
    """Profile a store and propose a suite, as JSON. Review it, and name it in the store's definition.

    The store may be in use. The command starts a local Spark session.
    """
    from statestore.cli.selection import choose

    require_extra("validate", "statestore expectations suggest")
    if out is not None:
        _require_new(out)
    topics = asked.where.cluster.topics
    specs = _specs(choose(asked.naming([name]), topics), StoreSelector.parse(name))
    suite = _suggested(specs)
    if out is None:
        print(suite, end="", flush=True)
    else:
        write_durably(out, suite)
        output.say(
            output.console(),
            f"statestore: wrote a suite to {out}. Review it, then name it in the definition of "
            f"{specs[0].application}/{specs[0].store.name}: `expectations: {out.absolute()}`",
        )


def _require_new(out: Path) -> None:
    """Refuse a file that cannot be written later, before Spark is started for it."""
    if out.exists():
        raise InputError(f"--out: {out} already exists, and may have been edited. Name another file")
    there = next(path for path in out.absolute().parents if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"--out: {there} is not a writable directory. Name another file")


def _specs(chosen: Chosen, wanted: StoreSelector) -> list[StorePartitionSpec]:
    """Return the partitions of the store that are on disk."""
    chosen.require_known()
    specs = [
        spec
        for spec in chosen.specs
        if wanted.selects(spec.store_partition) and not spec.is_global and spec.live.is_dir()
    ]
    applications = sorted({spec.application for spec in specs})
    if len(applications) > 1:
        raise InputError(
            f"applications {', '.join(applications)} each have a store {wanted}: name it as "
            f"{applications[0]}/{wanted.store}, or add --application"
        )
    if not specs:
        problems = [store.problem for store in chosen.discovered if store.name == wanted.store and store.problem]
        raise InputError(f"store {wanted} cannot be read: {'; '.join(problems) or 'it is not on disk'}")
    return specs


def _suggested(specs: list[StorePartitionSpec]) -> str:
    first = specs[0]
    with tempfile.TemporaryDirectory(prefix="statestore-") as directory:
        written = Path(directory) / "suite.json"
        arguments = [
            *("--state-dir", str(first.state_dir)),
            *("--application", first.application),
            *("--definition", first.store.model_dump_json()),
            *("--partitions", ",".join(str(spec.task.partition) for spec in specs)),
            *("--out", str(written)),
        ]
        run_program(_JOB, arguments)
        return written.read_text(encoding="utf-8")
