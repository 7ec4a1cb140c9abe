"""The shell's completion: names from the state directory, without Kafka, and without loading what it does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.broker import NO_BROKER


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    for store in (
        "shop/0_0/rocksdb/totals",
        "shop/0_1/rocksdb/totals",
        "shop/0_0/hours/hours.0",
        "orders/0_0/rocksdb/x",
    ):
        (tmp_path / store).mkdir(parents=True)
    (tmp_path / "not an application").touch()
    return tmp_path


def completed(words: str, state_dir: Path) -> list[str]:
    """What bash is offered behind these words; the last one, possibly empty, is begun."""
    environment = {
        **os.environ,
        "_STATESTORE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "STATESTORE_STATE_DIR": str(state_dir),
        "STATESTORE_BOOTSTRAP_SERVERS": NO_BROKER,
    }
    command = [sys.executable, "-c", "from statestore.cli.app import app; app(prog_name='statestore')"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.stderr == ""
    return ran.stdout.split()


@pytest.mark.short_for("statestore read -expected4")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("statestore verify --application ", ["orders", "shop"]),
        ("statestore verify --application sh", ["shop"]),
        ("statestore restore --application shop --store ", ["hours", "totals"]),
        ("statestore validate --application orders --store ", ["x"]),
        ("statestore read ", ["hours", "totals", "x"]),
        ("statestore describe s", ["shop"]),
        ("statestore verify --depth s", ["scan"]),
        ("statestore verify --state-dir /nowhere --application ", []),
    ],
)
def test_names_of_the_state_directory_are_offered(state_dir: Path, words: str, expected: list[str]) -> None:
    assert completed(words, state_dir) == expected


def test_help_and_completion_load_no_client_compiled_loops_or_reports() -> None:
    heavy = ("confluent_kafka", "numba", "numpy", "pyarrow", "pandas", "statestore.reports")
    program = f"import sys, statestore.cli.app; print([name for name in {heavy} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"
