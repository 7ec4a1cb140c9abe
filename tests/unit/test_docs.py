"""Python in the docs runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
