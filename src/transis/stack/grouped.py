"""A node with process groups: the ring below, the groups above, one stream of outputs (design 3, docs/groups.md).

Rules of this file:
1. What the engine hands out passes through the groups in its order, and their outputs stand behind what caused them.
2. A configuration's application lane is opened when the groups are settled in it, and never for a configuration that is over.
3. Work on thousands of groups is done in slices. What the ring hands up meanwhile waits, in its order; what it sends does not.
4. The groups' own messages travel on the control lane and are nobody else's business: the driver sees neither them nor their ids.
   An announcement whose configuration ended is dropped here or refused by the engine; the groups make a new one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final

from transis import __version__
from transis.groups.layer import CONTROL_PROCESS, SLICE_GROUPS, ControlMessage, GroupLayer, Settled
from transis.sessions.frames import Checkpoint
from transis.stack.node import Node
from transis.types.config import Config
from transis.types.errors import Rejection, UsageError
from transis.types.ids import NodeId, Service, ViewId
from transis.types.limits import RUN_MESSAGES_MAX
from transis.types.outputs import (
    Configure,
    Delivered,
    GroupDelivered,
    GroupOutput,
    NodeOutput,
    Originated,
    OutboundRun,
    Port,
    Reach,
    Refused,
    Stopped,
    Tape,
)
from transis.types.views import Address, GroupId
from transis.wire.envelope import Arrival
from transis.wire.items import CONTROL_ADDRESS, decode_address, encode_address

REQUESTS_MAX: Final = 4096
"""Control messages that wait for room on the control lane before joins and leaves are put off."""

GroupedOutput = NodeOutput | GroupOutput
"""What a node with groups hands to its driver, carried out in list order."""


class GroupedNode:
    """The doors of a node, and those of its local processes."""

    def __init__(
        self,
        config: Config,
        stored: Mapping[str, int],
        boot: int,
        key: bytes | None = None,
        quorum: frozenset[str] = frozenset(),
        slice_groups: int = SLICE_GROUPS,
    ) -> None:
        self._config = config
        self._node = Node(config, stored, boot, key, lane_opened_from_above=True)
        self._groups = GroupLayer(self._node.id, quorum, slice_groups=slice_groups)
        self._late: deque[Configure | Delivered | Stopped] = deque()
        self._busy_since = 0
        self._control: deque[ControlMessage] = deque()
        self._control_counter = 0
        self._to_open: ViewId | None = None
        self._out: list[GroupedOutput] = []

    # --- the doors of the driver ------------------------------------------------------------------------------------

    def start(self, now: int) -> None:
        self._node.start(now)
        self._follow(now)

    def receive(self, now: int, port: Port, arrivals: Sequence[Arrival]) -> None:
        self._node.receive(now, port, arrivals)
        self._follow(now)

    def wake(self, now: int) -> None:
        """Timers of the node first; then, if the groups are busy, one slice of their work."""
        if not self.is_busy or self._node.deadline() <= now:
            self._node.wake(now)
            self._follow(now)
        if self.is_busy:
            self._work_on()
            self._follow(now)

    def persisted(self, now: int, ticket: int) -> None:
        self._node.persisted(now, ticket)
        self._follow(now)

    def leave(self, now: int) -> None:
        self._node.leave(now)
        self._follow(now)

    def deadline(self) -> int:
        return self._busy_since if self.is_busy else self._node.deadline()

    def engine_deadline(self) -> int:
        """When the engine wants to be woken, whatever the groups have to do: being later than that is what counts as a pause."""
        return self._node.deadline()

    @property
    def is_busy(self) -> bool:
        """The groups have work for another turn. Until it is done they are behind the ring, whose application lane stays shut."""
        return self._groups.is_busy

    def outputs(self) -> list[GroupedOutput]:
        outputs, self._out = self._out, []
        return outputs

    def record_on(self, tape: Tape) -> None:
        """Let somebody hear what is delivered; before the start."""
        self._node.tape = tape

    # --- the doors of local processes -------------------------------------------------------------------------------

    def connect(self, process: int) -> None:
        self._groups.connect(process)

    def disconnect(self, now: int, process: int) -> None:
        """Always taken: there are no more of these than processes."""
        self._groups.disconnect(process)
        self._follow(now)

    def join_group(self, now: int, process: int, name: str) -> bool:
        """Whether the request was taken; if not, the control lane is full: try again after Room."""
        if len(self._control) >= REQUESTS_MAX:
            return False
        self._groups.join(process, name)
        self._follow(now)
        return True

    def leave_group(self, now: int, process: int, name: str) -> bool:
        if len(self._control) >= REQUESTS_MAX:
            return False
        self._groups.leave(process, name)
        self._follow(now)
        return True

    def send(self, now: int, process: int, to: Address, service: Service, payloads: Sequence[bytes]) -> int:
        """Multicast to groups and processes; how many messages were taken. The sender need not be a member."""
        if not self._groups.is_connected(process):
            raise UsageError(f"process {process} is not connected")
        return self.submit(now, service, payloads, encode_address(to), process)

    def submit(self, now: int, service: Service, payloads: Sequence[bytes], address: bytes = b"", process: int = 0) -> int:
        """As a node without groups; an address is one that `encode_address` made, or empty for nobody in particular."""
        wrong = decode_address(address)
        if isinstance(wrong, Rejection):
            raise UsageError(wrong.why)
        if process == CONTROL_PROCESS:
            raise UsageError(f"process {process} is the node's own")
        taken = self._node.submit(now, service, payloads, address, process)
        self._follow(now)
        return taken

    def checkpoint(self, now: int, process: int, frame: Checkpoint) -> None:
        """A local process told a digest of its state. The groups have no use for it; who records what processes do, has."""

    # --- between the node and the groups ----------------------------------------------------------------------------

    def _follow(self, now: int) -> None:
        """Carry outputs up and requests down until nothing more comes of it."""
        while True:
            for output in self._node.outputs():
                self._carry(output)
            self._take_from_groups()
            if self.is_busy:
                self._busy_since = now
            if not self._open(now) and not self._submit_control(now):
                return

    def _work_on(self) -> None:
        """One slice; when the groups are done with what they had, the next of what came meanwhile."""
        self._groups.go_on()
        self._take_from_groups()
        while self._late and not self.is_busy:
            self._carry_up(self._late.popleft())

    def _carry(self, output: NodeOutput) -> None:
        """What goes up stays in its order; while the groups are busy it waits for them. Whom RING means does not wait."""
        if isinstance(output, Configure) and output.view.id.is_regular:
            self._out.append(Reach(tuple(member.address for member in output.view.members)))
        if self._groups.is_busy and isinstance(output, Configure | Delivered | Stopped):
            self._late.append(output)
        else:
            self._carry_up(output)

    def _carry_up(self, output: NodeOutput) -> None:
        if type(output) is Delivered:  # Most outputs are messages, and a match is not free.
            if output.process.number != CONTROL_PROCESS:
                self._out.append(output)
            self._groups.delivered(output)
            self._take_from_groups()
            return
        match output:
            case Configure():
                self._groups.configure(output.view)
                self._take_from_groups()
            case Originated(ids) | Refused(ids):
                if ids.process != CONTROL_PROCESS:
                    self._out.append(output)
            case _:
                self._out.append(output)

    def _take_from_groups(self) -> None:
        for output in self._groups.take_outputs():
            if type(output) is GroupDelivered:
                self._out.append(output)
            elif isinstance(output, ControlMessage):
                self._control.append(output)
            elif isinstance(output, Settled):
                self._to_open = output.view
            else:
                self._out.append(output)

    def _open(self, now: int) -> bool:
        """Several configurations may have passed in one turn: only the last one's lane is there to be opened."""
        if self.is_busy:
            return False
        view, self._to_open = self._to_open, None
        if view is None or view != self._groups.current:
            return False
        self._node.open_application(now)
        return True

    def _submit_control(self, now: int) -> bool:
        """Hand down what waits, as far as the lane has room; whether anything was taken."""
        current = self._groups.current
        while self._control and self._control[0].bound_to not in (None, current):
            self._control.popleft()
        if not self._control:
            return False
        bound_to = self._control[0].bound_to
        batch = [message.payload for message in takewhile(lambda message: message.bound_to == bound_to, self._control)]
        first = self._control_counter + 1
        run = OutboundRun(CONTROL_PROCESS, CONTROL_ADDRESS, Service.AGREED, first, batch[:RUN_MESSAGES_MAX])
        taken = self._node.submit_control(now, run, bound_to)
        self._control_counter += taken
        for _ in range(taken):
            self._control.popleft()
        return taken > 0

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def id(self) -> NodeId:
        return self._node.id

    @property
    def state(self) -> str:
        return self._node.state

    @property
    def coverage(self) -> dict[tuple[str, str], int]:
        return self._node.coverage

    @property
    def rejections(self) -> Counter[str]:
        """What was thrown away, by what was wrong with it, in the node and in its groups."""
        return self._node.rejections + self._groups.rejections

    def members(self, group: GroupId) -> int:
        """How many processes are in the group, for the statistics."""
        known = self._groups.table.groups.get(group)
        return 0 if known is None else len(known.members)

    def groups(self, most: int) -> list[tuple[str, int, int]]:
        """The first groups of the configuration by name: their members, and how many of them are processes of this node."""
        first = sorted(self._groups.table.groups.values(), key=lambda group: group.name)[:most]
        return [(group.name, len(group.members), sum(one.node == self.id for one in group.members)) for group in first]

    def statistics(self) -> dict[str, int]:
        """Figures for an operator: the engine's, what was thrown away by what was wrong with it, how many groups there are."""
        rejected = {f"rejected_{kind.replace(' ', '_')}": count for kind, count in sorted(self.rejections.items())}
        return self._node.statistics() | rejected | {"groups": len(self._groups.table.groups)}

    def about(self) -> dict[str, str]:
        """What a client may have to know of a node to read its stream: who orders, how, and what the views promise."""
        config = self._config
        return {
            "cluster": config.cluster,
            "engine": config.engine,
            "order": config.order,
            "mode": config.mode,
            "guarantees": config.guarantees,
            "build": __version__,
        }

    def check(self) -> None:
        self._node.check()
        self._groups.check()
        assert self.is_busy or not self._late
