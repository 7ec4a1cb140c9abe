"""The Grafana dashboard, and the alerts of docs/metrics.md, ask for what is exported, by the names of Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import promql_parser as promql
import pytest
import yaml

from statestore.metrics.table import TABLE, TASK
from tests.documents import ROOT, blocks, text_of
from tests.otlp import prometheus_label, prometheus_name

pytestmark = pytest.mark.documents
GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARD = json.loads((GRAFANA / "state-stores.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = DASHBOARD["templating"]["list"]
#: Labels of each metric.
EXPORTED = {
    prometheus_name(metric.name, metric.unit): {
        prometheus_label(name) for name in (*metric.attributes, *([TASK] if metric.by_task else []))
    }
    for metric in TABLE
}
ALERTS = [
    rule
    for block in blocks("docs/metrics.md")
    if block.heading == "Alerts" and block.language == "yaml"
    for group in yaml.safe_load(block.text)["groups"]
    for rule in group["rules"]
]
QUERIES = {
    **{f"{panel['title']} {target['refId']}": target["expr"] for panel in PANELS for target in panel["targets"]},
    **{rule["alert"]: rule["expr"] for rule in ALERTS},
}


def parsed(query: str) -> promql.Expr:
    """Parse a query as Grafana sends it: durations are filled in, and what is chosen of names."""
    return promql.parse(query.replace("$lookback", "2d").replace("$application", ".*").replace("$store", ".*"))


def parts(
    expression: promql.Expr, grouped: frozenset[str] = frozenset()
) -> Iterator[tuple[promql.VectorSelector, frozenset[str]]]:
    """Yield each selector with the labels that it is grouped by anywhere around it."""
    match expression:
        case promql.VectorSelector():
            yield expression, grouped
        case promql.MatrixSelector():
            yield expression.vector_selector, grouped
        case promql.AggregateExpr():
            labels = expression.modifier.labels if expression.modifier else []
            yield from parts(expression.expr, grouped | frozenset(labels))
        case promql.BinaryExpr():
            for side in (expression.lhs, expression.rhs):
                yield from parts(side, grouped)
        case promql.Call():
            for argument in expression.args:
                yield from parts(argument, grouped)
        case promql.ParenExpr() | promql.UnaryExpr():
            yield from parts(expression.expr, grouped)
        case promql.NumberLiteral() | promql.StringLiteral():
            pass
        case _:
            raise AssertionError(f"{type(expression)} has no rule here")


@pytest.mark.parametrize("title", QUERIES)
def test_a_query_asks_for_metrics_and_labels_that_are_exported(title):
    found = list(parts(parsed(QUERIES[title])))
    assert found
    for selector, grouped in found:
        assert selector.name in EXPORTED, title
        labels = {matcher.name for matcher in selector.matchers.matchers}
        assert labels | grouped <= EXPORTED[selector.name], (title, selector.name)


def test_every_metric_is_on_the_dashboard():
    shown = {selector.name for query in QUERIES.values() for selector, _ in parts(parsed(query))}
    assert shown == EXPORTED.keys()


def test_every_query_looks_back_as_far_as_runs_are_apart():
    """A run exports once; an instant query would find it for five minutes only."""
    for title, query in QUERIES.items():
        assert query.count("last_over_time(") == len(list(parts(parsed(query)))), title


def test_values_that_queries_select_are_some_that_are_exported():
    from typing import get_args

    from statestore.reports import Loss, Status, ValidationVerdict

    known = {"status": set(Status), "loss": set(Loss), "verdict": set(get_args(ValidationVerdict))}
    for title, query in QUERIES.items():
        for selector, _ in parts(parsed(query)):
            for matcher in selector.matchers.matchers:
                if matcher.name in known:
                    assert set(matcher.value.split("|")) <= known[matcher.name], title


def test_legends_name_labels_that_the_query_keeps():
    for panel in PANELS:
        for target in panel["targets"]:
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            outermost = re.search(r"by \(([^)]*)\)", target["expr"])
            assert used <= set((outermost[1] if outermost else "").split(", ")), panel["title"]


def test_variables_are_filled_from_what_is_exported_and_all_are_there():
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD)))
    assert used - {"__all"} == {variable["name"] for variable in VARIABLES}
    for variable in VARIABLES:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
            ((found, _),) = parts(parsed(selector))
            assert {label, *(matcher.name for matcher in found.matchers.matchers)} <= EXPORTED[found.name]


def test_panels_have_ids_and_places_of_their_own():
    taken: dict[tuple[int, int], int] = {}
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert taken.setdefault((x, y), panel["id"]) == panel["id"], panel["title"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert max(x for x, _ in taken) < 24


def test_the_document_has_the_table_of_the_code():
    text = text_of("docs/metrics.md")
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| (\S*) \| ([^|]*) \| ([^|]*) \|$", text, re.MULTILINE)
    expected = [
        (
            metric.name,
            prometheus_name(metric.name, metric.unit),
            f"`{metric.unit}`" if metric.unit else "",
            ", ".join(f"`{name}`" for name in (*metric.attributes, *([f"({TASK})"] if metric.by_task else []))),
            metric.description,
        )
        for metric in TABLE
    ]
    assert rows == expected
