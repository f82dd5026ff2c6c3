"""Times as words."""

from __future__ import annotations


def clock(time_us: int) -> str:
    """A time as a person writes it: 350 µs, 12.5 ms, 1.25 s."""
    if time_us < 0:
        return f"-{clock(-time_us)}"
    if time_us == 0:
        return "0"
    for unit, scale in (("s", 1_000_000), ("ms", 1_000)):
        if time_us >= scale:
            return f"{time_us / scale:.3f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{time_us} µs"
