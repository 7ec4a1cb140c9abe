"""Base dependencies carry the library and the command; what needs an extra says which.

The environment takes long to make: `make test` has tests/unit/test_packages.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integration.broker import create_topic, unique
from tests.packaging.environments import Installed

pytestmark = pytest.mark.long


def test_the_library_imports_base_dependencies_alone(alone: Installed) -> None:
    program = (
        "import importlib, pkgutil, statestore\n"
        "for found in pkgutil.walk_packages(statestore.__path__, 'statestore.'):\n"
        "    if not found.name.endswith(('__main__', 'schemas.decoders', 'schemas.registry')):\n"  # of the extra schema
        "        importlib.import_module(found.name)\n"
        "print(statestore.__file__)"
    )
    done = alone.run("python", "-c", program)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(alone.site_packages)


def test_the_command_defines_and_verifies_without_any_extra(
    alone: Installed, bootstrap_servers: str, tmp_path: Path
) -> None:
    name = unique("app")
    create_topic(bootstrap_servers, f"{name}-in", 1)
    definition = tmp_path / "app.yaml"
    text = f"name: {name}\ninput_topic: {name}-in\naggregations:\n  - store: totals\n    aggregate: count\n"
    settings = {
        "STATESTORE_BOOTSTRAP_SERVERS": bootstrap_servers,
        "STATESTORE_SERVICE_ID": unique("service"),
        "STATESTORE_STATE_DIR": str(tmp_path / "state"),
    }
    (tmp_path / "state").mkdir()

    definition.write_text(f"{text}stores:\n  - name: totals\n    expectations: key_value\n")
    refused = alone.run("statestore", "apply", str(definition), "--yes", **settings)
    assert refused.returncode == 2
    assert "pip install 'statestore[validate]'" in refused.stderr
    assert "Traceback" not in refused.stderr

    definition.write_text(f"{text}stores:\n  - name: totals\n")
    applied = alone.run("statestore", "apply", str(definition), "--yes", **settings)
    assert applied.returncode == 0, applied.stderr
    verified = alone.run("statestore", "verify", "--json", "-", **settings)
    assert verified.returncode == 0, verified.stderr
    (row,) = json.loads(verified.stdout)["rows"]
    assert (row["application"], row["store"], row["status"]) == (name, "totals", "EMPTY")


def test_stores_are_warmed_without_any_extra(alone: Installed) -> None:
    where = ("--state-dir", "state", "--bootstrap-servers", "127.0.0.1:1", "--kafka-timeout-s", "0.5")
    done = alone.run("statestore", "warm", "--application", "orders", *where)
    assert done.returncode == 0, done.stderr
    assert "warming failed, so the application restores the stores itself" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "extra", "missing"),
    [
        (("process", "--reports-dir", "reports"), "spark", "pyspark"),
        (("maintain", "--reports-dir", "reports"), "spark", "pyspark"),
        (("validate", "--application", "shop", "--reports-dir", "reports"), "validate", "great_expectations"),
        (("expectations", "suggest", "totals"), "validate", "great_expectations"),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(
    alone: Installed, arguments: tuple[str, ...], extra: str, missing: str
) -> None:
    done = alone.run("statestore", *arguments, "--state-dir", "state", "--bootstrap-servers", "127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.startswith("statestore: MissingExtraError: ")
    assert missing in done.stderr
    assert f"Run: pip install 'statestore[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("statestore_jobs.sources.register", "spark"),
        ("statestore_expectations.suggest", "validate"),
        ("statestore_dags.bundle", "airflow"),
    ],
)
def test_a_package_names_the_extra_that_it_lacks(alone: Installed, module: str, extra: str) -> None:
    program = f"try: import {module}\nexcept ImportError as error: print(error)"
    done = alone.run("python", "-c", program)
    assert re.match(
        rf"{module.split('.')[0]} needs .* installed\. Run: pip install 'statestore\[{extra}\]'", done.stdout
    )
