"""The installed view at work: what happens on every packet, every submit and the send timer.

While views change, less happens on the same packets: data enters the DAG, and losses are requested and answered, but nothing is
delivered in order, collected, or newly sent (L7).
"""

from __future__ import annotations

from transis.lansis.delivery import DagDelivery
from transis.lansis.packets import Alive
from transis.lansis.receiving import Receiver
from transis.lansis.repair import Repair
from transis.lansis.sending import BurstSender
from transis.lansis.states import Trap
from transis.lansis.view import LansisCore
from transis.wire.burst import Burst


class OperationalView:
    def __init__(self, core: LansisCore, receiver: Receiver, sending: BurstSender, delivery: DagDelivery, repair: Repair) -> None:
        self._core = core
        self._receiver = receiver
        self._sender = sending
        self._delivery = delivery
        self._repair = repair

    def data_in_view(self, burst: Burst) -> None:
        self._receiver.accept(burst)
        self._repair.look()
        self._settle()

    def alive_in_view(self, alive: Alive) -> None:
        self._receiver.hear(alive)
        self._repair.look()
        self._settle()

    def data_while_frozen(self, burst: Burst) -> None:
        if self._receiver.accept(burst):
            self._core.trap(Trap.LATE_DATA_WHILE_FROZEN)
        self._repair.look()

    def alive_while_frozen(self, alive: Alive) -> None:
        self._receiver.hear(alive)
        self._repair.look()

    def send_due(self) -> None:
        self._settle()

    def submitted(self) -> None:
        """There is new work, or a lane was opened."""
        if self._core.may_send:
            self._settle()

    def _settle(self) -> None:
        """Deliver, collect, send; then deliver again, for what was just sent may be deliverable at once."""
        self._deliver()
        if self._sender.try_to_send():
            self._deliver()

    def _deliver(self) -> None:
        core, view = self._core, self._core.view
        self._delivery.run()
        if core.frozen is None and view.dag.collect(view.stability.stable):
            mine = view.stability.stable[view.rank]
            view.pressure.stable(mine, core.counter)
            view.rate.stable(mine, core.now)
            self._repair.forget()

    def is_on_its_way(self) -> bool:
        """Is anything of mine not yet sent, not yet held by everybody, or not yet delivered here?"""
        core, view = self._core, self._core.view
        if core.outbox.queued() or core.flowed or view.stability.stable[view.rank] < core.counter:
            return True
        return any(node.rank == view.rank and not node.delivered for node in view.dag.nodes)
