"""Mode `transis`: messages flow while views change, and JOIN and FA are nodes of the DAG (transis-1992, membership-1992 4).

Flows. While this node agrees with others on a view, its messages are multicast as *flows* (marks: sending.py), and every node
that may be in that view keeps them, strangers included. When a view is installed and its application lane is open, each sender
claims its flows: a claim is a burst of that view of which only the first datagram is sent, and a member that has the flow
completes the burst from it. A member that lacks part of the flow lacks datagrams of the view, and asks for them as for any
others. So what flowed is ordered, acknowledged, flushed and delivered as if it had been sent in the new view, once, by all that
install it; but its bytes travelled while the change was under way. Flows of a sender that is not in the next view stay in limbo,
and are dropped at the installation.

Control nodes. A member takes a statement when it enters the DAG of the view that ends, and so with everything that its sender
had: what the statement says of Pre is here already. A statement is repeated by sending the same burst again, and a member that
lost it asks for it as for any other. It is in no order and is not delivered. It closes its sender's row at once, whatever the
statement leads to: acknowledgements after it do not count.

AJ and goodbyes go by the control socket, outside the DAG; so do the copy of a JOIN for strangers, which share no DAG with its
sender, and a statement that does not fit a burst because it names too many nodes, or for which the view has no timestamp left.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from transis.engine.core import Stamp, originate
from transis.lansis.dag import TIMESTAMP_ROOM, DagNode
from transis.lansis.membership import MembershipChange
from transis.lansis.packets import Acks, Faults, Joining, Statement, decode_acks, encode_acks
from transis.lansis.receiving import Receiver
from transis.lansis.sending import NUMBER_MAX, BurstMark, flow_tag, mark_of, number_of, round_of
from transis.lansis.states import AGREEING
from transis.lansis.view import Flow, Frozen, LansisCore
from transis.types.ids import DatagramClass, NodeId, RingTag
from transis.types.limits import BURST_DATAGRAMS_MAX
from transis.types.outputs import Audience, Lane, Port, Send
from transis.wire.burst import LAST_OFFSET, Burst, DataHeader, body_max, encode_ramp
from transis.wire.control import decode_control, encode_control
from transis.wire.items import Filled, VisitWriter

# --- flow through -----------------------------------------------------------------------------------------------------

HEAD_DATAGRAMS_MAX: Final = 8
"""Datagrams kept free in a flow for the acknowledgements of its claim, which need no more."""
BURSTS_OF_WINDOW: Final = 4
"""A flow is at most the window divided by this, as any burst."""


class KeptDatagram(NamedTuple):
    body: bytes
    is_last: bool


class FlowThrough:
    def __init__(self, core: LansisCore, membership: MembershipChange) -> None:
        self._core = core
        self._membership = membership
        self._number = 0
        """The number of my last datagram that flowed, ever."""
        self._begun: Frozen | None = None
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
        if self._begun is not core.frozen:
            self._begun = core.frozen
            if not core.flowed:
                core.outbox.restart([Lane.APPLICATION])

    def _room(self) -> int:
        """Datagrams that may flow now: an equal share of the window for every node that may be in the next view."""
        window = self._core.config.window
        share = max(1, window.window // len(self._membership.sets.j))
        out = sum(len(flow.filled.datagrams) for flow in self._core.flowed)
        largest = min(BURST_DATAGRAMS_MAX - HEAD_DATAGRAMS_MAX, window.visit_max, max(1, window.window // BURSTS_OF_WINDOW))
        return min(share - out, largest, NUMBER_MAX - self._number)

    def _multicast(self, filled: Filled) -> None:
        core, count = self._core, len(filled.datagrams)
        first = self._number + 1
        self._number += count
        self.flowed += count
        core.flowed.append(Flow(first, filled))
        head, mark = filled.datagrams[0], round_of(BurstMark.FLOW)
        header = DataHeader(filled.klass, flow_tag(core.me), 0, first, mark, core.clock, core.now, head.index, head.last, False)
        core.note("flowed", datagrams=count)
        datagrams = encode_ramp(header, [part.body for part in filled.datagrams], filled.datagrams[-1].last)
        core.emit(Send(Audience.RING, Port.DATA, datagrams))

    # --- those of others --------------------------------------------------------------------------------------------

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
        """Remove the flow of this number; return it if all of it is here."""
        kept, parts = self._kept.get(sender, {}), list[KeptDatagram]()
        while len(parts) < BURST_DATAGRAMS_MAX - 1 and (part := kept.pop(number + len(parts), None)) is not None:
            parts.append(part)
            if part.is_last:
                return parts
        return []

    def installed(self) -> None:
        """Limbo ends: drop flows of nodes that are not in the view."""
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

    # --- my own -----------------------------------------------------------------------------------------------------

    def statement_out(self, mine: Statement, unsent: list[Send]) -> list[Send]:
        """Put my statement into the DAG. It leaves with earlier ones that have not left yet, because it follows them."""
        view = self._core.view
        for rank in sorted(view.gone):
            view.dag.put_in_limbo(rank)
        on_control = [Send(Audience.WORLD, Port.CONTROL, self._core.packet(mine))]
        if not self._fits(mine) or not self._has_room():
            return on_control
        burst = self._insert(mine)
        sends = [send for send in unsent if send.port is Port.DATA]
        if not view.is_singleton:
            sends.append(Send(Audience.RING, Port.DATA, burst.datagrams))
        return sends + on_control if isinstance(mine, Joining) else sends

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
            return False
        view = self._core.view
        if node.rank != view.rank:
            view.stability.close(node.rank)
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
        return is_ours and not said.leaving and self._fits(said) and self._has_room()


def _read(node: DagNode) -> Joining | Faults | None:
    """The statement in a control node; None if its bytes are not one."""
    stream = b"".join(body for piece in node.pieces for body in piece.bodies())
    head = decode_acks(stream)
    assert isinstance(head, Acks), "the DAG has read them"
    said = decode_control(stream[len(encode_acks(*head)) :])
    return said if isinstance(said, Joining | Faults) else None
