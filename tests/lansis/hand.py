"""Engines of Lansis driven by hand (tests/engine/hand.py), and the ways into each of its states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from tests.engine.hand import (
    HandTable,
    Journey,
)
from transis.lansis.engine import LansisEngine
from transis.lansis.packets import Alive, Flushed, Statement
from transis.lansis.states import State
from transis.types.config import Config, Pulse, Timing, Window
from transis.types.ids import NodeId
from transis.wire.control import Beacon

PULSE = Pulse()
TIMING = Timing()


def is_alive(journey: Journey) -> bool:
    return isinstance(journey.packet, Alive)


def is_statement(journey: Journey) -> bool:
    return isinstance(journey.packet, Statement)


def is_flushed(journey: Journey) -> bool:
    return isinstance(journey.packet, Flushed)


def is_beacon(journey: Journey) -> bool:
    return isinstance(journey.packet, Beacon)


def config(
    name: str,
    *,
    timing: Timing = TIMING,
    pulse: Pulse = PULSE,
    window: Window | None = None,
    mode: str = "evs",
    order: str = "all-ack",
) -> Config:
    given = Config(name, address=f"{name}:1", timing=timing, window=window or Window(), engine="lansis", mode=mode, pulse=pulse)
    return replace(given, order=order).validated()


class Table(HandTable[LansisEngine]):
    def __init__(
        self,
        members: str,
        *,
        window: Window | None = None,
        pulse: Pulse = PULSE,
        mode: str = "evs",
        order: str = "all-ack",
        view_seqs: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._window = window
        self._pulse = pulse
        self._mode = mode
        self._order = order
        self._view_seqs = view_seqs
        super().__init__(members)

    def engine(self, me: NodeId) -> LansisEngine:
        given = config(me.name, window=self._window, pulse=self._pulse, mode=self._mode, order=self._order)
        return LansisEngine(given, me, self._view_seqs.get(me.name, 0))


def brought_to(state: State, mode: str = "evs", order: str = "all-ack") -> Table:
    """`a` in the state asked for: because `c` starts beside `a` and `b`, or because it was lost; FLUSHED comes to nobody."""
    table = Table("abc", mode=mode, order=order)
    joins = state in (State.STAGE_1, State.STAGE_2)
    table.form("ab" if joins else "abc")
    table.run(100_000)
    table.drops.append(is_flushed)
    if joins:
        table.start("c")
    elif state is not State.OPERATIONAL:
        table.crash("c")
    table.run_until(lambda: table["a"].engine.state is state)
    return table


def heard_by_one(table: Table, odd: str, members: str) -> list[Alive]:
    """The next view of `members` is flushed by all and installed by `odd` alone, which nobody hears any more.

    What it says of itself in that view is returned, to be handed to the others late.
    """
    held_back: list[Alive] = []

    def is_held_back(journey: Journey) -> bool:
        is_there = journey.source == odd and table[odd].view == members
        if is_there and isinstance(journey.packet, Alive):
            held_back.append(journey.packet)
        return is_there or (journey.source == odd and bool(held_back))

    def is_first_promise(journey: Journey) -> bool:
        return is_flushed(journey) and journey.target != odd and not held_back

    table.drops += [is_held_back, is_first_promise]
    table.run_until(lambda: bool(held_back))
    return held_back
