"""Datagrams that the system handed over in one piece (UDP GRO): all of one length but the last, which may be shorter.

They stay one piece as long as nobody needs them apart: a whole burst is checked in it and read out of it without a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Segments:
    """More than one datagram, each of `size` bytes but the last."""

    __slots__ = ("content", "size")

    def __init__(self, content: bytes, size: int) -> None:
        assert 0 < size < len(content), f"{len(content)} bytes are not several datagrams of {size}"
        self.content = content
        self.size = size

    def __len__(self) -> int:
        return (len(self.content) + self.size - 1) // self.size

    def __iter__(self) -> Iterator[bytes]:
        content, size = self.content, self.size
        return iter([content[start : start + size] for start in range(0, len(content), size)])


Arrival = bytes | Segments
"""What one look at a socket brings: a datagram, or several in one piece."""


def apart(arrivals: Iterable[Arrival]) -> list[bytes]:
    """All datagrams, each for itself."""
    found: list[bytes] = []
    for arrival in arrivals:
        if isinstance(arrival, Segments):
            found += arrival
        else:
            found.append(arrival)
    return found
