"""Rules of the source that no linter knows: each stands for a trap that was measured."""

from __future__ import annotations

import ast
from pathlib import Path

LIBRARY = Path(__file__).resolve().parents[2] / "statestore"
SOURCES = {path.relative_to(LIBRARY).as_posix(): ast.parse(path.read_text("utf-8")) for path in LIBRARY.rglob("*.py")}


def imported(tree, module):
    """Names that a module takes from `module`."""
    return {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
    } | {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name.split(".")[0] == module
    }


def calls(tree, name):
    """Calls of a function or class by its bare name."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


#: The modules that may use rocksdict.
ENGINE = (
    "stores/column_family.py",
    "stores/rocksdb.py",
    "stores/read_options.py",
    "stores/rocksdb_options.py",
    "stores/scan.py",
    "stores/sst.py",
)
#: The one fast scan, behind whose end a cursor looks for what it may have swallowed.
CHECKED_BEHIND = ("stores/scan.py", "column_family.items")


def test_only_the_engine_opens_databases_and_only_runs_write_sst_files():
    users = {name: imported(tree, "rocksdict") for name, tree in SOURCES.items()}
    assert {name for name, names in users.items() if names} == set(ENGINE)


def test_the_engine_never_iterates_in_the_ways_that_swallow_corruption():
    # Rdict's items, keys and values gave wrong rows for every flipped bit. A dict's are told by their receiver.
    dicts = {"changes", "rows", "offsets", "families", "position"}
    for name in ENGINE:
        for node in ast.walk(SOURCES[name]):
            if isinstance(node, ast.Attribute) and node.attr in ("items", "keys", "values"):
                receiver = ast.unparse(node.value)
                if (name, f"{receiver}.{node.attr}") == CHECKED_BEHIND:
                    continue
                assert receiver in dicts | {"ranges or {}", "self._families"}, (
                    f"{name}:{node.lineno}: {receiver}.{node.attr}: use get, or iter and status"
                )


def test_no_other_module_reaches_past_the_engine_to_rocksdict():
    for name, tree in SOURCES.items():
        if name in ENGINE:
            continue
        reached = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not reached & {"_db", "_handles", "get_column_family", "rdict"}, name


def test_options_and_batches_are_raw_so_that_nothing_stored_is_unpickled():
    found = 0
    for name, tree in SOURCES.items():
        ours = {
            ast.unparse(target)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("options(")
            for target in node.targets
        }
        for call in [*calls(tree, "Options"), *calls(tree, "WriteBatch")]:
            raw = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            assert raw.get("raw_mode") == "True", f"{name}:{call.lineno}: {ast.unparse(call)}"
            found += 1
        for call in [*calls(tree, "Rdict"), *calls(tree, "SstFileWriter")]:
            # Without options rocksdict trusts a configuration file on disk, and pickles.
            given = [ast.unparse(argument) for argument in call.args] + [
                ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "options"
            ]
            fine = any(text in ours or text.startswith("options(") for text in given)
            assert fine, f"{name}:{call.lineno}: {ast.unparse(call)}"
            found += 1
    assert found >= 4


def test_nothing_stored_is_ever_unpickled():
    for name, tree in SOURCES.items():
        assert not imported(tree, "pickle"), name
        assert not [call for call in calls(tree, "eval") + calls(tree, "exec")], name
        loads = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not loads & {"yaml.unsafe_load", "yaml.full_load", "yaml.Loader", "yaml.UnsafeLoader", "pickle.loads"}, (
            name
        )
        if "yaml.load" in loads:  # with a loader that adds checks to the safe one
            assert "yaml.SafeLoader" in loads, name


def test_the_library_imports_neither_spark_nor_airflow():
    for name, tree in SOURCES.items():
        for node in ast.walk(tree):
            modules = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            assert not {module.split(".")[0] for module in modules} & {"pyspark", "airflow"}, name
