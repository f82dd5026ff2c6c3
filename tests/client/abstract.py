"""The real client above the real groups, whose order is written down by hand (tests/groups/abstract.py): no node, no time.

A link turns frames into requests and messages of a daemon's process, and what the daemon's groups hand out into frames. What is
ordered when, who delivers how much of it when, and who is together with whom is up to the test.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from tests.groups.abstract import Daemon, Order
from transis.client.connection import Connection
from transis.client.events import Raw
from transis.client.link import Link, OnFrames, OnLost
from transis.groups.layer import ControlMessage, Settled
from transis.sessions.frames import (
    SESSION_VERSION,
    Bye,
    Changed,
    ClientFrame,
    Goodbye,
    Hello,
    Join,
    Joined,
    Leave,
    Left,
    NodeFrame,
    NotJoined,
    Send,
    Stream,
    Welcome,
    payload_cost,
)
from transis.types.ids import ProcessId, Service
from transis.types.outputs import GroupDelivered, GroupLeft, GroupRefused, GroupViewInstalled

PLENTY = 1 << 31
SENT_US = 1_600_000_000_000_000
"""The wall clock of every client, which stands still."""


class OrderLink:
    """One process of one daemon."""

    def __init__(self, daemon: ClientDaemon, number: int) -> None:
        self.peer = f"the daemon {daemon.id}"
        self.daemon = daemon
        self.number = number
        self.names: set[str] = set()
        self.is_gone = False
        self._waiting: list[NodeFrame] = []
        self._on_frames: OnFrames | None = None
        self._on_lost: OnLost | None = None

    def start(self, on_frames: OnFrames, on_lost: OnLost) -> None:
        self._on_frames, self._on_lost = on_frames, on_lost
        if self.is_gone:
            on_lost("killed")

    def send(self, frames: Sequence[ClientFrame]) -> None:
        for frame in frames:
            self._take(frame)
        self.daemon.collect()

    def _take(self, frame: ClientFrame) -> None:
        layer = self.daemon.layer
        if self.is_gone:
            return
        match frame:
            case Hello():
                self.put(Welcome(SESSION_VERSION, "order", ProcessId(self.daemon.id, self.number), PLENTY))
            case Join(name):
                layer.join(self.number, name)
            case Leave(name):
                layer.leave(self.number, name)
            case Send(address, service, payloads, event_us):
                self.daemon.unsent.extend((self.number, address, service, payload, event_us) for payload in payloads)
            case Bye():
                self.put(Goodbye("as you said"))
                self.disconnect()

    def put(self, *frames: NodeFrame) -> None:
        """In the next turn of the loop, as from a socket."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._waiting += frames

    def _deliver(self) -> None:
        assert self._on_frames is not None
        frames, self._waiting = self._waiting, []
        self._on_frames(together(frames))

    def disconnect(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            self.daemon.layer.disconnect(self.number)
            self.daemon.collect()

    def crash(self) -> None:
        """The process dies: the daemon notices, and so does what is left of the session."""
        self.disconnect()
        if self._on_lost is not None:
            self._on_lost("killed")

    def wall_us(self) -> int:
        return SENT_US

    async def close(self) -> None:
        self.disconnect()


def together(frames: list[NodeFrame]) -> list[NodeFrame]:
    """Messages that go on from each other share a frame, as a node has it."""
    joined: list[NodeFrame] = []
    for frame in frames:
        last = joined[-1] if joined else None
        if isinstance(frame, Stream) and isinstance(last, Stream) and goes_on(last, frame):
            stretches, payloads = last.stretches + frame.stretches, last.payloads + frame.payloads
            times = last.times + frame.times
            joined[-1] = msgspec.structs.replace(last, stretches=stretches, payloads=payloads, times=times)
        else:
            joined.append(frame)
    return joined


def goes_on(last: Stream, frame: Stream) -> bool:
    same = (last.sender, last.address, last.service, last.view) == (frame.sender, frame.address, frame.service, frame.view)
    return same and frame.first == last.first + len(last.payloads)


class ClientDaemon(Daemon):
    def __init__(self, name: str) -> None:
        self.links: dict[int, OrderLink] = {}
        self.unsent: deque[tuple[int, bytes, Service, bytes, int]] = deque()
        super().__init__(name)

    def collect(self) -> None:
        self.layer.check()
        for output in self.layer.take_outputs():
            match output:
                case ControlMessage():
                    self.outbox.append(output)
                case Settled():
                    self.open = True
                case GroupViewInstalled(view, processes):
                    for link in self._alive(processes):
                        if view.name not in link.names:
                            link.names.add(view.name)
                            link.put(Joined(view.name))
                        link.put(Changed(view))
                case GroupDelivered(run, recipients):
                    stretches = list(run.stretches)
                    payloads = [bytes(payload) for payload in run.payloads]
                    what = (run.process, run.address, run.service, run.view, 0, run.first_counter)
                    frame = Stream(*what, stretches, payloads, [(run.event_us, len(payloads))], payload_cost(payloads))
                    for link in self._alive(recipient.process for recipient in recipients):
                        link.put(frame)
                case GroupLeft(process, _, name, why):
                    for link in self._alive([process]):
                        link.names.discard(name)
                        link.put(Left(name, why))
                case GroupRefused(process, _, name, why):
                    for link in self._alive([process]):
                        link.put(NotJoined(name, why))

    def _alive(self, numbers: object) -> list[OrderLink]:
        return [self.links[number] for number in numbers if not self.links[number].is_gone]  # type: ignore[attr-defined]

    def order_message(self) -> bool:
        """The next entry of the log is what a client sent; whether there was anything, and the lane open."""
        if not self.open or not self.unsent:
            return False
        *what, event_us = self.unsent.popleft()
        self.append(*what, event_us=event_us)
        return True


class ClientOrder(Order):
    """Daemons that have clients."""

    daemons: dict[str, ClientDaemon]  # type: ignore[assignment]

    def __init__(self, names: str) -> None:
        super().__init__("")
        self.daemons = {name: ClientDaemon(name) for name in names}
        self._numbers = 0

    def connect(self, name: str) -> tuple[Connection[bytes], OrderLink]:
        daemon = self.daemons[name]
        self._numbers += 1
        daemon.layer.connect(self._numbers)
        link = daemon.links[self._numbers] = OrderLink(daemon, self._numbers)

        async def make_link() -> Link:
            return link

        return Connection(make_link, "", 1 << 20, Raw()), link

    def settle_all(self) -> bool:
        """Send and deliver everything that waits, everywhere; whether there was anything."""
        busy = False
        for daemon in self.daemons.values():
            while daemon.order_control() or daemon.order_message():
                busy = True
        for daemon in self.daemons.values():
            busy = busy or daemon.position < len(daemon.ring.log)
            daemon.advance(len(daemon.ring.log))
        return busy
