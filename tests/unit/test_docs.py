"""Python in the docs runs, and what they say of definitions is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from statestore.definitions.aggregation import AggregationDefinition, Sessions, TimeWindows
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.metastore.definition_files import parse_definitions

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["docs/stores.md", "docs/processing.md"])
def test_the_python_in_a_document_runs(name, tmp_path):
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = []
    for block in re.findall(r"^```(?:python|yaml)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if named := re.match(r"# (\w+\.(?:py|yaml))\n", block):  # a file that the others use
            (tmp_path / named[1]).write_text(block, encoding="utf-8")
        else:
            blocks.append(block)
    assert blocks
    script = tmp_path / "example.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_definitions_in_the_metastores_document_are_some_and_every_field_is_named():
    text = (ROOT / "docs/metastore.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert examples
    for example in examples:
        assert parse_definitions(example, "the document")
    models = (ApplicationDefinition, StoreDefinition, AggregationDefinition, TimeWindows, Sessions)
    fields = {field for model in models for field in model.model_fields}
    assert {field for field in fields if f"`{field}`" not in text} == set()
