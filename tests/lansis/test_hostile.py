"""Peers cannot raise: whatever a well-formed packet claims, an engine answers with outputs or with nothing.

Every packet here passes the decoders of the wire room. Some claims no honest member makes; a member that is broken,
or whose key was stolen, might.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.hand import both, node_id
from tests.lansis.hand import Table, brought_to
from tests.lansis.speech import said
from transis.engine.base import Packet
from transis.engine.core import TIMESTAMP_TAKEN_MAX
from transis.lansis.dag import TIMESTAMP_ROOM
from transis.lansis.detector import BROKEN
from transis.lansis.engine import LansisEngine
from transis.lansis.packets import (
    NUMBER_MAX,
    Alive,
    Attempt,
    BurstMark,
    Faults,
    Flushed,
    Joining,
    Nack,
    Query,
    Statement,
    encode_acks,
    round_of,
)
from transis.lansis.sending import flow_tag
from transis.lansis.states import State
from transis.types.ids import DatagramClass, NodeId, RingId, RingTag, Service
from transis.types.limits import PROC_SET_MAX, RING_SEQ_MAX
from transis.types.outputs import Note
from transis.types.views import Cause
from transis.wire.burst import COUNTER_MAX, Burst, DataHeader, encode_data
from transis.wire.control import Beacon, decode_control, encode_control

RUNNING = [state for state in State if state is not State.STOPPED]
NODES = [*(node_id(name) for name in "bcxyz"), NodeId("c", 2, 7), NodeId("c", 1, 7), NodeId("b", 0, 7), NodeId("a", 2, 7)]
nodes = st.sampled_from(NODES)
node_sets = st.frozensets(st.sampled_from([*NODES, node_id("a")]))
numbers = st.one_of(st.integers(0, 30), st.integers(0, 1 << 30), st.just(COUNTER_MAX))
CAUSES = st.builds(Cause, st.just("?"), st.none() | nodes, st.lists(nodes, max_size=3).map(tuple), st.just(""))


def views(engine: LansisEngine) -> st.SearchStrategy[RingId]:
    view = engine.ring_id
    later = [RingId(view.seq + 4, node_id(name)) for name in "ab"]
    return st.sampled_from([view, *later, RingId(0, node_id("x"))])


def tags(engine: LansisEngine) -> st.SearchStrategy[RingTag]:
    seen = engine.inspect()
    view, flushed = seen.view, seen.flushed
    return st.sampled_from([view.tag, view.id.tag, flushed.tag if flushed is not None else RingTag(0, 0)])


@st.composite
def statements(draw: st.DrawFn, engine: LansisEngine) -> Statement:
    """Half of them name me, as those do that lead on."""
    kind = draw(st.sampled_from((Attempt, Joining, Faults)))
    j = draw(node_sets) | (engine.inspect().sets.j if draw(st.booleans()) else frozenset())
    recv = tuple((node, draw(numbers)) for node in sorted(draw(node_sets)))
    f_before, f_after = draw(node_sets), draw(node_sets)
    if draw(st.booleans()):
        f_before, f_after = frozenset(), frozenset()
    counters = [draw(numbers) for _ in range(4)]
    return kind(
        draw(nodes), "", b"", counters[0], draw(views(engine)), counters[1], j, f_before, f_after, recv, counters[2],
        counters[3], draw(CAUSES), draw(st.booleans()), engine.inspect().digest, (1, 1),
    )  # fmt: skip


def bursts(engine: LansisEngine) -> st.SearchStrategy[Burst]:
    """One datagram of any class: bodies are junk or half sense."""
    ranks, seqs = st.integers(0, 3), st.integers(1, 40) | st.integers(1, COUNTER_MAX)
    rounds = st.builds(round_of, st.sampled_from(BurstMark), st.integers(0, 3) | st.just(NUMBER_MAX))
    flows = st.sampled_from([flow_tag(node_id(name)) for name in "abcx"])
    headers = st.builds(
        DataHeader, st.sampled_from(DatagramClass), tags(engine) | flows, ranks, seqs, rounds, numbers, numbers,
        st.integers(0, 3), st.booleans(), st.booleans(),
    )  # fmt: skip
    return st.builds(lambda header, body: Burst(header, [encode_data(header, body)]), headers, st.binary(max_size=60))


@st.composite
def spoken(draw: st.DrawFn, engine: LansisEngine) -> Burst:
    """The next burst of a member, which says that it is a statement, and may well be one."""
    view = engine.inspect().view
    rank, graph = draw(st.integers(0, len(view) - 1)), view.dag
    said_by_it = draw(statements(engine))._replace(sender=draw(st.sampled_from([view.node(rank), node_id("x")])))
    body = draw(st.binary(max_size=60)) if draw(st.booleans()) else encode_control(said_by_it)
    seq, mark = graph.inserted[rank] + 1, round_of(draw(st.sampled_from((BurstMark.STATEMENT, BurstMark.CLAIM))), 1)
    header = DataHeader(DatagramClass.CAUSAL, view.tag, rank, seq, mark, graph.latest + 1, 0, 0, True, False)
    return Burst(header, [encode_data(header, encode_acks(0, (), ()) + body)])


@st.composite
def sensible(draw: st.DrawFn, engine: LansisEngine) -> Burst:
    """The next burst of a member, in which nothing is wrong but perhaps what it says."""
    view = engine.inspect().view
    graph, rank = view.dag, draw(st.integers(0, len(view) - 1))
    others = st.dictionaries(st.integers(0, len(view)), st.integers(1, 9), max_size=2)
    acked = tuple(sorted(draw(others).items()))
    timestamp = draw(st.sampled_from((graph.latest + 1, view.renewal_at, view.base + TIMESTAMP_ROOM - 1)))
    klass, last = draw(st.sampled_from(DatagramClass)), draw(st.booleans())
    header = DataHeader(klass, view.tag, rank, graph.inserted[rank] + 1, 0, timestamp, 0, 0, last, False)
    return Burst(header, [encode_data(header, encode_acks(draw(st.integers(0, 9)), acked, ()))])


@st.composite
def alives(draw: st.DrawFn, engine: LansisEngine) -> Alive:
    recv = tuple(draw(st.lists(numbers, min_size=1, max_size=4)))
    nacks = st.builds(lambda rank, first, more: Nack(rank, first, first + more), st.integers(0, 3), numbers, st.integers(0, 99))
    sender = draw(st.integers(0, len(recv) - 1))
    asked = tuple(draw(st.lists(nacks, max_size=3)))
    return Alive(draw(tags(engine)), sender, draw(st.booleans()), draw(numbers), draw(numbers), recv, asked)


def packets(engine: LansisEngine) -> st.SearchStrategy[Packet]:
    digests = st.binary(min_size=16, max_size=16)
    if engine.inspect().assented is not None:
        digests |= st.just(engine.inspect().assented.digest)
    flushed = st.builds(Flushed, nodes, st.just(""), views(engine), digests, views(engine))
    queries = st.builds(Query, nodes, st.just(""), tags(engine), st.booleans())
    beacons = st.builds(
        Beacon,
        nodes,
        st.just(""),
        views(engine),
        node_sets,
        node_sets,
        numbers,
        st.just(engine.inspect().digest),
        st.just((1, 1)),
    )
    of_members = st.one_of(bursts(engine), spoken(engine), sensible(engine), alives(engine))
    return st.one_of(statements(engine), of_members, flushed, queries, beacons)


@pytest.mark.parametrize(("mode", "order"), [("evs", "all-ack"), ("evs", "toto"), ("transis", "all-ack")])
@pytest.mark.parametrize("state", RUNNING)
@settings(max_examples=15)
@given(data=st.data())
def test_whatever_arrives_the_engine_keeps_its_invariants(state: State, mode: str, order: str, data: st.DataObject) -> None:
    table = brought_to(state, mode, order)
    engine = table["a"].engine
    for _ in range(6):
        table.hand("a", data.draw(packets(engine)))
        table.now += data.draw(st.sampled_from((0, 2_000, 50_000, 400_000)))
        engine.wake(table.now)
        table.carry("a")


def travelled(packet: Statement) -> Statement:
    """As it would arrive: what no decoder lets pass is no claim."""
    arrived = decode_control(encode_control(packet))
    assert isinstance(arrived, Statement)
    return arrived


def test_a_reason_that_names_a_crowd_is_cut_to_whom_i_know() -> None:
    crowd = tuple(NodeId(f"n{number:03}", 1, number) for number in range(PROC_SET_MAX - 4))
    table = brought_to(State.OPERATIONAL)
    view = table["a"].engine.ring_id
    table.hand("a", travelled(said("b", f="c", view=view)._replace(cause=Cause("crowd", node_id("b"), crowd))))
    assert table["a"].engine.state is State.FLUSH
    assert table["a"].engine.inspect().cause == Cause("crowd", node_id("b"), ())


def test_strangers_that_name_more_and_more_nodes() -> None:
    table = brought_to(State.OPERATIONAL)
    crowd = [NodeId(f"n{number:03}", 1, number) for number in range(600)]
    for start in range(0, 600, 100):
        named = frozenset(crowd[start : start + 100])
        statement = said("x", j="abcx", view=RingId(0, node_id("x")), kind=Joining)
        table.hand("a", travelled(statement._replace(sender=crowd[start], j=statement.j | named, version=start + 1)))
        table.run(3_000)
    assert len(table["a"].engine.inspect().sets.accept) <= 128


def test_recv_of_what_nobody_ever_sent_is_waited_for_and_given_up() -> None:
    """b claims to hold a million datagrams of c: nobody can flush them, so b is what is given up."""
    table = brought_to(State.FAULTS)
    version = 1 << 20
    claim = said("b", f="c", view=table["a"].engine.ring_id, version=version, recv="a0 b0 c1000000")
    table.hand("a", travelled(claim))
    assert table["a"].engine.state is State.FLUSH
    table.run_until(lambda: table.all_in("a"))


def test_a_number_beyond_all_views_is_taken_from_nobody() -> None:
    table = brought_to(State.FAULTS)
    view = table["a"].engine.ring_id
    for claim in ({"view_seq": COUNTER_MAX}, {"clock": COUNTER_MAX}):
        table.hand("a", travelled(said("b", f="c", view=view, version=1 << 20, **claim)))  # type: ignore[arg-type]
    assert table["a"].engine.state is State.FAULTS


@pytest.mark.parametrize("claim", ["view_seq", "clock"])
def test_no_handshake_takes_a_view_to_where_numbers_end(claim: str) -> None:
    """What h says would be everybody's next number, and nobody takes a greater one: abc could never again agree on anything."""
    table = Table("abch", view_seqs={"h": RING_SEQ_MAX // 2} if claim == "view_seq" else {})
    table.form("abc")
    table.run(100_000)
    table.start("h")
    if claim == "clock":
        table["h"].engine.observe(TIMESTAMP_TAKEN_MAX - 1)
    table.run(2_000_000)
    assert table["a"].view == "abc"
    table.crash("h")
    cut_off = both(lambda journey: "c" in (journey.source, journey.target), lambda journey: journey.source != journey.target)
    table.drops.append(cut_off)
    table.run_until(lambda: table.all_in("ab"))
    table.drops.clear()
    table.run_until(lambda: table.all_in("abc"))


@pytest.mark.parametrize(("mode", "order"), [("evs", "all-ack"), ("evs", "toto"), ("transis", "all-ack")])
def test_a_view_whose_timestamps_were_used_up_by_one_burst_goes_on(mode: str, order: str) -> None:
    """Whatever has to be stamped above it has no room: a vote is not sent, and statements take the other way."""
    table = Table("abcd", mode=mode, order=order)
    table.form("abcd")
    table.run(100_000)
    view = table["a"].engine.inspect().view
    last = view.base + TIMESTAMP_ROOM - 1
    header = DataHeader(DatagramClass.ORDERED, view.tag, 3, view.dag.inserted[3] + 1, 0, last, 0, 0, True, False)
    for name in "abc":
        table.hand(name, Burst(header, [encode_data(header, encode_acks(0, (), ()))]))
    table.run(5_000)
    table.crash("d")
    table.run_until(lambda: table.all_in("abc"))
    assert {len(table[name].views) for name in "abc"} <= {5, 7}, "one change or two, and nobody alone in between"


def test_a_crowd_of_speakers_leaves_nothing_behind() -> None:
    """Trap 34: who is not in J is not remembered."""
    table = brought_to(State.FAULTS)
    for number in range(1000):
        stranger = NodeId("s", number, number)
        table.hand(
            "a",
            said("x", j="x", version=number)._replace(sender=stranger),
            Flushed(stranger, "", RingId(0, stranger), bytes(16), RingId(4, stranger)),
        )
    seen = table["a"].engine.inspect()
    assert len(seen.heard_at) <= 3
    assert seen.promises <= 3


# --- who may say it -------------------------------------------------------------------------------------------------


def _next_of_b(table: Table) -> Burst:
    """What `b` might send next."""
    seen = table["a"].engine.inspect().view
    header = DataHeader(DatagramClass.ORDERED, seen.tag, 1, 1, 0, seen.dag.latest + 1, 1, 0, True, False)
    return Burst(header, [encode_data(header, encode_acks(0, (), ()))])


def test_a_view_hears_its_members_and_nobody_else() -> None:
    """A stranger with the key said in the name of a member what that had never received."""
    table = _at_rest()
    said = [_claims_of_b(table), _next_of_b(table)]
    (note,) = table.hand_from(node_id("x"), "a", *said)
    assert isinstance(note, Note)
    assert table["a"].engine.rejections == {"speaker": 2}
    table.hand_from(node_id("b"), "a", *said)
    assert table["a"].engine.rejections == {"speaker": 2}


def test_a_member_repeats_data_and_says_for_itself_what_it_has() -> None:
    table = _at_rest()
    table.hand_from(node_id("c"), "a", _next_of_b(table))
    assert not table["a"].engine.rejections
    table.hand_from(node_id("c"), "a", _claims_of_b(table))
    assert table["a"].engine.rejections == {"speaker": 1}


def test_what_is_written_in_my_name_or_under_another_content_is_told() -> None:
    """Authors do not sign, so a member can write in any name: whose name it is, and who has the true datagram, can tell."""
    table = _at_rest()
    table.submit("c", Service.AGREED, "two")
    table.run_until(lambda: any(journey.source == "c" and isinstance(journey.packet, Burst) for journey in table.journeys[-2:]))
    true = next(journey.packet for journey in reversed(table.journeys) if isinstance(journey.packet, Burst))
    table.hand("a", true)
    table.hand("c", true)
    assert not table["a"].engine.rejections
    assert not table["c"].engine.rejections
    table.hand("a", Burst(true.header, [bytes(true.datagram(true.first_seq))[:-1] + b"?"]))
    assert table["a"].engine.rejections == {"content": 1}
    ahead = true.header._replace(seq=true.last_seq + 1)
    table.hand("c", Burst(ahead, [encode_data(ahead, encode_acks(0, (), ()))]))
    assert table["c"].engine.rejections == {"own name": 1}


def test_nobody_is_told_by_a_stranger_that_the_next_view_is_there() -> None:
    """Whoever hears a word from a view that it has promised installs it; a stranger could have said it before others promised."""
    table = brought_to(State.FLUSH)
    promised = table["a"].engine.inspect().flushed
    assert promised is not None
    alive = Alive(promised.tag, 1, False, 0, promised.base, (0,) * len(promised.members), ())
    table.hand_from(node_id("x"), "a", alive)
    assert table["a"].engine.state is State.FLUSH
    table.hand_from(node_id("b"), "a", alive)
    assert table["a"].engine.state is State.OPERATIONAL


@pytest.mark.parametrize("kind", [Joining, Faults])
def test_nobody_is_in_my_view_who_is_not(kind: type[Statement]) -> None:
    """A stranger said that it came from my view: the next one listed it among those that come with me, wrongly."""
    table = Table("ab")
    table.form("ab")
    view = table["a"].engine.inspect().view.id
    table.hand("a", said("x", j="abx", kind=kind, view=view, view_seq=view.seq, recv="a0 b0"))
    assert table["a"].engine.rejections == {"view": 1}
    assert table["a"].engine.state is State.OPERATIONAL


# --- words that would hold up the order -----------------------------------------------------------------------------


def _claims_of_b(table: Table, **claims: object) -> Alive:
    """What `b` might say to `a`, with some fields falsified."""
    seen = table["a"].engine.inspect().view
    honest = Alive(seen.tag, 1, False, seen.dag.inserted[1], seen.dag.latest + 1, tuple(seen.dag.inserted), ())
    return honest._replace(**claims)  # type: ignore[arg-type]


def _at_rest() -> Table:
    table = Table("abc")
    table.form("abc")
    table.submit("c", Service.AGREED, "one")
    table.run_until(lambda: all(table.texts(name) == ["one"] for name in "abc"))
    table.run(100_000)
    return table


@pytest.mark.parametrize(
    ("claims", "word"),
    [
        ({"sent": 1 << 20}, ""),
        ({"clock": 0}, "its clock says 0, and it has what was stamped"),
        ({"recv": (1 << 20, 0, 1)}, "it has my datagram 1048576, and I sent 0"),
        ({"recv": (0, 1 << 20, 1)}, "it has its own datagram 1048576, and sent 0"),
    ],
)
def test_who_says_what_cannot_be_is_left_out_and_the_order_goes_on(claims: dict[str, object], word: str) -> None:
    """A member that says once that it has sent a million datagrams would keep everybody waiting for them: nobody is silent, and
    nobody lags. A clock that stands still and acknowledgements of what was never sent do the same."""
    table = _at_rest()
    table.hand("a", _claims_of_b(table, **claims))
    table.submit("a", Service.AGREED, "two")
    table.run_until(lambda: "two" in table.texts("a"))
    table.run_until(
        lambda: table["a"].engine.state is State.OPERATIONAL and any(view.cause.what == BROKEN for view in table["a"].views)
    )
    assert all(word in str(dict(note.detail)["why"]) for note in table["a"].notes("broken data"))
    assert bool(table["a"].notes("broken data")) == bool(word)


def test_acknowledgements_in_data_of_what_i_never_sent() -> None:
    table = _at_rest()
    view = table["a"].engine.inspect().view
    header = DataHeader(DatagramClass.CAUSAL, view.tag, 1, 1, 0, view.dag.latest + 1, 0, 0, True, False)
    table.hand("a", Burst(header, [encode_data(header, encode_acks(0, ((0, 7),), ()))]))
    (note,) = table["a"].notes("broken data")
    assert dict(note.detail)["why"] == "acknowledges 7 of rank 0"
