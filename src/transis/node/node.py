"""A node without I/O: engine + groups + identity, one output dispatch, observers.

A node without I/O: what a driver runs (design 3). Down: submit, pack, order, seal. Up: open, check, order, reassemble.

The driver hands in what arrived and the time, and carries out `outputs()` in order. It never holds an output back.

A node with process groups: the ring below, the groups above, one stream of outputs (design 3, docs/groups.md).

Rules of this file:
1. What the engine hands out passes through the groups in its order, and their outputs stand behind what caused them.
2. A configuration's application lane is opened when the groups are settled in it, and never for a configuration that is over.
3. Work on thousands of groups is done in slices. What the ring hands up meanwhile waits, in its order; what it sends does not.
4. The groups' own messages travel on the control lane and are nobody else's business: the driver sees neither them nor their ids.
   An announcement whose configuration ended is dropped here or refused by the engine; the groups make a new one.

The engines there are: the one place that knows them by name, and which kinds of packets are whose.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final

from transis import __version__
from transis.engine.base import Engine, Packet
from transis.groups.layer import CONTROL_PROCESS, SLICE_GROUPS, ControlMessage, GroupLayer, Settled
from transis.lansis.engine import LansisEngine
from transis.node.identity import Identity, Stage
from transis.node.intake import Freshness, Unpacking
from transis.sessions.frames import Checkpoint
from transis.totem.engine import TotemEngine
from transis.types.config import Config
from transis.types.errors import ConfigError, IdentityError, MessageTooLarge, Rejection, UsageError
from transis.types.ids import NodeId, Service, ViewId
from transis.types.limits import ADDRESS_MAX, MESSAGE_MAX, RUN_MESSAGES_MAX
from transis.types.outputs import (
    Accepted,
    Audience,
    Configure,
    Deliver,
    Delivered,
    GroupDelivered,
    GroupOutput,
    Lane,
    NodeOutput,
    Note,
    Originated,
    OutboundRun,
    Output,
    Persist,
    Port,
    Reach,
    Refused,
    RunIds,
    Send,
    Stopped,
    Tape,
    Transmit,
)
from transis.types.views import Address, GroupId
from transis.wire.burst import Burst
from transis.wire.control import (
    ControlPacket,
    PartAssembler,
    ProbeAnswer,
    Role,
    announces,
    decode_control,
    encode_control,
    introduces,
)
from transis.wire.envelope import Arrival, Opener, Sealer, transmitter_tag
from transis.wire.items import CONTROL_ADDRESS, decode_address, encode_address
from transis.wire.reassembly import Assembler

# --- engines ----------------------------------------------------------------------------------------------------------

ENGINES: Final[dict[str, type[TotemEngine] | type[LansisEngine]]] = {"totem": TotemEngine, "lansis": LansisEngine}


def engine_of(config: Config, me: NodeId, ring_seq: int) -> Engine:
    """`ring_seq` is the highest sequence of a view that an earlier life of this node made durable."""
    return ENGINES[config.engine](config, me, ring_seq)


def foreign_kinds(engine: str) -> frozenset[int]:
    """Kinds that an engine has no use for: who sends them runs another one."""
    return frozenset(packet.kind for name, other in ENGINES.items() if name != engine for packet in other.packets)


# --- node -------------------------------------------------------------------------------------------------------------

IDENTITY_TICKET = 0
"""The ticket of the incarnation's write; the engine counts its own from 1."""


class Node:
    def __init__(
        self,
        config: Config,
        stored: Mapping[str, int],
        boot: int,
        key: bytes | None = None,
        *,
        lane_opened_from_above: bool = False,
    ) -> None:
        self._config = config.validated()
        if key is None and not config.plaintext:
            raise ConfigError("key", None, "datagrams are sealed: give a key of 32 bytes, or set plaintext if anybody may listen")
        incarnation = _stored(stored, "incarnation") + 1
        ring_seq = _stored(stored, "ring_seq")
        self.id = NodeId(config.name, incarnation, boot)
        self._identity = Identity(self.id, config.address, config.timing.gather_min_us)
        self._engine = engine_of(self._config, self.id, ring_seq)
        self._foreign_kinds = foreign_kinds(config.engine)
        self._sealer = Sealer(config.cluster, self.id, key)
        self._unpacking = Unpacking(Opener(config.cluster, key), self._decode, self._reject)
        self._is_sealed = key is not None
        self._freshness = Freshness()
        self._parts = PartAssembler()
        self._assembler = Assembler()
        self._counters: Counter[int] = Counter()
        self.rejections: Counter[str] = Counter()
        self._lane_opened_from_above = lane_opened_from_above
        self._running = False
        self._stopped = False
        self._now = 0
        self._out: list[NodeOutput] = []
        self.tape: Tape | None = None
        """Who else hears what is delivered; given before the start."""

    # --- doors ------------------------------------------------------------------------------------------------------

    def start(self, now: int) -> None:
        self._now = now
        self._out.append(Persist(IDENTITY_TICKET, "incarnation", self.id.incarnation))
        self._engine.prepare(now)
        self._drain()

    def receive(self, now: int, port: Port, arrivals: Sequence[Arrival]) -> None:
        """Datagrams from the network, any bytes at all. Never fires a timer."""
        self._now = now
        if self._stopped:
            return
        packets = self._unpacking.open(arrivals)
        if packets and self._running:
            self._engine.receive(now, packets)
        self._follow_identity()
        self._drain()

    def submit(self, now: int, service: Service, payloads: Sequence[bytes], address: bytes = b"", process: int = 0) -> int:
        """Take messages for sending; how many were taken. What is not taken was not accepted: try again after Room."""
        self._now = now
        _check_submission(payloads, address)
        if not self._running or self._stopped or not payloads:
            return 0
        first = self._counters[process] + 1
        run = OutboundRun(process, address, service, first, payloads)
        taken = self._engine.submit(now, Lane.APPLICATION, run)
        self._counters[process] += taken
        if taken:
            self._out.append(Accepted(RunIds(process, first, taken, service, address)))
        self._drain()
        return taken

    def submit_control(self, now: int, run: OutboundRun, bound_to: ViewId | None) -> int:
        """For who works above this node: messages that go before the application's, also while its lane is held."""
        self._now = now
        if not self._running or self._stopped:
            return 0
        taken = self._engine.submit(now, Lane.CONTROL, run, bound_to)
        self._drain()
        return taken

    def open_application(self, now: int) -> None:
        """Who works above this node has settled what the view in force changed for it."""
        self._now = now
        self._engine.open(now, Lane.APPLICATION)
        self._drain()

    def wake(self, now: int) -> None:
        self._now = now
        probe = self._identity.wake(now)
        if probe is not None:
            self._transmit_control(probe)
        if self._running:
            self._engine.wake(now)
        self._follow_identity()
        self._drain()

    def deadline(self) -> int:
        return self._engine.deadline() if self._running else self._identity.deadline()

    def persisted(self, now: int, ticket: int) -> None:
        self._now = now
        if ticket == IDENTITY_TICKET:
            self._identity.durable(now)
        else:
            self._engine.persisted(now, ticket)
        self._drain()

    def leave(self, now: int) -> None:
        """Leave gracefully: what was taken is sent and safe first, then the others are told."""
        self._now = now
        if self._running:
            self._engine.leave(now)
        elif not self._stopped:
            self._identity.give_up()
            self._follow_identity()
        self._drain()

    def outputs(self) -> list[NodeOutput]:
        outputs, self._out = self._out, []
        return outputs

    # --- up ---------------------------------------------------------------------------------------------------------

    def _decode(self, transmitter: bytes, body: bytes, counter: int) -> Packet | None:
        whole = self._parts.feed(transmitter, body)
        if whole is None:
            return None
        packet = whole if isinstance(whole, Rejection) else self._decode_whole(whole)
        if isinstance(packet, Rejection):
            self._reject(packet)
            return None
        if packet.role is Role.NONE and not isinstance(packet, ProbeAnswer):
            return packet
        return self._screen(transmitter, packet, counter)

    def _decode_whole(self, whole: bytes) -> ControlPacket | Rejection:
        kind = whole[0] if whole else 0
        if kind in self._foreign_kinds:
            return Rejection("engine", f"a packet of kind {kind}: somebody in this cluster runs another engine")
        return decode_control(whole)

    def _screen(self, transmitter: bytes, packet: ControlPacket, counter: int) -> Packet | None:
        """Nobody introduces somebody else; identity sees the rest first, and questions about names end there."""
        if introduces(packet) and transmitter_tag(packet.sender) != transmitter:
            self._reject(Rejection("sender", f"a packet that names {packet.sender} was sent by somebody else"))
            return None
        if self._is_sealed and announces(packet) and not self._freshness.is_news(transmitter, counter):
            self._reject(Rejection("replayed", f"a packet of {packet.sender} that is not newer than what it said before"))
            return None
        passes, answer = self._identity.inspect(packet)
        if answer is not None:
            self._transmit_control(answer)
        return packet if passes else None

    def _reject(self, rejection: Rejection) -> None:
        """Count junk; tell an operator of the first of each kind (another version, another cluster, a wrong key ...)."""
        self.rejections[rejection.field] += 1
        if self.rejections[rejection.field] == 1:
            self._out.append(Note("rejected", (("field", rejection.field), ("why", rejection.why))))

    def _follow_identity(self) -> None:
        """Start the engine when the name is ours; stop it when it is not (any more)."""
        stage = self._identity.stage
        if stage is Stage.RUNNING and not self._running and not self._stopped:
            self._running = True
            self._engine.start(self._now)
        elif stage is Stage.REFUSED and not self._stopped:
            if self._running:
                self._engine.stop(self._now, self._identity.refusal)
            else:
                self._stopped = True
                self._out.append(Stopped(self._identity.refusal))

    # --- down -------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Carry the engine's outputs over, in order; installing a view may produce more of them."""
        while outputs := self._engine.take_outputs():
            for output in outputs:
                self._carry(output)

    def _carry(self, output: Output) -> None:
        match output:
            case Send():
                to = output.to if isinstance(output.to, Audience) else self._engine.address_of(output.to)
                self._out.append(Transmit(to, output.port, self._sealer.seal_all(output.datagrams)))
            case Deliver():
                burst, sender, view, phase, early, place_seq = output
                assert isinstance(burst, Burst)
                delivered = self._assembler.feed(burst, sender, view, phase, early, place_seq)
                if delivered and self.tape is not None:
                    self.tape.fed(delivered)
                self._out.extend(delivered)
            case Configure():
                self._configure(output)
            case Stopped():
                self._stopped = True
                self._running = False
                self._out.append(output)
            case _:
                self._out.append(output)

    def _configure(self, output: Configure) -> None:
        """A regular view ends all partial messages of the old one; with nobody above, there is nothing to exchange in it."""
        if self.tape is not None:
            self.tape.configured(output.view)
        self._out.append(output)
        if output.view.id.is_regular:
            self._assembler.reset()
            if not self._lane_opened_from_above:
                self._engine.open(self._now, Lane.APPLICATION)

    def _transmit_control(self, packet: ControlPacket) -> None:
        self._out.append(Transmit(Audience.WORLD, Port.CONTROL, [self._sealer.seal(encode_control(packet))]))

    # --- looking in -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        if self._stopped:
            return "Stopped"
        return str(self._engine.state.value) if self._running else "Starting"

    @property
    def coverage(self) -> dict[tuple[str, str], int]:
        return self._engine.coverage

    def statistics(self) -> dict[str, int]:
        return self._engine.statistics()

    def check(self) -> None:
        if self._running:
            self._engine.check()


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


# --- grouped ----------------------------------------------------------------------------------------------------------

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
