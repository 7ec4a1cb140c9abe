"""The kind answers: outside `statestore/kinds/`, no code asks which kind a store is of."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

from statestore import kinds
from statestore.kinds.kind import RowForm, StoreKind
from statestore.kinds.known import BUILT_IN

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("statestore", "jobs", "dags", "plugins", "expectations")
#: The file of a room that may name kinds, and why.
REGISTRIES = {
    "statestore/discovery/kind_and_format.py": "it finds the kind of a store that has no definition",
}
_MODULES = [importlib.import_module(f"statestore.kinds.{found.name}") for found in pkgutil.iter_modules(kinds.__path__)]
_MEMBERS = {name: value for module in _MODULES for name, value in vars(module).items()}
CLASSES = {name for name, value in _MEMBERS.items() if isinstance(value, type) and issubclass(value, StoreKind)}
CONSTANTS = {name for name, value in _MEMBERS.items() if isinstance(value, StoreKind)} | {"BUILT_IN", "OF_THE_DSL"}
#: Attributes that tell which kind it is: by its class, by its name, or by what only some kinds have.
ATTRIBUTES = (
    "kind.name",
    "kind.storage",
    "kind.layout",
    "kind.__class__",
    "store_kind",
    "row_form",
    "rows_are_records",
)


def is_kind(node: ast.expr) -> bool:
    """Return whether an expression is a particular kind, or tells which kind a store is of."""
    elements = [*node.elts] if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return any(
        (isinstance(element, ast.Name) and element.id in CONSTANTS)
        or (isinstance(element, ast.Attribute) and is_kind_attribute(element))
        or (isinstance(element, ast.Starred) and is_kind(element.value))
        for element in elements
    )


def is_kind_attribute(node: ast.Attribute) -> bool:
    """Return whether an attribute tells which kind a store is of."""
    of_constant = isinstance(node.value, ast.Name) and node.value.id in CONSTANTS
    return (of_constant and node.attr == "name") or ast.unparse(node).endswith(ATTRIBUTES)


def is_name_of_kind(one: ast.expr, other: ast.expr) -> bool:
    """Return whether an attribute or variable `kind` is compared with the name of a built-in kind."""
    names = {node.value for node in ast.walk(other) if isinstance(node, ast.Constant)}
    return ast.unparse(one).split(".")[-1] == "kind" and bool(names & BUILT_IN.keys())


def conditions(node: ast.AST) -> list[ast.expr]:
    """Return what a branch depends on."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        return [node.test]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.comprehension):
        return node.ifs
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    return [node.subject] if isinstance(node, ast.Match) else []


def breaks(source: str) -> list[str]:
    """Return the expressions of a source that ask which kind a store is of."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            named = any(is_name_of_kind(one, other) for one in sides for other in sides if one is not other)
            if named or any(map(is_kind, sides)):
                found.append(ast.unparse(node))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass", "type"):
            classes = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)} & CLASSES
            if classes or any(is_kind(argument) for argument in node.args):
                found.append(ast.unparse(node))
        found += [ast.unparse(test) for test in conditions(node) if is_kind(test)]
        if isinstance(node, ast.Attribute) and node.attr == "rows_are_records":
            found.append(ast.unparse(node))
    return found


def test_no_code_asks_which_kind_a_store_is_of():
    found = {}
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("statestore/kinds/"):
            found[name] = breaks(path.read_text("utf-8"))
    assert {name: asked for name, asked in found.items() if asked and name not in REGISTRIES} == {}
    assert all(found[name] for name in REGISTRIES), "a registry that names no kind is not listed"


@pytest.mark.parametrize(
    "planted",
    [
        "if store.kind == 'versioned': pass",
        "if spec.store.kind in ('window', 'session'): pass",
        "if definition.kind != KEY_VALUE.name: pass",
        "found = definition.kind in (None, VERSIONED.name)",
        "if store.store_kind is VERSIONED: pass",
        "if kind in BUILT_IN: pass",
        "if kind not in (None, *BUILT_IN): pass",
        "if isinstance(store.store_kind, WindowKind): pass",
        "if type(store.store_kind) is WindowKind: pass",
        "rows = one if store.store_kind.layout is None else other",
        "if store.store_kind.layout: pass",
        "if store.row_form is RowForm.VERSIONS: pass",
        "match store.row_form:\n    case RowForm.VERSIONS: pass",
        "if not store.rows_are_records: pass",
        "fold = None if store.rows_are_records else fold_of(store)",
        "rows = [row for row in rows if kind.name == 'window']",
    ],
)
def test_a_planted_question_is_found(planted):
    assert breaks(planted)


@pytest.mark.parametrize(
    "asked",
    [
        "if store.compaction_keeps_rows: pass",
        "if drift.kind is Kind.LEFT_TOPIC: pass",
        "if row.failure.kind == LockedError.__name__: pass",
        "if old.kind == new.kind: pass",
        "rows = _READERS[store.row_form](store)",
        "interval_ms = VERSIONED.segment_interval_ms(store)",
    ],
)
def test_a_question_about_something_else_is_not_found(asked):
    assert not breaks(asked)


def test_every_kind_has_a_form_of_rows():
    assert {kind.row_form for kind in BUILT_IN.values()} == {*RowForm} - {RowForm.SUPPLIED}
