"""Home and origin answer: outside their own files, no code asks which ones a store partition has, or for an archive."""

from __future__ import annotations

import ast

import pytest
from test_kind_rules import ROOT, conditions

ROOMS = ("statestore", "jobs", "dags", "plugins", "expectations")
OWN = ("statestore/partition/home.py", "statestore/partition/spec.py", "statestore/archive/archive.py")
_FINDS = "it finds what a store is, before that has an origin"
_SELECTS = "a user selects stores of tasks, or global ones"
_INSTALLATION = "an installation, not a store, has an archive or none"
#: Files that may ask, and why.
ALLOWED = {
    "statestore/discovery/applications.py": _FINDS,
    "statestore/discovery/shapes_file.py": _FINDS,
    "statestore/discovery/known_stores_file.py": _FINDS,
    "statestore/cli/expectations.py": _SELECTS,
    "statestore/cli/known_stores.py": "a user selects applications with a definition",
    "statestore/cli/read_command.py": "only a definition names serdes for what a user reads",
    "statestore/cli/restore_selection.py": "a user names the version of Kafka Streams that writes a store",
    "statestore/cli/rollback.py": _SELECTS,
    "statestore/cli/selection.py": _SELECTS,
    "statestore/cli/warm_command.py": _SELECTS,
    "statestore/config.py": _INSTALLATION,
    "statestore/recovery/archive_cleanup.py": _INSTALLATION,
    "jobs/statestore_jobs/process.py": _INSTALLATION,
    "jobs/statestore_jobs/snapshot.py": _INSTALLATION,
    "jobs/statestore_jobs/validate.py": _INSTALLATION,
}
#: Attributes from which a home and an origin are made.
FLAGS = {"owned", "is_global", "node_local"}
CHOICES = {
    "Home",
    "Origin",
    "ON_DISK",
    "ON_DISK_WITH_SNAPSHOTS",
    "IN_ARCHIVE",
    "OWN_APPLICATION",
    "FOREIGN_APPLICATION",
    "GLOBAL_TABLE",
}
KEYS = {"Copy", "Filling"}
ARCHIVES = {"archive", "snapshot_archive"}
#: Last parts of expressions that tell which home or origin it is, or whether there is an archive.
TELLING = {"home", "origin", "copy", "filling", *ARCHIVES}


def last_part(node: ast.expr) -> str:
    """Return the last name of a dotted name; empty for any other expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_choice(node: ast.expr) -> bool:
    """Return whether an expression is a particular home or origin, or the key of one."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(is_choice, node.elts))
    return last_part(node) in CHOICES or (isinstance(node, ast.Attribute) and last_part(node.value) in KEYS)


def is_flag(node: ast.Attribute) -> bool:
    """Return whether a flag is read from which a home or an origin is made."""
    of_spec = node.attr == "offsets_beside" and last_part(node.value) in ("spec", "store")
    return isinstance(node.ctx, ast.Load) and (node.attr in FLAGS or of_spec)


def is_compared(node: ast.Compare) -> bool:
    """Return whether a comparison tells which home or origin it is, or whether there is an archive."""
    sides = [node.left, *node.comparators]
    names = {last_part(side) for side in sides}
    nothing = any(isinstance(side, ast.Constant) and side.value is None for side in sides)
    nothing = nothing or "NO_ARCHIVE" in names
    identity = all(isinstance(one, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) for one in node.ops)
    return any(map(is_choice, sides)) or (identity and nothing and bool(names & ARCHIVES))


def tells(node: ast.expr) -> bool:
    """Return whether an expression tells which home or origin it is, or whether there is an archive."""
    return last_part(node) in TELLING


def breaks(source: str) -> list[str]:
    """Return the expressions of a source that ask for a home, an origin, or an archive."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and is_compared(node):
            found.append(ast.unparse(node))
        if isinstance(node, ast.Attribute) and is_flag(node):
            found.append(ast.unparse(node))
        if isinstance(node, ast.Call) and last_part(node.func) in ("isinstance", "type"):
            found += [ast.unparse(node) for argument in node.args if is_choice(argument) or tells(argument)]
        found += [ast.unparse(test) for test in conditions(node) if tells(test)]
    return found


def test_no_code_asks_which_home_or_origin_a_store_has_or_for_an_archive():
    found = {}
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        name = path.relative_to(ROOT).as_posix()
        if name not in OWN:
            found[name] = breaks(path.read_text("utf-8"))
    assert {name: asked for name, asked in found.items() if asked and name not in ALLOWED} == {}
    assert {name for name in ALLOWED if not found[name]} == set(), "a file that asks nothing is not listed"


@pytest.mark.parametrize(
    "planted",
    [
        "if spec.is_global: pass",
        "rows = [row for row in rows if not row.spec.owned]",
        "if spec.archive is None: pass",
        "assert store.archive is not None",
        "if not archive: pass",
        "found = spec.archive and spec.archive.open()",
        "if spec.snapshot_archive is NO_ARCHIVE: pass",
        "if spec.home is IN_ARCHIVE: pass",
        "if spec.home.copy is Copy.SNAPSHOT: pass",
        "if spec.origin.filling == Filling.TOPIC: pass",
        "if origin in (OWN_APPLICATION, GLOBAL_TABLE): pass",
        "match spec.home.copy:\n    case Copy.DISK: pass",
        "if isinstance(spec.home, Home): pass",
        "name = type(spec.origin).__name__",
        "beside = [] if store.offsets_beside else built",
    ],
)
def test_a_planted_question_for_a_home_is_found(planted):
    assert breaks(planted)


@pytest.mark.parametrize(
    "asked",
    [
        "if spec.home.offers_snapshots: pass",
        "if not spec.origin.tail_is_trusted: pass",
        "look = EXAMINE[spec.home.copy](spec)",
        "if facts.archive is UNASKED: pass",
        "if archive.error is not None: pass",
        "copy = found.copy()",
    ],
)
def test_a_question_that_a_home_answers_is_not_found(asked):
    assert not breaks(asked)
