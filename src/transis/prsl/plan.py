"""What an exchange finds out: a function of the STATEs of a view, the same at all its members.

1. The primary that was committed last decides; of those who have it, the one with the *longest* order (R1). Green is what at
   least one of all is sure of, so it may be longer than that order where somebody got it by bulk (R20). Then no majority can be
   here.
2. Content comes first and is adopted afterwards (R2): every action that some member lacks is sent by the lowest replica that has
   it.
3. Who is near gets what it lacks of the green order in the exchange; who is behind gets it beside the traffic, and nobody waits
   (R3).
4. What is already green is asked of the numbers that the STATE with the highest green line tells, and never of what a replica
   happens to hold (R19, R22).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from transis.prsl.actions import ActionId
from transis.prsl.messages import State, ids_of
from transis.prsl.prefix import Base, Numbers


class Plan(NamedTuple):
    """1. The view's order begins behind `green`: `tail`, which is yellow, then `others` by key.
    2. `wanted` names for each action that somebody lacks the replica that sends it; `places` for each green place.
    """

    committed: int
    attempted: int
    green: Base
    tail: tuple[ActionId, ...]
    others: frozenset[ActionId]
    wanted: dict[ActionId, int]
    places: dict[int, int]
    near: frozenset[int]
    behind: frozenset[int]
    is_contradicted: bool
    """Green is not a beginning of the order that decides: the view holds no majority."""


def make_plan(states: Mapping[int, State], behind_max: int) -> Plan:
    committed = max(state.committed for state in states.values())
    green = max(state.green.place for state in states.values())
    top = states[min(number for number, state in states.items() if state.green.place == green)].green
    tail = _tail(_decisive(states, committed), top)
    prefix = Numbers(top.numbers)
    held = {number: {*state.yellow, *ids_of(state.red)} for number, state in states.items()}
    others = frozenset().union(*held.values()).difference(tail or ())
    others = frozenset(action for action in others if action not in prefix)
    near = _near(states, top, behind_max)
    low = {number for number, state in states.items() if state.green.place < green}
    return Plan(
        committed,
        max(state.attempted for state in states.values()),
        top,
        tail or (),
        others,
        dict(_wanted(held, [*(tail or ()), *others])),
        dict(_places(states, green, near)),
        near,
        frozenset(low) - near,
        tail is None,
    )


def _decisive(states: Mapping[int, State], committed: int) -> State:
    """The longest order of the last primary: the maximum, never the minimum (R1)."""
    have_it = [number for number, state in states.items() if state.committed == committed]
    longest = max(states[number].end for number in have_it)
    return states[min(number for number in have_it if states[number].end == longest)]


def _tail(state: State, top: Base) -> tuple[ActionId, ...] | None:
    """What the decisive order has behind the green line; None if it does not begin with what is green (R20)."""
    more = top.place - state.green.place
    if more > len(state.yellow):
        return None
    if Numbers(state.green.numbers).with_added(state.yellow[:more]) != Numbers(top.numbers):
        return None
    return state.yellow[more:]


def _near(states: Mapping[int, State], top: Base, behind_max: int) -> frozenset[int]:
    """Who lacks little of the green order, and can get it from somebody who has all of it."""
    lowest = min(state.held_from for state in states.values() if state.green.place == top.place)
    return frozenset(
        number
        for number, state in states.items()
        if lowest <= state.green.place < top.place and top.size - state.green.size <= behind_max
    )


def _places(states: Mapping[int, State], green: int, near: frozenset[int]) -> Iterator[tuple[int, int]]:
    if not near:
        return
    full = sorted((number, state.held_from) for number, state in states.items() if state.green.place == green)
    for place in range(min(states[number].green.place for number in near), green):
        yield place, next(number for number, held_from in full if held_from <= place)


def _wanted(held: Mapping[int, set[ActionId]], actions: list[ActionId]) -> Iterator[tuple[ActionId, int]]:
    for action in sorted(actions):
        holders = [number for number, ids in held.items() if action in ids]
        if len(holders) < len(held):
            yield action, min(holders)
