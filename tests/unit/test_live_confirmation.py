"""Two looks at a store in use: which differences they confirm, and what a kill would cost."""

from __future__ import annotations

import time

import pytest

from statestore.cli import repeated_runs
from statestore.errors import KafkaUnavailableError
from statestore.kafka.topics import LogRange
from statestore.partition.spec import ChangelogSpec
from statestore.verification.live import pace
from statestore.verification.live.confirmation import DELIVERED_S, Seen, confirmed
from statestore.verification.live.kill_risk import kill_risk
from statestore.verification.proof.suspects import Suspect, Suspects

CHANGELOG = ChangelogSpec(topic="t", topic_id="i", delete_retention_ms=86_400_000)


def suspect(reason="behind", key=1, row=0, record=50):
    return Suspect((key, key), (row, 0), reason != "behind", reason, record)


def seen(at_s, end, reached, *rows, segment=0):
    return Seen(at_s, LogRange(0, end, end), {segment: Suspects(reached, rows, 0)})


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        (seen(0, 100, 60, suspect()), seen(1, 200, 100, suspect()), 1),
        # The store on disk is not past the first end.
        (seen(0, 100, 60, suspect()), seen(1, 200, 99, suspect()), 0),
        # However long it takes, a replay can be in memory.
        (seen(0, 100, 60, suspect()), seen(9_999, 100, 60, suspect()), 0),
        # Another key; a record after the first end.
        (seen(0, 100, 60, suspect()), seen(1, 200, 100, suspect(key=2)), 0),
        (seen(0, 100, 60, suspect()), seen(1, 200, 150, suspect(record=120)), 0),
        # An unexplained row counts if it is the same, past the first end or after the delivery timeout.
        (seen(0, 100, 60, suspect("unexplained")), seen(1, 200, 100, suspect("unexplained")), 1),
        (seen(0, 100, 60, suspect("unexplained")), seen(1, 200, 100, suspect("unexplained", row=1)), 0),
        (seen(0, 100, 60, suspect("unexplained")), seen(1, 100, 60, suspect("unexplained")), 0),
        (seen(0, 100, 60, suspect("unexplained")), seen(DELIVERED_S, 100, 60, suspect("unexplained")), 1),
        (seen(0, 100, 60, suspect("aborted")), seen(1, 200, 100, suspect("aborted")), 1),
        # Each segment has its own rows.
        (seen(0, 100, 60, suspect(), segment=1), seen(1, 200, 100, suspect(), segment=2), 0),
    ],
)
def test_a_difference_counts_if_it_is_the_same_past_the_first_end(first, last, found):
    assert len(confirmed([first], last)) == found
    assert confirmed([], last) == []


@pytest.mark.parametrize(
    ("offset", "start", "end", "age_ms", "risk"),
    [
        (None, 50, 100, 10**12, ""),
        (99, 50, 100, 10**12, ""),
        (10, 0, 100, 0, ""),
        (48, 50, 100, 0, "would lose data"),
        (49, 50, 100, 0, "almost a full restore"),
        (59, 50, 100, 0, "almost a full restore"),
        (60, 50, 100, 0, ""),
        (60, 0, 100, 86_400_000 * 8 // 10, "bring deleted rows back"),
        (60, 0, 100, 86_400_000 * 8 // 10 - 1, ""),
    ],
)
def test_what_a_kill_would_cost_follows_from_the_offset_on_disk(offset, start, end, age_ms, risk):
    found = kill_risk(offset, LogRange(start, end, end), CHANGELOG, age_ms, alert_at=0.8)
    assert risk in found
    assert bool(found) == bool(risk)


def test_a_pace_waits_for_what_was_read_too_early(monkeypatch):
    now, waits = [0.0], []

    def wait(seconds):
        waits.append(round(seconds, 6))
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", wait)
    limited = pace.Pace(1_000)
    limited(500)
    limited(500)
    now[0] += 10
    limited(1_000)
    assert waits == [0.5, 0.5]


def test_a_command_that_is_repeated_survives_an_error_and_ends_when_it_is_told(monkeypatch, capsys):
    runs, waits = [], []

    def once():
        runs.append(1)
        if len(runs) == 1:
            raise KafkaUnavailableError("no broker")
        return 1

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            raise SystemExit(143)

    monkeypatch.setattr(repeated_runs.time, "sleep", wait)
    with pytest.raises(SystemExit):
        repeated_runs.run_every(3_600, once)
    assert (len(runs), len(waits)) == (3, 3)
    assert "no broker" in capsys.readouterr().err
