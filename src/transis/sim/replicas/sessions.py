"""Sessions of replicas with the node of their machine, as a daemon's clients have them: requests in, news out, in order.

1. Requests wait until the node has nothing else to do; each of its turns handles one, and sessions take turns. What finds no room
   waits at the head of its session, so that nothing overtakes.
2. News take some microseconds to the replica. What was under way when the node dies still comes, and then the end of the session.
3. The harness learns what it must know of processes: which groups they want to be in, and which bytes they sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from transis.node.node import Node
from transis.sim.host import Host
from transis.sim.life import Clients, SimulatedLife
from transis.types.ids import ProcessId, Service
from transis.types.outputs import NEVER, Configure, GroupDelivered, GroupViewInstalled, News, Room
from transis.types.views import Address, GroupView, group_id, private_name
from transis.wire.items import encode_address

if TYPE_CHECKING:
    from transis.sim.world import World

GROUP: Final = "accounts"
"""The process group of all replicas of a run."""
TO_GROUP: Final = encode_address(Address((group_id(GROUP),)))

AT_ONCE: Final = 0
HOP_US: Final = (10, 60)
"""The least and the most that a request or a piece of news takes between a replica and its node."""


class Message(NamedTuple):
    """As it reaches a replica; private if it was sent to this process and not to the group."""

    sender: ProcessId
    payload: bytes
    is_private: bool


class Lost(NamedTuple):
    """The last of a session's news: the node is gone."""


Event = GroupView | Message | Lost


class Asked(Enum):
    CONNECT = "connect"
    JOIN = "join"
    SEND = "send"
    LEAVE = "leave"


class Request(NamedTuple):
    asked: Asked
    address: bytes = b""
    payload: bytes = b""
    service: Service = Service.AGREED


class Session:
    """The replica's end. `process` is known once the node has handled the connection."""

    def __init__(self, world: World, on_event: Callable[[Event], None]) -> None:
        self.process: ProcessId | None = None
        self.requests: deque[Request] = deque((Request(Asked.CONNECT),))
        self.is_over = False
        self._world = world
        self._on_event = on_event
        self._arrival_us = 0
        self.under_way = 0

    def tell(self, event: Event) -> None:
        """On its way to the replica."""
        world = self._world
        self._arrival_us = max(self._arrival_us, world.now + world.streams["replica sessions"].between(*HOP_US))
        self.under_way += 1
        world.at(self._arrival_us, self._arrive, event)

    def _arrive(self, event: Event) -> None:
        self.under_way -= 1
        if not self.is_over:
            self.is_over = isinstance(event, Lost)
            self._on_event(event)


class ReplicaSessions:
    """The node's end of all sessions of one life."""

    def __init__(self, world: World, host: Host, life: SimulatedLife) -> None:
        assert isinstance(life.node, Node)
        assert life.clients is not None, "a node with groups has clients"
        self._world = world
        self._host = host
        self._life = life
        self._node = life.node
        self._clients: Clients = life.clients
        self._sessions: list[Session] = []
        self._by_process: dict[int, Session] = {}
        self._is_full = False

    # --- the replica's side -----------------------------------------------------------------------------------------

    def open(self, on_event: Callable[[Event], None]) -> Session:
        session = Session(self._world, on_event)
        self._sessions.append(session)
        self._world.at(self._world.now + HOP_US[0], self._knock, None)
        return session

    def ask(self, session: Session, request: Request) -> None:
        session.requests.append(request)
        self._world.at(self._world.now + HOP_US[0], self._knock, None)

    def close(self, session: Session) -> None:
        """The replica is gone, or wants another session: what it asked for before is still done."""
        session.is_over = True
        self.ask(session, Request(Asked.LEAVE))

    def _knock(self, _: None) -> None:
        if self._host.life is self._life:
            self._host.arrange()

    @property
    def is_idle(self) -> bool:
        return not any(session.requests or session.under_way for session in self._sessions)

    # --- turns ------------------------------------------------------------------------------------------------------

    def deadline(self) -> int:
        waits = not self._is_full and any(session.requests for session in self._sessions)
        return AT_ONCE if waits else NEVER

    def wake(self, now: int) -> None:
        session = next(session for session in self._sessions if session.requests)
        self._sessions.remove(session)
        self._sessions.append(session)
        if self._carry_out(now, session, session.requests[0]):
            session.requests.popleft()
        else:
            self._is_full = True
        if session.is_over and not session.requests:
            self._sessions.remove(session)

    def _carry_out(self, now: int, session: Session, request: Request) -> bool:
        if request.asked is Asked.CONNECT:
            process = self._clients.connect(now)
            session.process = self._clients.id(process)
            self._by_process[process] = session
            return True
        assert session.process is not None, "a session begins with its connection"
        process = session.process.number
        if request.asked is Asked.JOIN:
            before = set(self._clients.wanted[process])
            self._clients.toggle(now, process, GROUP)
            return self._clients.wanted[process] != before
        if request.asked is Asked.LEAVE:
            self._clients.disconnect(now, process)
            del self._by_process[process]
            return True
        return self._send(now, process, request)

    def _send(self, now: int, process: int, request: Request) -> bool:
        taken = self._node.submit(now, request.service, [request.payload], request.address, process)
        if taken:
            self._life.payloads.setdefault(process, []).append(request.payload)
        return bool(taken)

    def check(self) -> None:
        assert all(session.process is not None for session in self._by_process.values())

    # --- the node's side --------------------------------------------------------------------------------------------

    def hear(self, output: News) -> None:
        match output:
            case GroupViewInstalled(view, processes):
                for process in processes:
                    self._tell(process, view)
            case GroupDelivered(run, recipients):
                for recipient in recipients:
                    for payload in run.payloads:
                        self._tell(recipient.process, Message(run.process, bytes(payload), not recipient.groups))
            case Room() | Configure():
                self._is_full = False
            case _:
                pass

    def _tell(self, process: int, event: Event) -> None:
        session = self._by_process.get(process)
        if session is not None:
            session.tell(event)

    def died(self) -> None:
        """The node is gone: whoever has a session learns it."""
        for session in self._sessions:
            session.requests.clear()
            session.tell(Lost())
        self._sessions, self._by_process = [], {}


def private_address(process: ProcessId) -> bytes:
    return encode_address(Address((), (private_name(process),)))
