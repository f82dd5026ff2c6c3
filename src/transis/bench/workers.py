"""The processes of a benchmark: programs that send and take all they can, and nodes without clients.

    python -m transis.bench.workers      (started by the benchmark; its first line says what to be: a ProgramSpec or a NodeSpec)

A program joins a group, sends as fast as it may and takes everything through `batches()`.

1. All programs send from `go` on until their time is over. What the application received between two points of time is counted.
2. Every sender's counters must arrive one by one: what is missing is lost. The last message of each sender says that it is the
   last, and a program ends when it has seen everybody's last.

A node without clients reports the time of every change of state and of every view, and plays rounds.

3. In a round each speaker sends for its time, and its last message says so. The round is over at a node when its time is over
   and the last of the node's own messages came back: the next one starts with no queue.
4. Receivers lose datagrams: each drops them behind its socket, by a generator with a seed of its own. So a multicast is lost at
   some members and not at others, tokens and control packets too, and no privilege is needed.

Latency is from the call of `send` to the application that takes the message, all queues included, whoever sent it: a message
holds the time of its call, and all processes of a machine share one clock.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import wraps
from operator import sub
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from transis.bench.machines import PATIENCE_S, NodePlace, next_order, open_orders, report, run_process
from transis.client.connection import Connection, connect
from transis.client.events import Batch
from transis.client.group import Group
from transis.embed.node import Node
from transis.net.host import NodeHost, Opening
from transis.net.runtime import boottime_us, calm_the_collector, end_with_parent
from transis.net.transport import Group as MulticastGroup
from transis.net.transport import MulticastTransport, StatisticsDict
from transis.settings.resolve import resolve
from transis.trace.flight import Flight, Tidier
from transis.types.config import Order, TransportName
from transis.types.ids import ProcessId, Service
from transis.types.outputs import Configure, Delivered, NodeOutput, Note, Observer, Port
from transis.wire.envelope import Arrival, apart

TICK_S: Final = 0.001
"""With a rate: the interval at which whatever is due is sent."""

# --- what to be -----------------------------------------------------------------------------------------------------------


class ProgramSpec(NodePlace, kw_only=True, tag=True):
    """What one program shall do. With a `socket` it is a client there, otherwise it embeds a node."""

    nodes: int
    size: int
    service: str
    seconds: float
    warm_up: float
    rate: float = 0.0
    socket: str = ""
    key: str = ""
    interface: str = "127.0.0.1"
    transport: TransportName = "multicast"
    port: int = 0
    seeds: tuple[str, ...] = ()
    flight: bool = True
    timed: bool = False
    """Report how much of the processor time the flight recorder takes; for a program that embeds its node."""


class NodeSpec(NodePlace, kw_only=True, tag=True):
    """What one node without clients shall do. `rate` is how many messages a second it sends outside rounds."""

    order: Order = "all-ack"
    rate: float = 0.0
    loss_permille: int = 0
    seed: int = 0


class LoadRound(msgspec.Struct, kw_only=True):
    """`rate` is what this node sends a second: 0 for nothing, below 0 for as much as it may."""

    number: int
    service: str
    size: int
    rate: float
    warm_up: float
    seconds: float


# --- a program ------------------------------------------------------------------------------------------------------------

GROUP_NAME: Final = "bench"
LAST: Final = b"last"
PROGRAM_CALL_BYTES: Final = 64 * 1024
"""The bytes of one call of `send_many`."""
CALL_MESSAGES: Final = 1024
STAMP: Final = struct.Struct(">Q")
"""The time of the call."""


class Samples:
    """Latencies, each with the number of messages that had it."""

    def __init__(self) -> None:
        self._found: list[tuple[int, int]] = []

    def add(self, latency_us: int, messages: int) -> None:
        self._found.append((latency_us, messages))

    def clear(self) -> None:
        self._found.clear()

    def milliseconds(self, *parts: float) -> list[float]:
        """For each part asked for, the latency that this part of all messages did not exceed."""
        found = sorted(self._found)
        total = sum(messages for _, messages in found)
        return [_quantile(found, part * total) / 1000 for part in parts]


def _quantile(found: Sequence[tuple[int, int]], rank: float) -> int:
    seen = 0
    for latency_us, messages in found:
        seen += messages
        if seen >= rank:
            return latency_us
    return 0


class Stopwatch:
    """Counts the processor time of threads, so that waiting for a processor costs nothing."""

    def __init__(self) -> None:
        self._inside_ns = 0

    def read(self) -> tuple[float, float]:
        """Processor seconds so far: in what is timed, and in the whole process."""
        return self._inside_ns / 1e9, time.process_time()

    def watch(self, owner: type, name: str) -> None:
        setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*given: Any) -> Any:
            began = time.thread_time_ns()
            try:
                return function(*given)
            finally:
                self._inside_ns += time.thread_time_ns() - began

        return timed


def watch_the_flight_recorder() -> Stopwatch:
    """Time everything that a node does because it has a flight recorder. Call it before the node is made, for a node keeps what
    it calls."""
    stopwatch = Stopwatch()
    for owner, names in ((Flight, ("observe", "flush", "look")), (Tidier, ("tidy",))):
        for name in names:
            stopwatch.watch(owner, name)
    return stopwatch


class BenchClient:
    def __init__(self, job: ProgramSpec, group: Group[bytes], stopwatch: Stopwatch) -> None:
        self._job = job
        self._stopwatch = stopwatch
        self._group = group
        self._at_once = max(1, min(CALL_MESSAGES, PROGRAM_CALL_BYTES // max(1, job.size)))
        self._padding = bytes(max(0, job.size - STAMP.size))
        self._next: dict[ProcessId, int] = {}
        self._is_over = False
        self.lasts = 0
        self.lost = 0
        self.view_changes = 0
        self.taken = 0
        self.batches = 0
        self.latency = Samples()

    # --- taking -----------------------------------------------------------------------------------------------------

    async def until_together(self) -> None:
        async for event in self._group.batches():
            if not isinstance(event, Batch) and len(event.members) == self._job.nodes:
                return

    async def take_all(self) -> None:
        """Receive until everybody's last message."""
        async for event in self._group.batches():
            if not isinstance(event, Batch):
                self.view_changes += 1
                continue
            self._take(event)
            if self.lasts == self._job.nodes:
                return

    def _take(self, batch: Batch[bytes]) -> None:
        payloads, first, sender = batch.payloads, batch.first, batch.sender
        count = len(payloads)
        self.lost += abs(first - self._next.get(sender, 1))
        self._next[sender] = first + count
        self.taken += count
        self.batches += 1
        example = payloads[count // 2]
        if len(example) >= STAMP.size:
            self.latency.add(boottime_us() - STAMP.unpack_from(example)[0], count)
        if payloads[-1] == LAST:
            self.lasts += 1

    # --- sending ----------------------------------------------------------------------------------------------------

    async def send_all(self) -> None:
        service = Service[self._job.service.upper()]
        if self._job.rate:
            await self._send_at_a_rate(service)
        while not self._is_over:
            await self._group.send_many(self._messages(self._at_once), service)
            await asyncio.sleep(0)
        await self._group.send(LAST, service)

    async def _send_at_a_rate(self, service: Service) -> None:
        began, sent = boottime_us(), 0
        while not self._is_over:
            due = int((boottime_us() - began) / 1e6 * self._job.rate) - sent
            if due:
                await self._group.send_many(self._messages(due), service)
                sent += due
            await asyncio.sleep(TICK_S)

    def stop(self) -> None:
        """Send the last message, after those on their way."""
        self._is_over = True

    def _messages(self, count: int) -> list[bytes]:
        """All messages of one call have its time, and are one object; a message that is too small for a time has none."""
        stamped = STAMP.pack(boottime_us()) + self._padding
        return [stamped[: self._job.size]] * count

    # --- measuring --------------------------------------------------------------------------------------------------

    async def measure(self) -> dict[str, Any]:
        await asyncio.sleep(self._job.warm_up)
        self.latency.clear()
        taken, batches, began = self.taken, self.batches, boottime_us()
        before = self._stopwatch.read()
        report({"measuring": True})
        await asyncio.sleep(self._job.seconds)
        taken, batches, passed_us = self.taken - taken, self.batches - batches, boottime_us() - began
        inside_s, all_s = map(sub, self._stopwatch.read(), before)
        report({"measured": True})
        figures: dict[str, Any] = {"messages": taken, "batches": batches, "seconds": passed_us / 1e6}
        figures |= {"flight_share": inside_s / all_s if self._job.timed else None}
        figures |= {"msgs_per_s": taken / (passed_us / 1e6)}
        figures |= {"latency_ms": self.latency.milliseconds(0.5, 0.99)}
        self.stop()
        return figures


def _connection(job: ProgramSpec, node: Node | None) -> Connection[bytes]:
    return connect(job.socket, label=job.name) if node is None else node.connect(label=job.name)


def _node(job: ProgramSpec) -> Node:
    return Node(
        job.name,
        cluster=job.cluster,
        key=bytes.fromhex(job.key) or None,
        plaintext=not job.key,
        interface=job.interface,
        transport=job.transport,
        group=MulticastGroup(job.group, job.group_port, job.group_port + 1),
        port=job.port,
        seeds=job.seeds,
        state=Path(job.state),
        engine=job.engine,
        flight=job.flight,
    )


async def _speak(job: ProgramSpec, orders: asyncio.StreamReader) -> None:
    stopwatch = watch_the_flight_recorder() if job.timed else Stopwatch()
    async with AsyncExitStack() as opened:
        node = None if job.socket else await opened.enter_async_context(_node(job))
        session = await opened.enter_async_context(_connection(job, node))
        group = await opened.enter_async_context(session.join(GROUP_NAME))
        speaker = BenchClient(job, group, stopwatch)
        await speaker.until_together()
        report({"ready": True})
        await next_order(orders)
        taking, sending = asyncio.create_task(speaker.take_all()), asyncio.create_task(speaker.send_all())
        figures = await speaker.measure()
        await sending
        await taking
        statistics = (await session.statistics())["node"]
        figures |= {"lost": speaker.lost, "view_changes": speaker.view_changes}
        report({"result": figures | {name: statistics[name] for name in ("gso", "gro", "retransmitted", "overflows", "pauses")}})
        await next_order(orders)


# --- a node without clients -----------------------------------------------------------------------------------------------

ROUND_STAMP: Final = struct.Struct(">IBQ")
"""Number of the round, whether it is its sender's last message, time of the call."""
ROUND_CALL_BYTES: Final = 16 * 1024
STEADY_PAYLOAD: Final = bytes(64)
STEADY_TICK_S: Final = 0.005


class Loss:
    """Drops this many of a thousand datagrams; equal seeds drop the same ones."""

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


class BareNode(Observer):
    """It has no flight recorder, because other processes would export its ring files while something is measured."""

    kinds = frozenset({Configure, Delivered, Note})

    def __init__(self, spec: NodeSpec) -> None:
        opening = resolve(spec.settings(order=spec.order, flight=False))
        loss = Loss(spec.loss_permille, spec.seed)
        self.host = NodeHost(opening, transport_for=lambda opening: LossyTransport(opening, loss))
        self.host.driver.observers.append(self)
        self._rate = spec.rate
        self._round: int | None = None
        self._taken = 0
        self._views = 0
        self._latency = Samples()
        self._came_back = asyncio.Event()

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        for output in outputs:
            if isinstance(output, Delivered):
                for part in output.parts():
                    self._take(part)
            elif isinstance(output, Note) and output.what == "state":
                report({"state": dict(output.detail)["to"], "at": now_us})
            elif isinstance(output, Configure) and output.view.id.is_regular:
                self._views += 1
                view = output.view
                names = [node.name for node in view.nodes]
                report({"view": str(view.id), "at": now_us, "members": names, "cause": str(view.cause)})

    def _take(self, run: Delivered) -> None:
        count = len(run.payloads)
        number, is_last, sent_us = ROUND_STAMP.unpack_from(run.payloads[-1])
        if number != self._round:
            return
        self._taken += count
        self._latency.add(boottime_us() - sent_us, count)
        if is_last and run.process.node == self.host.id:
            self._came_back.set()

    async def send_steadily(self) -> None:
        """Send at its rate while the ring accepts it: a ring that is being formed accepts nothing."""
        began, sent = boottime_us(), 0
        while self._rate:
            due = int((boottime_us() - began) / 1e6 * self._rate) - sent
            sent += due
            if due and self.host.driver.view is not None:
                self.host.driver.submit(Service.AGREED, [STEADY_PAYLOAD] * due)
            await asyncio.sleep(STEADY_TICK_S)

    # --- a round ----------------------------------------------------------------------------------------------------

    async def play(self, wanted: LoadRound) -> dict[str, Any]:
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
        statistics = self.host.driver.statistics()
        counted = {name: float(statistics.get(name, 0)) for name in ("retransmitted", "sent_datagrams", "overflows", "pauses")}
        return counted | {"messages": self._taken, "view_changes": self._views, "cpu_s": time.process_time()}

    async def _speak(self, wanted: LoadRound) -> None:
        if not wanted.rate:
            return
        service = Service[wanted.service.upper()]
        ends_us = boottime_us() + round(1e6 * (wanted.warm_up + wanted.seconds))
        if wanted.rate > 0:
            await self._at_a_rate(wanted, service, ends_us)
        else:
            await self._at_once(wanted, service, ends_us)
        await self.host.driver.send(service, [self._message(wanted, is_last=True)])
        await self._came_back.wait()

    async def _at_a_rate(self, wanted: LoadRound, service: Service, ends_us: int) -> None:
        began_us, sent = boottime_us(), 0
        while (now_us := boottime_us()) < ends_us:
            due = int((now_us - began_us) / 1e6 * wanted.rate) - sent
            if due:
                await self.host.driver.send(service, [self._message(wanted)] * due)
                sent += due
            await asyncio.sleep(TICK_S)

    async def _at_once(self, wanted: LoadRound, service: Service, ends_us: int) -> None:
        while boottime_us() < ends_us:
            await self.host.driver.send(service, [self._message(wanted)] * max(1, ROUND_CALL_BYTES // max(1, wanted.size)))
            await asyncio.sleep(0)

    def _message(self, wanted: LoadRound, *, is_last: bool = False) -> bytes:
        return ROUND_STAMP.pack(wanted.number, is_last, boottime_us()).ljust(wanted.size, b".")


async def _be_a_node(spec: NodeSpec, orders: asyncio.StreamReader) -> None:
    calm_the_collector()
    node = BareNode(spec)
    node.host.start()
    sending = asyncio.create_task(node.send_steadily())
    while "round" in (order := await next_order(orders)):
        report({"result": await node.play(msgspec.convert(order["round"], LoadRound))})
    sending.cancel()
    await node.host.close("the benchmark is over")


# --- the process ----------------------------------------------------------------------------------------------------------


async def _run() -> None:
    orders = await open_orders()
    work: ProgramSpec | NodeSpec = msgspec.convert(await next_order(orders), ProgramSpec | NodeSpec)
    end_with_parent(work.parent)
    await (_speak(work, orders) if isinstance(work, ProgramSpec) else _be_a_node(work, orders))


if __name__ == "__main__":
    run_process(_run)
