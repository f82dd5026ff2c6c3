"""How much of a process's time is spent in some of its functions, while it works as it always does.

Two runs of the same nodes differ by a tenth, so what costs a hundredth cannot be seen by comparing runs. It can be timed where it
happens. What is timed must not call each other, and what the stopwatch itself takes counts as theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from transis.trace.flight import Flight, Tidier
from transis.trace.tape import DeliveryTape


class Stopwatch:
    """Counts the processor time of threads, so that waiting for a processor is nobody's cost."""

    def __init__(self) -> None:
        self._inside_ns = 0

    def read(self) -> tuple[float, float]:
        """Seconds of a processor so far: in what is timed, and of the whole process."""
        return self._inside_ns / 1e9, time.process_time()

    def watch(self, owner: type, name: str) -> None:
        setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*given: Any) -> Any:
            began = time.thread_time_ns()
            try:
                return function(*given)
            finally:
                self._inside_ns += time.thread_time_ns() - began

        return timed


def watch_the_flight_recorder() -> Stopwatch:
    """All that a node does because it has one. Before the node is made, for a node keeps what it calls."""
    stopwatch = Stopwatch()
    for owner, names in ((DeliveryTape, ("fed", "configured")), (Flight, ("turn", "look")), (Tidier, ("tidy",))):
        for name in names:
            stopwatch.watch(owner, name)
    return stopwatch
