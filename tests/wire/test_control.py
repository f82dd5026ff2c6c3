"""Control packets: they come back as they were, 128 members fit, and claims of a peer cost nothing."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.samples import ANN, BEACON, BOB, CID, COMMIT, JOIN, PROBE, PROBE_ANSWER, RING, WAKE, control_packets, mutated
from transis.totem.packets import Commit, CommitEntry, Join, Row
from transis.types.errors import Rejection
from transis.types.ids import NodeId
from transis.types.limits import DATAGRAM_MIN, INFO_MAX, MEMBERS_MAX, NAME_MAX, PARTS_MAX
from transis.types.views import Cause
from transis.wire.control import ControlPacket, config_digest, decode_control, encode_control, split
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE

BODY_MIN = DATAGRAM_MIN - ENVELOPE_SIZE - SEAL_SIZE


def field(body: bytes) -> str:
    outcome = decode_control(body)
    assert isinstance(outcome, Rejection), outcome
    return outcome.field


def unpacked(packet: ControlPacket) -> list[object]:
    """A packet's array as it travels, to be broken on purpose."""
    decoded = msgspec.msgpack.decode(encode_control(packet)[1:])
    assert isinstance(decoded, list)
    return decoded


def packed(kind: int, array: object) -> bytes:
    return bytes((kind,)) + msgspec.msgpack.encode(array)


@given(control_packets)
def test_packets_come_back(packet: ControlPacket) -> None:
    decoded = decode_control(encode_control(packet))
    assert decoded == packet
    assert type(decoded) is type(packet)


@given(st.binary(max_size=100) | mutated(control_packets.map(encode_control)))
def test_any_bytes_are_a_packet_or_rejected(body: bytes) -> None:
    packet = decode_control(body)
    if not isinstance(packet, Rejection):
        assert decode_control(encode_control(packet)) == packet


@given(st.integers(3, 8), st.recursive(st.integers() | st.binary() | st.text(), st.lists, max_leaves=20))
def test_any_msgpack_is_a_packet_or_rejected(kind: int, value: object) -> None:
    try:
        body = packed(kind, value)
    except OverflowError:
        return
    assert isinstance(decode_control(body), Rejection)


def test_equal_packets_give_equal_bytes_however_their_sets_were_built() -> None:
    forwards = JOIN._replace(proc_set=frozenset([ANN, BOB, CID]))
    backwards = JOIN._replace(proc_set=frozenset([CID, BOB, ANN]))
    assert encode_control(forwards) == encode_control(backwards)


def broken(packet: ControlPacket, position: int, value: object) -> bytes:
    array = unpacked(packet)
    array[position] = value
    return packed(encode_control(packet)[0], array)


NODES = [list(ANN), list(BOB), list(CID)]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        pytest.param(b"", "length", id="empty"),
        pytest.param(b"\x03" + bytes(1 << 20), "length", id="a megabyte"),
        pytest.param(b"\x01", "kind", id="data"),
        pytest.param(b"\xff", "kind", id="unknown kind"),
        pytest.param(encode_control(JOIN) + b"\x00", "layout", id="bytes behind the end"),
        pytest.param(broken(JOIN, 0, [NODES[1], NODES[0], NODES[2]]), "nodes", id="table not sorted"),
        pytest.param(broken(JOIN, 0, [NODES[0], NODES[0], NODES[2]]), "nodes", id="table not unique"),
        pytest.param(broken(JOIN, 0, [["", 1, 1], *NODES[1:]]), "node", id="a node without a name"),
        pytest.param(broken(JOIN, 0, [["a" * (NAME_MAX + 1), 1, 1], *NODES[1:]]), "node", id="a name too long"),
        pytest.param(broken(JOIN, 0, [["a\n", 1, 1], *NODES[1:]]), "node", id="a name not printable"),
        pytest.param(broken(JOIN, 0, [["ann", -1, 1], *NODES[1:]]), "node", id="a negative incarnation"),
        pytest.param(broken(JOIN, 0, [["ann", 1 << 63, 1], *NODES[1:]]), "node", id="an incarnation too large"),
        pytest.param(broken(JOIN, 0, [["ann", 1, -1], *NODES[1:]]), "node", id="a negative boot id"),
        pytest.param(broken(JOIN, 0, [[f"n{number:04}", 1, 1] for number in range(513)]), "layout", id="too many nodes"),
        pytest.param(broken(JOIN, 1, 3), "rank", id="a sender outside the table"),
        pytest.param(broken(JOIN, 1, -1), "rank", id="a negative rank"),
        pytest.param(broken(JOIN, 2, "x" * 257), "address", id="an address too long"),
        pytest.param(broken(JOIN, 2, "\x07"), "address", id="an address not printable"),
        pytest.param(broken(JOIN, 3, bytes(INFO_MAX + 1)), "info", id="too much info"),
        pytest.param(broken(JOIN, 4, 1 << 63), "counter", id="a ring sequence too large"),
        pytest.param(broken(JOIN, 4, -1), "counter", id="a negative ring sequence"),
        pytest.param(broken(JOIN, 5, b""), "bitmap", id="a bitmap too short"),
        pytest.param(broken(JOIN, 5, b"\x07\x00"), "bitmap", id="a bitmap too long"),
        pytest.param(broken(JOIN, 5, b"\x08"), "bitmap", id="a bit outside the table"),
        pytest.param(broken(JOIN, 8, [[1, 1, 1, b"\x00"], [0, 1, 1, b"\x00"]]), "rows", id="rows not sorted"),
        pytest.param(broken(JOIN, 8, [[0, -1, 1, b"\x00"]]), "counter", id="a negative version"),
        pytest.param(broken(JOIN, 13, b"short"), "digest", id="a digest of another size"),
        pytest.param(broken(JOIN, 14, [2, 1]), "versions", id="versions upside down"),
        pytest.param(broken(JOIN, 14, [0, 256]), "versions", id="a version too large"),
        pytest.param(broken(COMMIT, 2, 3), "rotation", id="a third rotation"),
        pytest.param(broken(COMMIT, 4, 2), "rank", id="a sender without entry"),
        pytest.param(broken(COMMIT, 5, -1), "rank", id="a negative target"),
        pytest.param(broken(COMMIT, 7, ["x" * 65, None, [], ""]), "cause", id="a cause too long"),
        pytest.param(broken(COMMIT, 7, ["x", 9, [], ""]), "rank", id="an accuser outside the table"),
        pytest.param(broken(COMMIT, 7, ["x", None, [3], ""]), "rank", id="an accused outside the table"),
        pytest.param(broken(COMMIT, 8, []), "layout", id="a ring of nobody"),
        pytest.param(broken(COMMIT, 8, [unpacked(COMMIT)[8][0]] * 2), "entries", id="a node twice"),  # type: ignore[index]
        pytest.param(broken(BEACON, 4, 7), "rank", id="a representative outside the table"),
        pytest.param(encode_control(WAKE)[:-1], "length", id="a wake cut short"),
        pytest.param(encode_control(WAKE)[:-8] + b"\xff" * 8, "counter", id="a wake for a token too far"),
        pytest.param(broken(PROBE, 0, ["", 1, 1]), "node", id="a prober without a name"),
        pytest.param(broken(PROBE_ANSWER, 2, "maybe"), "verdict", id="a verdict that is none"),
        pytest.param(broken(PROBE_ANSWER, 3, ["bob", 1, 1]), "known", id="a known life of another name"),
        pytest.param(b"\x07\x92\x93\xa2\xff\xff\x01\x01\xa0", "layout", id="text that is not UTF-8"),
        pytest.param(b"\x03" + b"\x9f" * 100_000, "layout", id="nested without end"),
    ],
)
def test_each_mistake_is_named(body: bytes, name: str) -> None:
    assert field(body) == name


CLAIMS = {
    "table": b"\x03\x9f\xdd\xff\xff\xff\xff",
    "packet": b"\x03\xdd\xff\xff\xff\xff",
    "name": b"\x07\x92\x93\xdb\xff\xff\xff\xff",
    "node": b"\x07\x92\xdd\xff\xff\xff\xff",
    "info": b"\x03\x9f\x90\x00\xa0\xc6\xff\xff\xff\xff",
    "rows": b"\x03\x9f\x90\x00\xa0\xc4\x00\x00\xc4\x00\xc4\x00\xc4\x00\xdd\xff\xff\xff\xff",
    "entries": b"\x04\x99\x90\x00\x01\x00\x00\x00\x00\x94\xa0\xc0\x90\xa0\xdd\xff\xff\xff\xff",
    "accused": b"\x04\x99\x90\x00\x01\x00\x00\x00\x00\x94\xa0\xc0\xdd\xff\xff\xff\xff",
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claimed_length_reserves_no_memory(claim: bytes) -> None:
    decode_control(claim)
    tracemalloc.start()
    try:
        assert field(claim + b"\x00") == "layout"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def members(count: int) -> list[NodeId]:
    """Names as long as they may be, numbers as large as they may be."""
    return [NodeId(f"{number:03}" + "n" * (NAME_MAX - 3), 1 << 62, (1 << 64) - 1 - number) for number in range(count)]


def test_the_largest_join_fits_parts_of_the_smallest_datagram() -> None:
    """Traps 31: the documented maximum is tried, with every earlier life and stranger a packet may name."""
    known = members(4 * MEMBERS_MAX)
    everyone = frozenset(known)
    rows = tuple(Row(node, 1 << 62, 1 << 62, everyone) for node in known)
    join = Join(
        known[0],
        "h" * 256,
        bytes(INFO_MAX),
        1 << 62,
        everyone,
        everyone,
        everyone,
        rows,
        1 << 62,
        1 << 62,
        True,
        1 << 62,
        b"digest!!",
        (1, 255),
    )
    body = encode_control(join)
    assert len(split(1, body, BODY_MIN)) <= PARTS_MAX
    assert decode_control(body) == join


def test_the_largest_commit_fits_parts_of_the_smallest_datagram() -> None:
    ring = members(MEMBERS_MAX)
    entries = tuple(
        CommitEntry(node, "h" * 256, bytes(INFO_MAX), True, RING, b"members!", 1 << 62, 1 << 62, True, frozenset(ring), 1 << 62)
        for node in ring
    )
    cause = Cause("c" * 64, ring[0], tuple(ring), "t" * 64)
    commit = Commit(RING._replace(rep=ring[0]), 2, 1 << 62, 127, 126, 1 << 62, cause, entries)
    body = encode_control(commit)
    assert len(split(1, body, BODY_MIN)) <= PARTS_MAX
    assert decode_control(body) == commit


def test_configurations_that_differ_have_different_digests() -> None:
    fields = [("totem", 1400), ("totem", 1401), ("lansis", 1400), ("totem",), ("totem1400",)]
    digests = {config_digest(tuple(one)) for one in fields}
    assert len(digests) == len(fields)
    assert {len(digest) for digest in digests} == {8}
