"""A tiny node for testing the world: it floods what it is given, delivers on receipt, and echoes its disk and its timer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from transis.types.config import Config
from transis.types.ids import NodeId, ProcessId, Service, ViewId, ViewKind
from transis.types.outputs import (
    NEVER,
    Accepted,
    Audience,
    Configure,
    Delivered,
    NodeOutput,
    Note,
    Originated,
    Persist,
    Phase,
    Port,
    RunIds,
    Stopped,
    Transmit,
)
from transis.types.views import Cause, Member, View

HEARTBEAT_US = 10_000


class FakeNode:
    """`received` keeps (time, port, datagrams) of every call, so that a test sees what the driver did."""

    def __init__(self, config: Config, stored: Mapping[str, int], boot: int, key: bytes | None = None, broken: str = "") -> None:
        self.id = NodeId(config.name, stored.get("incarnation", 0) + 1, boot)
        self.state = "Starting"
        self.coverage: Counter[tuple[str, str]] = Counter()
        self.received: list[tuple[int, Port, list[bytes]]] = []
        self.woken: list[int] = []
        self.broken = broken
        self._deadline = NEVER
        self._counter = 0
        self._out: list[NodeOutput] = []
        me = ViewId(ViewKind.REGULAR, 4, self.id)
        self._view = View(me, me, (Member(self.id, config.address, None),), Cause("start"), 0)

    def start(self, now: int) -> None:
        self._out.append(Persist(1, "incarnation", self.id.incarnation))

    def persisted(self, now: int, ticket: int) -> None:
        self._out += [Note("state", (("from", "Starting"), ("to", "Operational"), ("event", "durable"))), Configure(self._view)]
        self.state = "Operational"
        self._deadline = now + HEARTBEAT_US

    def receive(self, now: int, port: Port, datagrams: Sequence[bytes]) -> None:
        self.received.append((now, port, [bytes(datagram) for datagram in datagrams]))
        if self.broken == "raise" and port is Port.DATA:
            raise RuntimeError("a deliberate defect")

    def submit(self, now: int, service: Service, payloads: Sequence[bytes], address: bytes = b"", process: int = 0) -> int:
        ids = RunIds(process, self._counter + 1, len(payloads), service)
        self._out += [
            Accepted(ids),
            Originated(ids, self._view.id, [(1, 0, ids.count)], 0),
            Transmit(Audience.RING, Port.DATA, payloads),
        ]
        shown = [b"changed"] if self.broken == "change" else payloads
        sender = ProcessId(self.id, process)
        places, ordered = [(self._counter + 1, 0, len(payloads))], service is not Service.BASIC
        self._out.append(
            Delivered(sender, b"", service, places[0][0], shown, self._view.id, Phase.REGULAR, places, False, now, 0, ordered)
        )
        self._counter += len(payloads)
        return len(payloads)

    def wake(self, now: int) -> None:
        self.woken.append(now)
        self._deadline = now + HEARTBEAT_US

    def deadline(self) -> int:
        return self._deadline

    def leave(self, now: int) -> None:
        self.state = "Stopped"
        self._out.append(Stopped("left"))

    def outputs(self) -> list[NodeOutput]:
        outputs, self._out = self._out, []
        return outputs

    def check(self) -> None:
        assert self.id.incarnation > 0
