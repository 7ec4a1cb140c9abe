"""Summaries for the page: a card for each application, and the findings that need a person, the most urgent first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from statestore_ui.partition_health import FIRST, LEVELS, NOT_VERIFIED, Newest, Standing
from statestore_ui.partition_pages import Partition

#: Forms of the page, in the order of their buttons.
FORMS = ("restore", "verify", "process")
#: Forms that are offered although nothing is wrong.
_WITHOUT_NEED = frozenset(FORMS[1:])
#: Findings that are sent, and store partitions that each of them names.
MOST_FINDINGS, _MOST_NAMED = 12, 3
_DETAIL = 300


def summaries(partitions: Iterable[Partition], unread: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the cards, the worst application first.

    Parameters
    ----------
    unread
        By application, input records that its last run of `process` has left.
    """
    found: dict[str, dict[str, Any]] = {}
    for partition in partitions:
        name = partition.application
        if (summary := found.get(name)) is None:
            empty: dict[str, Any] = {
                "partitions": 0,
                "lag": None,
                "levels": {},
                "statuses": {},
                "verified_ms": None,
                "starts": set(),
                "since": {},
            }
            summary = found[name] = {"application": name, **empty, "input_left": unread.get(name)}
        _count(summary, partition)
        if (since_ms := partition.since_ms) is not None:
            since, level = summary["since"], partition.standing.level
            since[level] = min(since_ms, since.get(level, since_ms))
    for summary in found.values():
        summary["starts"] = [name for name in FORMS if name in summary["starts"]]
        summary["since_ms"] = summary.pop("since").get(_worst(summary))
    return sorted(found.values(), key=_urgency)


def _worst(summary: Mapping[str, Any]) -> str:
    return next(level for level in reversed(LEVELS) if level in summary["levels"])


def _urgency(summary: Mapping[str, Any]) -> tuple[int, int]:
    """Order of cards with the same urgency: as they are, which is by name."""
    first = any(word in summary["statuses"] for word in FIRST)
    return -LEVELS.index(_worst(summary)), 0 if first else 1


def _count(summary: dict[str, Any], partition: Partition) -> None:
    newest, standing = partition.newest, partition.standing
    levels, statuses = summary["levels"], summary["statuses"]
    levels[standing.level] = levels.get(standing.level, 0) + 1
    statuses[standing.word] = statuses.get(standing.word, 0) + 1
    summary["partitions"] += not partition.is_placeholder
    if standing.button == "restore" and partition.button == "restore":
        summary["starts"].add("restore")
    summary["starts"].update(_WITHOUT_NEED if partition.starts is None else _WITHOUT_NEED & set(partition.starts))
    _count_jobs(summary, newest, standing)


def _count_jobs(summary: dict[str, Any], newest: Newest, standing: Standing) -> None:
    if (drill := newest.drill) is not None:
        drills = summary.setdefault("drills", {"standings": {}, "slowest_seconds": None})
        drills["standings"][drill.standing] = drills["standings"].get(drill.standing, 0) + 1
        if drill.drilled_ms is not None:
            drills["slowest_seconds"] = max(drills["slowest_seconds"] or 0.0, drill.seconds)
    if newest.verify is not None:
        if standing.verified and newest.verify.lag is not None:
            summary["lag"] = (summary["lag"] or 0) + newest.verify.lag
        summary["verified_ms"] = max(summary["verified_ms"] or 0, newest.verify.run.finished_ms)


def findings(partitions: Iterable[Partition]) -> list[dict[str, Any]]:
    """Return what needs a person, the most urgent first: store partitions of an application with the same action.

    Each has the `application`, `level`, `word` (status), `action`, `button`, the number of `partitions`, some of their
    `names`, the `detail` of the first one, and `since_ms`.
    """
    groups: dict[tuple[str, str, str], list[Partition]] = {}
    for partition in partitions:
        standing = partition.standing
        if standing.level in ("bad", "warn"):
            groups.setdefault((partition.application, standing.word, standing.action), []).append(partition)
    order = sorted(groups.values(), key=_order)
    return [_finding(group) for group in order]


def sent(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the first findings as they are sent, and the number of the others."""
    return {"findings": found[:MOST_FINDINGS], "more_findings": max(len(found) - MOST_FINDINGS, 0)}


def _order(group: Sequence[Partition]) -> tuple[int, int, int]:
    standing = group[0].standing
    first = FIRST.index(standing.word) if standing.word in FIRST else len(FIRST)
    return -LEVELS.index(standing.level), first + (standing.word == NOT_VERIFIED), -len(group)


def _finding(group: Sequence[Partition]) -> dict[str, Any]:
    first, since = group[0], [one.since_ms for one in group if one.since_ms is not None]
    names = [one.label.removeprefix(f"{one.application}/") for one in group if not one.is_placeholder]
    found = {
        "application": first.application,
        "level": first.standing.level,
        "word": first.standing.word.upper(),
        "action": first.standing.action,
        "button": first.button,
        "partitions": len(group),
        "names": names[:_MOST_NAMED],
        "label": first.label,
        "detail": first.standing.detail.partition("\n")[0][:_DETAIL],
        "since_ms": min(since, default=None),
    }
    return {name: value for name, value in found.items() if value not in (None, "")}
