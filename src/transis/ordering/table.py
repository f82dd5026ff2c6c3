"""Table-driven engines: a table says which handler runs for an event in a state, and organs have the handlers.

Rule 1: whatever decides which handler runs lives in the engine's table and nowhere else.
Rule 2: a missing pair is an error by construction; a pair that does nothing says IGNORED.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

Handler = Callable[..., None]

IGNORED: Final = ""


def bind(table: Mapping[S, Mapping[E, str]], organs: Sequence[object]) -> dict[S, dict[E, Handler | None]]:
    """Resolve the handler names of the table to the methods of the organs; None where an event is ignored."""
    return {
        state: {event: None if name == IGNORED else _find(organs, name) for event, name in events.items()}
        for state, events in table.items()
    }


def _find(organs: Sequence[object], name: str) -> Handler:
    for organ in organs:
        if hasattr(organ, name):
            handler: Handler = getattr(organ, name)
            return handler
    raise AssertionError(f"no organ has the handler {name}")
