"""Sentences for people: lists that stay short, messages by their ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from transis.sim.checkers.index import Index
from transis.types.ids import MessageId

NAMED_MAX: Final = 5
"""Things named one by one in a sentence; the rest are counted."""


def several(things: Iterable[object]) -> str:
    """`x`, or `x, y and 3 more`."""
    names = [str(thing) for thing in things]
    if len(names) <= NAMED_MAX:
        return ", ".join(names) if names else "nothing"
    return f"{', '.join(names[:NAMED_MAX])} and {len(names) - NAMED_MAX} more"


def messages(index: Index, codes: Iterable[int]) -> tuple[MessageId, ...]:
    """Ids of messages, in the order given."""
    return tuple(map(index.message, codes))


def named(index: Index, codes: Iterable[int]) -> str:
    return several(index.message(code) for code in codes)
