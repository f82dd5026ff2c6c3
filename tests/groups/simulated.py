"""Grouped nodes on the simulated network: doors to make their processes ask for things at once, and what these were handed."""

from __future__ import annotations

from collections.abc import Iterator

from tests.groups.streams import Seen, StreamEvent
from transis.audit.guarantees.clients import ClientHistory, ClientStream, Got
from transis.audit.guarantees.history import LaidHistory
from transis.node.node import Node
from transis.sim.cluster import SimulatedCluster
from transis.sim.life import Clients, SimulatedLife, Submission
from transis.sim.plan import Plan
from transis.trace.events import ClientLeft, GroupConf
from transis.types.ids import ProcessId, Service
from transis.types.outputs import GroupLeft, GroupRefused
from transis.types.views import Address, GroupView, group_id
from transis.wire.items import encode_address

SIZE = 60
"""Bytes of a message."""


NOTHING = Submission(Service.AGREED, ())
"""What is submitted to make a host take a turn at once, for what did not come through the host."""


class Groups(SimulatedCluster):
    """A cluster whose nodes have processes: `number 1` of each node unless said otherwise."""

    def __init__(self, plan: Plan, later: tuple[str, ...] = ()) -> None:
        super().__init__(plan, later, Node)

    def life(self, name: str) -> SimulatedLife:
        life = self.world.hosts[name].life
        assert life is not None, f"{name} is down"
        return life

    def node(self, name: str) -> Node:
        node = self.life(name).node
        assert isinstance(node, Node)
        return node

    def clients(self, name: str) -> Clients:
        clients = self.life(name).clients
        assert clients is not None
        return clients

    def connect(self, name: str) -> ProcessId:
        """The next process of the node: 1, 2 ..."""
        return ProcessId(self.life(name).id, self.clients(name).connect())

    def join(self, name: str, group: str, process: int = 1) -> None:
        self._toggle(name, group, process, joined=True)

    def quit(self, name: str, group: str, process: int = 1) -> None:
        self._toggle(name, group, process, joined=False)

    def _toggle(self, name: str, group: str, process: int, joined: bool) -> None:
        clients = self.clients(name)
        assert (group in clients.wanted[process]) is not joined
        clients.toggle(self._local(name), process, group)
        assert (group in clients.wanted[process]) is joined, "the control lane is full"
        self._turn(name)

    def disconnect(self, name: str, process: int = 1) -> None:
        self.clients(name).disconnect(self._local(name), process)
        self._turn(name)

    def send(
        self, name: str, *groups: str, process: int = 1, service: Service = Service.AGREED, to: Address | None = None
    ) -> None:
        """One message of a process."""
        address = encode_address(Address(tuple(map(group_id, groups))) if to is None else to)
        self.life(name).submit(self._local(name), Submission(service, (SIZE,), process, address))
        self._turn(name)

    def _local(self, name: str) -> int:
        return self.world.hosts[name].clock.local(self.world.now)

    def _turn(self, name: str) -> None:
        self.world.hosts[name].submit(NOTHING)

    def stream(self, process: ProcessId) -> list[StreamEvent]:
        return self.streams()[process]

    def streams(self) -> dict[ProcessId, list[StreamEvent]]:
        index = LaidHistory(self.history())
        return {client.id: list(_events(index, client)) for client in ClientHistory(index).clients}

    def views_of(self, process: ProcessId, group: str) -> list[GroupView]:
        return [event for event in self.stream(process) if isinstance(event, GroupView) and event.name == group]

    def messages(self, process: ProcessId) -> list[Seen]:
        return [event for event in self.stream(process) if isinstance(event, Seen)]


def _events(index: LaidHistory, client: ClientStream) -> Iterator[StreamEvent]:
    for step in client.steps:
        match step:
            case GroupConf(view=view):
                yield view
            case Got(codes=codes, run=run, groups=groups):
                service = Service.BASIC if run is None else run.service
                yield from (Seen(index.message(code), service, groups) for code in codes)
            case ClientLeft(process=process, group=group, name=name, why=why, refused=refused):
                yield (GroupRefused if refused else GroupLeft)(process, group, name, why)
