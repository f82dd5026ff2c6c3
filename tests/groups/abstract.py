"""Layers above an ordering that is written down by hand: no packets and no time, only what extended virtual synchrony allows.

A component has one log. Each node has delivered a prefix of it; what a node has in its outbox it may append. When the
configuration changes, those who stay together deliver the same more of the log: a part in the regular configuration, then, in
the transitional one, the rest up to a gap from anybody and behind it only what they sent themselves (protocols F1). A message
of an application is appended only by a node whose lane is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.groups.streams import Seen, StreamEvent
from transis.groups.layer import CONTROL_PROCESS, ControlMessage, GroupLayer, Settled
from transis.groups.quorum import NO_LIST, QuorumList
from transis.groups.table import Identify
from transis.trace.events import History, NodeTrace
from transis.trace.recorder import Recorder
from transis.types.ids import MessageId, NodeId, ProcessId, Service, ViewId, ViewKind
from transis.types.outputs import (
    Delivered,
    GroupDelivered,
    GroupLeft,
    GroupRefused,
    GroupViewInstalled,
    Phase,
    ProcessConnected,
    ProcessGone,
)
from transis.types.views import Address, Cause, Member, View, group_id
from transis.wire.items import CONTROL_ADDRESS, encode_address

CHECKED_GROUPS_MAX = 100
"""With more groups, checking the whole table at every step would take longer than everything else."""


class Ring:
    """A regular configuration and its log."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.log: list[Delivered] = []


class Daemon:
    """A node: its layer, what it has not sent yet, how much of its ring's log it delivered, and its processes' streams."""

    def __init__(self, name: str, identify: Identify = group_id, quorum: QuorumList = NO_LIST) -> None:
        self.id = NodeId(name, 1, sum(name.encode()))
        self.identify = identify
        self.layer = GroupLayer(self.id, quorum, identify)
        self.recorder = Recorder(self.id)
        self.outbox: list[ControlMessage] = []
        self.streams: dict[int, list[StreamEvent]] = {}
        self.open = False
        self.position = 0
        self.counter = 0
        view_id = ViewId(ViewKind.REGULAR, 0, self.id)
        self.ring = Ring(View(view_id, view_id, (Member(self.id, name, None),), Cause("start"), 0))
        self.configure(self.ring.view)

    def connect(self, process: int) -> ProcessId:
        self.recorder.observe(0, [ProcessConnected(process)])
        self.layer.connect(process)
        self.streams[process] = []
        return ProcessId(self.id, process)

    def disconnect(self, process: int) -> None:
        self.recorder.observe(0, [ProcessGone(process)])
        self.layer.disconnect(process)

    def configure(self, view: View) -> None:
        self.open = False
        if view.id.is_regular:
            self.outbox = [message for message in self.outbox if message.bound_to is None]
        self.layer.configure(view)
        self._finish()
        self.collect()

    def deliver(self, run: Delivered, phase: Phase) -> None:
        run = run._replace(phase=phase)
        if run.process.number != CONTROL_PROCESS:
            self.recorder.observe(0, [run])
        self.layer.delivered(run)
        self._finish()
        self.collect()

    def _finish(self) -> None:
        while self.layer.is_busy:
            self.layer.go_on()

    def advance(self, upto: int) -> None:
        while self.position < upto:
            self.position += 1
            self.deliver(self.ring.log[self.position - 1], Phase.REGULAR)

    def collect(self) -> None:
        if len(self.layer.table.groups) < CHECKED_GROUPS_MAX:
            self.layer.check()
        for output in self.layer.take_outputs():
            if not isinstance(output, ControlMessage | Settled):
                self.recorder.observe(0, [output])
            match output:
                case ControlMessage():
                    self.outbox.append(output)
                case Settled(view, _, held):
                    assert view == self.layer.current
                    self.open = not held
                case GroupViewInstalled(view, processes):
                    for process in processes:
                        self.streams[process].append(view)
                case GroupDelivered(run, recipients):
                    for process, groups in recipients:
                        self.streams[process].extend(
                            Seen(MessageId(run.process, run.first_counter + rank), run.service, groups)
                            for rank in range(len(run.payloads))
                        )
                case GroupLeft() | GroupRefused():
                    self.streams[output.process].append(output)

    def append(self, process: int, address: bytes, service: Service, *payloads: bytes, event_us: int = 0) -> Delivered:
        """The next entry of the ring's log is mine."""
        first, self.counter = self.counter + 1, self.counter + len(payloads)
        places = [(len(self.ring.log) + 1, 0, len(payloads))]
        sender, view = ProcessId(self.id, process), self.ring.view.id
        ordered = service is not Service.BASIC
        what = (sender, address, service, first, payloads, view, Phase.REGULAR, places, False, 0, 0, ordered)
        run = Delivered(*what, event_us)
        self.ring.log.append(run)
        return run

    def order_control(self) -> bool:
        """Send the first control message that waits; whether there was one."""
        self.collect()
        if not self.outbox:
            return False
        message = self.outbox.pop(0)
        assert message.bound_to in (None, self.ring.view.id)
        self.append(CONTROL_PROCESS, CONTROL_ADDRESS, Service.AGREED, message.payload)
        return True

    def order_control_together(self) -> None:
        """Send all that waits in one datagram."""
        self.collect()
        waiting, self.outbox = self.outbox, []
        assert all(message.bound_to is None for message in waiting)
        self.append(CONTROL_PROCESS, CONTROL_ADDRESS, Service.AGREED, *(message.payload for message in waiting))

    def send(self, process: int, *groups: str, service: Service = Service.AGREED, to: Address | None = None) -> Delivered | None:
        """Send if the lane is open; what was sent."""
        if not self.open:
            return None
        address = Address(tuple(map(self.identify, groups))) if to is None else to
        return self.append(process, encode_address(address), service, b"data")


class Survivors(NamedTuple):
    """Those who go on together: how much more of the log they deliver in the regular configuration, and where the gap is."""

    nodes: Sequence[Daemon]
    regular: int
    gap: int


class Order:
    """All nodes and the rings between them."""

    def __init__(self, names: str, identify: Identify = group_id, quorum: Mapping[str, QuorumList] | None = None) -> None:
        self.daemons = {name: Daemon(name, identify, (quorum or {}).get(name, NO_LIST)) for name in names}
        self._seq = 0

    def reconfigure(self, parts: Sequence[Survivors]) -> None:
        """One new regular configuration of several old ones' survivors, each with its own end."""
        together = sorted(daemon.id for part in parts for daemon in part.nodes)
        self._seq += 4
        previous = {daemon.id: daemon.ring.view.id for part in parts for daemon in part.nodes}
        members = tuple(Member(node, node.name, previous[node]) for node in together)
        view_id = ViewId(ViewKind.REGULAR, self._seq, together[0])
        ring = Ring(View(view_id, view_id, members, Cause("change"), 0))
        for part in parts:
            self._end_old(part, members)
        for part in parts:
            for daemon in part.nodes:
                daemon.ring, daemon.position = ring, 0
                daemon.configure(ring.view)

    def _end_old(self, part: Survivors, members: tuple[Member, ...]) -> None:
        old = part.nodes[0].ring
        assert all(daemon.ring is old for daemon in part.nodes)
        regular = max(part.regular, *(daemon.position for daemon in part.nodes))
        nodes = tuple(sorted(daemon.id for daemon in part.nodes))
        coming = tuple(member for member in members if member.node in nodes)
        view_id = ViewId(ViewKind.TRANSITIONAL, self._seq - 2, nodes[0])
        transitional = View(view_id, old.view.id, coming, Cause("change"), 0)
        for daemon in part.nodes:
            daemon.advance(min(regular, len(old.log)))
            daemon.configure(transitional)
            for place, run in enumerate(old.log[daemon.position :], daemon.position):
                if place < part.gap or run.process.node in nodes:
                    daemon.deliver(run, Phase.TRANSITIONAL)

    def merge(self, names: str) -> None:
        """All of these come together, everything sent so far delivered by all in its old ring."""
        rings: dict[ViewId, list[Daemon]] = {}
        for name in names:
            rings.setdefault(self.daemons[name].ring.view.id, []).append(self.daemons[name])
        self.reconfigure([Survivors(nodes, len(nodes[0].ring.log), 1 << 30) for _, nodes in sorted(rings.items())])

    def settle(self) -> None:
        """Everything that waits is sent and delivered, everywhere."""
        busy = True
        while busy:
            busy = sum(daemon.order_control() for daemon in self.daemons.values()) > 0
            for daemon in self.daemons.values():
                daemon.advance(len(daemon.ring.log))

    def history(self, closed: bool = False) -> History:
        """What all nodes recorded; `closed` if everybody is in one ring and has delivered everything."""
        return History([NodeTrace(daemon.id, daemon.recorder.events) for daemon in self.daemons.values()], closed)
