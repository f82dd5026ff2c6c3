"""The mode `transis`: JOIN and FA are nodes of the DAG of the view that ends (membership-1992 section 4; transis-1992).

A member takes a statement when it enters its DAG, so with everything that its sender had: what the statement says of Pre is
here already. To say it again is to send the same burst again, and who lost it asks for it as for any other. A statement is in no
order and is not delivered. It closes its sender's row at once, whatever is made of it: what follows it acknowledges nothing that
counts.

Outside the DAG, on the control socket, are: AJ and goodbyes, as ever; the copy of a JOIN for strangers, who have no DAG in common
with its sender; and a statement of a crowd that fits no burst, or of a view that has no timestamp left for it.
"""

from __future__ import annotations

from transis.engine.core import Stamp, originate
from transis.lansis.agreeing import Agreeing
from transis.lansis.core import Core
from transis.lansis.keys import TIMESTAMP_ROOM
from transis.lansis.marks import Mark, mark_of, round_of
from transis.lansis.node import Node
from transis.lansis.packets import Acks, Faults, Joining, Statement, decode_acks, encode_acks
from transis.lansis.receiving import Receiving
from transis.types.ids import DatagramClass
from transis.types.limits import BURST_DATAGRAMS_MAX
from transis.types.outputs import Audience, Port, Send
from transis.wire.burst import Burst, body_max
from transis.wire.control import decode_control, encode_control
from transis.wire.packer import VisitWriter


class ControlNodes:
    def __init__(self, core: Core, agreeing: Agreeing, receiving: Receiving) -> None:
        self._core = core
        self._agreeing = agreeing
        self._receiving = receiving
        self._heard: list[Joining | Faults] = []

    # --- my own -----------------------------------------------------------------------------------------------------

    def statement_out(self, mine: Statement, unsent: list[Send]) -> list[Send]:
        """Put my statement into the DAG. It leaves with those before it that have not left, for it follows them."""
        view = self._core.view
        for rank in sorted(view.gone):
            view.graph.put_in_limbo(rank)
        on_control = [Send(Audience.WORLD, Port.CONTROL, self._core.packet(mine))]
        if not self._fits(mine) or not self._has_room():
            return on_control
        burst = self._insert(mine)
        sends = [send for send in unsent if send.port is Port.DATA]
        if not view.is_singleton:
            sends.append(Send(Audience.RING, Port.DATA, burst.datagrams))
        return sends + on_control if isinstance(mine, Joining) else sends

    def _fits(self, said: Statement) -> bool:
        """Half of a burst: its acknowledgements need some of it. Sender and receiver come to the same answer."""
        return len(encode_control(said)) <= BURST_DATAGRAMS_MAX * body_max(self._core.config.datagram) // 2

    def _has_room(self) -> bool:
        """Is there a timestamp above all that a statement would follow? Who has the same has the same answer."""
        view = self._core.view
        return view.graph.latest + 1 < view.base + TIMESTAMP_ROOM

    def _insert(self, mine: Statement) -> Burst:
        """Stamped just above all that it follows, and not by the clock: that may be beyond what the view has room for."""
        core, view = self._core, self._core.view
        room = body_max(core.config.datagram)
        stream = encode_acks(view.order.frontier, view.graph.acks(), ()) + encode_control(mine)
        filled = VisitWriter(room, -(-len(stream) // room), stream).burst(DatagramClass.CAUSAL)
        stamp = Stamp(view.view_id, view.tag, view.rank, round_of(Mark.STATEMENT), view.graph.latest + 1)
        burst = originate(core, stamp, core.counter + 1, 0, filled.datagrams)
        core.counter = burst.last_seq
        self._receiving.accept_own(burst)
        return burst

    # --- those of others --------------------------------------------------------------------------------------------

    def is_control(self, node: Node) -> bool:
        """A node entered the DAG: is it a statement? Then it is taken as soon as the packet that brought it is done with."""
        if mark_of(node.pieces[0].header) is not Mark.STATEMENT:
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
        """A new statement has come that may have to wait for what it follows: its sender is not silent."""
        view, rank = self._core.view, burst.sender
        if mark_of(burst.header) is not Mark.STATEMENT or burst.ring != view.tag or rank >= len(view):
            return
        if burst.last_seq > view.graph.stores[rank].highest:
            self._agreeing.heard_at[view.node(rank)] = self._core.now

    def is_in_the_graph(self, said: Statement) -> bool:
        """Does this copy from the control socket say what its sender says to me in the DAG?"""
        view = self._core.view
        is_ours = said.view == view.id and view.rank_of(said.sender) is not None
        return is_ours and not said.leaving and self._fits(said) and self._has_room()


def _read(node: Node) -> Joining | Faults | None:
    """What a peer's bytes say, if they say anything."""
    stream = b"".join(body for piece in node.pieces for body in piece.bodies())
    head = decode_acks(stream)
    assert isinstance(head, Acks), "the DAG has read them"
    said = decode_control(stream[len(encode_acks(*head)) :])
    return said if isinstance(said, Joining | Faults) else None
