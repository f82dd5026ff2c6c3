"""Grouped nodes on the simulated network: what their processes saw, and doors to make them ask for things.

The simulator's hosts carry out what any node hands out; what is for local processes is kept here, in order, as a session would.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tests.groups.judging import Seen, StreamEvent
from transis.model.config import Config
from transis.model.contract import NodeOutput
from transis.model.groups import (
    Address,
    GroupDelivered,
    GroupLeft,
    GroupRefused,
    GroupView,
    GroupViewInstalled,
    group_id,
)
from transis.model.ids import MessageId, ProcessId
from transis.model.service import Service
from transis.sim.cluster import Cluster
from transis.sim.life import payload
from transis.sim.plan import Plan
from transis.stack.grouped import GroupedNode


class SimulatedNode(GroupedNode):
    """`streams[p]` is what process p was handed. A request from outside makes the host take a turn at once."""

    def __init__(self, config: Config, stored: Mapping[str, int], boot: int, key: bytes | None = None) -> None:
        super().__init__(config, stored, boot, key)
        self.streams: dict[int, list[StreamEvent]] = defaultdict(list)
        self.asked = False

    def deadline(self) -> int:
        return 0 if self.asked else super().deadline()

    def outputs(self) -> list[NodeOutput]:  # type: ignore[override]
        self.asked = False
        below: list[NodeOutput] = []
        for output in super().outputs():
            match output:
                case GroupViewInstalled(view, processes):
                    for process in processes:
                        self.streams[process].append(view)
                case GroupDelivered(run, recipients):
                    for process, groups in recipients:
                        for index, data in enumerate(run.payloads):
                            message = MessageId(run.process, run.first_counter + index)
                            self.streams[process].append(Seen(message, run.service, bytes(data), groups))
                case GroupLeft() | GroupRefused():
                    self.streams[output.process].append(output)
                case _:
                    below.append(output)
        return below


class Groups(Cluster):
    """A cluster whose nodes have processes: `number 1` of each node unless said otherwise."""

    def __init__(self, plan: Plan, later: tuple[str, ...] = ()) -> None:
        self.nodes: dict[ProcessId, SimulatedNode] = {}
        super().__init__(plan, later, SimulatedNode)

    def node(self, name: str) -> SimulatedNode:
        life = self.world.hosts[name].life
        assert life is not None, f"{name} is down"
        assert isinstance(life.node, SimulatedNode)
        return life.node

    def connect(self, name: str, process: int = 1) -> ProcessId:
        node = self.node(name)
        node.connect(process)
        self.nodes[ProcessId(node.id, process)] = node
        return ProcessId(node.id, process)

    def join(self, name: str, group: str, process: int = 1) -> None:
        assert self.node(name).join_group(self._local(name), process, group)
        self._turn(name)

    def quit(self, name: str, group: str, process: int = 1) -> None:
        assert self.node(name).leave_group(self._local(name), process, group)
        self._turn(name)

    def disconnect(self, name: str, process: int = 1) -> None:
        self.node(name).disconnect(self._local(name), process)
        self._turn(name)

    def send(
        self, name: str, *groups: str, process: int = 1, service: Service = Service.AGREED, to: Address | None = None
    ) -> None:
        """One message of a process; the host knows its bytes, as it does of those that it makes itself."""
        life = self.world.hosts[name].life
        assert life is not None
        mine = life.payloads.setdefault(process, [])
        data = payload(life.id, process, len(mine) + 1, 60)
        address = Address(tuple(map(group_id, groups))) if to is None else to
        if self.node(name).send(self._local(name), process, address, service, [data]):
            mine.append(data)
        self._turn(name)

    def _local(self, name: str) -> int:
        return self.world.hosts[name].clock.local(self.world.now)

    def _turn(self, name: str) -> None:
        self.node(name).asked = True
        self.world.hosts[name].arrange()

    def stream(self, process: ProcessId) -> list[StreamEvent]:
        return self.nodes[process].streams[process.number]

    def streams(self) -> dict[ProcessId, list[StreamEvent]]:
        return {process: self.stream(process) for process in sorted(self.nodes)}

    def views_of(self, process: ProcessId, group: str) -> list[GroupView]:
        return [event for event in self.stream(process) if isinstance(event, GroupView) and event.name == group]

    def messages(self, process: ProcessId) -> list[Seen]:
        return [event for event in self.stream(process) if isinstance(event, Seen)]
