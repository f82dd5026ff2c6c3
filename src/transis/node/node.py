"""A node without I/O: an engine below, process groups above, one list of outputs.

The driver hands in what arrived, what is to be sent, and the time; then it carries out `outputs()` in order and never holds any
back. Down: submit, pack, order, seal. Up: open, check, order, reassemble, deliver to groups.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from transis import __version__
from transis.engine.base import Engine
from transis.groups.exchange import WAITING_BYTES_MAX
from transis.groups.layer import CONTROL_PROCESS, SLICE_GROUPS, ControlMessage, GroupLayer, Settled
from transis.groups.quorum import QuorumList, QuorumVerdict
from transis.groups.table import ChangeLog, Table
from transis.lansis.engine import LansisEngine
from transis.node.identity import Identity, Stage
from transis.node.intake import Intake
from transis.totem.engine import TotemEngine
from transis.types.config import Config
from transis.types.errors import ConfigError, IdentityError, MessageTooLarge, Rejection, UsageError
from transis.types.ids import NodeId, Service, ViewId
from transis.types.limits import ADDRESS_MAX, MESSAGE_MAX, RUN_MESSAGES_MAX
from transis.types.outputs import (
    Accepted,
    Audience,
    Checkpoint,
    Configure,
    Deliver,
    Delivered,
    Lane,
    NodeOutput,
    Note,
    Originated,
    OutboundRun,
    Output,
    Persist,
    Port,
    ProcessConnected,
    ProcessGone,
    QuorumChanged,
    Reach,
    Refused,
    RunIds,
    Send,
    Stopped,
    Transmit,
)
from transis.wire.burst import Burst
from transis.wire.control import ControlPacket, encode_control
from transis.wire.envelope import Arrival, Sealer
from transis.wire.items import CONTROL_ADDRESS, decode_address
from transis.wire.reassembly import Assembler, DeliveredNumbers

IDENTITY_TICKET: Final = 0
"""The ticket of the write of the incarnation; the engine's own tickets count from 1."""
REQUESTS_MAX: Final = 4096
"""With this many control messages waiting for room on the control lane, joins and leaves are put off."""


class Node:
    """A node with process groups, or without them for scripts and bare measurements.

    1. What the engine hands out passes through the groups in order, and their outputs follow what caused them.
    2. A configuration's application lane is opened when the groups are settled in it, and never once that configuration is over.
       In one that waits for a quorum it stays shut: what was taken waits, in order, for the next configuration that has one. In
       another one that is not primary, what was to be sent only in a primary one is refused first.
    3. Work on thousands of groups is done in slices. What the engine delivers meanwhile waits, in order; what it sends does not.
    4. The groups' own messages travel on the control lane. Observers and sessions see neither them nor their ids. An announcement
       whose configuration ended is dropped here or refused by the engine; the groups make a new one.
    """

    def __init__(
        self,
        config: Config,
        stored: Mapping[str, int],
        boot: int,
        key: bytes | None = None,
        *,
        with_groups: bool = True,
        slice_groups: int = SLICE_GROUPS,
    ) -> None:
        self._config = config.validated()
        if key is None and not config.plaintext:
            raise ConfigError("key", None, "datagrams are sealed: give a key of 32 bytes, or set plaintext if anybody may listen")
        self.id = NodeId(config.name, _stored(stored, "incarnation") + 1, boot)
        self._identity = Identity(self.id, config.address, config.timing.gather_min_us)
        self._engine = engine_of(self._config, self.id, _stored(stored, "ring_seq"))
        self._groups = self._make_groups(slice_groups) if with_groups else None
        self._sealer = Sealer(config.cluster, self.id, key)
        foreign = foreign_kinds(config.engine)
        self._intake = Intake(
            self._config, key, self._identity, foreign, lambda: self._sealer.sent, self._transmit_control, self._pass
        )
        self._assembler = Assembler()
        self._numbers = DeliveredNumbers(self._pass)
        self._counters: Counter[int] = Counter()
        self._running = False
        self._stopped = False
        self._now = 0
        self._delivered = 0
        self._late: deque[Configure | Delivered | Stopped] = deque()
        self._busy_since = 0
        self._control: deque[ControlMessage] = deque()
        self._control_counter = 0
        self._to_open: ViewId | None = None
        self._lacks, self._held = "", False
        self._out: list[NodeOutput] = []

    def _make_groups(self, slice_groups: int) -> GroupLayer:
        """As many basic messages may wait for an exchange as flow control lets others send before this node is there."""
        window = self._config.window
        waiting_bytes = max(WAITING_BYTES_MAX, (window.gap_max + window.window) * self._config.datagram)
        config = self._config
        lists = QuorumList.of(config.quorum, config.quorum_before, holds=config.without_quorum != "continue")
        return GroupLayer(self.id, lists, slice_groups=slice_groups, waiting_bytes=waiting_bytes)

    # --- for the driver ---------------------------------------------------------------------------------------------

    def start(self, now: int) -> None:
        self._now = now
        self._out.append(Persist(IDENTITY_TICKET, "incarnation", self.id.incarnation))
        self._engine.prepare(now)
        self._follow()

    def receive(self, now: int, port: Port, arrivals: Sequence[Arrival]) -> None:
        """Datagrams from the network, any bytes at all. Never fires a timer."""
        self._now = now
        if not self._stopped:
            heard = self._intake.packets(arrivals)
            if heard and self._running:
                self._engine.receive(now, [one.packet for one in heard], [one.by for one in heard])
            self._follow_identity()
        self._follow()

    def wake(self, now: int) -> None:
        """Timers first; then, if the groups are busy, one slice of their work."""
        self._now = now
        if not self.is_busy or self.engine_deadline() <= now:
            self._fire(now)
            self._follow()
        if self.is_busy:
            self._work_on()
            self._follow()

    def _fire(self, now: int) -> None:
        if self._running:
            self._engine.wake(now)
        elif (probe := self._identity.wake(now)) is not None:
            self._transmit_control(probe)
        self._follow_identity()

    def persisted(self, now: int, ticket: int) -> None:
        self._now = now
        if ticket == IDENTITY_TICKET:
            self._identity.durable(now)
        else:
            self._engine.persisted(now, ticket)
        self._follow()

    def leave(self, now: int) -> None:
        """Leave gracefully: first what was taken is sent and safe, then the others are told."""
        self._now = now
        if self._running:
            self._engine.leave(now)
        elif not self._stopped:
            self._identity.give_up()
            self._follow_identity()
        self._follow()

    def deadline(self) -> int:
        return self._busy_since if self.is_busy else self.engine_deadline()

    def engine_deadline(self) -> int:
        """When the engine must be woken, whatever the groups have to do: only waking it later than that counts as a pause."""
        return self._engine.deadline() if self._running else self._identity.deadline()

    @property
    def is_busy(self) -> bool:
        """The groups have work for another turn. Until it is done they lag behind the engine, whose application lane is held."""
        return self._groups is not None and self._groups.is_busy

    def outputs(self) -> list[NodeOutput]:
        outputs, self._out = self._out, []
        return outputs

    # --- for local processes ----------------------------------------------------------------------------------------

    def connect(self, process: int) -> None:
        self._layer.connect(process)
        self._out.append(ProcessConnected(process))

    def require_free_name(self, name: str) -> None:
        """Raises UsageError with the reason if no further process of this node can have this name."""
        self._layer.require_free_name(name)

    def name(self, now: int, process: int, name: str) -> None:
        """Give a process a name, right after `connect`. This is always accepted, as `disconnect` is."""
        self._now = now
        self._layer.name(process, name)
        self._follow()

    def disconnect(self, now: int, process: int) -> None:
        """A process is gone. This is always accepted: there are no more of these than processes."""
        self._now = now
        self._layer.disconnect(process)
        self._out.append(ProcessGone(process))
        self._follow()

    def join_group(self, now: int, process: int, name: str) -> bool:
        """Whether the request was taken; if not, the control lane is full: try again after Room."""
        return self._request(now, self._layer.join, process, name)

    def leave_group(self, now: int, process: int, name: str) -> bool:
        return self._request(now, self._layer.leave, process, name)

    def _request(self, now: int, request: Callable[[int, str], object], process: int, name: str) -> bool:
        self._now = now
        if len(self._control) >= REQUESTS_MAX:
            return False
        request(process, name)
        self._follow()
        return True

    def submit(
        self,
        now: int,
        service: Service,
        payloads: Sequence[bytes],
        address: bytes = b"",
        process: int = 0,
        event_us: int = 0,
        for_primary: bool = False,
    ) -> int:
        """Take messages for sending; return how many were taken. Try the others again after Room.

        An address is made by `encode_address`, or empty for nobody in particular; the sender need not be a member. `event_us` is
        when they were sent, and those that are `for_primary` are refused where no quorum is (OutboundRun).
        """
        self._now = now
        _check_submission(payloads, address)
        if self._groups is not None:
            _check_sender(address, process)
        if not self._running or not payloads:
            return 0
        first = self._counters[process] + 1
        run = OutboundRun(process, address, service, first, payloads, event_us, for_primary)
        refused = for_primary and bool(self._lacks) and not self._held
        taken = len(payloads) if refused else self._engine.submit(now, Lane.APPLICATION, run)
        self._counters[process] += taken
        if taken:
            ids = RunIds(process, first, taken, service, address)
            self._out += [Accepted(ids), Refused(ids, self._lacks)] if refused else [Accepted(ids)]
        self._follow()
        return taken

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """A process reports a digest of its state; only observers use it."""
        self._out.append(checkpoint)

    @property
    def _layer(self) -> GroupLayer:
        assert self._groups is not None, "a node without groups has no processes"
        return self._groups

    # --- from the engine --------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Carry outputs up and requests down until there are no more."""
        while True:
            while outputs := self._engine.take_outputs():
                for output in outputs:
                    _CARRY.get(type(output), Node._pass)(self, output)
            if self._groups is None:
                return
            self._take_from_groups(self._groups)
            if self._groups.is_busy:
                self._busy_since = self._now
            if not self._open(self._groups) and not self._submit_control(self._groups):
                return

    def _follow_identity(self) -> None:
        """Start the engine when the name is ours; stop the node when it is not, or no longer."""
        stage = self._identity.stage
        if stage is Stage.RUNNING and not self._running and not self._stopped:
            self._running = True
            self._engine.start(self._now)
        elif stage is Stage.REFUSED and not self._stopped:
            if self._running:
                self._engine.stop(self._now, self._identity.refusal)
            else:
                self._stop(Stopped(self._identity.refusal))

    def _send(self, output: Send) -> None:
        to = output.to if isinstance(output.to, Audience) else self._engine.address_of(output.to)
        self._out.append(Transmit(to, output.port, self._sealer.seal_all(output.datagrams)))

    def _deliver(self, output: Deliver) -> None:
        burst, sender, view, phase, early, place_seq = output
        assert isinstance(burst, Burst)
        assembled = self._assembler.feed(burst, sender, view, phase, early, place_seq)
        delivered = self._numbers.fresh(sender, assembled) if assembled else assembled
        if self._groups is None:
            self._out.extend(delivered)
            self._delivered += sum(len(run.payloads) for run in delivered)
            return
        for run in delivered:
            self._hand_up(self._groups, run)

    def _configure(self, output: Configure) -> None:
        """A regular view ends all partial messages of the old one. `Reach` does not wait for the groups."""
        view = output.view
        if view.id.is_regular:
            self._assembler.reset()
            if self._groups is not None:
                self._out.append(Reach(tuple(member.address for member in view.members)))
        if self._groups is not None:
            self._hand_up(self._groups, output)
            return
        self._out.append(output)
        if view.id.is_regular:
            self._engine.open(self._now, Lane.APPLICATION)

    def _ids(self, output: Originated | Refused) -> None:
        if self._groups is None or output.ids.process != CONTROL_PROCESS:
            self._out.append(output)

    def _stop(self, output: Stopped) -> None:
        self._stopped = True
        self._running = False
        if self._groups is None:
            self._out.append(output)
        else:
            self._hand_up(self._groups, output)

    def _pass(self, output: NodeOutput) -> None:
        self._out.append(output)

    def _transmit_control(self, packet: ControlPacket) -> None:
        self._out.append(Transmit(Audience.WORLD, Port.CONTROL, [self._sealer.seal(encode_control(packet))]))

    # --- through the groups -----------------------------------------------------------------------------------------

    def _hand_up(self, groups: GroupLayer, output: Configure | Delivered | Stopped) -> None:
        """Hand an output to the groups; while they are busy it waits, in order."""
        if groups.is_busy:
            self._late.append(output)
        else:
            self._into_groups(groups, output)

    def _into_groups(self, groups: GroupLayer, output: Configure | Delivered | Stopped) -> None:
        if type(output) is Delivered:
            if output.process.number != CONTROL_PROCESS:
                self._out.append(output)
                self._delivered += len(output.payloads)
            groups.delivered(output)
        elif type(output) is Configure:
            groups.configure(output.view)
        else:
            self._out.append(output)
        self._take_from_groups(groups)

    def _work_on(self) -> None:
        """Do one slice of the groups' work; when that is done, hand them what came meanwhile."""
        groups = self._layer
        groups.go_on()
        self._take_from_groups(groups)
        while self._late and not groups.is_busy:
            self._into_groups(groups, self._late.popleft())

    def _take_from_groups(self, groups: GroupLayer) -> None:
        for output in groups.take_outputs():
            if isinstance(output, ControlMessage):
                self._control.append(output)
            elif isinstance(output, Settled):
                self._settled(output)
                self._tell_doubt(groups)
            else:
                self._out.append(output)

    def _settled(self, settled: Settled) -> None:
        before = (self._lacks, self._held)
        self._lacks, self._held = settled.lacks, settled.held
        self._to_open = None if self._held else settled.view
        if before != (self._lacks, self._held):
            self._out.append(QuorumChanged(self._lacks, self._held))
        if self._held and before != (self._lacks, True):
            self._out.append(Note("quorum is missing", (("why", self._lacks),)))
        elif before[1] and not self._held:
            self._out.append(Note("quorum is back"))

    def _tell_doubt(self, groups: GroupLayer) -> None:
        verdict = groups.verdict()
        if verdict.doubt:
            self._out.append(Note("quorum lists differ", (("why", verdict.doubt),)))
        if verdict.mixed:
            self._out.append(Note("without_quorum differs", (("why", verdict.mixed),)))

    def _open(self, groups: GroupLayer) -> bool:
        """Open the application lane if the groups are settled. Several configurations may have passed in one turn; only the last
        one's lane is opened."""
        if groups.is_busy:
            return False
        view, self._to_open = self._to_open, None
        if view is None or view != groups.current:
            return False
        if self._lacks:
            self._engine.withdraw(self._now, self._lacks)
        self._engine.open(self._now, Lane.APPLICATION)
        return True

    def _submit_control(self, groups: GroupLayer) -> bool:
        """Submit waiting control messages, as far as the lane has room; True if any was taken."""
        current = groups.current
        while self._control and self._control[0].bound_to not in (None, current):
            self._control.popleft()
        if not self._control or not self._running:
            return False
        bound_to = self._control[0].bound_to
        batch = [message.payload for message in takewhile(lambda message: message.bound_to == bound_to, self._control)]
        first = self._control_counter + 1
        run = OutboundRun(CONTROL_PROCESS, CONTROL_ADDRESS, Service.AGREED, first, batch[:RUN_MESSAGES_MAX])
        taken = self._engine.submit(self._now, Lane.CONTROL, run, bound_to)
        self._control_counter += taken
        for _ in range(taken):
            self._control.popleft()
        return taken > 0

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def has_groups(self) -> bool:
        return self._groups is not None

    @property
    def state(self) -> str:
        if self._stopped:
            return "Stopped"
        return str(self._engine.state.value) if self._running else "Starting"

    @property
    def coverage(self) -> dict[tuple[str, str], int]:
        return self._engine.coverage

    @property
    def rejections(self) -> Counter[str]:
        """How much was rejected, by what was wrong with it, on its way in and in the groups."""
        rejections = self._intake.rejections + self._engine.rejections + self._numbers.rejections
        return rejections if self._groups is None else rejections + self._groups.rejections

    def groups(self, most: int) -> list[tuple[str, int, int]]:
        """The first groups of the configuration by name, with the number of their members, and how many of these are local."""
        first = sorted(self._layer.table.groups.values(), key=lambda group: group.name)[:most]
        return [(group.name, len(group.members), sum(one.node == self.id for one in group.members)) for group in first]

    @property
    def table(self) -> Table:
        """The groups and names of the configuration. It is another one after components came together."""
        return self._layer.table

    @property
    def changes(self) -> ChangeLog:
        return self._layer.changes

    def address_of(self, node: NodeId) -> str | None:
        """Where a node of the configuration is reached; None if it is in no configuration with this one."""
        view = self._layer.configuration
        return None if view is None else next((member.address for member in view.members if member.node == node), None)

    @property
    def raises_without_quorum(self) -> bool:
        return self._config.without_quorum == "raise"

    def verdict(self) -> QuorumVerdict:
        """Whether the configuration in force is primary, and how quorum lists differ if they do."""
        return QuorumVerdict(None) if self._groups is None else self._groups.verdict()

    def statistics(self) -> dict[str, int]:
        """Figures for an operator: the engine's, what was rejected by what was wrong with it, and the groups'."""
        rejected = {f"rejected_{kind.replace(' ', '_')}": count for kind, count in sorted(self.rejections.items())}
        figures = self._engine.statistics() | rejected | {"delivered_messages": self._delivered}
        return figures if self._groups is None else figures | self._groups.statistics()

    def about(self) -> dict[str, str]:
        """What a client may need to know to read its stream: the engine, its order and mode, what views promise, the quorum."""
        config = self._config
        return {
            "cluster": config.cluster,
            "engine": config.engine,
            "order": config.order,
            "mode": config.mode,
            "guarantees": config.guarantees,
            "build": __version__,
            "quorum": " ".join(config.quorum),
        }

    def check(self) -> None:
        if self._running:
            self._engine.check()
        if self._groups is not None:
            self._groups.check()
        assert self.is_busy or not self._late


_CARRY: Final[dict[type[Output], Callable[[Node, Any], None]]] = {
    Send: Node._send,
    Deliver: Node._deliver,
    Configure: Node._configure,
    Originated: Node._ids,
    Refused: Node._ids,
    Stopped: Node._stop,
}
"""What becomes of an engine's outputs; all others pass as they are."""


ENGINES: Final[dict[str, type[TotemEngine] | type[LansisEngine]]] = {"totem": TotemEngine, "lansis": LansisEngine}


def engine_of(config: Config, me: NodeId, ring_seq: int) -> Engine:
    """`ring_seq` is the highest sequence of a view that an earlier life of this node made durable."""
    return ENGINES[config.engine](config, me, ring_seq)


def foreign_kinds(engine: str) -> frozenset[int]:
    """Kinds of packets of the other engines: a node that sends one runs another engine."""
    return frozenset(packet.kind for name, other in ENGINES.items() if name != engine for packet in other.packets)


def _stored(stored: Mapping[str, int], key: str) -> int:
    value = stored.get(key, 0)
    if not 0 <= value < 1 << 62:
        raise IdentityError(
            f"the state directory holds {key} = {value}, which no node wrote: restore it or start with a new name"
        )
    return value


def _check_submission(payloads: Sequence[bytes], address: bytes) -> None:
    if len(address) > ADDRESS_MAX:
        raise UsageError(f"address has {len(address)} bytes, at most {ADDRESS_MAX} are allowed: name fewer groups")
    if len(payloads) > RUN_MESSAGES_MAX:
        raise UsageError(f"{len(payloads)} messages in one call, at most {RUN_MESSAGES_MAX} are allowed: send them in batches")
    for payload in payloads:
        if len(payload) > MESSAGE_MAX:
            raise MessageTooLarge(f"a message has {len(payload)} bytes, at most {MESSAGE_MAX} are allowed: split it")


def _check_sender(address: bytes, process: int) -> None:
    wrong = decode_address(address)
    if isinstance(wrong, Rejection):
        raise UsageError(wrong.why)
    if process == CONTROL_PROCESS:
        raise UsageError(f"process {process} is the node's own")
