"""Peers cannot raise: whatever a well-formed packet claims, an engine answers with outputs or with nothing.

Every packet here passes the decoders of the wire room. Some claims no honest member makes; a member that is broken,
or whose key was stolen, might.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.hand import cut_off, node_id
from tests.totem.hand import Table, config, in_commit, is_token
from transis.engine.base import Packet
from transis.node.node import Node
from transis.totem.packets import FCC_MAX, NOBODY, Commit, CommitEntry, Join, Row, Token, Wake
from transis.totem.states import State
from transis.types.ids import DatagramClass, NodeId, RingId, RingTag, Service
from transis.types.limits import RING_SEQ_MAX
from transis.types.outputs import Deliver, Note, Persist
from transis.types.views import Cause
from transis.wire.burst import COUNTER_MAX, Burst, DataHeader, encode_data
from transis.wire.control import Beacon, config_digest

DIGEST = config_digest(config("a").digest_fields())
NODES = [*(node_id(name) for name in "acxyz"), NodeId("c", 2, 7), NodeId("c", 1, 7), NodeId("c", 0, 7)]

nodes = st.sampled_from(NODES)
node_sets = st.frozensets(st.sampled_from([*NODES, node_id("b")]))
ranks = st.integers(0, 3)
numbers = st.one_of(st.integers(0, 8), st.integers(0, 1 << 30))


def bursts(ring: RingId) -> st.SearchStrategy[Burst]:
    """One datagram of any class: bodies are junk, which an engine never looks at."""
    seqs = st.integers(1, 1 << 20)
    index, last, round_ = st.just(0), st.just(True), st.just(0)
    klasses, tags = st.sampled_from(DatagramClass), st.just(ring.tag)
    headers = st.builds(DataHeader, klasses, tags, ranks, seqs, round_, numbers, numbers, index, last, st.booleans())
    return st.builds(lambda header, body: Burst(header, [encode_data(header, body)]), headers, st.binary(max_size=80))


@st.composite
def tokens(draw: st.DrawFn, ring: RingId) -> Token:
    seq = draw(st.integers(1, 1 << 20))
    aru, aru_id = draw(st.integers(0, seq)), draw(st.sampled_from((0, 1, NOBODY)))
    asked = sorted(draw(st.frozensets(st.integers(max(1, seq - 50), seq), max_size=3)))
    fcc, backlog, timestamp, token_seq = (draw(numbers) for _ in range(4))
    ranges = [(number, number) for number in asked]
    flag = draw(st.booleans())
    return Token(ring.tag, draw(ranks), draw(ranks), token_seq, 0, seq, aru, aru_id, fcc, backlog, flag, timestamp, ranges)


@st.composite
def joins(draw: st.DrawFn) -> Join:
    rows = tuple(Row(node, draw(numbers), draw(numbers), draw(node_sets)) for node in sorted(draw(node_sets)))
    proc, fail, proposal = (draw(node_sets) for _ in range(3))
    ring_seq, attempt, index, timestamp = (draw(numbers) for _ in range(4))
    leaving = draw(st.booleans())
    sender = draw(nodes)
    return Join(sender, "", b"", ring_seq, proc, fail, proposal, rows, attempt, index, leaving, timestamp, DIGEST, (1, 1))


@st.composite
def entries(draw: st.DrawFn, node: NodeId, ring: RingId) -> CommitEntry:
    filled, received = draw(st.booleans()), draw(st.booleans())
    return CommitEntry(node, "", b"", filled, ring, b"", draw(numbers), draw(numbers), received, draw(node_sets), 1)


@st.composite
def commits(draw: st.DrawFn, ring: RingId) -> Commit:
    members = draw(st.lists(st.sampled_from([*NODES, node_id("b")]), min_size=1, max_size=4, unique=True))
    index = st.integers(0, len(members) - 1)
    ring_id = RingId(ring.seq + draw(st.integers(0, 8)), members[0])
    listed = tuple(draw(entries(node, ring)) for node in members)
    return Commit(ring_id, draw(st.sampled_from((1, 2))), 1, draw(index), draw(index), 0, Cause("?"), listed)


@st.composite
def beacons(draw: st.DrawFn, ring: RingId) -> Beacon:
    return Beacon(draw(nodes), "", ring, draw(node_sets), draw(node_sets), draw(numbers), DIGEST, (1, 1))


def packets(ring: RingId) -> st.SearchStrategy[Packet]:
    wakes = st.builds(Wake, st.just(ring.tag), numbers)
    return st.one_of(bursts(ring), tokens(ring), joins(), commits(ring), beacons(ring), wakes)


def brought_to(state: State) -> Table:
    """Three engines, `b` in the state asked for because `c` was cut off."""
    table = Table("abc")
    table.form("abc")
    table.drops.append(cut_off("c"))
    table.run_until(lambda: table["b"].engine.state is state)
    return table


@pytest.mark.parametrize("state", [State.OPERATIONAL, State.GATHER, State.COMMIT, State.RECOVERY])
@settings(max_examples=15)
@given(data=st.data())
def test_whatever_arrives_the_engine_keeps_its_invariants(state: State, data: st.DataObject) -> None:
    table = brought_to(state)
    engine = table["b"].engine
    for _ in range(3):
        ring = data.draw(st.sampled_from([engine.ring_id, RingId(engine.ring_id.seq + 4, node_id("a"))]))
        table.hand("b", data.draw(packets(ring)))
        table.now += data.draw(st.sampled_from((0, 2_000, 50_000, 200_000)))
        engine.wake(table.now)
        table.carry("b")


# --- claims that only an adversary makes ----------------------------------------------------------------------------


def _next_token(table: Table, **claims: int) -> Token:
    """The token that `b` waits for in a ring of two, with some fields falsified."""
    engine = table["b"].engine
    seen = [journey.packet for journey in table.journeys if isinstance(journey.packet, Token) and journey.target == "b"]
    honest = Token(engine.ring_id.tag, 0, 1, seen[-1].token_seq + 1, 0, 0, 0, NOBODY, 0, 0, False, 0, [])
    return replace(honest, **claims)  # type: ignore[arg-type]


def test_basic_datagrams_that_claim_to_be_one_visit() -> None:
    table = Table("ab")
    ring = table.form("ab")
    header = DataHeader(DatagramClass.BASIC, ring.tag, 0, 1, 0, 1, 1, 0, False, False)
    table.hand("b", Burst(header, [encode_data(header, b"x"), encode_data(header._replace(seq=2, index=1), b"y")]))


def test_a_token_held_back_by_a_rank_that_does_not_exist() -> None:
    table = Table("ab")
    table.form("ab")
    for turn in range(100):
        table.now += 5_000
        token = _next_token(table, seq=5, aru_id=100)
        table.hand("b", replace(token, token_seq=token.token_seq + 2 * turn))


def test_a_token_whose_sequence_jumps() -> None:
    table = Table("ab")
    table.form("ab")
    for turn in range(3):
        token = _next_token(table, seq=1 << 40)
        table.hand("b", replace(token, token_seq=token.token_seq + 2 * turn))


def _held_by_a() -> tuple[Table, RingId]:
    """An idle ring of two that has sent something; `a` holds the token."""
    table = Table("ab")
    table.form("ab")
    table.submit("a", Service.SAFE, "one")
    table.submit("b", Service.SAFE, "two")
    table.run_until(lambda: table.texts("a") == table.texts("b") and len(table.texts("a")) == 2)
    table.run_until(lambda: table.is_still)
    return table, table["a"].engine.ring_id


def _token_for_b(table: Table, **claims: int) -> Token:
    """The one that `b` waits for, with some fields falsified."""
    passed = [journey.packet for journey in table.journeys if isinstance(journey.packet, Token) and journey.target == "b"]
    return replace(passed[-1], token_seq=passed[-1].token_seq + 2, rtr=[], **claims)  # type: ignore[arg-type]


def test_no_number_is_given_out_again() -> None:
    """The token says that nothing was sent yet. Who believes it numbers its message like an old one, which all have: nobody would
    take the message, and its sender would wait for its own receipt for ever."""
    table, _ = _held_by_a()
    table.submit("b", Service.AGREED, "three")
    table.hand("b", _token_for_b(table, seq=0, aru=0))
    assert table["b"].notes("impossible token")
    table.run_until(lambda: all("three" in table.texts(name) for name in "ab"))


def test_who_holds_the_token_while_its_numbers_are_given_away_lets_the_ring_go() -> None:
    table, ring = _held_by_a()
    last = table["a"].of(Deliver)[-1]
    assert isinstance(last, Deliver)
    header = DataHeader(DatagramClass.ORDERED, ring.tag, 1, last.burst.last_seq + 1, 0, 1, 1, 0, True, False)
    table.hand("a", Burst(header, [encode_data(header, b"")]))
    table.submit("a", Service.SAFE, "three")
    table.run_until(lambda: all("three" in table.texts(name) for name in "ab"))
    assert table["a"].notes("impossible token")


def test_nobody_tells_me_anything_new_in_my_own_name() -> None:
    table, ring = _held_by_a()
    header = DataHeader(DatagramClass.ORDERED, ring.tag, 0, 3, 0, 1, 1, 0, True, False)
    (note,) = table.hand("a", Burst(header, [encode_data(header, b"")]))
    assert isinstance(note, Note)
    assert dict(note.detail)["field"] == "own name"
    table.submit("a", Service.SAFE, "three")
    table.run_until(lambda: all("three" in table.texts(name) for name in "ab"))
    assert not table["a"].notes("impossible token")


def test_a_number_that_two_members_used_is_told_once() -> None:
    table, ring = _held_by_a()
    header = DataHeader(DatagramClass.ORDERED, ring.tag, 1, 3, 0, 1, 1, 0, True, False)
    table.drops.append(is_token)
    table.submit("a", Service.AGREED, "three")
    table.run_until(lambda: "three" in table.texts("a"))
    for _ in range(2):
        table.hand("a", Burst(header, [encode_data(header, b"")]))
    (note,) = table["a"].notes("number used twice")
    assert dict(note.detail) == {"seq": 3, "kept": str(node_id("a")), "dropped": str(node_id("b"))}


# --- who may say it -------------------------------------------------------------------------------------------------


def _about_the_ring(table: Table, ring: RingId) -> list[Packet]:
    """What `a` might say next in this ring."""
    token = _token_for_b(table)
    header = DataHeader(DatagramClass.ORDERED, ring.tag, 0, token.seq + 1, 0, 1, 1, 0, True, False)
    return [Burst(header, [encode_data(header, b"")]), Wake(ring.tag, token.token_seq), token]


def test_a_ring_hears_its_members_and_nobody_else() -> None:
    """A stranger with the key sent what it had overheard, with another number: two members gave one number away, or the token
    turned back, and a message was delivered twice."""
    table, ring = _held_by_a()
    said = _about_the_ring(table, ring)
    outputs = table.hand_from(node_id("x"), "b", *said)
    assert [output.what for output in outputs if isinstance(output, Note)] == ["rejected"], "an operator is told of the first"
    assert len(outputs) == 1
    assert table["b"].engine.rejections == {"speaker": len(said)}
    table.hand_from(node_id("a"), "b", *said)
    assert table["b"].engine.rejections == {"speaker": len(said)}


def test_a_member_repeats_data_and_passes_the_token_on_as_itself() -> None:
    table, ring = _held_by_a()
    burst, wake, token = _about_the_ring(table, ring)
    table.hand_from(node_id("b"), "b", burst, wake)
    assert not table["b"].engine.rejections
    table.hand_from(node_id("b"), "b", token)
    assert table["b"].engine.rejections == {"speaker": 1}


def test_a_commit_token_comes_from_whom_it_names() -> None:
    table, commit = in_commit("abc")
    table.hand_from(node_id("c"), "b", commit)
    assert table["b"].engine.state is State.COMMIT
    table.hand_from(commit.entries[commit.sender].node, "b", commit)
    assert table["b"].engine.state is State.RECOVERY


def test_another_content_under_the_same_number_is_told() -> None:
    """Others may have what this node drops, and the message that counts here may not be what its sender wrote."""
    table, _ = _held_by_a()
    table.submit("b", Service.AGREED, "three")
    table.run_until(lambda: "three" in table.texts("a"))
    true = [journey.packet for journey in table.journeys if isinstance(journey.packet, Burst) and journey.source == "b"][-1]
    assert not table.hand("a", true)
    forged = Burst(true.header, [bytes(true.datagram(true.first_seq))[:-1] + b"?"])
    (note,) = table.hand("a", forged)
    assert isinstance(note, Note)
    assert dict(note.detail)["field"] == "content"
    assert not table["a"].notes("number used twice")


@pytest.mark.parametrize(("claim", "most"), [("fcc", FCC_MAX), ("backlog", COUNTER_MAX)])
def test_shares_that_are_added_to_the_largest_claim_can_still_be_read(claim: str, most: int) -> None:
    """What `b` forwards is read by an honest decoder: tests/engine/hand.py asserts it."""
    table, _ = _held_by_a()
    large = "three" * 240
    table.submit("b", Service.AGREED, *(large,) * 200)
    table.hand("b", _token_for_b(table, **{claim: most}))
    table.run_until(lambda: table.texts("a").count(large) == 200)


def test_a_token_that_has_skipped_hops() -> None:
    """Up to where counters end, the next one would be read by nobody."""
    table, _ = _held_by_a()
    table.hand("b", replace(_token_for_b(table), token_seq=COUNTER_MAX))
    table.run_until(lambda: table.all_in("ab"))


def test_a_second_rotation_in_another_order() -> None:
    table, commit = in_commit("abc")
    table.hand("b", commit._replace(entries=(*commit.entries, commit.entries[0]._replace(node=node_id("x")))))
    assert table["b"].engine.state is State.COMMIT


def test_nobody_comes_from_my_ring_who_was_not_in_it() -> None:
    """x would be in my transitional view, and its gaps would be mine."""
    table = Table("abx")
    mine = table.form("ab")
    known = len(table.journeys)
    table.drops.append(
        lambda journey: isinstance(journey.packet, Commit) and journey.packet.rotation == 2 and journey.target == "b"
    )

    def second() -> list[Commit]:
        packets = [journey.packet for journey in table.journeys[known:]]
        return [packet for packet in packets if isinstance(packet, Commit) and packet.rotation == 2]

    table.start("x")
    table.run_until(lambda: bool(second()))
    commit = second()[0]
    table.hand("b", commit._replace(entries=tuple(entry._replace(old_ring=mine) for entry in commit.entries)))
    assert table["b"].engine.state is State.COMMIT
    table.hand("b", commit)
    assert table["b"].engine.state is State.RECOVERY


def test_an_honest_second_rotation_is_taken() -> None:
    table, commit = in_commit("abc")
    table.hand("b", commit)
    assert table["b"].engine.state is State.RECOVERY


def test_a_second_rotation_that_falsifies_my_own_entry() -> None:
    table, commit = in_commit("abc")
    first, mine = commit.entries
    table.hand("b", commit._replace(entries=(first, mine._replace(old_ring=RingId(1, node_id("z"))))))


def test_a_filled_entry_that_comes_from_nowhere() -> None:
    table, commit = in_commit("abc")
    first, mine = commit.entries
    table.hand("b", commit._replace(entries=(first._replace(old_ring=None), mine)))
    table.run_until(lambda: table.all_in("ab"))


def _stranger(node: NodeId, known: frozenset[NodeId], ring_seq: int = 0) -> Join:
    return Join(node, "", b"", ring_seq, known, frozenset(), known, (), 0, 0, False, 0, DIGEST, (1, 1))


def test_joins_that_name_more_nodes_than_a_join_can() -> None:
    table = Table("ab")
    table.form("ab")
    crowd = [NodeId(f"n{number:03}", 1, number) for number in range(600)]
    for start in range(0, 600, 100):
        table.hand("b", _stranger(crowd[start], frozenset(crowd[start : start + 100])))
        table.run(3_000)


def test_a_join_of_an_impossible_ring_sequence_does_not_spoil_the_state_directory() -> None:
    table = Table("ab")
    table.start()
    outputs = table.hand("b", _stranger(node_id("x"), frozenset({node_id("x")}), COUNTER_MAX))
    written = {output.key: output.value for output in outputs if isinstance(output, Persist)}
    Node(replace(config("b"), plaintext=True), written, boot=9)


def test_no_join_takes_a_ring_to_where_sequences_end() -> None:
    """It would be everybody's next number, on disk as well, and nobody takes a greater one: ab could never again form a ring."""
    table = Table("ab")
    table.form("ab")
    stranger = node_id("x")
    for name in "ab":
        outputs = table.hand(name, _stranger(stranger, frozenset(map(node_id, "abx")), RING_SEQ_MAX // 2))
        assert all(output.value < RING_SEQ_MAX // 2 for output in outputs if isinstance(output, Persist))
    table.run_until(lambda: table.all_in("ab") and table["a"].engine.state is State.OPERATIONAL)
    assert table["a"].engine.ring_id.seq < 1000


def test_tags_of_rings_are_only_compared() -> None:
    table = Table("ab")
    table.form("ab")
    for tag in (RingTag(0, 0), RingTag(COUNTER_MAX, (1 << 64) - 1)):
        assert table.hand("b", Wake(tag, COUNTER_MAX)) == []
