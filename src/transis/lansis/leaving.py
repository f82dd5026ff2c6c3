"""Leaving: nothing new is taken, what was taken is sent and held by everybody, then the others are told (W16)."""

from __future__ import annotations

from transis.lansis.agreeing import Agreeing
from transis.lansis.core import Core
from transis.lansis.states import Event, State
from transis.types.outputs import RunIds, Stopped


class Leaving:
    def __init__(self, core: Core, agreeing: Agreeing) -> None:
        self._core = core
        self._agreeing = agreeing
        self.is_leaving = False

    def leave(self) -> None:
        core = self._core
        if core.state is State.STOPPED or self.is_leaving:
            return
        self.is_leaving = True
        core.arm(Event.LEAVE, core.config.timing.leave_us)
        self.look()

    def look(self) -> None:
        """After every turn: is there still something of mine on its way?"""
        if self.is_leaving and self._core.may_send and not self._is_on_its_way():
            self.leave_now()

    def _is_on_its_way(self) -> bool:
        core, view = self._core, self._core.view
        if core.outbox.queued() or core.flowed or view.stability.stable[view.rank] < core.counter:
            return True
        return any(node.rank == view.rank and not node.delivered for node in view.graph.nodes)

    def _without_place(self) -> list[RunIds]:
        """Messages that flowed and that no view will have."""
        flowed = [ids for flow in self._core.flowed for datagram in flow.filled.datagrams for ids in datagram.ended]
        self._core.flowed.clear()
        return flowed

    def leave_now(self) -> None:
        self._agreeing.say_goodbye()
        self.stop("left")

    def stop(self, why: str) -> None:
        core = self._core
        if core.state is State.STOPPED:
            return
        core.refuse([*self._without_place(), *core.outbox.drop_all()], why)
        core.timers.cancel_all()
        core.shift(State.STOPPED, why)
        core.emit(Stopped(why))
