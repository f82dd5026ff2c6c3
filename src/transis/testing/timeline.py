"""Virtual time, shared by an event loop and the simulated worlds that hang on it.

1. Time is integer microseconds and moves from instant to instant: all that happens in the worlds at one instant happens before
   anybody else is asked.
2. A world has a time of its own, which began when the world did; the timeline knows how far apart the two are.
3. Code of a test runs only between instants, when all worlds have the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from transis.sim.world import World
from transis.types.outputs import NEVER


class Attached(NamedTuple):
    """`began_us` is the timeline's time at which the world's was 0; `look` is called after every instant."""

    world: World
    began_us: int
    look: Callable[[], None]


class Timeline:
    def __init__(self) -> None:
        self.now_us = 0
        self._attached: list[Attached] = []

    def attach(self, world: World, look: Callable[[], None]) -> None:
        self._attached.append(Attached(world, self.now_us - world.now, look))

    def detach(self, world: World) -> None:
        self._attached = [one for one in self._attached if one.world is not world]

    def next_us(self) -> int:
        """When something happens next in one of the worlds."""
        return min((one.began_us + one.world.events[0][0] for one in self._attached if one.world.events), default=NEVER)

    def advance(self, to_us: int) -> None:
        """Let the worlds come to this time. Whoever wants to be asked at every instant goes no further than `next_us`."""
        assert to_us >= self.now_us, "time does not go back"
        self.now_us = to_us
        for one in self._attached:
            one.world.run(to_us - one.began_us)
            one.look()
