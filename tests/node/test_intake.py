"""What arrives in pieces becomes the packets that it would become apart, in the same order; junk is told once each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.wire.samples import ANN, KEY
from transis.lansis.packets import Alive
from transis.node.intake import Unpacking
from transis.types.ids import DatagramClass, RingTag
from transis.wire.burst import INDEX_MAX, Burst, DataHeader, encode_ramp
from transis.wire.envelope import Arrival, Opener, Sealer, Segments, apart

ALIVE = 9
"""The first byte of bodies that stand for packets which are not data."""


@st.composite
def ramps(draw: st.DrawFn) -> list[bytes]:
    count, size = draw(st.integers(1, 6)), draw(st.sampled_from((0, 1, 30)))
    index = draw(st.sampled_from((0, 1, 2, INDEX_MAX + 1 - count)))
    seq, timestamp = draw(st.integers(1, 6)), draw(st.integers(1, 2))
    header = DataHeader(DatagramClass.ORDERED, RingTag(8, 7), 0, seq, 0, timestamp, 1, index, False, False)
    bodies = [bytes(size)] * (count - 1) + [bytes(draw(st.integers(0, size)))]
    return encode_ramp(header, bodies, draw(st.booleans()))


others = st.sampled_from([[bytes([ALIVE])], [bytes([ALIVE]) * 40], [b""]])
bodies = st.lists(ramps() | others, min_size=1, max_size=5).map(lambda lists: [body for bodies in lists for body in bodies])


@st.composite
def arrivals(draw: st.DrawFn, key: bytes | None = None) -> list[Arrival]:
    """Sealed datagrams, some of them spoilt, in pieces as the system may put them together, or alone."""
    datagrams = Sealer("transis", ANN, key).seal_all(draw(bodies))
    for place in draw(st.lists(st.integers(0, len(datagrams) - 1), max_size=2)):
        spoilt = bytearray(datagrams[place])
        spoilt[draw(st.integers(0, len(spoilt) - 1))] ^= 1
        datagrams[place] = bytes(spoilt)
    found: list[Arrival] = []
    while datagrams:
        size = draw(st.integers(1, _together(datagrams)))
        found.append(datagrams[0] if size == 1 else Segments(b"".join(datagrams[:size]), len(datagrams[0])))
        del datagrams[:size]
    return found


def _together(datagrams: Sequence[bytes]) -> int:
    """How many of the first may come in one piece."""
    length, count = len(datagrams[0]), 1
    while count < len(datagrams) and len(datagrams[count]) == length:
        count += 1
    return count + (count < len(datagrams) and 0 < len(datagrams[count]) < length)


def opened(arrived: Sequence[Arrival], key: bytes | None) -> tuple[list[bytes], list[object], Counter[str]]:
    """Datagrams of data in their order, other packets, rejections by field."""
    rejected: Counter[str] = Counter()

    def decode(transmitter: bytes, body: bytes, counter: int) -> Alive:
        return Alive(RingTag(8, 7), len(body), False, counter, 0, (), ())

    unpacking = Unpacking(Opener("transis", key), decode, lambda rejection: rejected.update([rejection.field]))
    packets = unpacking.open(arrived)
    bursts = [packet for packet in packets if isinstance(packet, Burst)]
    assert packets[: len(bursts)] == bursts
    for burst in bursts:
        burst.check()
    return [bytes(datagram) for burst in bursts for datagram in burst.datagrams], list(packets[len(bursts) :]), rejected


@given(arrivals())
def test_pieces_become_what_their_datagrams_become(arrived: list[Arrival]) -> None:
    assert opened(arrived, None) == opened(apart(arrived), None)


@given(arrivals(KEY))
def test_sealed_pieces_do_too(arrived: list[Arrival]) -> None:
    assert opened(arrived, KEY) == opened(apart(arrived), KEY)


def test_a_burst_of_several_pieces_and_a_single_last_one_is_one() -> None:
    header = DataHeader(DatagramClass.ORDERED, RingTag(8, 7), 0, 1, 0, 1, 1, 0, False, False)
    datagrams = Sealer("transis", ANN, None).seal_all(encode_ramp(header, [bytes(30)] * 7, True))
    pieces: list[Arrival] = [Segments(b"".join(datagrams[start : start + 3]), len(datagrams[0])) for start in (0, 3)]
    unpacking = Unpacking(Opener("transis", None), lambda *_: None, lambda rejection: None)
    (burst,) = unpacking.open([*pieces, datagrams[6]])
    assert isinstance(burst, Burst)
    assert (len(burst), burst.ends_visit) == (7, True)
    assert sum(isinstance(datagram, memoryview) for datagram in burst.datagrams) == 6
