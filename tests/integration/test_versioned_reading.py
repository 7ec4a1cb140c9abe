"""`statestore read` on a versioned store: what a key has, had at a time, and had in all of its history."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from statestore.changelog.topic_settings import changelog_config
from statestore.definitions.store import StoreDefinition
from statestore.stores.open import build_store
from tests.integration.command_line import Ran, command_on
from tests.integration.support import Application

MINUTE = 60_000
RETENTION_MS = 10 * MINUTE
PRICES = StoreDefinition(name="prices", kind="versioned", retention_ms=RETENTION_MS, value_serde="utf8")
BEGIN = 1_700_000_040_000
#: Of a key that is gone, one that came late, and one that brings stream time forward.
VERSIONS = [
    (b"tea", b"300", BEGIN),
    (b"tea", b"320", BEGIN + 2 * MINUTE),
    (b"tea", b"310", BEGIN + MINUTE),
    (b"tea", None, BEGIN + 3 * MINUTE),
    (b"tea", b"350", BEGIN + 5 * MINUTE),
    (b"salt", b"9", BEGIN),
    (b"oil", b"1", BEGIN + RETENTION_MS),
]
Run = Callable[..., Ran]


@pytest.fixture
def run(bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> Run:
    """Run the command on a store that has these versions in partition 0, and nothing in partition 1."""
    config = changelog_config(PRICES)
    made = Application(bootstrap_servers, tmp_path, partitions=2, stores=[PRICES], changelog_config=config)
    for partition in range(2):
        spec = made.store_spec(partition)
        store = build_store(spec.store)
        store.init(spec.context())
        for key, value, timestamp in VERSIONS if partition == 0 else ():
            store.put(key, value, timestamp)
        store.commit({})
        store.close()
    command, written = command_on(made, tmp_path, monkeypatch, capfd)
    return lambda *arguments: command("read", *arguments, "--definitions", str(written))


def rows(ran: Ran) -> list[tuple[Any, ...]]:
    assert ran.code == 0, ran.out + ran.err
    found = json.loads(ran.out)["rows"]
    return [(row["task"], row["value"], row["valid_from"], row["valid_to"]) for row in found]


@pytest.mark.behaviour("V1")
def test_a_key_is_read_as_it_is_as_it_was_and_with_its_history(run: Run) -> None:
    tea = ("prices", b"tea".hex(), "--json", "-")
    latest = ("0_0", "350", BEGIN + 5 * MINUTE, None)
    middle = ("0_0", "310", BEGIN + MINUTE, BEGIN + 2 * MINUTE)
    assert rows(run(*tea)) == [latest]
    assert rows(run(*tea, "--history")) == [
        ("0_0", "300", BEGIN, BEGIN + MINUTE),
        middle,
        ("0_0", "320", BEGIN + 2 * MINUTE, BEGIN + 3 * MINUTE),
        latest,
    ]
    assert rows(run(*tea, "--as-of", str(BEGIN + 2 * MINUTE - 1))) == [middle]
    then = datetime.fromtimestamp((BEGIN + MINUTE) / 1000, UTC).isoformat()
    assert rows(run(*tea, "--as-of", then)) == [middle]
    assert rows(run("prices", b"salt".hex(), "--json", "-", "--as-of", str(BEGIN + RETENTION_MS))) == [
        ("0_0", "9", BEGIN, None)
    ]

    shown = run("prices", b"tea".hex(), "--history").out
    assert "valid from ms" in shown
    assert "valid to ms" in shown
    assert str(BEGIN + 3 * MINUTE) in shown

    deleted = run(*tea, "--as-of", str(BEGIN + 4 * MINUTE))
    assert deleted.code == 1
    assert f"no partition of prices has the key '{b'tea'.hex()}' at {BEGIN + 4 * MINUTE} ms" in deleted.err


@pytest.mark.behaviour("V1")
def test_a_time_before_the_history_or_no_time_is_refused(run: Run) -> None:
    salt = ("prices", b"salt".hex())
    assert run(*salt, "--as-of", str(BEGIN)).code == 0
    early = run(*salt, "--as-of", str(BEGIN - 1))
    assert early.code == 2
    assert f"prices/0_0 has history only from {BEGIN} ms on (retention_ms {RETENTION_MS}), found --as-of" in early.err
    noon = run(*salt, "--as-of", "noon")
    assert noon.code == 2
    assert "--as-of: expected ms since the epoch, or ISO 8601" in noon.err
    assert run(*salt, "--as-of", "5", "--history").code == 2
