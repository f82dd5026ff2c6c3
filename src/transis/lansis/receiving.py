"""From a packet to the DAG, and to what depends on it: delivery, stability, losses, the acknowledgement that is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transis.engine.core import TIMESTAMP_TAKEN_MAX
from transis.lansis.alive import Heartbeat
from transis.lansis.dag import DagNode
from transis.lansis.delivery import DagDelivery
from transis.lansis.packets import Alive
from transis.lansis.repair import Repair
from transis.lansis.states import Trap
from transis.lansis.view import LansisCore
from transis.types.ids import DatagramClass
from transis.wire.burst import Burst

if TYPE_CHECKING:
    from transis.lansis.engine import LansisParts


class Receiver:
    def __init__(self, core: LansisCore, delivery: DagDelivery, repair: Repair, heartbeat: Heartbeat, parts: LansisParts) -> None:
        self._core = core
        self._parts = parts
        self._delivery = delivery
        self._repair = repair
        self._heartbeat = heartbeat
        self.bursts_inserted = 0
        self.alives_heard = 0

    def accept(self, burst: Burst) -> bool:
        """Take data of my view from the network; True if any of it was new.

        Data numbered above all before is a sign of life of its sender. Old data may have been sent again by anybody.
        """
        core, view = self._core, self._core.view
        rank = burst.header.sender
        highest = view.dag.stores[rank].highest
        if rank == view.rank and burst.last_seq > core.counter:
            core.reject_own(burst)
        self._repair.seen(burst)
        fresh = view.dag.receive(burst)
        if not fresh and not core.flows and view.dag.stores[rank].contradiction(burst) is not None:
            core.reject_content(view.node(rank), burst.first_seq)
        if burst.last_seq > highest and fresh:
            view.heard_at[rank] = core.now
        self._take(burst, fresh)
        return bool(fresh)

    def accept_own(self, burst: Burst) -> None:
        """Put what I have just sent into my DAG."""
        self._take(burst, self._core.view.dag.receive(burst, own=True))

    def _take(self, burst: Burst, fresh: list[Burst]) -> None:
        dag = self._core.view.dag
        if burst.klass is DatagramClass.BASIC:
            self._delivery.on_receipt(fresh)
        if fresh:
            for node in dag.insert_ready():
                self._inserted(node)
        for asker, nacks in dag.take_asked():
            self._repair.asked(asker, nacks)
        self._tell_broken()

    def _inserted(self, node: DagNode) -> None:
        core, view = self._core, self._core.view
        self.bursts_inserted += 1
        core.observe(node.ts)
        view.stability.inserted(node, core.now)
        view.spoke_at[node.rank] = core.now
        control = self._parts.control
        if control is not None and control.is_control(node):
            node.delivered = True  # Control nodes of mode `transis` are delivered to nobody.
            return
        view.order.inserted(node)
        if node.klass is DatagramClass.BASIC:
            node.delivered = True
        else:
            view.waiting.inserted(node)
            if node.klass is DatagramClass.CAUSAL and node.dep > view.order.frontier:
                core.trap(Trap.CAUSAL_WAITED)
        if node.rank != view.rank:
            self._heartbeat.owe(node)

    def hear(self, alive: Alive) -> None:
        """An ALIVE of another member of my view."""
        core, view = self._core, self._core.view
        member, dag = alive.sender, view.dag
        if member == view.rank or len(alive.recv) != len(view):
            return
        self.alives_heard += 1
        why = self._contradiction(alive)
        if why:
            dag.distrust(member, why)
            self._tell_broken()
            return
        view.heard_at[member] = core.now
        view.claimed[member] = max(view.claimed[member], alive.sent)
        dag.name(member, alive.sent)
        for rank, counter in enumerate(alive.recv):
            if counter > dag.named[rank]:
                dag.name(rank, counter)
        if not view.stability.is_closed(member):
            view.stability.heard_alive(member, alive.sent, alive.recv, core.now)
            view.order.heard_alive(member, alive.sent, alive.clock)
        self._repair.asked(member, alive.nacks)

    def _contradiction(self, alive: Alive) -> str:
        """Why no member that follows the protocol says this; empty if one may. A clock that stands still promises nothing, so it
        would stop the order, and what was never sent would fill the window."""
        core, dag, member = self._core, self._core.view.dag, alive.sender
        mine, own = alive.recv[core.view.rank], alive.recv[member]
        if mine > core.counter:
            return f"it has my datagram {mine}, and I sent {core.counter}"
        if alive.sent < own:
            return f"it has its own datagram {own}, and sent {alive.sent}"
        known = zip(alive.recv, dag.inserted, dag.stamped, strict=True)
        seen = max((stamp for said, have, stamp in known if said >= have), default=0)
        if alive.clock < min(seen, TIMESTAMP_TAKEN_MAX):
            return f"its clock says {alive.clock}, and it has what was stamped {seen}"
        return ""

    def _tell_broken(self) -> None:
        for rank, why in self._core.view.dag.take_broken():
            self._core.note("broken data", node=str(self._core.view.node(rank)), why=why)

    def statistics(self) -> dict[str, int]:
        dag = self._core.view.dag
        return {
            "bursts_inserted": self.bursts_inserted,
            "alives_heard": self.alives_heard,
            "leaves": len(dag.leaves),
            "parked": dag.parked,
        }
