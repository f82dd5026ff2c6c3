"""Data headers, and how arrivals become bursts."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tests.wire.samples import DATA_HEADER, data_headers, mutated
from transis.types.errors import Rejection
from transis.types.ids import DatagramClass
from transis.types.limits import DATAGRAM_MIN
from transis.wire.burst import (
    DATA_HEADER_SIZE,
    FORWARDING_RESERVE,
    INDEX_MAX,
    RAMP_OFFSET,
    Burst,
    DataHeader,
    body_max,
    decapsulate,
    decode_data_header,
    encapsulate,
    encode_data,
    read_bursts,
)
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE

START = DATA_HEADER._replace(index=0, last=False)


def visit(start: DataHeader, count: int, *, ends: bool = True) -> list[bytes]:
    """The datagrams of one ramp, each with its own body."""
    return [
        encode_data(
            start._replace(seq=start.seq + step, index=start.index + step, last=ends and step == count - 1), b"body %d" % step
        )
        for step in range(count)
    ]


def naive_bursts(datagrams: list[bytes]) -> list[list[bytes]]:
    """The slow twin: decode every header and compare field by field."""
    groups: list[list[bytes]] = []
    before: DataHeader | None = None
    for datagram in datagrams:
        header = decode_data_header(datagram)
        if isinstance(header, Rejection):
            before = None
            continue
        follows = (
            before is not None
            and not before.last
            and header._replace(last=False) == before._replace(seq=before.seq + 1, index=before.index + 1)
        )
        if follows:
            groups[-1].append(datagram)
        else:
            groups.append([datagram])
        before = header
    return groups


@given(data_headers, st.binary(max_size=50))
def test_headers_come_back(header: DataHeader, body: bytes) -> None:
    datagram = encode_data(header, body)
    assert len(datagram) == DATA_HEADER_SIZE + len(body)
    assert decode_data_header(datagram) == header


@given(st.binary(max_size=80) | mutated(data_headers.map(lambda header: encode_data(header, b"body"))))
def test_any_bytes_are_a_header_or_rejected(datagram: bytes) -> None:
    header = decode_data_header(datagram)
    if isinstance(header, DataHeader):
        assert encode_data(header, datagram[DATA_HEADER_SIZE:]) == datagram


def test_headers_out_of_range_are_rejected() -> None:
    for header, field in [
        (START._replace(seq=0), "seq"),
        (START._replace(seq=(1 << 62) + 1), "seq"),
        (START._replace(sender=128), "sender"),
        (START._replace(timestamp=(1 << 63)), "counter"),
        (START._replace(time_us=(1 << 63)), "counter"),
        (START._replace(ring=START.ring._replace(seq=1 << 63)), "counter"),
    ]:
        rejection = decode_data_header(encode_data(header, b""))
        assert isinstance(rejection, Rejection)
        assert rejection.field == field


def test_a_full_datagram_can_be_recovered_and_forwarded_within_the_limit() -> None:
    """Traps 22: encapsulation may not make a datagram larger than what the network takes."""
    for datagram in (DATAGRAM_MIN, 1400, 65_000):
        full = encode_data(START, bytes(body_max(datagram)))
        recovered = encapsulate(START._replace(encapsulated=True), full)
        assert ENVELOPE_SIZE + len(recovered) + SEAL_SIZE + FORWARDING_RESERVE == datagram


def test_a_whole_visit_is_one_burst() -> None:
    datagrams = visit(START, 300)
    (burst,), rejections = read_bursts(datagrams)
    burst.check()
    assert rejections == []
    assert (len(burst), burst.first_seq, burst.last_seq) == (300, START.seq, START.seq + 299)
    assert burst.ends_visit
    assert burst.size == sum(map(len, datagrams))
    assert [bytes(body) for body in burst.bodies()] == [datagram[DATA_HEADER_SIZE:] for datagram in datagrams]


@given(st.data())
def test_bursts_are_what_the_naive_twin_finds(data: st.DataObject) -> None:
    """Ramps with losses, swaps, junk, other classes, carries at 256 and short datagrams between them."""
    seq, index = data.draw(st.sampled_from((1, 250, 65_530, (1 << 32) - 3))), data.draw(st.sampled_from((0, 250)))
    start = START._replace(seq=seq, index=index)
    arrivals = visit(start, data.draw(st.integers(1, 12)), ends=data.draw(st.booleans()))
    arrivals += visit(start._replace(seq=start.seq + len(arrivals)), data.draw(st.integers(1, 4)))
    for _ in range(data.draw(st.integers(0, 4))):
        position = data.draw(st.integers(0, len(arrivals) - 1))
        change = data.draw(st.sampled_from(("lose", "repeat", "junk", "class", "short", "swap")))
        datagram = arrivals[position]
        if change == "lose" and len(arrivals) > 1:
            del arrivals[position]
        elif change == "class":
            arrivals[position] = datagram[:1] + b"\x02" + datagram[2:]
        elif change == "short":
            arrivals[position] = datagram[: data.draw(st.integers(0, DATA_HEADER_SIZE))]
        elif change == "swap":
            arrivals[position], arrivals[0] = arrivals[0], arrivals[position]
        else:
            arrivals.insert(position, datagram if change == "repeat" else b"junk")
    bursts, rejections = read_bursts(arrivals)
    for burst in bursts:
        burst.check()
    found = [[burst.datagram(seq) for seq in range(burst.first_seq, burst.last_seq + 1)] for burst in bursts]
    assert found == naive_bursts(arrivals)
    assert len(rejections) + sum(map(len, found)) == len(arrivals)


def test_the_index_does_not_run_over_into_the_sequence() -> None:
    """A datagram behind index 65535 whose bytes merely look like the ramp's next is another burst."""
    first = encode_data(START._replace(index=INDEX_MAX), b"")
    overflow = encode_data(START._replace(seq=START.seq + 2, index=0), b"")
    bursts, _ = read_bursts([first, overflow])
    assert [len(burst) for burst in bursts] == [1, 1]


def test_a_datagram_too_short_for_a_header_never_looks_like_the_next_of_a_ramp() -> None:
    """Its last bytes, read as a number, may be those that the ramp expects."""
    first, second = visit(START, 2, ends=False)
    ramp = int.from_bytes(second[RAMP_OFFSET:DATA_HEADER_SIZE])
    bursts, rejections = read_bursts([first, second[:RAMP_OFFSET] + ramp.to_bytes(10)])
    assert [len(burst) for burst in bursts] == [1]
    assert [rejection.field for rejection in rejections] == ["length"]


@given(st.integers(1, 20), st.data())
def test_slices(count: int, data: st.DataObject) -> None:
    (burst,), _ = read_bursts(visit(START, count))
    first = data.draw(st.integers(burst.first_seq, burst.last_seq))
    last = data.draw(st.integers(first, burst.last_seq))
    piece = burst.slice(first, last)
    piece.check()
    assert (piece.first_seq, piece.last_seq, len(piece)) == (first, last, last - first + 1)
    assert [piece.datagram(seq) for seq in range(first, last + 1)] == [burst.datagram(seq) for seq in range(first, last + 1)]
    assert piece.ends_visit == (last == burst.last_seq)
    assert (piece is burst) == (len(piece) == len(burst))
    assert decode_data_header(piece.datagram(first)) == piece.header


@example([], [b""])
@given(st.lists(data_headers, max_size=5), st.lists(st.binary(max_size=80), max_size=5))
def test_any_arrivals_become_bursts_or_rejections(headers: list[DataHeader], junk: list[bytes]) -> None:
    arrivals = [encode_data(header, b"") for header in headers] + junk
    bursts, rejections = read_bursts(arrivals)
    assert sum(map(len, bursts)) + len(rejections) == len(arrivals)


def wrapped(inner: list[bytes]) -> Burst:
    outer = START._replace(encapsulated=True, klass=DatagramClass.ORDERED)
    headers = [outer._replace(seq=outer.seq + step, index=step) for step in range(len(inner))]
    return Burst(headers[0], [encapsulate(header, old) for header, old in zip(headers, inner, strict=True)])


def test_what_is_encapsulated_comes_out_as_it_was() -> None:
    old = visit(START._replace(seq=70), 5)
    outer = wrapped(old)
    outer.check()
    (inner,), rejections = decapsulate(outer)
    assert rejections == []
    assert [inner.datagram(seq) for seq in range(70, 75)] == old


def test_nested_encapsulation_is_rejected() -> None:
    nested = encapsulate(START._replace(encapsulated=True), b"x")
    bursts, rejections = decapsulate(wrapped([nested, *visit(START, 1)]))
    assert [len(burst) for burst in bursts] == [1]
    assert [rejection.field for rejection in rejections] == ["encapsulated"]


old_datagrams = data_headers.map(lambda header: encode_data(header, b"x"))


@given(st.lists(st.binary(max_size=80) | mutated(old_datagrams), min_size=1, max_size=4))
def test_anything_may_be_inside_an_encapsulation(inner: list[bytes]) -> None:
    bursts, rejections = decapsulate(wrapped(inner))
    assert sum(map(len, bursts)) + len(rejections) == len(inner)
    assert not any(burst.encapsulated for burst in bursts)
