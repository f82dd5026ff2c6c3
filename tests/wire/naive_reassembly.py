"""The slow twin of packing and assembling: one message at a time, whole visits only, no bursts and no laziness."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.wire.samples import ANN, VIEW
from transis.types.ids import DatagramClass, RingTag, Service
from transis.types.outputs import Delivered, Phase, RunIds
from transis.wire.burst import Burst, DataHeader, encode_data, read_bursts
from transis.wire.outbox import FilledDatagram
from transis.wire.reassembly import Assembler

RING = RingTag(8, 1)


class Message(NamedTuple):
    process: int
    counter: int
    service: Service
    address: bytes
    payload: bytes
    event_us: int = 0


class Placed(NamedTuple):
    seq: int
    rank: int
    message: Message


class NaiveReader:
    """Reads visits whole. A message's datagram is found by walking over the bodies until its last byte is passed."""

    def __init__(self) -> None:
        self._partials: dict[tuple[int, int], bytes] = {}

    def read(self, first_seq: int, bodies: Sequence[bytes]) -> list[Placed]:
        ranks = [0] * len(bodies)
        placed: list[Placed] = []
        for end, message in self._messages(b"".join(bodies)):
            datagram, behind = 0, len(bodies[0])
            while behind < end:
                datagram += 1
                behind += len(bodies[datagram])
            placed.append(Placed(first_seq + datagram, ranks[datagram], message))
            ranks[datagram] += 1
        return placed

    def _messages(self, stream: bytes) -> Iterable[tuple[int, Message]]:
        at = 0
        while at < len(stream):
            kind, service, process, counter, third, fourth = struct.unpack_from(">BBIQHH", stream, at)
            timed, kind = divmod(kind, 16)
            if kind == 3:
                _, _, _, _, border, total, offset, length = struct.unpack_from(">BBIQHIII", stream, at)
                at += 28 + length
                whole = self._partials.pop((process, counter), b"") + stream[at - length : at]
                assert len(whole) == offset + length
                if len(whole) == total:
                    address, event_us = untimed(whole[:border], timed)
                    yield at, Message(process, counter, Service(service), address, whole[border:], event_us)
                else:
                    self._partials[process, counter] = whole
                continue
            address, event_us = untimed(stream[at + 18 : at + 18 + fourth], timed)
            at += 18 + fourth
            count = third if kind == 2 else 1
            lengths = struct.unpack_from(f">{count}I", stream, at)
            at += 4 * count
            for number in range(third):
                length = lengths[number] if kind == 2 else lengths[0]
                at += length
                yield at, Message(process, counter + number, Service(service), address, stream[at - length : at], event_us)


def untimed(address: bytes, timed: int) -> tuple[bytes, int]:
    return (address[:-8], int.from_bytes(address[-8:])) if timed else (address, 0)


def stamped(filled: Sequence[FilledDatagram], first_seq: int, turn: int) -> list[bytes]:
    """What an engine sends for one fill."""
    stamp = DataHeader(DatagramClass.ORDERED, RING, 0, first_seq, turn, turn + 1, turn + 2, 0, False, False)
    return [
        encode_data(stamp._replace(klass=one.klass, seq=seq, index=one.index, last=one.last), one.body)
        for seq, one in enumerate(filled, first_seq)
    ]


def whole_bursts(filled: Sequence[FilledDatagram], first_seq: int = 1, turn: int = 0) -> list[Burst]:
    bursts, rejections = read_bursts(stamped(filled, first_seq, turn))
    assert rejections == []
    return bursts


def feed(assembler: Assembler, bursts: Iterable[Burst]) -> list[Delivered]:
    return [
        delivered for burst in bursts for delivered in assembler.feed(burst, ANN, VIEW, Phase.REGULAR, False, burst.first_seq)
    ]


def flattened(deliveries: Iterable[Delivered]) -> list[Placed]:
    return [
        Placed(
            one.place.seq,
            one.place.index + step,
            Message(one.process.number, one.first_counter + step, one.service, one.address, bytes(payload), one.event_us),
        )
        for run in deliveries
        for one in run.parts()
        for step, payload in enumerate(one.payloads)
    ]


def copied(deliveries: Iterable[Delivered]) -> list[Delivered]:
    """Deliveries that can be compared: by datagram, whatever was fed together, and with payloads cut out."""
    return [
        one._replace(payloads=tuple(map(bytes, one.payloads)), stretches=tuple(one.stretches)) for one in by_datagram(deliveries)
    ]


def by_datagram(deliveries: Iterable[Delivered]) -> list[Delivered]:
    return [part for run in deliveries for part in run.parts()]


def ids_of(deliveries: Iterable[Delivered]) -> list[RunIds]:
    return [
        RunIds(one.process.number, one.first_counter, len(one.payloads), one.service, one.address)
        for one in by_datagram(deliveries)
    ]
