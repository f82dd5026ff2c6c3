"""From filled datagrams to a burst: what is written is what receivers read, and places are told before anything is sent."""

from __future__ import annotations

from enum import Enum

from tests.engine.hand import node_id
from transis.engine.core import BaseCore, Stamp, multicast, originate
from transis.types.config import Config
from transis.types.ids import DatagramClass, RingTag, Service, ViewId, ViewKind
from transis.types.outputs import Audience, Lane, Originated, OutboundRun, Phase, Port, Send
from transis.wire.burst import read_bursts
from transis.wire.reassembly import Assembler


class State(Enum):
    ONLY = "only"


class Event(Enum):
    NOTHING = "nothing"


A = node_id("a")
VIEW = ViewId(ViewKind.REGULAR, 8, A)
TAG = RingTag(8, A.boot)


def test_a_burst_is_read_as_it_was_written_and_its_places_are_those_told() -> None:
    core: BaseCore[State, Event] = BaseCore(Config("a", plaintext=True), A, State.ONLY, {}, Event)
    core.now = 55
    core.outbox.submit(Lane.APPLICATION, OutboundRun(3, b"g", Service.SAFE, 1, [bytes(900)] * 4), None)
    filled = core.outbox.fill(8)
    burst = originate(core, Stamp(VIEW, TAG, 2, 6, core.tick()), 100, 4000, filled)
    burst.check()
    assert (burst.first_seq, burst.last_seq, burst.sender, burst.ring) == (100, 99 + len(filled), 2, TAG)
    header = burst.header
    assert (header.klass, header.round, header.timestamp, header.time_us) == (DatagramClass.SAFE, 6, 1, 55)
    told = core.out
    core.out = []
    multicast(core, [burst])
    (send,) = core.out
    assert isinstance(send, Send)
    assert (send.to, send.port) == (Audience.RING, Port.DATA)
    (received,), _ = read_bursts(send.datagrams)
    delivered = Assembler().feed(received, A, VIEW, Phase.REGULAR, False, 4000)
    originated = [(one.ids.first_counter, one.ids.count, one.stretches) for one in told if isinstance(one, Originated)]
    assert [(one.first_counter, len(one.payloads), one.stretches) for one in delivered] == originated
    assert originated[0][2][0][0] >= 4000
    assert len(originated) == 1
    assert len(originated[0][2]) > 1


def test_a_stretch_that_was_sent_is_sent_again_byte_for_byte() -> None:
    core: BaseCore[State, Event] = BaseCore(Config("a", plaintext=True), A, State.ONLY, {}, Event)
    core.outbox.submit(Lane.APPLICATION, OutboundRun(3, b"g", Service.AGREED, 1, [bytes(1100)] * 4), None)
    burst = originate(core, Stamp(VIEW, TAG, 0, 0, 1), 1, 1, core.outbox.fill(8))
    core.out = []
    multicast(core, [burst, burst.slice(2, 3)])
    whole, part = core.out
    assert isinstance(whole, Send)
    assert isinstance(part, Send)
    assert list(part.datagrams) == list(whole.datagrams)[1:3]
