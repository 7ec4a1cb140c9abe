"""What cannot run is not applied: code and suites are loaded first, in a process of their own that may hang or end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import DefinitionError
from statestore.metastore.loading import require_loadable
from tests.integration.broker import unique
from tests.integration.catalogued import CatalogueCommand, changed

CODE = """
import statestore.tasks.aggregates as a
from statestore.stores.serdes import Serde
print("read", flush=True)
def process(record, context): pass
class Empty: pass
lonely = a.aggregate(int, lambda key, value, so_far: so_far)
merged = a.aggregate(int, lambda key, value, so_far: so_far, merger=lambda key, one, other: one)
serde = Serde("mine", bytes, bytes)
"""
SESSIONS = {"store": "visits", "sessions": {"gap_ms": 1000}}


class Code:
    """A module that the environment's Python path has, and this process has not."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.name = self.add(CODE)

    def add(self, code: str) -> str:
        """Write a module; return its name."""
        name = unique("shop").replace("-", "_")
        (self._directory / f"{name}.py").write_text(code)
        return name

    def define(self, **fields: Any) -> ApplicationDefinition:
        """Define an application; the module `shop` is ours."""
        content = {"name": unique("app"), "input_topic": "in", "processor": "shop:process", "stores": [{"name": "s"}]}
        text = ApplicationDefinition.model_validate(content | fields).model_dump_json
        return ApplicationDefinition.model_validate_json(text().replace("shop:", f"{self.name}:"))


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Code:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Code(tmp_path)


def test_what_can_be_loaded_is_applied_and_what_cannot_is_refused_with_nothing_written(
    code: Code, command: CatalogueCommand
) -> None:
    good = changed(
        command.define(),
        processor=f"{code.name}:process",
        aggregations=[{**SESSIONS, "aggregate": f"{code.name}:merged"}],
        stores=[{"name": "counts", "value_serde": f"{code.name}:serde"}],
    )
    bad = changed(
        good,
        processor=f"{code.name}:Empty",
        aggregations=[{**SESSIONS, "aggregate": f"{code.name}:lonely"}, {"store": "n", "group_by": "nowhere:key"}],
        stores=[{"name": "counts", "value_serde": f"{code.name}:process"}],
    )
    for options in ([], ["--dry-run"]):
        ran = command("apply", command.file(bad), *options)
        assert ran.code == 2
        for expected in (
            f"processor {code.name}:Empty is a class without a method `process`",
            f"{code.name}:lonely has no merger; give it one",
            "group_by nowhere:key cannot be used: ModuleNotFoundError",
            f"serde {code.name}:process is a function, expected",
        ):
            assert expected in ran.err
    assert command.metastore.view().topic_id is None
    command.apply(good)
    assert command.catalogue.definitions() == {good.name: good}


def test_code_that_hangs_is_given_up_at_the_deadline(code: Code) -> None:
    hanging = code.add("import time\ntime.sleep(3600)")
    definition = code.define(processor=f"{hanging}:process")
    expected = f"application {definition.name}: processor {hanging}:process did not load within 0.2 s"
    with pytest.raises(DefinitionError, match=expected):
        require_loadable([definition], load_s=0.2)


@pytest.mark.long
def test_code_that_ends_the_process_is_named_with_its_last_words(code: Code) -> None:
    ending = code.add("import os\nprint('no licence', flush=True)\nos._exit(7)")
    definition = code.define(aggregations=[{"store": "n", "aggregate": f"{ending}:count"}], processor="shop:process")
    expected = f"aggregate {ending}:count ended the process that loaded it, with code 7. .*no licence"
    with pytest.raises(DefinitionError, match=f"(?s){expected}"):
        require_loadable([definition])


@pytest.mark.long
def test_suites_are_loaded_too(code: Code, tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    suite.write_text('{"name": "s", "expectations": [{"type": "expect_nothing_of_the_kind", "kwargs": {}}]}')
    stores = [{"name": "s", "expectations": "no-such-suite"}, {"name": "t", "expectations": str(suite)}]
    with pytest.raises(DefinitionError) as refused:
        require_loadable([code.define(processor="shop:process", stores=stores)])
    assert "no suite 'no-such-suite'" in str(refused.value)
    assert "expect_nothing_of_the_kind" in str(refused.value)
    known = [{"name": "s", "expectations": "flight_delays_aircraft"}]
    require_loadable([code.define(processor="shop:process", stores=known)])
