"""One view as a member sees it, the paper's CCS (current configuration set), and what the parts of the engine share.

`ViewState` lives and dies with its view: the DAG, the matrix of acknowledgements, the order, the window, requests and answers.
`LansisCore` outlives it, and also has what is frozen while views change and what flowed meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from transis.engine.core import BaseCore
from transis.lansis.dag import RENEWAL_ROOM, Dag
from transis.lansis.losses import AnswerTurns, MissingRequests, PlannedAnswers
from transis.lansis.orders import AllAck, DeliveryOrder, WaitingNodes
from transis.lansis.stability import Stability
from transis.lansis.states import TRANSITIONS, Event, State
from transis.lansis.toto import ToTo
from transis.lansis.window import Pressure, SendRate, unit_us
from transis.types.config import Config
from transis.types.ids import NodeId, RingId, RingTag, ViewId, ViewKind
from transis.types.outputs import RunIds
from transis.wire.envelope import transmitter_tag
from transis.wire.items import Filled

# --- view -------------------------------------------------------------------------------------------------------------

CROWD: Final = 10
"""From twice this many members on, everybody says ALIVE less often: the number of these packets grows with the square."""
REACH_GAPS: Final = 4
REACH_LEAST: Final = 4096
"""Datagrams that wait for something missing are kept up to REACH_GAPS times `gap_max` and REACH_LEAST more: other members may
have other settings, and votes and statements wait for no window."""
ALIVES_IN_SILENCE: Final = 4
"""A member counts as silent only after this many missing ALIVEs, however large the view."""


class ViewState:
    """`members` are sorted; the rank of a member is its index. `expected` has the first counter of each in this view."""

    def __init__(
        self,
        view_id: RingId,
        tag: RingTag,
        members: tuple[NodeId, ...],
        me: NodeId,
        base: int,
        expected: Sequence[int],
        config: Config,
        now: int,
    ) -> None:
        assert tuple(sorted(set(members))) == members, "members are sorted"
        assert len(expected) == len(members)
        self.id = view_id
        self.tag = tag
        self.members = members
        self.rank = members.index(me)
        self.base = base
        """The timestamp of the view: all its bursts are stamped above it."""
        self.expected = tuple(expected)
        self.view_id = ViewId(ViewKind.REGULAR, view_id.seq, view_id.rep)
        self.renewal_at = base + RENEWAL_ROOM
        """When timestamps reach this, the view has to be renewed."""
        self.dag = Dag(self.rank, expected, base, REACH_GAPS * config.window.gap_max + REACH_LEAST)
        self.stability = Stability(self.rank, expected, now)
        self.order: DeliveryOrder = ToTo(len(members)) if config.order == "toto" else AllAck(self.rank, expected, base)
        self.waiting = WaitingNodes(len(members))
        self.requests = MissingRequests(config.pulse.nack_us)
        self.turns = AnswerTurns(config.pulse.nack_us)
        self.answers = PlannedAnswers(config.pulse.nack_us, config.window.window)
        self.crowd = max(1, len(members) // CROWD)
        self.alive_us = config.pulse.alive_us * self.crowd
        self.silence_us = max(config.pulse.silence_us, ALIVES_IN_SILENCE * self.alive_us)
        """After this silence a member is asked whether it is alive."""
        self.pressure = Pressure(unit_us(config.pulse))
        self.round_us = self.silence_us // 2
        """If what fills the window is not stable well within this time, less of the window is used."""
        self.rate = SendRate(config.window, len(members), self.round_us)
        self.spoke_at = [now - self.round_us] * len(members)
        """When the last burst of each member entered the DAG."""
        self.heard_at = [now] * len(members)
        """When each member last gave a sign of life; a retransmission of old data is not one."""
        self.claimed = [first - 1 for first in expected]
        """The last counter of each member, by its own word."""
        self.gone: set[int] = set()
        """Ranks of accused members, which no longer answer requests for their data."""
        self.speakers = {transmitter_tag(node): rank for rank, node in enumerate(members)}
        """Ranks by the tags under which members send."""
        self._ranks = {node: rank for rank, node in enumerate(members)}

    def __len__(self) -> int:
        return len(self.members)

    def node(self, rank: int) -> NodeId:
        return self.members[rank]

    def rank_of(self, node: NodeId) -> int | None:
        return self._ranks.get(node)

    @property
    def is_singleton(self) -> bool:
        return len(self.members) == 1

    @property
    def i_represent(self) -> bool:
        return self.rank == 0

    def check(self) -> None:
        self.dag.check()
        self.stability.check()
        assert self.stability.ack[self.rank] == self.dag.inserted, "my row says what I have"


# --- core -------------------------------------------------------------------------------------------------------------


class Frozen(NamedTuple):
    """What I held and had delivered at my first statement in this view. Until the next view I acknowledge and promise no more:
    others may install a view by that statement, and nothing may count that was not in it."""

    recv: tuple[int, ...]
    """By rank: how far each member's bursts were in the DAG."""
    delivered: int
    """How far delivery had got in the order."""
    clock: int


class Flow(NamedTuple):
    """A burst without a place in any order: it was multicast while views changed, and its sender places it later."""

    first: int
    """The number of its first datagram, among all that ever flowed from its sender."""
    filled: Filled
    is_end: bool
    """No message goes on behind it: it is the last that may have its place in one view, if the next has it in another."""


class LansisCore(BaseCore[State, Event]):
    stopped = State.STOPPED
    beacon_due = Event.BEACON_SEND
    leave_due = Event.LEAVE

    def __init__(self, config: Config, me: NodeId, view_seq: int) -> None:
        super().__init__(config, me, State.OPERATIONAL, TRANSITIONS, Event)
        self.view_seq = view_seq
        """The highest sequence of any view that this node ever installed or flushed."""
        self.counter = 0
        """The counter of my last datagram: dense throughout my life. In mode `transis`, counters after the cut are used again."""
        self.frozen: Frozen | None = None
        self.held_since: int | None = None
        """Since when messages have been waiting that would have been sent if views did not change."""
        self.flowed: deque[Flow] = deque()
        """Flows that have no place in a view yet, in the order in which they must get one. Mode `transis` only."""
        base = self.tick()
        first = RingId(view_seq, me)
        self.view = ViewState(first, first.tag, (me,), me, base, [1], config, 0)

    def _take_unsent(self) -> list[RunIds]:
        """What flowed counts as unsent: it has no view yet, and will have none."""
        flowed = [ids for flow in self.flowed for datagram in flow.filled.datagrams for ids in datagram.ended]
        self.flowed.clear()
        return [*flowed, *super()._take_unsent()]

    @property
    def flows(self) -> bool:
        """Mode `transis`: sends do not wait for the next view."""
        return self.config.mode == "transis"

    @property
    def may_send(self) -> bool:
        """Stage 1 only collects names; from my first statement on nothing new is sent in this view."""
        return self.state in (State.OPERATIONAL, State.STAGE_1)
