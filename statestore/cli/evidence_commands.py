"""The commands on the evidence of restore drills: verify, report, key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from statestore import clock
from statestore.cli import options, output
from statestore.cli.drill_command import EvidenceDir, evidence_place
from statestore.cli.parameters import with_function
from statestore.errors import InputError
from statestore.objects.path import location

if TYPE_CHECKING:
    from statestore.drills.chain import VerifiedChain
    from statestore.drills.evidence import Head

app = typer.Typer(
    help="Verify the signed evidence of restore drills, and write a page about it for an auditor.",
    no_args_is_help=True,
    add_completion=False,
)


class _Verified(NamedTuple):
    """A verified chain, and where its head is recorded."""

    application: str
    chain: VerifiedChain
    recorded: Head
    recorded_in: str


def _verified(
    *,
    application: Annotated[str, typer.Option(help="Name of an application (its application.id).", show_default=False)],
    public_key: Annotated[
        list[Path],
        typer.Option(help="File of a public key. May be repeated, if the key was replaced.", show_default=False),
    ],
    head: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH:SHA256",
            help="Head of the evidence as you have recorded it. Default: that of the command topic.",
            show_default=False,
        ),
    ] = None,
    evidence_dir: EvidenceDir = None,
    reports_dir: options.ReportsDir = None,
    bootstrap_servers: options.Servers = None,
    service_id: options.ServiceId = "default",
    kafka_timeout_s: options.TimeoutS = 30.0,
) -> _Verified:
    from statestore.drills.chain import Chain
    from statestore.drills.evidence import Head
    from statestore.drills.heads import recorded_head
    from statestore.drills.keys import public_key as read_key
    from statestore.metastore.metastore import Metastore

    keys = [read_key(path) for path in public_key]
    chain = Chain(evidence_place(None if reports_dir is None else location(reports_dir), evidence_dir), application)
    if head is not None:
        return _Verified(application, chain.verify(keys, Head.parse(head)), Head.parse(head), "the option --head")
    metastore = Metastore(options.cluster_of(bootstrap_servers, kafka_timeout_s), service_id)
    recorded = recorded_head(metastore.view().catalogue, application)
    if not recorded.length:
        raise InputError(
            f"the command topic of {service_id} has no head of the evidence of {application}. Without a head, missing "
            "documents at the end cannot be found. Pass it with --head LENGTH:SHA256, from the report of the last drill"
        )
    return _Verified(application, chain.verify(keys, recorded), recorded, f"the command topic of {service_id}")


def _with_evidence(command: Callable[..., None]) -> Callable[..., None]:
    return with_function(_verified, command)


@app.command()
@_with_evidence
def verify(found: _Verified, json: options.Json = None) -> None:
    """Verify that no document was changed, removed, reordered, or cut off. Needs only the public key.

    The recorded head shows whether the last documents are missing.
    """
    options.require_writable(json=json)
    chain, console = found.chain, output.console(json)
    for said in (*chain.problems, *chain.notes):
        output.say(console, f"{found.application}: {said}")
    verdict = "not intact" if chain.problems else "intact"
    output.say(console, f"{found.application}: {verdict}, {chain.head.length} documents, head {chain.head}")
    content = {
        "application": found.application,
        "intact": not chain.problems,
        "documents": chain.head.length,
        "head": str(chain.head),
        "recorded_head": str(found.recorded),
        "recorded_in": found.recorded_in,
        "problems": list(chain.problems),
        "notes": list(chain.notes),
    }
    output.write_content(json, content)
    raise typer.Exit(1 if chain.problems else 0)


@app.command()
@_with_evidence
def report(
    found: _Verified,
    from_: Annotated[str, typer.Option("--from", help="Start, such as 2026-01-01.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="End, excluded, such as 2026-04-01.", show_default=False)],
    page: Annotated[Path, typer.Argument(help="The HTML file to write.", show_default=False)],
) -> None:
    """Verify all evidence, and write a page with the drills of a time for an auditor."""
    from statestore.drills.auditor import auditor_page
    from statestore.durable import write_durably

    try:
        from_ms, to_ms = clock.ms_of(from_), clock.ms_of(to)
    except ValueError as error:
        raise InputError(f"--from, --to: expected times such as 2026-01-31 or 2026-01-31T12:00:00Z: {error}") from error
    if from_ms >= to_ms:
        raise InputError(f"--from, --to: expected a start before the end, found {from_} and {to}")
    write_durably(page.absolute(), auditor_page(*found, from_ms, to_ms))
    output.say(output.console(), f"written to {page}")
    raise typer.Exit(1 if found.chain.problems else 0)


@app.command()
def key(
    private: Annotated[Path, typer.Argument(help="New file for the private key, mode 0600.", show_default=False)],
    public: Annotated[Path, typer.Argument(help="New file for the public key.", show_default=False)],
) -> None:
    """Make a pair of Ed25519 keys: the private key signs evidence, the public key verifies it."""
    from statestore.drills.keys import write_key_pair

    output.say(output.console(), f"key {write_key_pair(private, public)}: {private} signs, {public} verifies")
