"""The commands on suites of expectations: suggest."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from statestore.changelog.topics import Topics
from statestore.cli import options
from statestore.cli.choice import Asked, Chosen, choose
from statestore.durable import write_durably
from statestore.errors import InputError
from statestore.tasks.spec import StorePartitionSpec

#: The library knows no Spark, so what needs it is a program of its own.
_JOB = "jobs.suggest"
_LINES_SHOWN = 20

app = typer.Typer(
    help="Suites of expectations, by which stores are validated.", no_args_is_help=True, add_completion=False
)


@app.callback()
def _expectations() -> None:
    """Keep `suggest` a command of its own: an app of one command would be that command."""


@app.command()
@options.with_target
def suggest(
    asked: Asked,
    name: Annotated[str, typer.Argument(metavar="STORE", help="Name of a store of any kind that is on disk.")],
    out: Annotated[
        Path | None, typer.Option(help="Write the suite to this file, which must not be there yet.", show_default=False)
    ] = None,
) -> None:
    """Profile a store and propose a suite for it, as JSON to be read, changed and named in the store's definition.

    The store may be in use: it is read beside its owner. Spark is started on this machine for it.
    """
    if out is not None:
        _require_new(out)
    topics = Topics(asked.where.bootstrap_servers, asked.where.kafka_timeout_s)
    described = {text.partition(":")[0] for text in asked.stores}
    stores = asked.stores if name in described else (*asked.stores, name)
    specs = _specs(choose(replace(asked, stores=stores), topics), name)
    suite = _suggested(specs)
    if out is None:
        print(suite, end="", flush=True)
    else:
        write_durably(out, suite)
        print(
            f"statestore: a suite is in {out}; once it says what you mean, name it in the definition of "
            f"{specs[0].application}/{name}: `expectations: {out.absolute()}`",
            flush=True,
        )


def _require_new(out: Path) -> None:
    """Refuse a file that cannot be written later, before Spark is started for it."""
    if out.exists():
        raise InputError(f"--out: {out} is there already, and may have been changed by hand; name another file")
    there = next(path for path in out.absolute().parents if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"--out: {there} is no directory that can be written to; name another file")


def _specs(chosen: Chosen, name: str) -> list[StorePartitionSpec]:
    """Return the partitions of the store that are on disk."""
    chosen.require_known()
    specs = [spec for spec in chosen.specs if spec.store.name == name and not spec.is_global and spec.live.is_dir()]
    applications = sorted({spec.application for spec in specs})
    if len(applications) > 1:
        raise InputError(f"store {name} is one of {', '.join(applications)}: say which with --application")
    if not specs:
        problems = [item.store.problem for item in chosen.found if item.store.name == name and item.store.problem]
        raise InputError(f"store {name} cannot be read: {'; '.join(problems) or 'it is not on disk'}")
    return specs


def _suggested(specs: list[StorePartitionSpec]) -> str:
    first = specs[0]
    with tempfile.TemporaryDirectory(prefix="statestore-") as directory:
        written = Path(directory) / "suite.json"
        command = [
            *(sys.executable, "-P", "-m", _JOB),
            *("--state-dir", str(first.state_dir)),
            *("--application", first.application),
            *("--definition", first.store.model_dump_json()),
            *("--partitions", ",".join(str(spec.task.partition) for spec in specs)),
            *("--out", str(written)),
        ]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if ended.returncode:
            # Spark has much to say of itself: our own line, if there is one, and else the last of all.
            lines = ended.stdout.splitlines()
            ours = [line for line in lines if line.startswith("suggest: ")]
            print("\n".join(ours or lines[-_LINES_SHOWN:]), file=sys.stderr, flush=True)
            raise typer.Exit(ended.returncode if ended.returncode > 0 else 1)
        return written.read_text(encoding="utf-8")
