"""One life of one node, and of its client processes: what they were given, what came out, and what is still owed.

The life keeps what the harness itself must know (payloads to compare, messages not yet returned, the view in force, where each
client process stands); the recorder keeps the trace. Nothing here judges: the trace is for the checkers, and only liveness asks
whether everybody has what it wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from transis.node.node import Node
from transis.trace.recorder import Recorder
from transis.types.config import Config
from transis.types.ids import NodeId, ProcessId, Service, ViewId
from transis.types.outputs import (
    Accepted,
    Configure,
    Delivered,
    GroupLeft,
    GroupRefused,
    GroupViewInstalled,
    News,
    NodeOutput,
    Observer,
    Port,
    ProcessConnected,
    ProcessGone,
    QuorumChanged,
    Refused,
)
from transis.types.views import GroupId, GroupView, View, group_id

# --- clients ----------------------------------------------------------------------------------------------------------

FIRST: Final = 1
"""The number of a life's first client process; 0 is the node itself."""


class ActionKind(Enum):
    CONNECT = "connect"
    TOGGLE = "join or leave"
    DISCONNECT = "disconnect"


class ClientAction(NamedTuple):
    """What a process asks of its node. A newcomer has no number yet, and may want a name; only a join or leave names a group."""

    kind: ActionKind
    process: int = 0
    group: str = ""
    name: str = ""


class Clients:
    """The processes of one life.

    1. An action is carried out if it makes sense when its turn comes: a process that is gone does nothing, and the same action
       makes a process outside the group join and one inside leave.
    2. `wanted` is what a process asked for and was not refused; at rest it is in exactly these groups. `inside` has the view in
       force by process and group.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._last = FIRST - 1
        self.wanted: dict[int, set[str]] = {}
        self.inside: dict[int, dict[GroupId, GroupView]] = {}
        self._names: dict[int, str] = {}

    def connected(self) -> list[int]:
        return sorted(self.wanted)

    def id(self, process: int) -> ProcessId:
        return ProcessId(self._node.id, process)

    # -- what they ask for ---------------------------------------------------------------------------------------

    def ask(self, local: int, action: ClientAction) -> None:
        if action.kind is ActionKind.CONNECT:
            self.connect(local, action.name)
        elif action.process in self.wanted:
            if action.kind is ActionKind.DISCONNECT:
                self.disconnect(local, action.process)
            else:
                self.toggle(local, action.process, action.group)

    def connect(self, local: int = 0, name: str = "") -> int:
        """A name that another process has is not asked for again."""
        self._last += 1
        self._node.connect(self._last)
        if name and name not in self._names.values():
            self._node.name(local, self._last, name)
            self._names[self._last] = name
        self.came(self._last)
        return self._last

    def disconnect(self, local: int, process: int) -> None:
        self.went(process)
        self._node.disconnect(local, process)

    def came(self, process: int) -> None:
        self.wanted.setdefault(process, set())
        self.inside.setdefault(process, {})

    def went(self, process: int) -> None:
        self.wanted.pop(process, None)
        self.inside.pop(process, None)
        self._names.pop(process, None)

    def toggle(self, local: int, process: int, group: str) -> None:
        wanted = self.wanted[process]
        door = self._node.leave_group if group in wanted else self._node.join_group
        if door(local, process, group):
            wanted ^= {group}

    # -- what reaches them ---------------------------------------------------------------------------------------

    def installed(self, output: GroupViewInstalled) -> None:
        for process in output.processes:
            self.inside.get(process, {})[output.view.group] = output.view

    def left(self, output: GroupLeft | GroupRefused) -> None:
        self.inside.get(output.process, {}).pop(output.group, None)
        if isinstance(output, GroupRefused):
            self.wanted.get(output.process, set()).discard(output.name)

    def unrest(self) -> str:
        """The processes that are not in the groups they want, in words."""
        for process, wanted in self.wanted.items():
            inside = self.inside[process]
            if {group_id(name) for name in wanted} != set(inside):
                names = sorted(view.name for view in inside.values())
                return f"has {self.id(process)}, which asked for {sorted(wanted)} and is in {names}"
            transitional = [view for view in inside.values() if not view.id.configuration.is_regular]
            if transitional:
                return f"has {self.id(process)} in the transitional view {transitional[0].id} of {transitional[0].name}"
        return ""


# --- life -------------------------------------------------------------------------------------------------------------


class Sessions(Protocol):
    """What stands between a node and clients that are programs; it gets a turn when the node has nothing to do."""

    def hear(self, output: News) -> None: ...
    def deadline(self) -> int: ...
    def wake(self, now: int) -> None: ...
    def check(self) -> None: ...


class NodeLike(Protocol):
    """The methods of a node that the world uses. Nodes with groups, nodes without, and the fakes of tests have them."""

    @property
    def id(self) -> NodeId: ...
    @property
    def state(self) -> str: ...
    @property
    def coverage(self) -> Mapping[tuple[str, str], int]:
        """How often each event met each state."""
        ...

    def start(self, now: int) -> None: ...
    def receive(self, now: int, port: Port, datagrams: Sequence[bytes]) -> None: ...
    def submit(self, now: int, service: Service, payloads: Sequence[bytes], address: bytes = b"", process: int = 0) -> int: ...
    def wake(self, now: int) -> None: ...
    def deadline(self) -> int: ...
    def persisted(self, now: int, ticket: int) -> None: ...
    def leave(self, now: int) -> None: ...
    def outputs(self) -> Sequence[NodeOutput]: ...
    def check(self) -> None: ...


class NodeFactory(Protocol):
    def __call__(self, config: Config, stored: Mapping[str, int], boot: int, key: bytes | None = None) -> NodeLike: ...


class Submission(NamedTuple):
    """What an application hands to its node in one call. An address names groups and processes; an empty one names nobody."""

    service: Service
    sizes: tuple[int, ...]
    process: int = 0
    address: bytes = b""


def payload(node: NodeId, process: int, counter: int, size: int) -> bytes:
    """Bytes that no other message has, if there is room to spell that out."""
    mark = f"{node.name}/{node.incarnation}/{node.boot:x}#{process}:{counter}/{size};".encode()
    return (mark * (size // len(mark) + 1))[:size]


class SimulatedLife(Observer):
    """1. `payloads[p]` holds what process p submitted and the node took, in order of counters from 1.
    2. What is owed = taken - refused - returned; a node at rest owes nothing, unless it is `held` for want of a quorum.
    3. `position` counts ordered deliveries since the last regular view, as the trace's tpos does.
    4. Only a node with groups has `clients`; a process that is gone sends nothing more.
    """

    def __init__(self, host: str, node: NodeLike, started_us: int, memory: str = "") -> None:
        self.host = host
        self.memory = memory
        self.node = node
        self.id = node.id
        self.started_us = started_us
        self.recorder = Recorder(node.id)
        self.observers: list[Observer] = [self.recorder, self]
        self.clients = Clients(node) if isinstance(node, Node) and node.has_groups else None
        self.sessions: Sessions | None = None
        self.payloads: dict[int, list[bytes]] = {}
        self.taken = 0
        self.refused = 0
        self.returned = 0
        self.delivered = 0
        self.views = 0
        self.view: View | None = None
        self.position = 0
        self.ended = ""
        self.held = ""

    @property
    def owed(self) -> int:
        return self.taken - self.refused - self.returned

    @property
    def waits_for_quorum(self) -> bool:
        """What it took waits for a quorum, so that nobody can say yet what becomes of it."""
        return bool(self.owed and self.held)

    @property
    def regular(self) -> ViewId | None:
        """The regular view in force; None before the first and while a transitional one is."""
        return self.view.id if self.view is not None and self.view.id.is_regular else None

    def submit(self, local: int, submission: Submission) -> int:
        """Hand messages to the node; keep the bytes of those that it took."""
        if self.clients is not None and submission.process and submission.process not in self.clients.wanted:
            return 0
        mine = self.payloads.setdefault(submission.process, [])
        first = len(mine) + 1
        batch = [payload(self.id, submission.process, first + i, size) for i, size in enumerate(submission.sizes)]
        taken = self.node.submit(local, submission.service, batch, submission.address, submission.process)
        assert 0 <= taken <= len(batch), f"{self.id} took {taken} of {len(batch)} messages"
        mine.extend(batch[:taken])
        return taken

    def deadline(self) -> int:
        node = self.node.deadline()
        return node if self.sessions is None else min(node, self.sessions.deadline())

    def wake(self, local: int) -> bool:
        """Wake whoever is due: one at a time, the node first. False if nobody was."""
        if self.node.deadline() <= local:
            self.node.wake(local)
        elif self.sessions is not None and self.sessions.deadline() <= local:
            self.sessions.wake(local)
        else:
            return False
        return True

    def check(self) -> None:
        self.node.check()
        if self.sessions is not None:
            self.sessions.check()

    # -- what comes out ------------------------------------------------------------------------------------------

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        for output in outputs:
            note = _NOTE.get(type(output))
            if note is not None:
                note(self, output)

    def _accepted(self, output: Accepted) -> None:
        self.taken += output.ids.count

    def _refused(self, output: Refused) -> None:
        self.refused += output.ids.count

    def _quorum_changed(self, output: QuorumChanged) -> None:
        self.held = output.lacks if output.held else ""

    def _configured(self, output: Configure) -> None:
        self.view = output.view
        self.views += 1
        if output.view.id.is_regular:
            self.position = 0

    def _delivered(self, output: Delivered) -> None:
        count = len(output.payloads)
        self.delivered += count
        if output.service is not Service.BASIC:
            self.position += count
        if output.process.node == self.id:
            self.returned += count

    def _connected(self, output: ProcessConnected) -> None:
        self._crowd.came(output.process)

    def _gone(self, output: ProcessGone) -> None:
        self._crowd.went(output.process)

    def _installed(self, output: GroupViewInstalled) -> None:
        self._crowd.installed(output)

    def _left(self, output: GroupLeft | GroupRefused) -> None:
        self._crowd.left(output)

    @property
    def _crowd(self) -> Clients:
        assert self.clients is not None, "only a node with groups has processes"
        return self.clients


_NOTE: Final[dict[type[NodeOutput], Callable[[SimulatedLife, Any], None]]] = {
    Accepted: SimulatedLife._accepted,
    Refused: SimulatedLife._refused,
    QuorumChanged: SimulatedLife._quorum_changed,
    Configure: SimulatedLife._configured,
    Delivered: SimulatedLife._delivered,
    ProcessConnected: SimulatedLife._connected,
    ProcessGone: SimulatedLife._gone,
    GroupViewInstalled: SimulatedLife._installed,
    GroupLeft: SimulatedLife._left,
    GroupRefused: SimulatedLife._left,
}
SimulatedLife.kinds = frozenset(_NOTE)
