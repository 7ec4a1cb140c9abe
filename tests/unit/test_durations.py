"""Durations as users write them, wherever a setting, an option or a definition takes one."""

from __future__ import annotations

from fractions import Fraction

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from statestore.cli.parameters import duration as option
from statestore.clock import duration, duration_text, exact_duration, whole_ms
from statestore.config import load_settings
from statestore.discovery.hints import parse_hints
from statestore.errors import DefinitionError, InputError
from statestore.metastore.definition_files import parse_definitions
from statestore.requests.maintenance import MaintenanceRequest

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, ""),
        (0, "0 ms"),
        (30_000, "30s"),
        (7 * DAY_MS, "7d"),
        (DAY_MS + 60_000, "86460000 ms"),
        (1_234, "1234 ms"),
    ],
)
def test_milliseconds_are_shown_as_a_duration_only_if_it_is_exact(ms, text):
    assert exact_duration(ms) == text


@pytest.mark.parametrize(
    ("text", "unit", "found"),
    [
        ("1d", "s", 86_400),
        ("36h", "d", Fraction(3, 2)),
        ("90s", "ms", 90_000),
        ("1d12h", "h", 36),
        ("1.5h", "m", 90),
        ("500ms", "s", Fraction(1, 2)),
        ("2w", "d", 14),
        (" 30 ", "s", 30),
        ("0.5", "d", Fraction(1, 2)),
        (str((1 << 63) - 1), "ms", (1 << 63) - 1),
    ],
)
def test_a_duration_has_units_or_is_a_number_in_that_of_its_setting(text, unit, found):
    assert duration(text, unit) == found


@pytest.mark.parametrize("text", ["", "d", "1D", "5 m", "1h30", "-1h", "nan", "inf", "1/2", "1e999999999", "٣s"])
def test_what_is_no_duration_is_refused_with_what_was_expected(text):
    with pytest.raises(ValueError, match="expected a duration such as 90s, 36h or 1d, or a number of seconds"):
        duration(text, "s")


@given(st.integers(0, (1 << 63) - 1))
def test_whole_milliseconds_stay_exact(number):
    assert whole_ms(str(number)) == whole_ms(f"{number}ms") == number


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0s"),
        (59.94, "59.9s"),
        (60, "1m"),
        (725, "12m5s"),
        (12_000, "3h20m"),
        (187_200, "2d4h"),
        (86_400, "1d"),
    ],
)
def test_a_duration_is_shown_by_its_two_largest_units_and_read_again(seconds, text):
    assert duration_text(seconds) == text
    assert abs(duration(text, "s") - Fraction(seconds)) <= Fraction(1, 10)


def test_options_settings_requests_and_definitions_take_durations(monkeypatch):
    assert option("s")("36h") == 129_600
    assert option("d")("0.5") == 0.5
    with pytest.raises(typer.BadParameter, match="expected more than 0, found 0s"):
        option("s", above=0)("0s")
    for name, value in {"STATE_DIR": "/s", "REPORTS_DIR": "/r", "DATA_DOCS_DIR": "/d"}.items():
        monkeypatch.setenv(f"STATESTORE_{name}", value)
    monkeypatch.setenv("STATESTORE_BOOTSTRAP_SERVERS", "localhost:1")
    monkeypatch.setenv("STATESTORE_QUARANTINE_DAYS", "36h")
    monkeypatch.setenv("STATESTORE_KAFKA_TIMEOUT_S", "2m")
    settings = load_settings()
    assert (settings.quarantine_days, settings.kafka_timeout_s) == (1.5, 120)
    monkeypatch.setenv("STATESTORE_KAFKA_TIMEOUT_S", "2 min")
    with pytest.raises(InputError, match=r"STATESTORE_KAFKA_TIMEOUT_S: .*expected a duration such as 90s"):
        load_settings()
    assert MaintenanceRequest.read({"reports_days": "12h"}).reports_days == 0.5
    hints = parse_hints(["w:segment_interval_ms=1h"], [], ["w=7d"])
    assert (hints["w"].retention_ms, hints["w"].segment_interval_ms) == (7 * DAY_MS, 3_600_000)


def test_a_definition_has_durations_and_keeps_milliseconds():
    text = """
        name: shop
        input_topic: orders
        processor: orders:process
        commit_interval_ms: 5s
        stores: [{name: w, kind: window, retention_ms: 7d, window_size_ms: 3600000}]
    """
    found = parse_definitions(text, "text")["shop"]
    assert (found.commit_interval_ms, found.store("w").retention_ms, found.store("w").window_size_ms) == (
        5_000,
        7 * DAY_MS,
        3_600_000,
    )
    with pytest.raises(DefinitionError, match="retention_ms: expected a duration such as 90s, 36h or 1d"):
        parse_definitions(text.replace("7d", "7 days"), "text")
