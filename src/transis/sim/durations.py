"""Times and rates as people write them: `250us`, `20ms`, `1.5s`, `12.5%`. Inside, all are integers."""

from __future__ import annotations

import re

UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000}
_DURATION = re.compile(r"(\d+)(?:\.(\d+))?(us|ms|s)")
_RATE = re.compile(r"(\d+)(?:\.(\d))?%")


def parse_duration(text: str) -> int:
    """Microseconds; ValueError says what was wrong."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration such as 250us, 20ms or 1.5s")
    whole, fraction, unit = match.groups()
    scale = UNITS_US[unit]
    part = int(fraction) * scale // 10 ** len(fraction) if fraction else 0
    return int(whole) * scale + part


def format_duration(time_us: int) -> str:
    """The shortest exact way: whole seconds, whole milliseconds, or microseconds."""
    if time_us and time_us % 1_000_000 == 0:
        return f"{time_us // 1_000_000}s"
    if time_us and time_us % 1_000 == 0:
        return f"{time_us // 1_000}ms"
    return f"{time_us}us"


def format_clock(time_us: int) -> str:
    """A moment for a person: milliseconds with one digit."""
    return f"{time_us // 1_000}.{time_us % 1_000 // 100}ms"


def parse_rate(text: str) -> int:
    """Permille."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no rate such as 5% or 12.5%")
    whole, tenth = match.groups()
    permille = int(whole) * 10 + int(tenth or 0)
    if permille > 1000:
        raise ValueError(f"{text!r} is more than 100%")
    return permille


def format_rate(permille: int) -> str:
    return f"{permille // 10}%" if permille % 10 == 0 else f"{permille // 10}.{permille % 10}%"
