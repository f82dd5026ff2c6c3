"""One program of `transis bench throughput`: joins a group, sends as fast as it may, takes everything through `batches()`.

    python -m transis.bench.speaker      (started by the benchmark, told what to do on standard input)

1. All programs send from `go` on until their time is over. Counted is what the application took between two points of time.
2. Every sender's counters must come one by one: what is missing is lost. The last message of each sender says that it was the
   last, and a program has ended when it saw the last of everybody.
3. Latency is from the call of `send_many` to the application that takes the message, all queues included, whoever sent it: a
   message holds the time of its call, and on one machine all processes have one clock. One message stands for its batch.

How much of a process's time is spent in some of its functions, while it works as it always does.

Two runs of the same nodes differ by a tenth, so what costs a hundredth cannot be seen by comparing runs. It can be timed where it
happens. What is timed must not call each other, and what the stopwatch itself takes counts as theirs.
"""

from __future__ import annotations

import asyncio
import signal
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import wraps
from operator import sub
from pathlib import Path
from typing import Any, Final

import msgspec

from transis.bench.machines import next_order, open_orders, tell
from transis.client.connection import Connection, connect
from transis.client.events import Batch
from transis.client.group import Group
from transis.embed.node import EmbeddedNode
from transis.net.runtime import boottime_us, end_with_parent, fast_loop
from transis.net.transport import Group as MulticastGroup
from transis.trace.flight import Flight, Tidier
from transis.trace.tape import DeliveryTape
from transis.types.ids import ProcessId, Service

GROUP_NAME: Final = "bench"
LAST: Final = b"last"
CALL_BYTES: Final = 64 * 1024
"""Bytes that one call of `send_many` hands over."""
CALL_MESSAGES: Final = 1024
TICK_S: Final = 0.001
"""With a rate: how often what is due is sent."""
STAMP: Final = struct.Struct(">Q")


class Job(msgspec.Struct, kw_only=True):
    """What one program is to do. With a `socket` it is a client there, otherwise it embeds a node."""

    name: str
    parent: int
    nodes: int
    size: int
    service: str
    seconds: float
    warm_up: float
    rate: float = 0.0
    socket: str = ""
    cluster: str = ""
    key: str = ""
    interface: str = "127.0.0.1"
    transport: str = "multicast"
    group: str = ""
    group_port: int = 0
    port: int = 0
    seeds: list[str] = []
    state: str = ""
    engine: str = "totem"
    flight: bool = True
    timed: bool = False
    """Tell how much of the processor time the flight recorder takes; for a program that embeds its node."""


class Samples:
    """Latencies with how many messages each stands for."""

    def __init__(self) -> None:
        self._found: list[tuple[int, int]] = []

    def add(self, latency_us: int, messages: int) -> None:
        self._found.append((latency_us, messages))

    def clear(self) -> None:
        self._found.clear()

    def milliseconds(self, *parts: float) -> list[float]:
        """The latency that this part of all messages did not exceed, for each part asked for."""
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
    """Counts the processor time of threads, so that waiting for a processor is nobody's cost."""

    def __init__(self) -> None:
        self._inside_ns = 0

    def read(self) -> tuple[float, float]:
        """Seconds of a processor so far: in what is timed, and of the whole process."""
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
    """All that a node does because it has one. Before the node is made, for a node keeps what it calls."""
    stopwatch = Stopwatch()
    for owner, names in ((DeliveryTape, ("fed", "configured")), (Flight, ("turn", "look")), (Tidier, ("tidy",))):
        for name in names:
            stopwatch.watch(owner, name)
    return stopwatch


class Speaker:
    def __init__(self, job: Job, group: Group[bytes], stopwatch: Stopwatch) -> None:
        self._job = job
        self._stopwatch = stopwatch
        self._group = group
        self._at_once = max(1, min(CALL_MESSAGES, CALL_BYTES // max(1, job.size)))
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
        """Until everybody's last message."""
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
        """Send the last message, after what is on its way."""
        self._is_over = True

    def _messages(self, count: int) -> list[bytes]:
        """All of one call have its time, and are one object; a message that is too small for a time has none."""
        stamped = STAMP.pack(boottime_us()) + self._padding
        return [stamped[: self._job.size]] * count

    # --- measuring --------------------------------------------------------------------------------------------------

    async def measure(self) -> dict[str, Any]:
        await asyncio.sleep(self._job.warm_up)
        self.latency.clear()
        taken, batches, began = self.taken, self.batches, boottime_us()
        before = self._stopwatch.read()
        tell({"measuring": True})
        await asyncio.sleep(self._job.seconds)
        taken, batches, passed_us = self.taken - taken, self.batches - batches, boottime_us() - began
        inside_s, all_s = map(sub, self._stopwatch.read(), before)
        tell({"measured": True})
        figures: dict[str, Any] = {"messages": taken, "batches": batches, "seconds": passed_us / 1e6}
        figures |= {"flight_share": inside_s / all_s if self._job.timed else None}
        figures |= {"msgs_per_s": taken / (passed_us / 1e6)}
        figures |= {"latency_ms": self.latency.milliseconds(0.5, 0.99)}
        self.stop()
        return figures


def _connection(job: Job, node: EmbeddedNode | None) -> Connection[bytes]:
    return connect(job.socket, label=job.name) if node is None else node.connect(label=job.name)


def _node(job: Job) -> EmbeddedNode:
    return EmbeddedNode(
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


async def _run() -> None:
    orders = await open_orders()
    job = msgspec.convert(await next_order(orders), Job)
    end_with_parent(job.parent)
    stopwatch = watch_the_flight_recorder() if job.timed else Stopwatch()
    async with AsyncExitStack() as opened:
        node = None if job.socket else await opened.enter_async_context(_node(job))
        session = await opened.enter_async_context(_connection(job, node))
        group = await opened.enter_async_context(session.join(GROUP_NAME))
        speaker = Speaker(job, group, stopwatch)
        await speaker.until_together()
        tell({"ready": True})
        await next_order(orders)
        taking, sending = asyncio.create_task(speaker.take_all()), asyncio.create_task(speaker.send_all())
        figures = await speaker.measure()
        await sending
        await taking
        statistics = (await session.statistics())["node"]
        figures |= {"lost": speaker.lost, "view_changes": speaker.view_changes}
        tell({"result": figures | {name: statistics[name] for name in ("gso", "gro", "retransmitted", "overflows", "pauses")}})
        await next_order(orders)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(_run())


if __name__ == "__main__":
    main()
