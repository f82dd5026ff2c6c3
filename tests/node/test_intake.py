"""What arrives in pieces becomes the packets that it would become apart, in the same order; junk is told once each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.wire.samples import ANN, BEACON, BOB, CID, KEY
from transis.lansis.packets import Alive, encode_alive
from transis.node.identity import Identity
from transis.node.intake import Intake
from transis.types.config import Config
from transis.types.ids import DatagramClass, RingTag
from transis.types.outputs import Note
from transis.wire.burst import INDEX_MAX, Burst, DataHeader, encode_ramp
from transis.wire.control import ProbeAnswer, encode_control
from transis.wire.envelope import Arrival, Sealer, Segments, apart

ALIVE = encode_alive(Alive(RingTag(8, 7), 0, False, 4, 0, (4,), ()))
LONG = encode_control(BEACON)
SENT = 5
"""Datagrams that the node of these tests has sent."""


@st.composite
def ramps(draw: st.DrawFn) -> list[bytes]:
    count, size = draw(st.integers(1, 6)), draw(st.sampled_from((0, 1, 30)))
    index = draw(st.sampled_from((0, 1, 2, INDEX_MAX + 1 - count)))
    seq, timestamp = draw(st.integers(1, 6)), draw(st.integers(1, 2))
    header = DataHeader(DatagramClass.ORDERED, RingTag(8, 7), 0, seq, 0, timestamp, 1, index, False, False)
    bodies = [bytes(size)] * (count - 1) + [bytes(draw(st.integers(0, size)))]
    return encode_ramp(header, bodies, draw(st.booleans()))


others = st.sampled_from([[ALIVE], [LONG], [b"\xff" * 40], [b""]])
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


def intake_of(key: bytes | None, told: list[Note]) -> Intake:
    """Of a node that has nothing to answer."""
    config = Config(name=BOB.name, engine="lansis", plaintext=key is None)
    return Intake(config, key, Identity(BOB, "", 0), frozenset(), lambda: SENT, lambda answer: None, told.append)


def opened(arrived: Sequence[Arrival], key: bytes | None) -> tuple[list[bytes], list[object], Counter[str]]:
    """Datagrams of data in their order, other packets, rejections by field; the first of each kind is told."""
    told: list[Note] = []
    intake = intake_of(key, told)
    packets = [heard.packet for heard in intake.packets(arrived)]
    assert [dict(note.detail)["field"] for note in told] == list(intake.rejections)
    bursts = [packet for packet in packets if isinstance(packet, Burst)]
    assert packets[: len(bursts)] == bursts
    for burst in bursts:
        burst.check()
    return [bytes(datagram) for burst in bursts for datagram in burst.datagrams], list(packets[len(bursts) :]), intake.rejections


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
    ((_, burst),) = intake_of(None, []).packets([*pieces, datagrams[6]])
    assert isinstance(burst, Burst)
    assert (len(burst), burst.ends_visit) == (7, True)
    assert sum(isinstance(datagram, memoryview) for datagram in burst.datagrams) == 6


def test_an_echo_tells_nothing() -> None:
    intake, told = intake_of(KEY, []), Sealer("transis", BOB, KEY)
    assert intake.packets([told.seal(ALIVE)]) == []


def test_who_is_heard_in_ones_own_name_has_the_key() -> None:
    """A node has not sent what it has not counted. Nothing comes of it, and its operator can learn that somebody seals as it."""
    notes: list[Note] = []
    intake = intake_of(KEY, notes)
    forged = Sealer("transis", BOB, KEY, sent=SENT)
    assert intake.packets([forged.seal(ALIVE), forged.seal(LONG)]) == []
    assert intake.rejections == {"own name": 2}
    assert dict(notes[0].detail)["why"] == f"datagram {SENT + 1} in the name of {BOB}, which it never sent"


def test_nobody_answers_in_the_name_of_another() -> None:
    """An answer may end a node that starts."""
    intake = intake_of(KEY, [])
    answer = ProbeAnswer(BOB, CID, "taken", BOB._replace(incarnation=BOB.incarnation + 1))
    assert intake.packets([Sealer("transis", ANN, KEY).seal(encode_control(answer))]) == []
    assert intake.rejections == {"sender": 1}
