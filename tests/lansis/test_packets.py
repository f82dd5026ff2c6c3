"""Control packets of Lansis: golden bytes, they come back as they were, the largest fits, and mistakes are named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.samples import (
    ANN,
    BOB,
    CID,
    RING,
    counters,
    digests,
    infos,
    mutated,
    node_sets,
    nodes,
    ring_tags,
    rings,
    texts,
    versions,
)
from tests.wire.test_control import BODY_MIN, broken, field, members, packed
from transis.lansis.packets import Attempt, Faults, Flushed, Joining, Query, Statement
from transis.types.errors import Rejection
from transis.types.ids import RingId, RingTag
from transis.types.limits import INFO_MAX, MEMBERS_MAX, PARTS_MAX
from transis.types.views import Cause
from transis.wire.control import ControlPacket, decode_control, encode_control, split

RECV = ((ANN, 300), (BOB, 5), (CID, 0))
EVERYBODY = frozenset({ANN, BOB, CID})
FAULTS = Faults(
    ANN,
    "10.0.0.1:7000",
    b"info",
    9,
    RING,
    12,
    EVERYBODY,
    frozenset({CID}),
    frozenset(),
    RECV,
    258,
    79,
    Cause("silent", ANN, (CID,), "watch"),
    False,
    b"digest!!",
    (1, 1),
)
JOINING = Joining(*FAULTS)
ATTEMPT = Attempt(*FAULTS)
FLUSHED = Flushed(ANN, "10.0.0.1:7000", RING, bytes(range(16)), RingId(12, BOB))
QUERY = Query(ANN, "10.0.0.1:7000", RingTag(8, 0xFFFFFFFFFFFFFFFF), True)

NODES = "93 93a3616e6e03cf0a0a0a0a0a0a0a0a 93a3626f6201cfffffffffffffffff 93a3636964070c"
ADDRESS = "ad31302e302e302e313a37303030"
STATEMENT = (
    f"dc0011 {NODES} 00 {ADDRESS} c404696e666f 09 920800 0c c40107 c40104 c40100 93 9200cd012c 920105 920200 cd0102 4f"
    "94 a673696c656e74 00 9102 a57761746368 c2 c4086469676573742121 920101"
)
GOLDEN = [
    (ATTEMPT, f"0b {STATEMENT}"),
    (JOINING, f"0c {STATEMENT}"),
    (FAULTS, f"0d {STATEMENT}"),
    (
        FLUSHED,
        f"0e 95 93a3616e6e03cf0a0a0a0a0a0a0a0a {ADDRESS} 9208 93a3616e6e03cf0a0a0a0a0a0a0a0a"
        "c410000102030405060708090a0b0c0d0e0f 920c 93a3626f6201cfffffffffffffffff",
    ),
    (QUERY, f"0f 94 93a3616e6e03cf0a0a0a0a0a0a0a0a {ADDRESS} 9208cfffffffffffffffff c3"),
]


@pytest.mark.parametrize(("packet", "golden"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_bytes(packet: ControlPacket, golden: str) -> None:
    """Red means that nodes of two builds would no longer understand each other (trap 32)."""
    assert encode_control(packet).hex() == bytes.fromhex(golden).hex()
    assert decode_control(bytes.fromhex(golden)) == packet


@st.composite
def statements(draw: st.DrawFn) -> Statement:
    kind = draw(st.sampled_from((Attempt, Joining, Faults)))
    recv = tuple((node, draw(counters)) for node in sorted(draw(node_sets)))
    cause = Cause(draw(texts), draw(st.none() | nodes), tuple(draw(st.lists(nodes, max_size=3))), draw(texts))
    numbers = [draw(counters) for _ in range(4)]
    j, f_before, f_after = draw(node_sets), draw(node_sets), draw(node_sets)
    return kind(
        draw(nodes), draw(texts), draw(infos), numbers[0], draw(rings), numbers[1], j, f_before, f_after, recv,
        numbers[2], numbers[3], cause,
        draw(st.booleans()), draw(digests), draw(versions),
    )  # fmt: skip


flushed = st.builds(Flushed, nodes, texts, rings, st.binary(min_size=16, max_size=16), rings)
queries = st.builds(Query, nodes, texts, ring_tags, st.booleans())
packets: st.SearchStrategy[ControlPacket] = st.one_of(statements(), flushed, queries)


@given(packets)
def test_packets_come_back(packet: ControlPacket) -> None:
    decoded = decode_control(encode_control(packet))
    assert decoded == packet
    assert type(decoded) is type(packet)


@given(mutated(packets.map(encode_control)))
def test_any_bytes_are_a_packet_or_rejected(body: bytes) -> None:
    packet = decode_control(body)
    if not isinstance(packet, Rejection):
        assert decode_control(encode_control(packet)) == packet


@given(st.integers(11, 15), st.recursive(st.integers(0, 1 << 63) | st.binary() | st.text(), st.lists, max_leaves=20))
def test_any_msgpack_is_rejected(kind: int, value: object) -> None:
    assert isinstance(decode_control(packed(kind, value)), Rejection)


def test_equal_statements_give_equal_bytes_however_their_sets_were_built() -> None:
    """Machines agree by a digest over these bytes."""
    backwards = FAULTS._replace(j=frozenset([CID, BOB, ANN]), f_before=frozenset([CID, BOB]) - {BOB})
    assert encode_control(backwards) == encode_control(FAULTS)
    assert len({encode_control(packet) for packet in (FAULTS, JOINING, ATTEMPT)}) == 3


@pytest.mark.parametrize(
    ("body", "name"),
    [
        pytest.param(broken(FAULTS, 1, 3), "rank", id="a sender outside the table"),
        pytest.param(broken(FAULTS, 2, "\x07"), "address", id="an address not printable"),
        pytest.param(broken(FAULTS, 4, -1), "counter", id="a negative version"),
        pytest.param(broken(FAULTS, 5, [1 << 63, 0]), "counter", id="a view too far"),
        pytest.param(broken(FAULTS, 5, [8, 3]), "rank", id="a representative outside the table"),
        pytest.param(broken(FAULTS, 6, 1 << 63), "counter", id="a view sequence too large"),
        pytest.param(broken(FAULTS, 7, b"\x08"), "bitmap", id="a joiner outside the table"),
        pytest.param(broken(FAULTS, 9, b""), "bitmap", id="a bitmap too short"),
        pytest.param(broken(FAULTS, 10, [[1, 1], [0, 1]]), "recv", id="recv not sorted"),
        pytest.param(broken(FAULTS, 10, [[1, 1], [1, 2]]), "recv", id="recv of a node twice"),
        pytest.param(broken(FAULTS, 10, [[3, 1]]), "rank", id="recv of nobody"),
        pytest.param(broken(FAULTS, 10, [[0, -1]]), "counter", id="less than nothing received"),
        pytest.param(broken(FAULTS, 10, [[0, 1]] * (MEMBERS_MAX + 1)), "layout", id="recv of too many"),
        pytest.param(broken(FAULTS, 11, 1 << 63), "counter", id="delivered too much"),
        pytest.param(broken(FAULTS, 13, ["x" * 65, None, [], ""]), "cause", id="a cause too long"),
        pytest.param(broken(FAULTS, 15, b"short"), "digest", id="a digest of another size"),
        pytest.param(broken(FAULTS, 16, [2, 1]), "versions", id="versions upside down"),
        pytest.param(broken(FLUSHED, 2, [8, ["", 1, 1]]), "node", id="an old representative without a name"),
        pytest.param(broken(FLUSHED, 3, b"short"), "digest", id="a proposal named by too little"),
        pytest.param(broken(FLUSHED, 4, [-1, list(BOB)]), "counter", id="a negative next view"),
        pytest.param(broken(QUERY, 2, [8, -1]), "tag", id="a negative boot id"),
        pytest.param(broken(QUERY, 2, [-1, 8]), "counter", id="a negative view"),
    ],
)
def test_each_mistake_is_named(body: bytes, name: str) -> None:
    assert field(body) == name


def test_the_largest_statement_fits_parts_of_the_smallest_datagram() -> None:
    """Trap 31: the documented maximum is tried, with every earlier life and stranger a packet may name."""
    known = members(4 * MEMBERS_MAX)
    everyone = frozenset(known)
    recv = tuple((node, 1 << 62) for node in known[:MEMBERS_MAX])
    cause = Cause("c" * 64, known[0], tuple(known), "t" * 64)
    numbers = 1 << 62
    statement = Joining(
        known[0], "h" * 256, bytes(INFO_MAX), numbers, RingId(numbers, known[1]), numbers, everyone, everyone, everyone, recv,
        numbers, numbers, cause, True, b"digest!!", (1, 255),
    )  # fmt: skip
    body = encode_control(statement)
    assert len(split(1, body, BODY_MIN)) <= PARTS_MAX
    assert decode_control(body) == statement


def test_what_a_statement_wants_is_who_joins_and_is_not_at_fault() -> None:
    said = JOINING._replace(f_before=frozenset({CID}), f_after=frozenset({BOB}))
    assert said.f == {BOB, CID}
    assert said.accept == {ANN}
    assert isinstance(said, Joining)
