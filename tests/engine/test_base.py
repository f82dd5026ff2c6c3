"""Handlers by name: the engine binds each to the part that has it, and refuses a table with a hole."""

from __future__ import annotations

from enum import Enum

import pytest

from transis.engine.base import IGNORED, bind, ignored
from transis.types.errors import InternalError


class State(Enum):
    DAY = "day"
    NIGHT = "night"


class Event(Enum):
    CALL = "call"
    RING = "ring"


class Office:
    def __init__(self) -> None:
        self.taken: list[str] = []

    def answer(self, who: str) -> None:
        self.taken.append(who)


class Bell:
    def __init__(self) -> None:
        self.rung = 0

    def ring(self) -> None:
        self.rung += 1

    def answer(self, who: str) -> None:
        """As an office would, but this is another method of the same name."""


TABLE = {
    State.DAY: {Event.CALL: Office.answer, Event.RING: Bell.ring},
    State.NIGHT: {Event.RING: Bell.ring, **ignored(Event.CALL)},
}


def test_handlers_become_methods_of_the_parts_that_have_them() -> None:
    office, bell = Office(), Bell()
    bound = bind(TABLE, State, Event, (bell, office))
    call, ring = bound[State.DAY][Event.CALL], bound[State.NIGHT][Event.RING]
    assert call is not None
    assert ring is not None
    call("ann")
    ring()
    assert (office.taken, bell.rung) == (["ann"], 1)
    assert bound[State.NIGHT][Event.CALL] is IGNORED


def test_a_handler_of_no_part_is_refused() -> None:
    with pytest.raises(InternalError, match=r"no part of the engine has the handler Office\.answer"):
        bind(TABLE, State, Event, (Bell(),))


@pytest.mark.parametrize(
    ("table", "missing"),
    [
        ({State.DAY: TABLE[State.DAY]}, "night x call, night x ring"),
        ({**TABLE, State.NIGHT: ignored(Event.CALL)}, "night x ring"),
    ],
)
def test_a_missing_pair_is_refused(table: dict[State, dict[Event, None]], missing: str) -> None:
    with pytest.raises(InternalError, match=f"no handler is named for {missing}"):
        bind(table, State, Event, (Office(), Bell()))
