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

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
#: Directories of pictures that others name.
PICTURES = [path for folder in ("benchmarks", "pictures", "screenshots") for path in sorted((DOCS / folder).iterdir())]
LINK = re.compile(r'(?:\]\(|src="|srcset="|href=")(?!https?:)([^)#"]*)#?([^)"]*)')


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


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
