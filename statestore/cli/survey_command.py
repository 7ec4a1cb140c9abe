"""The command `survey`: every application with state on a cluster, and what puts that state at risk."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statestore.cli import next_steps, options, output
from statestore.cli.output import STANDARD_OUTPUT
from statestore.cli.parameters import DURATION, duration

if TYPE_CHECKING:
    from rich.console import Console

    from statestore.reports import SurveyedApplication, SurveyReport

#: Commands that are printed; JSON and HTML have all.
_COMMANDS_SHOWN = 10


def survey(
    bootstrap_servers: options.Servers = None,
    archive: options.ArchiveIfAny = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    reports_dir: options.ReportsDir = None,
    kafka_streams_rate: Annotated[
        float | None,
        typer.Option(
            metavar="RECORDS",
            min=1,
            help="Records/s that your Kafka Streams restores, for the estimates. Default: that of the benchmark.",
            show_default=False,
        ),
    ] = None,
    statestore_rate: Annotated[
        float | None,
        typer.Option(
            metavar="RECORDS",
            min=1,
            help="Records/s that your `restore` reads, for the estimates. Default: that of the benchmark.",
            show_default=False,
        ),
    ] = None,
    expiry_within: Annotated[
        float,
        typer.Option(
            parser=duration("d"),
            metavar=DURATION,
            help="Report groups whose offsets expire within this time: 36h, or a number of days.",
        ),
    ] = 2.0,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the result as one HTML page that needs no other file."),
    ] = None,
    kafka_timeout_s: options.TimeoutS = 30.0,
    json: options.Json = None,
) -> None:
    """List applications with state on a cluster, and what puts that state at risk. Needs only brokers.

    Exit code 1 if there is a risk, or if a fact could not be read.
    """
    from statestore.durable import write_durably
    from statestore.errors import InputError
    from statestore.objects.path import location
    from statestore.survey.page import page
    from statestore.survey.rates import DEFAULT, with_own
    from statestore.survey.survey import DAY_MS, SurveyRequest
    from statestore.survey.survey import survey as survey_cluster

    options.require_writable(json=json)
    if html is not None:
        if html.is_dir() or html == STANDARD_OUTPUT:
            raise InputError(f"--html: expected a file, found {html}")
        options.require_writable(json=html)
    request = SurveyRequest(
        options.cluster_of(bootstrap_servers, kafka_timeout_s),
        archive,
        archive_timeout_s,
        None if reports_dir is None else location(reports_dir),
        with_own(DEFAULT, kafka_streams_rate, statestore_rate),
        int(expiry_within * DAY_MS),
    )
    report = survey_cluster(request)
    show_survey(output.console(json), report)
    if json is not None:
        output.write_content(json, report.model_dump(mode="json"))
    if html is not None:
        write_durably(html, page(report))
    steps = [risk.advice for risk in report.risks if risk.advice.command is not None]
    output.say_next(next_steps.advised(steps[:_COMMANDS_SHOWN]), json)
    raise typer.Exit(1 if report.risks or report.unread else 0)


def show_survey(console: Console, report: SurveyReport) -> None:
    """Print applications, risks, and what could not be read."""
    from statestore.cli.tables import counted, table

    risks = Counter(risk.application for risk in report.risks)
    columns = (
        *("application", "kind", "group", "members>", "stores>", "partitions>", "bytes>", "records at most>"),
        *("Kafka Streams>", "statestore>", "risks>"),
    )
    rows = [(*_application(found), risks[found.name]) for found in report.surveyed]
    console.print(table(counted(len(rows), "application"), columns, rows))
    if report.risks:
        found = ((risk.application, risk.subject, risk.advice.situation, risk.why) for risk in report.risks)
        console.print(table(counted(len(report.risks), "risk"), ("application", "of", "risk", "why"), found))
    if report.unread:
        unread = ((each.subject, each.fact, each.why) for each in report.unread)
        console.print(table(counted(len(report.unread), "fact") + " not read", ("of", "fact", "why"), unread))
    for what, why in report.left_out.items():
        output.say(console, f"Not looked at: {what}. {why}.")
    output.say(console, f"Times of restores: {report.assumption}.")
    seconds = f"{report.seconds:.1f} s"
    output.say(console, f"{counted(report.requests, 'request')} to {counted(report.brokers, 'broker')}, {seconds}")


def _application(found: SurveyedApplication) -> tuple[str | int | None, ...]:
    from statestore.survey.page import NOT_READ, group_text, seconds_text

    return (
        found.name or "(unknown)",
        found.kind,
        group_text(found),
        found.members,
        len(found.stores),
        found.partitions,
        NOT_READ if found.bytes is None else found.bytes,
        NOT_READ if found.records is None else found.records,
        seconds_text(found.kafka_streams_s),
        seconds_text(found.statestore_s),
    )
