"""The `statestore` command, run in this process: what it prints, and its exit code."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pytest

from statestore.cli import app
from tests.integration.broker import unique
from tests.integration.support import Application

#: Log lines of librdkafka for a client that another test left in this process; the command never logs at these levels.
_CLIENT_OF_A_TEST = re.compile(r"^%[3-7]\|.*\n", re.MULTILINE)


def settings_of(bootstrap_servers: str, directory: Path) -> dict[str, str]:
    """Return the settings of an installation with a service of its own, whose files are below a directory."""
    return {
        "BOOTSTRAP_SERVERS": bootstrap_servers,
        "SERVICE_ID": unique("service"),
        "STATE_DIR": str(directory / "state"),
        "REPORTS_DIR": str(directory / "reports"),
        "DATA_DOCS_DIR": str(directory / "data-docs"),
        "KAFKA_TIMEOUT_S": "60",
    }


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Command:
    """Runs the command with settings in the environment."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], settings: Mapping[str, str]
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd
        self.settings = settings

    def __call__(self, *arguments: str, **settings: str) -> Ran:
        """Run it with nobody there to be asked; settings go by their names without `STATESTORE_`."""
        with open(os.devnull) as nobody:
            return self._run(nobody, arguments, settings)

    def shown(self, *arguments: str, code: int = 0) -> Any:
        """Run it, and return what it says as JSON."""
        ran = self(*arguments, "--json", "-")
        assert ran.code == code, ran.err
        return json.loads(ran.out)

    def fed(self, content: str | bytes, *arguments: str) -> Ran:
        """Run it with this as standard input."""
        raw = content if isinstance(content, bytes) else content.encode()
        return self._run(io.TextIOWrapper(io.BytesIO(raw)), arguments, {})

    def answered(self, answer: str, *arguments: str) -> Ran:
        """Run it on a terminal, where somebody gives this answer to each question."""
        keyboard, terminal = pty.openpty()
        try:
            os.write(keyboard, f"{answer}\n".encode() * 20)
            with open(terminal) as somebody:
                return self._run(somebody, arguments, {})
        finally:
            os.close(keyboard)

    def _run(self, stdin: TextIO, arguments: Sequence[str], settings: Mapping[str, str]) -> Ran:
        for name, value in {**self.settings, **settings}.items():
            self._monkeypatch.setenv(f"STATESTORE_{name}", value)
        self._capfd.readouterr()
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["statestore", *arguments])
            patch.setattr(sys, "stdin", stdin)
            with pytest.raises(SystemExit) as ended:
                app.main()
        code = ended.value.code
        printed = self._capfd.readouterr()
        return Ran(code if isinstance(code, int) else 0, printed.out, _CLIENT_OF_A_TEST.sub("", printed.err))


def command_on(
    application: Application, directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> tuple[Command, Path]:
    """Return the command with the settings of an application of the tests, and the file of its definition."""
    definitions = directory / "application.yaml"
    definitions.write_text(application.definition.model_dump_json())
    settings = {
        "BOOTSTRAP_SERVERS": application.servers,
        "STATE_DIR": str(application.state_dir),
        "SERVICE_ID": application.name,
        "KAFKA_TIMEOUT_S": "60",
    }
    return Command(monkeypatch, capfd, settings), definitions
