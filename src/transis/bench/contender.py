"""One node of `transis bench engines`: a driver without sessions, over a network that loses as much as it is told.

    python -m transis.bench.contender      (started by the benchmark, told what to do on standard input)

1. A round is an order: who speaks does so for its time, with the time in each message, and its last message says so. The round
   is over here when its time is over and the last of this node's own messages came back: the next one starts with no queue.
2. Loss is that of receivers: each datagram is dropped after the socket, by a generator with a seed of its own. So a multicast
   is lost at some members and not at others, tokens and control packets too, and no privilege is needed.
3. Latency is from the call of `send` to the delivery, at every node; on one machine all processes have one clock.
"""

from __future__ import annotations

import asyncio
import signal
import struct
import time
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import msgspec

from transis.bench.machines import PATIENCE_S, next_order, open_orders, tell
from transis.bench.speaker import Samples
from transis.net.driver import Event
from transis.net.host import NodeHost, Opening
from transis.net.runtime import boottime_us, calm_the_collector, end_with_parent, fast_loop
from transis.net.transport import Group, MulticastTransport, StatisticsDict
from transis.settings.load import settings_of
from transis.settings.resolve import resolve
from transis.types.ids import Service
from transis.types.outputs import Configure, Delivered, Port
from transis.wire.envelope import Arrival, apart

STAMP: Final = struct.Struct(">IBQ")
"""Number of the round, whether it is its sender's last message, time of the call."""
CALL_BYTES: Final = 16 * 1024
TICK_S: Final = 0.001


class NodeSpec(msgspec.Struct, kw_only=True):
    """What one node is to be."""

    name: str
    parent: int
    cluster: str
    group: str
    group_port: int
    state: str
    engine: str
    order: str
    loss_permille: int
    seed: int


class Round(msgspec.Struct, kw_only=True):
    """`rate` is what this node sends a second: 0 for nothing, below 0 for as much as it may."""

    number: int
    service: str
    size: int
    rate: float
    warm_up: float
    seconds: float


class Loss:
    """Drops so many of a thousand datagrams; equal seeds drop alike."""

    def __init__(self, permille: int, seed: int) -> None:
        self._permille = permille
        self._random = Random(seed)
        self.lost = 0

    def kept(self, arrived: Sequence[Arrival]) -> Sequence[Arrival]:
        if not self._permille:
            return arrived
        datagrams = apart(arrived)
        kept = [datagram for datagram in datagrams if self._random.randrange(1000) >= self._permille]
        self.lost += len(datagrams) - len(kept)
        return kept


class LossyTransport(MulticastTransport):
    def __init__(self, opening: Opening, loss: Loss) -> None:
        super().__init__(opening.interface, opening.group)
        self._loss = loss

    def receive(self, port: Port) -> Sequence[Arrival]:
        return self._loss.kept(super().receive(port))

    def statistics(self) -> StatisticsDict:
        figures: StatisticsDict = {"lost_on_purpose": self._loss.lost}
        return super().statistics() | figures


class Contender:
    def __init__(self, spec: NodeSpec) -> None:
        group = Group(spec.group, spec.group_port, spec.group_port + 1)
        settings = settings_of(
            spec.name,
            cluster=spec.cluster,
            plaintext=True,
            group=group,
            state=spec.state,
            engine=spec.engine,
            order=spec.order,
            flight=False,
        )
        loss = Loss(spec.loss_permille, spec.seed)
        self.host = NodeHost(resolve(settings), on_events=self._hear, transport_for=lambda opening: LossyTransport(opening, loss))
        self.driver = self.host.driver
        self._round = 0
        self._taken = 0
        self._views = 0
        self._latency = Samples()
        self._came_back = asyncio.Event()

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Delivered):
                for part in event.parts():
                    self._take(part)
            elif isinstance(event, Configure) and event.view.id.is_regular:
                self._views += 1
                tell({"members": [node.name for node in event.view.nodes]})

    def _take(self, run: Delivered) -> None:
        count = len(run.payloads)
        number, is_last, sent_us = STAMP.unpack_from(run.payloads[-1])
        if number != self._round:
            return
        self._taken += count
        self._latency.add(boottime_us() - sent_us, count)
        if is_last and run.process.node == self.driver.node.id:
            self._came_back.set()

    # --- a round ----------------------------------------------------------------------------------------------------

    async def play(self, wanted: Round) -> dict[str, Any]:
        self._round, self._came_back = wanted.number, asyncio.Event()
        speaking = asyncio.create_task(self._speak(wanted))
        await asyncio.sleep(wanted.warm_up)
        self._latency.clear()
        before, began_us = self._figures(), boottime_us()
        await asyncio.sleep(wanted.seconds)
        after, seconds = self._figures(), (boottime_us() - began_us) / 1e6
        p50, p99 = self._latency.milliseconds(0.5, 0.99)
        async with asyncio.timeout(PATIENCE_S):
            await speaking
        figures = {name: after[name] - before[name] for name in before}
        return figures | {"seconds": seconds, "p50_ms": p50, "p99_ms": p99}

    def _figures(self) -> dict[str, float]:
        statistics = self.driver.statistics()
        counted = {name: float(statistics.get(name, 0)) for name in ("retransmitted", "sent_datagrams", "overflows", "pauses")}
        return counted | {"messages": self._taken, "view_changes": self._views, "cpu_s": time.process_time()}

    async def _speak(self, wanted: Round) -> None:
        if not wanted.rate:
            return
        service = Service[wanted.service.upper()]
        ends_us = boottime_us() + round(1e6 * (wanted.warm_up + wanted.seconds))
        if wanted.rate > 0:
            await self._at_a_rate(wanted, service, ends_us)
        else:
            await self._at_once(wanted, service, ends_us)
        await self.driver.send(service, [self._message(wanted, is_last=True)])
        await self._came_back.wait()

    async def _at_a_rate(self, wanted: Round, service: Service, ends_us: int) -> None:
        began_us, sent = boottime_us(), 0
        while (now_us := boottime_us()) < ends_us:
            due = int((now_us - began_us) / 1e6 * wanted.rate) - sent
            if due:
                await self.driver.send(service, [self._message(wanted)] * due)
                sent += due
            await asyncio.sleep(TICK_S)

    async def _at_once(self, wanted: Round, service: Service, ends_us: int) -> None:
        while boottime_us() < ends_us:
            await self.driver.send(service, [self._message(wanted)] * max(1, CALL_BYTES // max(1, wanted.size)))
            await asyncio.sleep(0)

    def _message(self, wanted: Round, *, is_last: bool = False) -> bytes:
        return STAMP.pack(wanted.number, is_last, boottime_us()).ljust(wanted.size, b".")


async def _run() -> None:
    orders = await open_orders()
    spec = msgspec.convert(await next_order(orders), NodeSpec)
    end_with_parent(spec.parent)
    contender = Contender(spec)
    contender.host.start()
    while "round" in (order := await next_order(orders)):
        tell({"result": await contender.play(msgspec.convert(order["round"], Round))})
    await contender.host.close("the benchmark is over")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calm_the_collector()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(_run())


if __name__ == "__main__":
    main()
