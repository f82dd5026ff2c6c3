"""Named timers: an event and the absolute time at which it happens, or nothing."""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeVar

from transis.types.outputs import NEVER

E = TypeVar("E", bound=Enum)


class Timers(Generic[E]):
    """At most one deadline per event. Ties fire in the order of the engine's enumeration, so runs are repeatable."""

    def __init__(self, events: type[E]) -> None:
        self._order = {event: rank for rank, event in enumerate(events)}
        self._deadlines: dict[E, int] = {}
        self._postponed: set[E] = set()

    def arm(self, event: E, at: int) -> None:
        self._deadlines[event] = at
        self._postponed.discard(event)

    def postpone(self, event: E, at: int) -> bool:
        """Let a timer that just fired fire once more; False if it had this second chance already."""
        if event in self._postponed:
            return False
        self._deadlines[event] = at
        self._postponed.add(event)
        return True

    def cancel(self, *events: E) -> None:
        for event in events:
            self._deadlines.pop(event, None)

    def cancel_all(self) -> None:
        self._deadlines.clear()

    def armed(self, event: E) -> bool:
        return event in self._deadlines

    def deadline(self) -> int:
        return min(self._deadlines.values(), default=NEVER)

    def take_due(self, now: int) -> tuple[E, int] | None:
        """Remove and return the earliest timer that is due, with the time it was due at."""
        due = [(at, self._order[event], event) for event, at in self._deadlines.items() if at <= now]
        if not due:
            return None
        at, _, event = min(due)
        del self._deadlines[event]
        return event, at
