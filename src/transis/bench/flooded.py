"""A node that is flooded: its process, and how long its turns take.

    python -m transis.bench.flooded      (started by the benchmark; its first line is a FloodedSpec)

A clock in the node's own event loop ticks every millisecond. Between two ticks the loop ends what it is doing and begins a turn,
so whatever exceeds a millisecond is the length of a turn, during which the node heard nobody. It is counted twice: as time that
passed, in which the system may have run other processes, and as processor time, which is the node's own work.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from transis.bench.machines import NodePlace, next_order, open_orders, report, run_process
from transis.net.host import NodeHost
from transis.net.runtime import calm_the_collector, end_with_parent
from transis.settings.resolve import resolve
from transis.types.views import View

TICK_S: Final = 0.001


class FloodedSpec(NodePlace, kw_only=True):
    """What one node is to be. It has a socket for clients; only the first one is flooded."""

    socket: str


class Pauses:
    """The longest turn of the running loop since `begin`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.begin()
        self._tick()

    def begin(self) -> None:
        self._passed = self._worked = 0.0
        self._last = time.perf_counter(), time.thread_time()

    def _tick(self) -> None:
        passed, worked = time.perf_counter(), time.thread_time()
        self._passed = max(self._passed, passed - self._last[0] - TICK_S)
        self._worked = max(self._worked, worked - self._last[1])
        self._last = passed, worked
        self._loop.call_later(TICK_S, self._tick)

    def figures(self) -> dict[str, float]:
        return {"pause_ms": self._passed * 1e3, "work_ms": self._worked * 1e3}


class FloodedNode:
    def __init__(self, spec: FloodedSpec) -> None:
        opening = replace(resolve(spec.settings()), clients=Path(spec.socket))
        self.host = NodeHost(opening, on_view=self._see)
        self._changes = 0

    def _see(self, view: View) -> None:
        self._changes += 1
        if view.id.is_regular:
            report({"view": [node.name for node in view.nodes]})

    async def serve(self, orders: asyncio.StreamReader) -> None:
        """Each `begin` is answered by what was measured when `end` came."""
        await self.host.listen()
        self.host.start()
        pauses = Pauses()
        while (order := await next_order(orders)) and "close" not in order:
            if "begin" in order:
                pauses.begin()
                self._changes = 0
                report({"begun": True})
            else:
                report({"figures": self._figures(pauses)})
        await self.host.close("the benchmark is over")

    def _figures(self, pauses: Pauses) -> dict[str, Any]:
        return pauses.figures() | {"view_changes": self._changes}


async def _run() -> None:
    orders = await open_orders()
    spec = msgspec.convert(await next_order(orders), FloodedSpec)
    end_with_parent(spec.parent)
    node = FloodedNode(spec)
    calm_the_collector()
    await node.serve(orders)


if __name__ == "__main__":
    run_process(_run)
