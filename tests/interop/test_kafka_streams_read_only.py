"""A read-only mount of an application's state directory, such as a volume snapshot: all that only reads works there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_streams import EVERY_KIND, Command, KafkaStreams
from shared_state import contents_of
from stopped import Stopped

from tests.integration.broker import T0

pytestmark = pytest.mark.long  # Kafka Streams is started several times

START = T0 - T0 % 60_000
NOBODY = 65534
#: Runs a command in a separate mount namespace, in which the first argument is mounted read-only.
_MOUNTED = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
#: Root without the capabilities that let it write everywhere.
_UNPRIVILEGED = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner,-chown,-sys_admin"]


def _can(*argv: str) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def mounted(state_dir: Path, argv: list[str]) -> list[str]:
    """Run a command where the state directory is mounted read-only."""
    if not _can("unshare", "--mount", "true"):
        pytest.skip("this machine lets nobody mount")
    return ["unshare", "--mount", "sh", "-c", _MOUNTED, str(state_dir), *argv]


def unprivileged(state_dir: Path, argv: list[str]) -> list[str]:
    """Run a command as a user who may read the state directory, and not write to it."""
    if os.geteuid() or not _can(*_UNPRIVILEGED, "true"):
        pytest.skip("only root can become a user who may not write")
    for path in (state_dir, *state_dir.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o755 if path.is_dir() else 0o644)
    return [*_UNPRIVILEGED, *argv]


Reader = Callable[[Path, list[str]], list[str]]


@pytest.fixture(scope="module")
def made(kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    app = kafka_streams(changelog_config={})
    state_dir = tmp_path_factory.mktemp("read-only") / "state"
    commands = [
        Command(store.name, b"key-%d" % number, b"%d" % number, T0 + number, start=start, end=start + 1_000)
        for store in EVERY_KIND
        for number, start in enumerate(range(START, START + 100 * 60_000, 60_000))
    ]
    app.write(state_dir, EVERY_KIND, commands)
    return Stopped(app, state_dir)


@pytest.fixture(params=[mounted, unprivileged], ids=lambda found: found.__name__)
def unwritable(request: pytest.FixtureRequest, made: Stopped, tmp_path: Path) -> tuple[Stopped, Callable[..., Any]]:
    """Return a copy, and a function that runs the command where it cannot write to it, and returns its report."""
    copied = made.copy(tmp_path / "state")

    def run(*arguments: str, code: int = 0) -> Any:
        before = contents_of(copied.state_dir)
        options = ["--application", made.app.application_id, "--state-dir", str(copied.state_dir)]
        argv = [sys.executable, "-m", "statestore.cli", *arguments, *options, "--json", str(tmp_path / "report.json")]
        environment = {**os.environ, "STATESTORE_BOOTSTRAP_SERVERS": made.app.bootstrap_servers}
        ran = subprocess.run(
            request.param(copied.state_dir, argv), capture_output=True, text=True, check=False, env=environment
        )
        assert ran.returncode == code, ran.stdout + ran.stderr
        assert "cannot be written, so it is only read" in ran.stderr
        assert "could not record" not in ran.stderr
        assert contents_of(copied.state_dir) == before
        return json.loads((tmp_path / "report.json").read_text())

    return copied, run


def test_all_that_only_reads_works_where_nothing_can_be_written(
    unwritable: tuple[Stopped, Callable[..., Any]],
) -> None:
    copied, run = unwritable
    names = {store.name for store in EVERY_KIND}
    listed = run("partitions")["rows"]
    assert {row["store"]: row["state"] for row in listed} == dict.fromkeys(names, "closed")
    for depth in ("offsets", "scan", "deep"):
        rows = run("verify", "--depth", depth)["rows"]
        assert {row["store"]: row["status"] for row in rows} == dict.fromkeys(names, "OK")
    found = run("read", "plain-kv", "key-7")
    assert [row["value"] for row in found["rows"]] == [b"7".hex()]
    shutil.rmtree(copied.directory / "0_0" / "rocksdb" / "plain-kv")
    known = "plain-kv:kind=key-value,format=plain,subtopology=0"
    rows = run("restore", "--store", known, "--dry-run", "--kafka-streams", "4.3.1")["rows"]
    assert [(row["store"], row["status"], row["mode"]) for row in rows] == [("plain-kv", "MISSING", "full")]

    (damaged, *_) = (copied.directory / "0_0" / "rocksdb" / "ts-kv").glob("*.sst")
    damaged.write_bytes(damaged.read_bytes()[:-20])
    (row,) = run("verify", "--store", "ts-kv:format=timestamped", code=1)["rows"]
    assert (row["status"], row["file"]) == ("CORRUPT", str(damaged))
