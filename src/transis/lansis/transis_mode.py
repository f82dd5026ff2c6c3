"""Mode `transis`: messages flow while views change, and JOIN and FA are nodes of the DAG (transis-1992, membership-1992 4).

Flows. While this node agrees with others on a view, its messages are multicast as *flows* (marks: packets.py), and every node
that may be in that view keeps them, strangers included. Their sender claims them later, in the view that ends or in the next: a
claim is a burst of that view of which only the first datagram is sent, and a member that has the flow completes the burst from
it. A member that lacks part of the flow lacks datagrams of the view, and asks for them as for any others. So what flowed is
ordered, acknowledged, flushed and delivered as if it had been sent in that view, once. Flows of a sender that is not in the next
view stay in limbo unless it claimed them before, and are dropped at the installation.

Steps. The view that ends goes on until this node says FLUSHED. A *step* claims what flowed, delivers what may be delivered, and
ends with a newer statement that covers all of it: its recv, D and clock are those of now. Nobody installs a view by a statement
of mine unless I have flushed that very view. So a statement that I replace before my first FLUSHED binds nobody, and whatever
view the change leads to, Pre has what I delivered and claimed before my newest statement. With my first FLUSHED I promise a view
by the statement I had made then, and nothing moves any more: what flows waits for the next view. In the papers' words, the
statements that are agreed on are the electors; what follows none of them belongs to the old view, the rest to the next.

What a statement acknowledges and promises counts, even if its sender has flushed before (in mode `evs` M12 forbids that). Suppose
that q states that it has m, and then installs a view by an earlier statement. Either the members of that view had all accused
the sender of m before they got m, and limbo kept it out of q's DAG. Or the sender is one of them and claimed m after the
statement that this view takes from it: then it had not flushed the view, and never will, so nobody installs it.

Control nodes. A member takes a statement when it enters the DAG of the view that ends, and so with everything that its sender
had: what the statement says of Pre is here already. A statement is repeated by sending the same burst again, and a member that
lost it asks for it as for any other. It is in no order and is not delivered. It closes its sender's row at once, whatever the
statement leads to: acknowledgements after it do not count.

AJ and goodbyes go by the control socket, outside the DAG; so do the copy of a JOIN for strangers, which share no DAG with its
sender, and a statement that does not fit a burst because it names too many nodes, or for which the view has no timestamp left.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from transis.engine.core import Stamp, originate
from transis.lansis.dag import TIMESTAMP_ROOM, DagNode
from transis.lansis.delivery import DagDelivery
from transis.lansis.membership import MembershipChange
from transis.lansis.packets import (
    NUMBER_MAX,
    Acks,
    BurstMark,
    Faults,
    Joining,
    Statement,
    decode_acks,
    encode_acks,
    mark_of,
    number_of,
    round_of,
)  # fmt: skip
from transis.lansis.receiving import Receiver
from transis.lansis.sending import BurstSender, flow_tag
from transis.lansis.states import AGREEING
from transis.lansis.view import Flow, LansisCore
from transis.types.ids import DatagramClass, NodeId, RingId, RingTag
from transis.types.limits import BURST_DATAGRAMS_MAX
from transis.types.outputs import Audience, Lane, Port, Send
from transis.wire.burst import LAST_OFFSET, Burst, DataHeader, body_max, encode_ramp
from transis.wire.control import decode_control, encode_control
from transis.wire.envelope import transmitter_tag
from transis.wire.items import Filled, VisitWriter

# --- flow through -----------------------------------------------------------------------------------------------------

HEAD_DATAGRAMS_MAX: Final = 8
"""Datagrams kept free in a flow for the acknowledgements of its claim, which need no more."""
BURSTS_OF_WINDOW: Final = 4
"""A flow is at most the window divided by this, as any burst."""


class Claimed(NamedTuple):
    """Datagrams of mine in the view that ends, up to this counter, that flowed in this change."""

    upto: int
    datagrams: int


class KeptDatagram(NamedTuple):
    body: bytes
    is_last: bool


class FlowThrough:
    def __init__(self, core: LansisCore, membership: MembershipChange) -> None:
        self._core = core
        self._membership = membership
        self._number = 0
        """The number of my last datagram that flowed, ever."""
        self._begun: RingId | None = None
        """The view whose end was the last at which something of mine flowed."""
        self._claimed: deque[Claimed] = deque()
        """What some member that goes on with me may not have yet."""
        self._kept: dict[NodeId, dict[int, KeptDatagram]] = {}
        """Flows of others, by number."""
        self._senders: dict[RingTag, NodeId] = {}
        self._known: frozenset[NodeId] = frozenset()
        self.flowed = 0
        self.completed = 0
        self.dropped = 0

    # --- my own -----------------------------------------------------------------------------------------------------

    def flow(self) -> None:
        """At the end of every turn: while views change, send what waits, as far as there is room for it."""
        core = self._core
        if core.state not in AGREEING or not core.outbox.has_work(Lane.APPLICATION):
            return
        self._begin()
        while core.outbox.has_work(Lane.APPLICATION) and (room := self._room()) > 0:
            filled = core.outbox.fill_burst(room, b"", only=Lane.APPLICATION)
            if filled is None:
                break
            self._multicast(filled)
        if core.outbox.has_work(Lane.APPLICATION) and core.held_since is None:
            core.held_since = core.now
        core.announce_room()

    def _begin(self) -> None:
        """A message that was half sent in the view that ends is sent from its start: it cannot be completed there."""
        core = self._core
        if self._begun != core.view.id:
            self._begun = core.view.id
            if not core.flowed:
                core.outbox.restart([Lane.APPLICATION])

    def claimed(self, datagrams: int) -> None:
        """So many of mine have their place in the view that ends, up to my last one."""
        self._claimed.append(Claimed(self._core.counter, datagrams))

    def _room(self) -> int:
        """Datagrams that may flow now: an equal share of the window for every node that may be in the next view. Claims in the
        view that ends count until all members that go on with me have them. Nothing of that view is collected while it ends, so
        there is a limit to what it holds."""
        core, window = self._core, self._core.config.window
        if core.view.dag.held_datagrams >= window.gap_max:
            return 0
        while self._claimed and self._is_everywhere(self._claimed[0].upto):
            self._claimed.popleft()
        share = max(1, window.window // len(self._membership.sets.j))
        out = sum(len(flow.filled.datagrams) for flow in core.flowed) + sum(claim.datagrams for claim in self._claimed)
        largest = min(BURST_DATAGRAMS_MAX - HEAD_DATAGRAMS_MAX, window.visit_max, max(1, window.window // BURSTS_OF_WINDOW))
        return min(share - out, largest, NUMBER_MAX - self._number)

    def _is_everywhere(self, counter: int) -> bool:
        view = self._core.view
        return all(row[view.rank] >= counter for rank, row in enumerate(view.stability.ack) if rank not in view.gone)

    def _multicast(self, filled: Filled) -> None:
        core, count = self._core, len(filled.datagrams)
        first = self._number + 1
        self._number += count
        self.flowed += count
        core.flowed.append(Flow(first, filled, not core.outbox.is_halfway(Lane.APPLICATION)))
        head, mark = filled.datagrams[0], round_of(BurstMark.FLOW)
        header = DataHeader(filled.klass, flow_tag(core.me), 0, first, mark, core.clock, core.now, head.index, head.last, False)
        core.note("flowed", datagrams=count)
        datagrams = encode_ramp(header, [part.body for part in filled.datagrams], filled.datagrams[-1].last)
        core.emit(Send(Audience.RING, Port.DATA, datagrams))

    # --- those of others --------------------------------------------------------------------------------------------

    def is_by_its_sender(self, by: bytes, flow: Burst) -> bool:
        """Nobody repeats another's flow: what was lost of it is repeated as data of a view."""
        sender = self._sender(flow.ring)
        return sender is None or by == transmitter_tag(sender)

    def is_flow(self, burst: Burst) -> bool:
        """Is it a flow? If its sender may be in the next view, keep it, but no more than a window of it."""
        if mark_of(burst.header) is not BurstMark.FLOW:
            return False
        sender = self._sender(burst.ring)
        if sender is not None and sender != self._core.me:
            kept = self._kept.setdefault(sender, {})
            for seq, body in enumerate(burst.bodies(), burst.first_seq):
                kept[seq] = KeptDatagram(bytes(body), burst.datagrams[seq - burst.first_seq][LAST_OFFSET] != 0)
            for seq in sorted(kept)[: -self._core.config.window.window]:
                del kept[seq]
        return True

    def _sender(self, tag: RingTag) -> NodeId | None:
        known = self._membership.sets.j
        if known is not self._known:
            self._known = known
            self._senders = {flow_tag(node): node for node in sorted(known)}
        return self._senders.get(tag)

    def rest_of(self, claim: Burst) -> Burst | None:
        """The datagrams that complete a claim in my view; None if part of the flow is missing here."""
        view, header = self._core.view, claim.header
        is_claim = (
            claim.ring == view.tag and header.sender < len(view) and mark_of(header) is BurstMark.CLAIM and header.index == 0
        )
        parts = self._take(view.node(header.sender), number_of(header)) if is_claim else []
        if not parts:
            return None
        self.completed += len(parts)
        following = header._replace(seq=header.seq + 1, index=1, last=parts[0].is_last)
        return Burst(following, encode_ramp(following, [part.body for part in parts], parts[-1].is_last))

    def _take(self, sender: NodeId, number: int) -> list[KeptDatagram]:
        """Remove the flow of this number; return it if all of it is here. Claims come in the order of flows, so earlier flows
        have their places already, perhaps in a view that I was not in."""
        kept, parts = self._kept.get(sender, {}), list[KeptDatagram]()
        for old in [old for old in kept if old < number]:
            del kept[old]
        while len(parts) < BURST_DATAGRAMS_MAX - 1 and (part := kept.pop(number + len(parts), None)) is not None:
            parts.append(part)
            if part.is_last:
                return parts
        return []

    def installed(self) -> None:
        """Limbo ends: drop flows of nodes that are not in the view."""
        self._claimed.clear()
        gone = [node for node in self._kept if self._core.view.rank_of(node) is None]
        lost = sum(len(self._kept.pop(node)) for node in gone)
        if lost:
            self.dropped += lost
            self._core.note("limbo", datagrams=lost)

    def statistics(self) -> dict[str, int]:
        return {"flowed": self.flowed, "flows_completed": self.completed, "flows_dropped": self.dropped}


# --- control nodes ----------------------------------------------------------------------------------------------------


class ControlNodes:
    def __init__(self, core: LansisCore, membership: MembershipChange, receiver: Receiver) -> None:
        self._core = core
        self._membership = membership
        self._receiver = receiver
        self._heard: list[Joining | Faults] = []
        self.has_news = False
        """Has anything but statements entered the DAG since my newest one?"""

    # --- my own -----------------------------------------------------------------------------------------------------

    def statement_out(self, mine: Statement, unsent: list[Send]) -> list[Send]:
        """Put my statement into the DAG. It leaves with earlier ones that have not left yet, because it follows them."""
        view = self._core.view
        self.has_news = False
        for rank in sorted(view.gone):
            view.dag.put_in_limbo(rank)
        on_control = [Send(Audience.WORLD, Port.CONTROL, self._core.packet(mine))]
        if not self.goes_in_the_dag(mine):
            return on_control
        burst = self._insert(mine)
        sends = [send for send in unsent if send.port is Port.DATA]
        if not view.is_singleton:
            sends.append(Send(Audience.RING, Port.DATA, burst.datagrams))
        return sends + on_control if isinstance(mine, Joining) else sends

    def goes_in_the_dag(self, said: Statement) -> bool:
        return self._fits(said) and self._has_room()

    def _fits(self, said: Statement) -> bool:
        """Does it fit half of a burst? Acknowledgements need the rest. Sender and receiver come to the same answer."""
        return len(encode_control(said)) <= BURST_DATAGRAMS_MAX * body_max(self._core.config.datagram) // 2

    def _has_room(self) -> bool:
        """Is a timestamp left above all that a statement would follow? Members with the same DAG come to the same answer."""
        view = self._core.view
        return view.dag.latest + 1 < view.base + TIMESTAMP_ROOM

    def _insert(self, mine: Statement) -> Burst:
        """Stamp it just above all that it follows, and not by the clock, which may be beyond what the view has room for."""
        core, view = self._core, self._core.view
        room = body_max(core.config.datagram)
        stream = encode_acks(view.order.frontier, view.dag.acks(), ()) + encode_control(mine)
        filled = VisitWriter(room, -(-len(stream) // room), stream).burst(DatagramClass.CAUSAL)
        stamp = Stamp(view.view_id, view.tag, view.rank, round_of(BurstMark.STATEMENT), view.dag.latest + 1)
        burst = originate(core, stamp, core.counter + 1, 0, filled.datagrams)
        core.counter = burst.last_seq
        self._receiver.accept_own(burst)
        return burst

    # --- those of others --------------------------------------------------------------------------------------------

    def is_control(self, node: DagNode) -> bool:
        """A node entered the DAG: is it a statement? Then it is handled right after the packet that brought it."""
        if mark_of(node.pieces[0].header) is not BurstMark.STATEMENT:
            self.has_news = True
            return False
        view = self._core.view
        if node.rank != view.rank:
            view.stability.stated(node.rank, node.past, self._core.now)
            view.order.stated(node)
            said = _read(node)
            if said is not None and said.sender == view.node(node.rank) and said.view == view.id and not said.leaving:
                self._heard.append(said)
        return True

    def take_heard(self) -> list[Joining | Faults]:
        heard, self._heard = self._heard, []
        return heard

    def noticed(self, burst: Burst) -> None:
        """A new statement came, though it may have to wait for what it follows: its sender is not silent."""
        view, rank = self._core.view, burst.sender
        if mark_of(burst.header) is not BurstMark.STATEMENT or burst.ring != view.tag or rank >= len(view):
            return
        if burst.last_seq > view.dag.stores[rank].highest:
            self._membership.heard_at[view.node(rank)] = self._core.now

    def is_in_the_dag(self, said: Statement) -> bool:
        """Is this a copy, from the control socket, of what its sender also says in our DAG?"""
        view = self._core.view
        is_ours = said.view == view.id and view.rank_of(said.sender) is not None
        return is_ours and not said.leaving and self.goes_in_the_dag(said)


def _read(node: DagNode) -> Joining | Faults | None:
    """The statement in a control node; None if its bytes are not one."""
    stream = b"".join(body for piece in node.pieces for body in piece.bodies())
    head = decode_acks(stream)
    assert isinstance(head, Acks), "the DAG has read them"
    said = decode_control(stream[len(encode_acks(*head)) :])
    return said if isinstance(said, Joining | Faults) else None


# --- steps ------------------------------------------------------------------------------------------------------------


CROWD_OF_STEPS: Final = 8
"""From this many members on, each makes its steps less often: every step is a statement, which everybody reads."""


class Steps:
    """How the view that ends goes on until I flush. Each step is a statement, and the next waits until that has left."""

    def __init__(
        self, core: LansisCore, membership: MembershipChange, delivery: DagDelivery, sending: BurstSender, flow: FlowThrough,
        control: ControlNodes,
    ) -> None:  # fmt: skip
        self._core = core
        self._membership = membership
        self._delivery = delivery
        self._sending = sending
        self._flow = flow
        self._control = control
        self._next_at = 0

    def step(self) -> None:
        """At the end of every turn."""
        core, mine = self._core, self._membership.sets.mine
        if not self._membership.may_restate() or core.now < self._next_at or mine is None:
            return
        count = self._sending.placeable_flows()
        if self._control.goes_in_the_dag(mine) and (count or self._control.has_news or self._delivery.can_go_on()):
            self._claim(count)
            self._sending.vote()
            self._membership.restate()
            self._next_at = core.now + core.config.pulse.coalesce_us * (len(core.view) // CROWD_OF_STEPS)

    def _claim(self, count: int) -> None:
        """What is claimed here has its place in the view that ends, whatever view comes of this change."""
        before = self._core.counter
        self._sending.place_flowed(count)
        if count:
            self._flow.claimed(self._core.counter - before)
