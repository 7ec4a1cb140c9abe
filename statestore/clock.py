"""The wall clock, as records of Kafka and of stores have it; times and durations as users write them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from fractions import Fraction

#: How far the clocks of two brokers of a cluster are apart at most, and how late one deletes what has expired.
BROKERS_DIFFER_MS = 10 * 60 * 1000
#: How far two measurements of the brokers' time are apart at most. Earlier versions recorded the time of their host.
MEASUREMENTS_DIFFER_MS = 60_000


#: Units of a duration, in ms.
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_PART = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|w)", re.ASCII)


def duration(text: str, unit: str) -> Fraction:
    """Read a duration as users write it: `36h`, `1d12h`, `1.5h`, or a number alone.

    Parameters
    ----------
    unit
        `ms`, `s`, `m`, `h`, `d` or `w`: that of the result, and of a number alone.

    Raises
    ------
    ValueError
        If it is none, with what was expected.
    """
    given = text.strip()
    parts = _PART.findall(given)
    if given and "".join(number + name for number, name in parts) == given:
        return Fraction(sum(Fraction(number) * _UNITS[name] for number, name in parts), _UNITS[unit])
    if re.fullmatch("[0-9]{1,19}", given, re.ASCII):
        return Fraction(int(given))  # a float would round it
    try:
        return Fraction(float(given))
    except (ValueError, OverflowError):
        names = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
        raise ValueError(
            f"expected a duration such as 90s, 36h or 1d, or a number of {names[unit]}, found {text!r}"
        ) from None


def duration_text(seconds: float) -> str:
    """Return a duration as people read it, which `duration` reads again: `4.2s`, `12m5s`, `3h20m`, `2d4h`."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    left = round(seconds)
    found: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number or found:
            found.append(f"{number}{unit}" if number else "")
    return "".join(found[:2])


def exact_duration(ms: int | None) -> str:
    """Return milliseconds as a duration if it says them exactly, such as `7d`; otherwise as `1234 ms`."""
    if ms is None:
        return ""
    text = duration_text(ms / 1000).replace(".0s", "s")
    return text if ms and whole_ms(text) == ms else f"{ms} ms"


def whole_ms(text: str) -> int:
    """Read a duration of whole milliseconds, as `duration`.

    Raises
    ------
    ValueError
        If it is none, with what was expected.
    """
    found = duration(text, "ms")
    if found.denominator != 1:
        raise ValueError(f"expected whole milliseconds, found {text!r}")
    return int(found)


def now_ms() -> int:
    """Wall clock time, ms since the epoch."""
    return int(time.time() * 1000)


def iso(ms: int) -> str:
    """Write a time (ms since the epoch) as `ms_of` reads it, in UTC."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def ms_of(text: str) -> int:
    """Read a time as users write it: ms since the epoch, or ISO 8601, which is in UTC if it names no offset from it.

    Raises
    ------
    ValueError
        If it is neither.
    """
    given = text.strip()
    if given.isascii() and given.isdigit() and int(given) < 1 << 63:
        return int(given)
    found = datetime.fromisoformat(given)
    since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
