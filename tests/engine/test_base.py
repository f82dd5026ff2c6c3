"""Handlers by name: every name of a table is found in an organ, and what is ignored has none."""

from __future__ import annotations

from enum import Enum

import pytest

from transis.engine.base import IGNORED, bind


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


def test_names_become_methods_of_the_organs() -> None:
    office, bell = Office(), Bell()
    table = {
        State.DAY: {Event.CALL: "answer", Event.RING: "ring"},
        State.NIGHT: {Event.CALL: IGNORED, Event.RING: "ring"},
    }
    bound = bind(table, (office, bell))
    call, ring = bound[State.DAY][Event.CALL], bound[State.NIGHT][Event.RING]
    assert call is not None
    assert ring is not None
    call("ann")
    ring()
    assert (office.taken, bell.rung) == (["ann"], 1)
    assert bound[State.NIGHT][Event.CALL] is None


def test_a_name_that_no_organ_has_is_found_when_the_engine_is_made() -> None:
    with pytest.raises(AssertionError, match="no organ has the handler answr"):
        bind({State.DAY: {Event.CALL: "answr"}}, (Office(),))
