"""A host's disk: a key is durable only when its sync completed.

A crash between a Persist and its completion loses the write or keeps it, as the harness draws; a restarted node sees
only what became durable. A state directory may also be copied or lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Write(NamedTuple):
    ticket: int
    key: str
    value: int


class Disk:
    """1. `durable` changes only when a write completes or by a crash that kept it.
    2. Writes complete in the order in which they were handed over.
    """

    def __init__(self, durable: dict[str, int] | None = None) -> None:
        self.durable: dict[str, int] = dict(durable or {})
        self._waiting: list[Write] = []

    @property
    def syncing(self) -> int:
        """How many writes are not durable yet."""
        return len(self._waiting)

    def write(self, write: Write) -> None:
        self._waiting.append(write)

    def complete(self) -> int:
        """The oldest write became durable; its ticket."""
        assert self._waiting, "nothing to complete"
        write = self._waiting.pop(0)
        self.durable[write.key] = write.value
        return write.ticket

    def crash(self, kept: Callable[[], bool]) -> int:
        """Power was cut: each waiting write is kept or lost; how many were lost."""
        lost = 0
        for write in self._waiting:
            if kept():
                self.durable[write.key] = write.value
            else:
                lost += 1
        self._waiting.clear()
        return lost

    def copy(self) -> Disk:
        """What somebody gets who copies the state directory of a running node."""
        return Disk(self.durable)
