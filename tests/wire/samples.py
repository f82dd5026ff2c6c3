"""Packets for the tests of the wire room: fixed ones for golden bytes, and strategies that draw valid ones."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from transis.totem.packets import NOBODY, Commit, CommitEntry, Join, Row, Token, Wake
from transis.types.ids import DatagramClass, NodeId, RingId, RingTag, ViewId, ViewKind
from transis.types.limits import INFO_MAX, MEMBERS_MAX, RTR_RANGES_MAX
from transis.types.views import Cause
from transis.wire.burst import COUNTER_MAX, DataHeader
from transis.wire.control import Beacon, ControlPacket, Probe, ProbeAnswer

ANN = NodeId("ann", 3, 0x0A0A0A0A0A0A0A0A)
BOB = NodeId("bob", 1, 0xFFFFFFFFFFFFFFFF)
CID = NodeId("cid", 7, 0x0C)
RING = RingId(8, ANN)
VIEW = ViewId(ViewKind.REGULAR, 8, ANN)
KEY = bytes(range(32))

DATA_HEADER = DataHeader(DatagramClass.SAFE, RING.tag, 2, 258, 5, 77, 1_000_000, 4, True, False)
TOKEN = Token(RING.tag, 1, 2, 99, 5, 300, 250, 2, 12, 4096, True, 78, [(251, 251), (260, 299)])
JOIN = Join(
    ANN,
    "10.0.0.1:7000",
    b"info",
    8,
    frozenset({ANN, BOB, CID}),
    frozenset({CID}),
    frozenset({ANN, BOB}),
    (Row(ANN, 2, 1, frozenset({CID})), Row(BOB, 1, 1, frozenset())),
    12,
    1,
    False,
    79,
    b"digest!!",
    (1, 1),
)
COMMIT = Commit(
    RingId(12, ANN),
    1,
    5,
    0,
    1,
    1,
    Cause("token lost", ANN, (CID,), "token_loss"),
    (
        CommitEntry(ANN, "10.0.0.1:7000", b"", True, RING, b"members!", 250, 249, True, frozenset({ANN, CID}), 80),
        CommitEntry(BOB, "10.0.0.2:7000", b"", False, None, b"", 0, 0, False, frozenset(), 0),
    ),
)
BEACON = Beacon(ANN, "10.0.0.1:7000", RING, frozenset({ANN, BOB}), frozenset({ANN, BOB, CID}), 81, b"digest!!", (1, 1))
WAKE = Wake(RING.tag, 99)
PROBE = Probe(ANN, "10.0.0.1:7000")
PROBE_ANSWER = ProbeAnswer(ANN, BOB, "stale", ANN._replace(incarnation=ANN.incarnation + 1))
CONTROL_PACKETS: tuple[ControlPacket, ...] = (JOIN, COMMIT, BEACON, WAKE, PROBE, PROBE_ANSWER)

counters = st.integers(0, COUNTER_MAX)
boots = st.integers(0, (1 << 64) - 1)
names = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=16)
texts = st.text(st.characters(categories=("L", "N", "P")), max_size=16)
nodes = st.builds(NodeId, names, counters, boots)
node_sets = st.frozensets(nodes, max_size=6)
ring_tags = st.builds(RingTag, counters, boots)
rings = st.builds(RingId, counters, nodes)
ranks = st.integers(0, MEMBERS_MAX - 1)
digests = st.binary(min_size=8, max_size=8)
infos = st.binary(max_size=INFO_MAX)
versions = st.tuples(st.integers(0, 255), st.integers(0, 255)).map(lambda pair: (min(pair), max(pair)))

data_headers = st.builds(
    DataHeader,
    st.sampled_from(DatagramClass),
    ring_tags,
    ranks,
    st.integers(1, COUNTER_MAX),
    st.integers(0, (1 << 32) - 1),
    counters,
    counters,
    st.integers(0, (1 << 16) - 1),
    st.booleans(),
    st.booleans(),
)


@st.composite
def tokens(draw: st.DrawFn) -> Token:
    """Ranges count back from seq; gaps and widths are drawn, so that they are disjoint by construction."""
    gaps = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2000)), max_size=RTR_RANGES_MAX))
    behind = draw(st.integers(0, 1000))
    seq = behind + sum(gap + width for gap, width in gaps) + draw(st.integers(0, 1 << 40))
    ranges: list[tuple[int, int]] = []
    position = seq - behind
    for gap, width in gaps:
        ranges.append((position - width, position))
        position -= width + gap
    aru_ids = st.one_of(ranks, st.just(NOBODY))
    return Token(
        draw(ring_tags),
        draw(ranks),
        draw(ranks),
        draw(counters),
        draw(st.integers(0, (1 << 32) - 1)),
        seq,
        draw(st.integers(0, seq)),
        draw(aru_ids),
        draw(st.integers(0, 1 << 30)),
        draw(counters),
        draw(st.booleans()),
        draw(counters),
        [pair for pair in reversed(ranges) if pair[0] >= 1],
    )


@st.composite
def joins(draw: st.DrawFn) -> Join:
    rows = sorted(draw(node_sets))
    return Join(
        draw(nodes),
        draw(texts),
        draw(infos),
        draw(counters),
        draw(node_sets),
        draw(node_sets),
        draw(node_sets),
        tuple(Row(node, draw(counters), draw(counters), draw(node_sets)) for node in rows),
        draw(counters),
        draw(counters),
        draw(st.booleans()),
        draw(counters),
        draw(digests),
        draw(versions),
    )


@st.composite
def commits(draw: st.DrawFn) -> Commit:
    members = draw(st.lists(nodes, min_size=1, max_size=5, unique=True))
    entry = st.builds(
        CommitEntry,
        st.just(members[0]),
        texts,
        infos,
        st.booleans(),
        st.none() | rings,
        st.just(b"") | digests,
        counters,
        counters,
        st.booleans(),
        node_sets,
        counters,
    )
    entries = tuple(draw(entry)._replace(node=member) for member in members)
    index = st.integers(0, len(members) - 1)
    cause = Cause(draw(texts), draw(st.none() | nodes), tuple(draw(st.lists(nodes, max_size=3))), draw(texts))
    ring = RingId(draw(counters), members[0])
    return Commit(ring, draw(st.sampled_from((1, 2))), draw(counters), draw(index), draw(index), draw(counters), cause, entries)


beacons = st.builds(Beacon, nodes, texts, rings, node_sets, node_sets, counters, digests, versions)
wakes = st.builds(Wake, ring_tags, counters)
probes = st.builds(Probe, nodes, texts)


@st.composite
def answers(draw: st.DrawFn) -> ProbeAnswer:
    about = draw(nodes)
    return ProbeAnswer(
        about, draw(nodes), draw(st.sampled_from(("taken", "stale", "copied"))), draw(nodes)._replace(name=about.name)
    )


control_packets: st.SearchStrategy[ControlPacket] = st.one_of(joins(), commits(), beacons, wakes, probes, answers())


@st.composite
def mutated(draw: st.DrawFn, valid: st.SearchStrategy[bytes]) -> bytes:
    """A valid encoding with a few bytes changed, taken out or put in: it passes the first checks more often than noise."""
    data = bytearray(draw(valid))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(data)))
        change: Callable[[bytearray, int, int], None] = draw(st.sampled_from((_overwrite, _remove, _insert, _truncate)))
        change(data, position, draw(st.sampled_from((0, 1, 2, 3, 0x7F, 0x80, 0xC0, 0xDD, 0xFE, 0xFF))))
    return bytes(data)


def _overwrite(data: bytearray, position: int, value: int) -> None:
    data[position : position + 1] = bytes((value,))


def _remove(data: bytearray, position: int, value: int) -> None:
    del data[position : position + value % 9]


def _insert(data: bytearray, position: int, value: int) -> None:
    data[position:position] = bytes((value,))


def _truncate(data: bytearray, position: int, value: int) -> None:
    del data[position:]
