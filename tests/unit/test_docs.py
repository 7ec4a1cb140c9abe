"""Documents lead somewhere and have a place in the site; their Python runs, and what they say of definitions is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from statestore.definitions.aggregation import AggregationDefinition, Sessions, TimeWindows
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.metastore.definition_files import parse_definitions
from tests.documents import DOCS, DOCUMENTS, ROOT, blocks, name, text_of, to_run

pytestmark = pytest.mark.documents
#: What a test runs: languages by document, or by document and heading. For bash these are test_tutorial.py,
#: test_documented_commands.py and test_documented_schemas.py in tests/integration, tests/faults/test_airflow_parts.py,
#: and for Kafka Streams tests/interop/test_kafka_streams_guide.py, and
#: test_kafka_streams_ksqldb.py.
RUN = {
    "docs/command.md#Applications with a definition": {"bash"},
    "docs/kafka-streams.md": {"bash", "python"},
    "docs/ksqldb.md": {"bash"},
    "docs/restoring.md": {"bash"},
    "docs/schemas.md": {"bash"},
    "README.md": {"python", "yaml"},
    "docs/operations.md#With the REST API": {"bash"},
    "docs/processing.md": {"python", "yaml"},
    "docs/stores.md": {"python", "yaml"},
    "docs/tutorial.md": {"bash"},
}
#: Directories of pictures that others name.
PICTURES = [path for folder in ("benchmarks", "pictures", "screenshots") for path in sorted((DOCS / folder).iterdir())]
LINK = re.compile(r'(?:\]\(|src="|srcset="|href=")(?!https?:)([^)#"]*)#?([^)"]*)')


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_to_files_and_headings_that_are_there(document):
    for file, heading in LINK.findall(document.read_text(encoding="utf-8")):
        target = document.parent / file if file else document
        assert target.is_file(), f"{file}: expected a file"
        assert not heading or heading in anchors(target), f"{file}#{heading}"


def test_every_page_has_one_place_in_the_site():
    def pages(entries):
        for entry in entries:
            for page in entry.values() if isinstance(entry, dict) else [entry]:
                yield from pages(page) if isinstance(page, list) else [page]

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    expected = ["index.md", *(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))]
    assert sorted(pages(nav)) == sorted(expected)


def test_every_picture_is_shown_somewhere():
    texts = "".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    assert [name(path) for path in PICTURES if f"{path.parent.name}/{path.name}" not in texts] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_blocks_are_where_the_site_shows_them_as_blocks(document):
    """Python-Markdown takes a fence below a list item for one only if it is indented by four spaces."""
    text = document.read_text(encoding="utf-8")
    assert [line for line in re.findall(r"^ +```.*$", text, re.MULTILINE) if (len(line) - len(line.lstrip())) % 4] == []


@pytest.mark.long
@pytest.mark.parametrize("document", ["docs/stores.md", "docs/processing.md"])
def test_the_python_in_a_document_runs(document, tmp_path):
    run_python(written(document, tmp_path), tmp_path)


def test_the_application_in_the_readme_runs(tmp_path):
    assert written("README.md", tmp_path) == []
    check = """
from statestore.tasks import JSON, UTF8
from statestore.testing import TopologyTestDriver

with TopologyTestDriver("applications/orders.yaml", key_serde=UTF8, value_serde=JSON) as driver:
    driver.pipe("anna", {"cents": 5}, timestamp=1_000)
    driver.pipe("anna", {"cents": 2}, timestamp=2_000)
    assert [record.value for record in driver.read("customer-totals")] == [5, 7]
"""
    run_python([check], tmp_path)


def written(document, directory):
    """Write the blocks of a document that begin with a path to that path; return the others."""
    others = []
    for text in to_run(document, "python", "yaml"):
        if named := re.match(r"# ([\w/]+\.(?:py|yaml))\n", text):
            (directory / named[1]).parent.mkdir(exist_ok=True)
            (directory / named[1]).write_text(text, encoding="utf-8")
        else:
            others.append(text)
    return others


def run_python(texts, directory):
    script = directory / "example.py"
    script.write_text("\n".join(texts), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], cwd=directory, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("document", [name(path) for path in DOCUMENTS])
def test_each_block_of_code_is_run_by_a_test_or_is_titled_as_an_example(document):
    code = {"bash", "console", "python", "sh"}
    others = [
        block.text
        for block in blocks(document)
        if block.language in code and not block.is_example
        if block.language not in RUN.get(document, set()) | RUN.get(f"{document}#{block.heading}", set())
    ]
    assert others == []


def test_the_definitions_in_the_metastores_document_are_some_and_every_field_is_named():
    text = text_of("docs/metastore.md")
    examples = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert examples
    for example in examples:
        assert parse_definitions(example, "the document")
    models = (ApplicationDefinition, StoreDefinition, AggregationDefinition, TimeWindows, Sessions)
    fields = {field for model in models for field in model.model_fields}
    assert {field for field in fields if f"`{field}`" not in text} == set()
