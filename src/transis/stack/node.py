"""A node without I/O: what a driver runs (design 3). Down: submit, pack, order, seal. Up: open, check, order, reassemble.

The driver hands in what arrived and the time, and carries out `outputs()` in order. It never holds an output back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from transis.engine.base import Packet
from transis.lansis.packets import KIND_ALIVE, Alive, decode_alive
from transis.stack.engines import engine_of, foreign_kinds
from transis.stack.freshness import Freshness
from transis.stack.identity import Identity, Stage
from transis.stack.unpacking import Unpacking
from transis.totem.packets import KIND_TOKEN, Token, decode_token
from transis.types.config import Config
from transis.types.errors import ConfigError, IdentityError, MessageTooLarge, Rejection, UsageError
from transis.types.ids import NodeId, Service, ViewId
from transis.types.limits import ADDRESS_MAX, MESSAGE_MAX, RUN_MESSAGES_MAX
from transis.types.outputs import (
    Accepted,
    Audience,
    Configure,
    Deliver,
    Lane,
    NodeOutput,
    Note,
    OutboundRun,
    Output,
    Persist,
    Port,
    RunIds,
    Send,
    Stopped,
    Tape,
    Transmit,
)
from transis.wire.burst import Burst
from transis.wire.control import ControlPacket, PartAssembler, announces, decode_control, encode_control, introduces
from transis.wire.envelope import Arrival, Opener, Sealer, transmitter_tag
from transis.wire.reassembly import Assembler

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
        return packet if isinstance(packet, Token | Alive) else self._screen(transmitter, packet, counter)

    def _decode_whole(self, whole: bytes) -> Token | Alive | ControlPacket | Rejection:
        kind = whole[0] if whole else 0
        if kind in self._foreign_kinds:
            return Rejection("engine", f"a packet of kind {kind}: somebody in this cluster runs another engine")
        decode = _DECODERS.get(kind, decode_control)
        return decode(whole)

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


_DECODERS: Final[dict[int, Callable[[bytes], Token | Alive | ControlPacket | Rejection]]] = {
    KIND_TOKEN: decode_token,
    KIND_ALIVE: decode_alive,
}
"""Packets that come too often for msgpack; all others are control packets."""


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
