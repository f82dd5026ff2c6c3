"""What the organs of Lansis share beyond what every engine has: the view, the state, and what is frozen while views change."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from transis.engine.core import BaseCore
from transis.lansis.states import TRANSITIONS, Event, State
from transis.lansis.view import BroadcastView
from transis.types.config import Config
from transis.types.ids import NodeId, RingId
from transis.wire.packer import Filled


class Frozen(NamedTuple):
    """What I had and had delivered at my first statement in this view. Until the next view all that I acknowledge and promise
    stays that: others may install a view by that statement, and must find nothing counted that was not in it."""

    recv: tuple[int, ...]
    """By rank: how far each member's bursts were in the DAG."""
    delivered: int
    """How far delivery had got in the order."""
    clock: int


class Flow(NamedTuple):
    """A burst without a place in any order: it was multicast while views change, and its sender places it in the next one."""

    first: int
    """The number of its first datagram among all that its sender ever let flow."""
    filled: Filled


class Core(BaseCore[State, Event]):
    def __init__(self, config: Config, me: NodeId, view_seq: int) -> None:
        super().__init__(config, me, State.OPERATIONAL, TRANSITIONS, Event)
        self.view_seq = view_seq
        """The highest sequence of a view that this node ever installed or flushed."""
        self.counter = 0
        """My last datagram's: dense through my life, whatever the view. In mode `transis` those after the cut are used again."""
        self.frozen: Frozen | None = None
        self.held_since: int | None = None
        """Since when something waits that would have been sent if views did not change."""
        self.flowed: deque[Flow] = deque()
        """What flowed out and has no place in a view yet, in the order in which it has to get one. Mode `transis` only."""
        base = self.tick()
        first = RingId(view_seq, me)
        self.view = BroadcastView(first, first.tag, (me,), me, base, [1], config, 0)

    @property
    def flows(self) -> bool:
        """The mode `transis`: sends do not wait for the next view."""
        return self.config.mode == "transis"

    @property
    def may_send(self) -> bool:
        """Stage 1 only gathers names; from my first statement on nothing new is sent in this view."""
        return self.state in (State.OPERATIONAL, State.STAGE_1)
