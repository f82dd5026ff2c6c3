"""`transis bench flood`: clients send as much as they can, one kind of frame after the other; how long do the node's turns
become?

1. All clients are of one node, over its Unix socket, without the library: they write a burst of frames in one go, wait until the
   node has handled it (a question behind it and all joins and leaves are answered), and write the next one. They keep to the
   credit of Sends, and read.
2. Meanwhile one more client asks a small question now and then. The longest that it waits tells how fair the node is.
3. If the view changes although nobody died, the flood caused it.
4. `python -m transis.bench.flood` is a node that is flooded; its first line is a FloodedSpec. A clock in its event loop ticks
   every millisecond. Between two ticks the loop ends what it is doing and begins a turn, so whatever exceeds a millisecond is the
   length of a turn, during which the node heard nobody. It is counted twice: as time that passed, in which the system may have
   run other processes, and as processor time, which is the node's own work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec

from transis.bench.machines import (
    PATIENCE_S,
    BenchError,
    NodePlace,
    Site,
    Worker,
    Workers,
    machine,
    next_order,
    open_orders,
    report,
    run_process,
)
from transis.client.transfer import StateRequest, encode_transfer
from transis.net.host import NodeHost
from transis.net.runtime import calm_the_collector, end_with_parent
from transis.sessions.frames import (
    NODE_FRAMES,
    SESSION_VERSION,
    Answer,
    Ask,
    Checkpoint,
    ClientFrame,
    Credit,
    Follow,
    FrameReader,
    Goodbye,
    Hello,
    Join,
    Joined,
    Leave,
    Left,
    NotJoined,
    Send,
    Welcome,
    cost,
    encode_frame,
)
from transis.settings.resolve import resolve
from transis.types.config import EngineName
from transis.types.errors import Rejection
from transis.types.ids import NodeId, Place, Service, ViewId, ViewKind
from transis.types.views import Address, GroupViewId, View, group_id
from transis.wire.items import encode_address

Say = Callable[[str], None]

BURST: Final = 5_000
"""Frames of one write, unless what they ask for is bounded."""
REQUESTS: Final = 2_000
"""Joins, and as many leaves: a session may have 4,096 of both without an answer."""
OPENS: Final = 200
WINDOW: Final = 1 << 32
SURE_CREDIT: Final = 3 << 18
"""Of a window of 1 MiB so much always comes back; the rest may be too little to be worth a frame."""
READ: Final = 1 << 18
ASKS_S: Final = 0.005
SETTLE_S: Final = 0.3
"""Before each kind, so that nothing of the one before is measured."""
GROUP: Final = "flood"


class FloodRequest(NamedTuple):
    nodes: int
    seconds: float
    sessions: int
    engine: EngineName
    kinds: Sequence[str] = ()
    """All if there are none."""


# --- what a flood is made of --------------------------------------------------------------------------------------------------

_ADDRESS: Final = encode_address(Address((group_id(GROUP),)))
_VIEW: Final = GroupViewId(ViewId(ViewKind.REGULAR, 1, NodeId("nobody", 1, 1)), Place(1, 0))
_REQUEST: Final = encode_transfer(StateRequest(1, False, False, ()))


def _sends(payloads: Sequence[bytes], times: int) -> list[ClientFrame]:
    return [Send(_ADDRESS, Service.AGREED, list(payloads), 0)] * times


def _joins_and_leaves(names: Sequence[str]) -> list[ClientFrame]:
    return [*map(Join, names), *map(Leave, names)]


BURSTS: Final[dict[str, Callable[[], list[ClientFrame]]]] = {
    "nothing": list,
    "questions for figures": lambda: [Ask(0, "statistics")] * BURST,
    "questions about the node": lambda: [Ask(0, "about")] * BURST,
    "questions without an answer": lambda: [Ask(0, "why")] * BURST,
    "joins and leaves of many groups": lambda: _joins_and_leaves([f"{GROUP}-{number}" for number in range(REQUESTS)]),
    "joins and leaves of one group": lambda: [Join("toggled"), Leave("toggled")] * REQUESTS,
    "refused joins": lambda: [Join("")] * BURST,
    "follows": lambda: [Follow()] * BURST,
    "credit": lambda: [Credit(1)] * BURST,
    "checkpoints": lambda: [Checkpoint(GROUP, _VIEW, 0, None, 0, Place(0, 0), b"digest")] * BURST,
    "tiny sends": lambda: _sends([b""], BURST),
    "state requests": lambda: _sends([_REQUEST], BURST),
    "sends of many messages": lambda: _sends([b""] * 4096, 11),
    "large sends": lambda: _sends([bytes(4 << 20)], 1),
}
"""What a client writes in one go. Sends keep to their credit, which one frame may overdraw."""
OPENED: Final = "sessions opened and closed"
TOGETHER: Final = "all kinds at once"
KINDS: Final = (*BURSTS, OPENED, TOGETHER)


class FloodEnded(Exception):
    """The node ended the session of a flooder."""


class Flooder:
    """One client without the library."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader(NODE_FRAMES)
        self._credit = 0
        self._requests = 0
        self._asked = self._answered = 0
        self.said = 0

    @classmethod
    async def connect(cls, path: str) -> Flooder:
        flooder = cls(*await asyncio.open_unix_connection(path, limit=READ))
        flooder._writer.write(encode_frame(Hello(SESSION_VERSION, "flood", WINDOW)))
        await flooder.fence()
        return flooder

    async def flood(self, frames: list[ClientFrame], until: float) -> None:
        """Burst after burst, each when the one before is handled and its credit is back."""
        data, price = b"".join(map(encode_frame, frames)), sum(map(cost, frames))
        requests = sum(isinstance(frame, Join | Leave) for frame in frames)
        while perf_counter() < until:
            while price and self._credit < (price if price <= SURE_CREDIT else 1):
                await self._read()
            self._credit -= price
            self._requests += requests
            self._writer.write(data)
            await self.fence()
            while self._requests:
                await self._read()
            self.said += len(frames)
            if not frames:
                await asyncio.sleep(ASKS_S)

    async def ask_now_and_then(self, until: float) -> float:
        """The longest wait for an answer."""
        longest = 0.0
        while perf_counter() < until:
            began = perf_counter()
            await self.fence()
            longest = max(longest, perf_counter() - began)
            await asyncio.sleep(ASKS_S)
        return longest

    async def fence(self) -> None:
        """Until everything that was written has been handled."""
        self._asked += 1
        self._writer.write(encode_frame(Ask(self._asked, "are you there")))
        while self._answered < self._asked:
            await self._read()

    async def _read(self) -> None:
        data = await self._reader.read(READ)
        frames = self._frames.feed(data)
        if not data or isinstance(frames, Rejection):
            raise FloodEnded("its connection was closed")
        for frame in frames:
            if isinstance(frame, Answer):
                self._answered = max(self._answered, frame.number)
            elif isinstance(frame, Joined | NotJoined | Left):
                self._requests -= 1
            elif isinstance(frame, Credit | Welcome):
                self._credit += frame.amount if isinstance(frame, Credit) else frame.credit
            elif isinstance(frame, Goodbye):
                raise FloodEnded(frame.why)

    def close(self) -> None:
        self._writer.close()


async def _open_and_close(path: str, until: float) -> int:
    """As many as there may be at once, each welcomed and closed."""
    opened = 0
    while perf_counter() < until:
        for flooder in await asyncio.gather(*(Flooder.connect(path) for _ in range(OPENS))):
            flooder.close()
        opened += OPENS
    return opened


# --- the flooded ring ---------------------------------------------------------------------------------------------------------


class FloodedRing:
    """All nodes; the first one is flooded."""

    def __init__(self, site: Site, workers: Workers) -> None:
        self._site = site
        self._workers = workers
        self._nodes: list[Worker] = []
        self.path = site.socket(site.names[0])

    async def start(self) -> None:
        for name in self._site.names:
            worker = await self._workers.start(f"node {name}", "transis.bench.flood", quiet=True)
            worker.send(msgspec.to_builtins(FloodedSpec(**self._site.place(name), socket=self._site.socket(name))))
            self._nodes.append(worker)
        for node in self._nodes:
            while len((await node.hear("view"))["view"]) < len(self._nodes):
                pass

    async def measured(self, flood: Callable[[float], Awaitable[dict[str, Any]]], seconds: float) -> dict[str, Any]:
        """What the flood found out, and what the nodes did meanwhile."""
        await asyncio.sleep(SETTLE_S)
        await self._ask({"begin": True}, "begun")
        try:
            async with asyncio.timeout(seconds + PATIENCE_S):
                found = await flood(perf_counter() + seconds)
        except TimeoutError:
            raise BenchError(f"the flooded node did not handle a burst within {PATIENCE_S:g} s") from None
        flooded, *others = await self._ask({"end": True}, "figures")
        figures = flooded["figures"]
        changes = max(figures["view_changes"], *(other["figures"]["view_changes"] for other in others))
        return {
            "pause_ms": round(figures["pause_ms"], 1),
            "work_ms": round(figures["work_ms"], 1),
            "view_changes": changes,
            **found,
        }

    async def _ask(self, order: dict[str, Any], answer: str) -> list[dict[str, Any]]:
        for node in self._nodes:
            node.send(order)
        return [await node.hear(answer) for node in self._nodes]


async def _flood(ring: FloodedRing, kind: str, request: FloodRequest, until: float) -> dict[str, Any]:
    """All sessions of this kind at once, and the one that asks now and then."""
    onlooker = await Flooder.connect(ring.path)
    asking = asyncio.create_task(onlooker.ask_now_and_then(until))
    began = perf_counter()
    if kind == OPENED:
        said, ended = await _open_and_close(ring.path, until), list[str]()
    else:
        kinds = list(BURSTS) if kind == TOGETHER else [kind] * request.sessions
        said, ended = await _flood_with(ring.path, kinds, until)
    per_s = said / (perf_counter() - began)
    longest = await asking
    onlooker.close()
    return {"frames_per_s": round(per_s), "other_waited_ms": round(longest * 1e3, 1), "ended": ended}


async def _flood_with(path: str, kinds: Iterable[str], until: float) -> tuple[int, list[str]]:
    """How many frames were handled, and what the node said to those whose sessions it ended."""
    flooders = [(await Flooder.connect(path), BURSTS[kind]()) for kind in kinds]
    for flooder, frames in flooders:
        if any(isinstance(frame, Checkpoint | Send) for frame in frames):
            await flooder.flood([Join(GROUP)], perf_counter() + 0.001)
    ends = await asyncio.gather(*(flooder.flood(frames, until) for flooder, frames in flooders), return_exceptions=True)
    for flooder, _ in flooders:
        flooder.close()
    for end in ends:
        if end is not None and not isinstance(end, FloodEnded | OSError):
            raise end
    return sum(flooder.said for flooder, _ in flooders), sorted({str(end) for end in ends if end is not None})


def measure_flood(request: FloodRequest, say: Say) -> dict[str, Any]:
    with TemporaryDirectory(prefix="transis-bench-") as directory:
        site = Site(request.nodes, Path(directory), engine=request.engine)
        return asyncio.run(_measure(request, site, say))


async def _measure(request: FloodRequest, site: Site, say: Say) -> dict[str, Any]:
    kinds: dict[str, Any] = {}
    async with Workers() as workers:
        ring = FloodedRing(site, workers)
        say(f"starting {request.nodes} nodes")
        await ring.start()
        for kind in request.kinds or KINDS:
            say(kind)
            kinds[kind] = await ring.measured(partial(_flood, ring, kind, request), request.seconds)
    return {
        "engine": request.engine,
        "nodes": request.nodes,
        "seconds": request.seconds,
        "sessions": request.sessions,
        "kinds": kinds,
        "machine": machine(),
    }


# --- a node that is flooded -------------------------------------------------------------------------------------------

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
