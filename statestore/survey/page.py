"""The report of a survey as one HTML page, which needs no other file and no script."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from statestore.clock import duration_text
from statestore.reports import SurveyedApplication, SurveyReport, SurveyRisk

NOT_READ = "not read"
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bad: #c62828; --good: #2e7d32; --dim: #777; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code { font-size: 13px; overflow-wrap: anywhere; }
details > summary { cursor: pointer; font-weight: 600; padding: .3rem 0; }
.bad { color: var(--bad); } .good { color: var(--good); } .dim { color: var(--dim); }
"""


def page(report: SurveyReport) -> str:
    """Return the page."""
    by_application: dict[str, list[SurveyRisk]] = defaultdict(list)
    for risk in report.risks:
        by_application[risk.application].append(risk)
    known = {found.name for found in report.surveyed}
    of_cluster = [risk for name, risks in by_application.items() if name not in known for risk in risks]
    when = datetime.fromtimestamp(report.started_ms / 1000, UTC).isoformat(" ", "seconds")
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width"><title>Survey of ',
        f"{escape(report.cluster_id)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>State on cluster {escape(report.cluster_id)}</h1>",
        f'<p>{escape(report.bootstrap_servers)}, {when}. <span class="{"bad" if report.risks else "good"}">',
        f"{_count(len(report.risks), 'risk')}</span>, {_count(len(report.surveyed), 'application')}, ",
        f"{report.brokers} brokers, {report.requests} requests in {report.seconds:.1f} s.</p>",
        _unread(report),
        "<h2>Applications</h2>",
        _applications(report, by_application),
        f'<p class="dim">{escape(report.assumption)}.</p>',
        "<h2>Risks</h2>" if report.risks else "",
        _risks(of_cluster) if of_cluster else "",
    ]
    parts += [_application(found, by_application[found.name]) for found in report.surveyed]
    return "".join([*parts, "</body></html>\n"])


def group_text(found: SurveyedApplication) -> str:
    """Return the state of an application's group, with the type of a group of a newer protocol."""
    kind = "" if found.group_type in ("classic", "") else f" ({found.group_type})"
    static = f", {found.static_members} static" if found.static_members else ""
    return f"{found.group_state or 'none'}{kind}{static}"


def seconds_text(seconds: float | None) -> str:
    """Return a time as people read it."""
    return NOT_READ if seconds is None else duration_text(seconds)


def _unread(report: SurveyReport) -> str:
    left_out = "".join(f"<p>Not looked at: {escape(what)}. {escape(why)}.</p>" for what, why in report.left_out.items())
    if not report.unread:
        return left_out
    rows = ((each.subject, each.fact, each.why) for each in report.unread)
    heading = f'<h2 class="bad">{_count(len(report.unread), "fact")} not read</h2>'
    return heading + _table(("Of", "Fact", "Why"), rows) + left_out


def _applications(report: SurveyReport, risks: dict[str, list[SurveyRisk]]) -> str:
    columns = (
        *("Application", "Kind", "Group", "Members>", "Stores>", "Partitions>", "Bytes>", "Records at most>"),
        *("Restore by Kafka Streams>", "Restore by statestore>", "Risks>"),
    )
    rows = (
        (
            *(found.name or "(unknown)", found.kind, group_text(found)),
            *("-" if found.members is None else found.members, len(found.stores), found.partitions),
            *(NOT_READ if found.bytes is None else found.bytes, NOT_READ if found.records is None else found.records),
            *(seconds_text(found.kafka_streams_s), seconds_text(found.statestore_s), len(risks.get(found.name, ()))),
        )
        for found in report.surveyed
    )
    return _table(columns, rows)


def _application(found: SurveyedApplication, risks: list[SurveyRisk]) -> str:
    columns = (
        *("Store", "Changelog", "Partitions>", "Replicas>", "Policy", "Bytes>", "Records at most>"),
        *("Snapshots>", "Verified>", "Its owner is shown by"),
    )
    stores = (
        (
            *(store.name, store.topic, store.partitions, store.replication, store.cleanup_policy or NOT_READ),
            *(NOT_READ if store.bytes is None else store.bytes, NOT_READ if store.records is None else store.records),
            *("-" if store.snapshots is None else store.snapshots, "-" if store.verified is None else store.verified),
            store.evidence,
        )
        for store in found.stores
    )
    title = escape(found.name or "Changelogs of no known application")
    count = f'<span class="bad">{_count(len(risks), "risk")}</span>' if risks else '<span class="good">no risk</span>'
    opened = " open" if risks else ""
    clients = f'<p class="dim">{escape(", ".join(found.clients))}</p>' if found.clients else ""
    return (
        f"<details{opened}><summary>{title}: {count}</summary>{_risks(risks) if risks else ''}"
        f"{clients}{_table(columns, stores)}</details>"
    )


def _risks(risks: Iterable[SurveyRisk]) -> str:
    rows = "".join(
        f"<tr><td>{escape(risk.subject)}</td><td>{escape(risk.advice.situation)}</td><td>{escape(risk.why)}</td>"
        f"<td>{escape(risk.advice.sentence)}{_command(risk)}</td></tr>"
        for risk in risks
    )
    return f"<table><tr><th>Of</th><th>Risk</th><th>Found</th><th>What to do</th></tr>{rows}</table>"


def _command(risk: SurveyRisk) -> str:
    return "" if risk.advice.command is None else f"<br><code>{escape(risk.advice.command)}</code>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str | int]]) -> str:
    head = "".join(f"<th{_number(name)}>{escape(name.rstrip('>'))}</th>" for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td{_number(name)}>{_cell(value)}</td>" for name, value in zip(columns, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _number(column: str) -> str:
    return ' class="n"' if column.endswith(">") else ""


def _cell(value: str | int) -> str:
    return f"{value:,}" if isinstance(value, int) else escape(value)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
