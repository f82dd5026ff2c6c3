"""One node alone with its sessions, stepped by hand: a ring of one, and clients that keep what they were sent."""

from __future__ import annotations

from collections.abc import Sequence

from transis.node.node import Node
from transis.sessions.frames import SESSION_VERSION, ClientFrame, Goodbye, Hello, Join, NodeFrame, Send, Stream
from transis.sessions.host import SessionHost, SessionPolicy
from transis.types.config import Config, Window
from transis.types.ids import Service
from transis.types.outputs import EFFECTS, Checkpoint, News, NodeOutput, Persist
from transis.types.views import Address, group_id
from transis.wire.items import encode_address

PLENTY = 1 << 30
STEP_US = 20_000


class Alone:
    """`seen[p]` is everything that left for process p, in order. Who is in `deaf` is not served: its socket is full."""

    def __init__(self, policy: SessionPolicy | None = None, window: Window | None = None, *, start: bool = True) -> None:
        config = Config(name="ann", address="ann:1", window=window or Window(), plaintext=True)
        self.node = Node(config, {}, 500)
        self.checkpoints: list[Checkpoint] = []
        self.host = SessionHost(self.node, "tests", policy)
        self.now = 0
        self.seen: dict[int, list[NodeFrame]] = {}
        self.deaf: set[int] = set()
        if start:
            self.start()

    def start(self) -> None:
        self.node.start(self.now)
        self.settle()

    def settle(self, turns: int = 10) -> None:
        """Let the ring turn for a while, and take whatever may leave."""
        for _ in range(turns):
            self.step(min(STEP_US, max(0, self.node.deadline() - self.now)))

    def step(self, pause_us: int = 0) -> None:
        self.now += pause_us
        if self.node.deadline() <= self.now:
            self.node.wake(self.now)
        if self.host.deadline() <= self.now:
            self.host.wake(self.now)
        while self.host.is_busy:
            self.host.go_on(self.now)
        self.carry_out()
        self.take()

    def carry_out(self) -> None:
        while outputs := self.node.outputs():
            for output in outputs:
                self.persist(output)
                if isinstance(output, Checkpoint):
                    self.checkpoints.append(output)
            self.hear(*(output for output in outputs if not isinstance(output, EFFECTS)))

    def persist(self, output: NodeOutput) -> None:
        if isinstance(output, Persist):
            self.node.persisted(self.now, output.ticket)

    def hear(self, *news: News) -> None:
        self.host.hear(self.now, news)
        self.host.check()

    def take(self) -> None:
        for process in self.host.ready():
            if process not in self.deaf:
                self.seen.setdefault(process, []).extend(out.frame for out in self.host.take(process))
        self.host.check()

    def connect(self, credit: int = PLENTY, label: str = "") -> int:
        return self.host.connect(self.now, Hello(SESSION_VERSION, label, credit))

    def say(self, process: int, *frames: ClientFrame) -> None:
        for frame in frames:
            self.host.receive(self.now, process, frame)
            self.host.check()

    def member(self, *names: str, credit: int = PLENTY) -> int:
        """A new process that is in these groups."""
        process = self.connect(credit)
        self.say(process, *map(Join, names))
        self.settle()
        return process

    def send(self, process: int, group: str, *payloads: bytes, service: Service = Service.AGREED) -> None:
        self.say(process, send_to(group, payloads, service))

    def payloads(self, process: int) -> list[bytes]:
        """What the process was streamed."""
        return [data for frame in self.seen.get(process, ()) if isinstance(frame, Stream) for data in frame.payloads]

    def goodbyes(self, process: int) -> list[str]:
        return [frame.why for frame in self.seen.get(process, ()) if isinstance(frame, Goodbye)]

    def tail(self, process: int, kind: type[NodeFrame]) -> list[NodeFrame]:
        return [frame for frame in self.seen.get(process, ()) if isinstance(frame, kind)]


SENT_US = 1_600_000_000_000_000
"""When what these tests send was sent."""


def send_to(group: str, payloads: Sequence[bytes], service: Service = Service.AGREED) -> Send:
    return Send(encode_address(Address((group_id(group),))), service, list(payloads), SENT_US)
