"""Datagrams in one piece: read without being taken apart, and to the same end as if they had been."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transis.types.ids import DatagramClass, RingTag
from transis.wire.burst import INDEX_MAX, Burst, DataHeader, encode_ramp, read_bursts, read_whole
from transis.wire.envelope import Segments, apart

HEADER = DataHeader(DatagramClass.ORDERED, RingTag(8, 7), 1, 1000, 0, 55, 66, 3, False, False)
ENVELOPE = b"an envelope"
START = len(ENVELOPE)


def piece_of(count: int, size: int, shorter: int, header: DataHeader = HEADER, *, ends: bool = True) -> list[bytes]:
    bodies = [bytes([number % 251]) * size for number in range(count - 1)] + [bytes(size - shorter)]
    return [ENVELOPE + datagram for datagram in encode_ramp(header, bodies, ends)]


def together(datagrams: list[bytes]) -> Segments:
    return Segments(b"".join(datagrams), len(datagrams[0]))


def whole(datagrams: list[bytes]) -> Burst:
    burst = read_whole(together(datagrams), START)
    assert burst is not None
    return burst


def plain(burst: Burst) -> tuple[DataHeader, list[bytes]]:
    return burst.header, [bytes(datagram) for datagram in burst.datagrams]


pieces = st.builds(
    piece_of, st.integers(2, 6), st.integers(1, 40).map(lambda size: size + 1), st.sampled_from((0, 1)), ends=st.booleans()
)


@given(pieces)
def test_a_piece_has_the_datagrams_that_were_put_into_it(datagrams: list[bytes]) -> None:
    segments = together(datagrams)
    assert list(segments) == apart([segments]) == datagrams
    assert len(segments) == len(datagrams)
    assert apart([b"x", segments, b"y"]) == [b"x", *datagrams, b"y"]


@given(pieces)
def test_a_burst_in_one_piece_is_read_as_it_would_be_apart(datagrams: list[bytes]) -> None:
    burst = whole(datagrams)
    burst.check()
    (expected,), _ = read_bursts([datagram[START:] for datagram in datagrams])
    assert plain(burst) == plain(expected)
    assert list(map(bytes, burst.bodies())) == list(map(bytes, expected.bodies()))
    assert (burst.size, burst.ends_visit, burst.last_seq) == (expected.size, expected.ends_visit, expected.last_seq)
    assert burst.datagram(1001) == expected.datagram(1001)


@given(pieces, st.data())
def test_what_is_not_one_burst_is_not_taken_for_one(datagrams: list[bytes], data: st.DataObject) -> None:
    """Any byte changed: it is the burst that it would be apart, or none."""
    place = data.draw(st.integers(0, len(datagrams) - 1))
    at = data.draw(st.integers(START, len(datagrams[place]) - 1))
    changed = bytearray(datagrams[place])
    changed[at] ^= data.draw(st.integers(1, 255))
    datagrams[place] = bytes(changed)
    burst = read_whole(together(datagrams), START)
    apart_from_it, rejections = read_bursts([datagram[START:] for datagram in datagrams])
    if burst is None:
        assert rejections or len(apart_from_it) > 1
    else:
        assert [plain(burst)] == list(map(plain, apart_from_it))


@given(pieces, st.integers(0, START + 60))
def test_a_last_datagram_that_is_cut_off_makes_it_none(datagrams: list[bytes], left: int) -> None:
    cut = [*datagrams[:-1], datagrams[-1][: min(left, START + 51)]]
    assert not cut[-1] or read_whole(together(cut), START) is None


def test_indexes_end_where_their_field_ends() -> None:
    assert whole(piece_of(3, 20, 0, HEADER._replace(index=INDEX_MAX - 2))).header.index == INDEX_MAX - 2
    beyond = piece_of(2, 20, 0, HEADER._replace(index=INDEX_MAX - 1))
    assert read_whole(together([*beyond, beyond[-1]]), START) is None


@given(st.integers(2, 5), st.integers(2, 5))
def test_pieces_that_go_on_are_one_burst_and_others_are_not(first: int, second: int) -> None:
    datagrams = piece_of(first + second, 20, 0)
    before, after = whole(datagrams[:first]), whole(datagrams[first:])
    joined = before.joined(after)
    assert joined is not None
    joined.check()
    assert plain(joined) == plain(whole(datagrams))
    assert after.joined(before) is None, "its visit has ended"
    later = HEADER._replace(seq=HEADER.seq + first, index=HEADER.index + first)
    for other in (later._replace(timestamp=56), later._replace(seq=later.seq + 1), later._replace(index=later.index + 1)):
        assert before.joined(whole(piece_of(second, 20, 0, other))) is None
    assert whole(piece_of(first, 20, 0)).joined(after) is None, "its visit has ended"


@given(pieces)
def test_what_came_in_a_piece_and_what_came_alone_have_bodies_alike(datagrams: list[bytes]) -> None:
    burst = whole(datagrams)
    mixed = Burst(burst.header, [*burst.datagrams[:-1], bytes(burst.datagrams[-1])])
    assert all(isinstance(body, memoryview) for body in mixed.bodies())
    assert mixed.bodies() == burst.bodies() == burst.by_itself().bodies()
