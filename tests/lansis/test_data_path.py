"""Members of one view agree, whatever the network does to their packets; and nothing is left over when they are done."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lansis.fixed import HOP_US, Fixed, Packet
from transis.lansis.packets import Alive, Nack
from transis.lansis.states import Trap
from transis.types.config import Pulse, Window
from transis.types.ids import Service
from transis.types.outputs import Audience, Deliver, Phase, Port
from transis.wire.burst import DATA_HEADER_SIZE, Burst, read_bursts

ORDERED = (Service.AGREED, Service.SAFE)
ALL = tuple(Service)


def chatter(net: Fixed, seed: int, messages: int, services: tuple[Service, ...] = ALL) -> dict[str, list[tuple[str, Service]]]:
    """Everybody says something now and then; what each said, in order."""
    random = Random(seed)
    said: dict[str, list[tuple[str, Service]]] = {name: [] for name in net.seats}
    for number in range(messages):
        name, service = random.choice(sorted(net.seats)), random.choice(services)
        text = f"{name}{number}" + "x" * random.choice((0, 0, 30, 900, 5000))
        said[name].append((text, service))
        net.submit(name, service, text)
        net.run(random.choice((0, 0, 50, 300, 3000)))
    return said


def assert_agreement(net: Fixed, said: dict[str, list[tuple[str, Service]]]) -> None:
    """Everything of everybody everywhere: once, in one order, each sender's in its order, causes first."""
    everything = sorted(text for mine in said.values() for text, _ in mine)
    orders = []
    for seat in net.seats.values():
        assert sorted(heard.text for heard in seat.heard) == everything
        assert all(heard.phase is Phase.REGULAR for heard in seat.heard)
        orders.append(seat.texts(*ORDERED))
        for name, mine in said.items():
            reliable = [text for text, service in mine if service is not Service.BASIC]
            theirs = [heard.text for heard in seat.heard if heard.sender == name and heard.service is not Service.BASIC]
            assert theirs == reliable, "FIFO"
        places = [heard.place for heard in seat.heard if heard.service in ORDERED]
        assert places == sorted(set(places)), "places go up"
    assert all(order == orders[0] for order in orders)
    assert_causes_first(net)


def assert_causes_first(net: Fixed) -> None:
    """What a sender had delivered or sent before a message, everybody delivers before it."""
    before: dict[str, set[str]] = {}
    for seat in net.seats.values():
        known: set[str] = set()
        for what, text in seat.events:
            if what == "sent":
                before[text] = set(known)
            known.add(text)
    for seat in net.seats.values():
        got: set[str] = set()
        for what, text in seat.events:
            if what == "got":
                assert before[text] <= got, f"{text[:8]} before its causes at {seat.name}"
                got.add(text)


def assert_nothing_left(net: Fixed) -> None:
    for seat in net.seats.values():
        view = seat.core.view
        assert list(view.dag.nodes) == []
        assert view.dag.held_bytes == view.dag.parked == 0
        assert len(view.waiting) == len(view.requests) == len(view.answers) == len(view.turns) == 0
        assert view.stability.stable == view.dag.inserted


@pytest.mark.parametrize("names", ["a", "ab", "abc", "abcdefg"])
def test_without_faults_everybody_agrees(names: str) -> None:
    net = Fixed(names)
    said = chatter(net, 1, 60)
    net.run(200_000)
    assert_agreement(net, said)
    assert_nothing_left(net)
    assert all(seat.repair.requested == 0 for seat in net.seats.values()), "nobody asks for what nobody lost"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 1 << 32),
    st.integers(2, 5),
    st.sampled_from((0, 20, 150, 300)),
    st.sampled_from((0, 150, 3000)),
    st.sampled_from((4, 16, 300)),
    st.sampled_from((512, 1400)),
)
def test_with_loss_copies_and_reordering_everybody_agrees(
    seed: int, members: int, lose: int, jitter_us: int, window: int, datagram: int
) -> None:
    limits = Window(window=window, visit_max=min(window, 64))
    net = Fixed("abcde"[:members], seed=seed, lose=lose, jitter_us=jitter_us, window=limits, datagram=datagram)
    said = chatter(net, seed, 25)
    net.run(1_500_000)
    net.lose = 0
    net.run(1_500_000)
    assert_agreement(net, said)
    assert_nothing_left(net)


def test_an_idle_member_answers_within_a_moment_of_something_ordered() -> None:
    net = Fixed("abc")
    net.run(50_000)
    net.submit("a", Service.AGREED, "m")
    net.run(300 + 4 * HOP_US)
    assert all(seat.texts(Service.AGREED) == ["m"] for seat in net.seats.values())


def test_a_safe_message_is_delivered_only_when_everybody_has_it() -> None:
    net = Fixed("abc")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: target == "c" and isinstance(packet, Burst))
    net.submit("a", Service.SAFE, "s")
    net.submit("a", Service.AGREED, "behind it")
    net.run(60_000)
    assert all(seat.heard == [] for seat in net.seats.values()), "it blocks what is behind it"
    net.drops.clear()
    net.run(100_000)
    assert all(seat.texts(*ORDERED) == ["s", "behind it"] for seat in net.seats.values())


def test_an_agreed_message_waits_for_the_word_of_everybody() -> None:
    net = Fixed("abc")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: source == "c")
    net.submit("a", Service.AGREED, "m")
    net.run(60_000)
    assert all(seat.heard == [] for seat in (net["a"], net["b"]))


def test_a_causal_message_does_not_wait_for_anybody() -> None:
    net = Fixed("abc")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: source == "c")
    net.submit("a", Service.CAUSAL, "m")
    net.run(HOP_US)
    assert all(seat.texts(Service.CAUSAL) == ["m"] for seat in net.seats.values())


def test_a_causal_reply_waits_for_the_ordered_message_that_its_sender_had_delivered() -> None:
    """W5: c has the question in its DAG but not the word of d, so it may deliver neither the question nor the answer."""
    net = Fixed("abcd")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: target == "c" and isinstance(packet, Alive))
    net.submit("a", Service.AGREED, "question")
    net.run(2_000)
    assert net["b"].texts(Service.AGREED) == ["question"]
    net.submit("b", Service.CAUSAL, "answer")
    net.run(150)
    assert net["c"].core.view.dag.inserted == [1, 1, 0, 0]
    assert net["c"].heard == []
    assert Trap.CAUSAL_WAITED.value in net["c"].traps()
    net.drops.clear()
    net.run(100_000)
    assert [heard.text for heard in net["c"].heard] == ["question", "answer"]


def test_a_basic_message_goes_up_with_holes_before_it_and_once() -> None:
    net = Fixed("ab")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: isinstance(packet, Burst) and packet.first_seq == 1)
    net.submit("a", Service.AGREED, "lost")
    net.submit("a", Service.BASIC, "basic")
    net.run(HOP_US)
    assert [heard.text for heard in net["b"].heard] == ["basic"]
    assert [output.early for output in net["b"].log if isinstance(output, Deliver)] == [True]
    net.drops.clear()
    net.run(100_000)
    assert [heard.text for heard in net["b"].heard] == ["basic", "lost"]


def test_the_chain_of_the_paper_is_repaired() -> None:
    """A1 A2 a2B1 B2 b3C1, with B3 lost at a: a asks for it (lansis-1992 3.1)."""
    net = Fixed("abc")
    net.run(50_000)
    lost: list[Packet] = []

    def b3_on_its_first_way_to_a(source: str, target: str, packet: Packet) -> bool:
        if target == "a" and source == "b" and isinstance(packet, Burst) and packet.first_seq == 3 and not lost:
            lost.append(packet)
            return True
        return False

    net.drops.append(b3_on_its_first_way_to_a)
    for name, text in (("a", "A1"), ("a", "A2"), ("b", "B1"), ("b", "B2"), ("b", "B3"), ("c", "C1")):
        net.submit(name, Service.CAUSAL, text)
        net.run(HOP_US)
    assert [heard.text for heard in net["a"].heard] == ["A1", "A2", "B1", "B2"]
    assert list(net["a"].core.view.dag.missing()) == [(1, 3, 3)]
    net.run(2_000 + 4 * HOP_US)
    assert [heard.text for heard in net["a"].heard] == ["A1", "A2", "B1", "B2", "B3", "C1"]
    assert net["a"].repair.requested == net["b"].repair.retransmitted == 1


def test_two_who_miss_each_others_bursts_answer_each_other_though_both_keep_sending() -> None:
    net = Fixed("ab")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: isinstance(packet, Burst) and packet.first_seq == 1)
    for number in range(10):
        net.submit("a", Service.CAUSAL, f"a{number}")
        net.submit("b", Service.CAUSAL, f"b{number}")
        net.run(500)
        if number:
            net.drops.clear()
    assert len(net["a"].heard) == len(net["b"].heard) == 20


def test_a_lost_last_burst_is_noticed_by_an_alive() -> None:
    """Trap 8: nothing follows it, so only its sender's ALIVE can tell that it was sent."""
    net = Fixed("ab")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: isinstance(packet, Burst))
    net.submit("a", Service.AGREED, "tail")
    net.run(1_000)
    net.drops.clear()
    net.run(30_000)
    assert net["b"].texts(Service.AGREED) == ["tail"]
    assert Trap.TAIL_LOST.value in net["b"].traps()


def test_who_is_gone_is_answered_for_by_the_next_at_once_and_by_nobody_else() -> None:
    net = Fixed("abcd")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: target == "d" and isinstance(packet, Burst))
    net.submit("a", Service.CAUSAL, "last words")
    net.run(HOP_US)
    net.drops.clear()
    net.drops.append(lambda source, target, packet: "a" in (source, target))
    for name in "bcd":
        net[name].core.view.gone.add(0)
    net.run(60_000)
    assert net["d"].texts(Service.CAUSAL) == ["last words"]
    assert net["b"].repair.retransmitted == 1
    assert net["c"].repair.retransmitted == 0
    assert Trap.ANSWERED_FOR_THE_DEAD.value in net["b"].traps()


@pytest.mark.parametrize("names", ["abc", "abcdef"])
def test_who_never_hears_one_member_gets_its_data_of_the_others(names: str) -> None:
    """c answers first, in vain, and everybody sees that; so when a asks again, the next one does."""
    net = Fixed(names)
    net.run(50_000)
    net.drops.append(lambda source, target, packet: (source, target) == ("c", "a") and isinstance(packet, Burst))
    for number in range(20):
        net.submit("c", Service.AGREED, f"c{number}")
        net.submit("b", Service.SAFE, f"b{number}")
        net.run(5_000)
    net.run(50_000)
    assert all(len(seat.heard) == 40 for seat in net.seats.values())
    assert_nothing_left(net)
    assert net["c"].repair.retransmitted <= net["a"].repair.nacks_sent
    assert sum(seat.repair.retransmitted for seat in net.seats.values()) <= 2 * 20 + 5


def test_when_two_only_are_left_nobody_waits_for_the_turn_of_the_other() -> None:
    """b alone has what a asks for: it answers each time at once."""
    net = Fixed("ab")
    net.run(50_000)
    lost: list[int] = []

    def the_first_four(source: str, target: str, packet: Packet) -> bool:
        if source == "b" and isinstance(packet, Burst):
            lost.append(net.now)
        return source == "b" and isinstance(packet, Burst) and len(lost) <= 4

    net.drops.append(the_first_four)
    net.submit("b", Service.AGREED, "m")
    net.run(60_000)
    assert net["a"].texts(Service.AGREED) == ["m"]
    assert net["a"].repair.nacks_sent == len(lost) - 1 == 4


def test_a_retransmission_is_no_sign_of_life_of_the_sender() -> None:
    net = Fixed("abc")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: isinstance(packet, Burst) and target == "c")
    net.submit("a", Service.CAUSAL, "one")
    net.submit("a", Service.CAUSAL, "two")
    net.run(HOP_US)
    heard_at = net["b"].core.view.heard_at[0]
    net.drops.append(lambda source, target, packet: source == "a")
    burst = next(net["b"].core.view.dag.get(0, 1, 1))
    net.run(10_000)
    net["b"].take(net.now, burst)
    assert net["b"].core.view.heard_at[0] == heard_at


def test_a_busy_member_owes_no_alive() -> None:
    net = Fixed("ab")
    net.run(50_000)
    before = net["b"].heartbeat.alives_sent
    for number in range(50):
        net.submit("a", Service.AGREED, f"a{number}")
        net.submit("b", Service.AGREED, f"b{number}")
        net.run(200)
    assert net["b"].heartbeat.alives_sent - before <= 1


def test_an_agreed_message_takes_one_way_there_and_one_back() -> None:
    """Nobody waits for a timer before it says the word that the others wait for, and each says it once."""
    net = Fixed("abcd")
    net.run(50_000)
    before = len(net.sent)
    net.submit("a", Service.AGREED, "m")
    net.run(2 * HOP_US)
    assert [seat.texts(Service.AGREED) for seat in net.seats.values()] == [["m"]] * 4
    assert [name for name, _ in net.sent[before:]] == ["a", "b", "c", "d"]


def test_a_word_that_is_due_again_at_once_waits_for_its_pace() -> None:
    """Two bursts that come one after the other are answered at once and once more, not one by one without end."""
    net = Fixed("ab")
    net.run(50_000)
    before = net["b"].heartbeat.alives_sent
    for number in range(20):
        net.submit("a", Service.AGREED, f"a{number}")
        net.run(Pulse().prompt_us // 4)
    net.run(1_000)
    assert net["a"].texts(Service.AGREED) == [f"a{number}" for number in range(20)]
    assert net["b"].heartbeat.alives_sent - before <= 7


def test_a_fast_stream_leaves_in_full_bursts_and_a_slow_one_at_once() -> None:
    """Every burst costs every member an answer."""
    net = Fixed("ab")
    net.run(50_000)
    before = net["a"].sending.bursts_sent
    for number in range(60):
        net.submit("a", Service.AGREED, f"{number}".ljust(1_300, "."))
        net.run(20)
    net.run(20_000)
    assert len(net["b"].texts(Service.AGREED)) == 60
    assert net["a"].sending.bursts_sent - before <= 15
    before = net["a"].sending.bursts_sent
    for number in range(60):
        net.submit("a", Service.AGREED, f"{number}")
        net.run(50)
    assert net["a"].sending.bursts_sent - before == 60


def test_an_idle_view_is_quiet() -> None:
    """An ALIVE of each member every 20 ms, and nothing else; alone not even that."""
    net = Fixed("abc")
    net.run(1_000_000)
    assert len(net.sent) == 3 * 51
    alone = Fixed("a")
    alone.submit("a", Service.SAFE, "to myself")
    assert alone["a"].texts(Service.SAFE) == ["to myself"]
    assert alone.sent == []


def test_a_crowd_says_less_often_that_it_lives() -> None:
    net = Fixed("abcdefghijklmnopqrst")
    net.run(1_000_000)
    assert len(net.sent) == 20 * 26


def test_a_late_request_for_what_everybody_has_is_not_answered() -> None:
    net = Fixed("ab")
    net.submit("a", Service.AGREED, "m")
    net.run(50_000)
    view = net["a"].core.view
    late = Alive(view.tag, 1, False, 0, view.base, (0, 0), (Nack(0, 1, 1), Nack(1, 1, 5), Nack(7, 1, 1)))
    before = len(net.sent)
    net["a"].take(net.now, late)
    net.carry(net["a"])
    assert len(net.sent) == before


def test_while_frozen_nothing_ordered_is_delivered_and_acknowledgements_stand_still() -> None:
    net = Fixed("abc")
    net.run(50_000)
    seat = net["c"]
    seat.delivery.freeze()
    frozen = seat.core.frozen
    assert frozen is not None
    seat.take = lambda now, packet: _take_frozen(net, "c", now, packet)  # type: ignore[method-assign]
    net.submit("a", Service.AGREED, "m")
    net.submit("a", Service.BASIC, "basic")
    net.run(100_000)
    assert seat.core.view.dag.inserted == [2, 0, 0]
    seat.delivery.run()
    net.carry(seat)
    assert seat.texts(*ORDERED) == net["a"].texts(*ORDERED) == []
    assert seat.texts(Service.BASIC) == ["basic"]
    assert net["a"].core.view.stability.ack[2] == list(frozen.recv) == [0, 0, 0]
    seat.delivery.finish([2, 0, 0], frozen.delivered, Phase.REGULAR)
    net.carry(seat)
    assert seat.texts(*ORDERED) == []
    seat.core.frozen = None
    seat.delivery.finish([2, 0, 0], None, Phase.TRANSITIONAL)
    net.carry(seat)
    assert [(heard.text, heard.phase) for heard in seat.heard if heard.service in ORDERED] == [("m", Phase.TRANSITIONAL)]


def _take_frozen(net: Fixed, name: str, now: int, packet: Packet) -> None:
    seat = net[name]
    seat.core.now = now
    if isinstance(packet, Burst):
        seat.operational.data_while_frozen(packet)
    else:
        seat.operational.alive_while_frozen(packet)


def test_the_index_of_synchrony_is_one_one_and_all() -> None:
    net = Fixed("abcd")
    chatter(net, 3, 40)
    net.run(100_000)
    figures = net["a"].delivery.statistics()
    assert figures["synchrony_basic_milli"] == figures["synchrony_causal_milli"] == 1000
    assert figures["synchrony_safe_milli"] == 4000
    assert figures["synchrony_safe_min"] == 4
    assert 1 <= figures["synchrony_agreed_min"] <= 4


def test_a_view_out_of_timestamps_asks_for_another_and_sends_nothing() -> None:
    net = Fixed("ab")
    seat = net["a"]
    seat.core.view.renewal_at = seat.core.clock + 2
    for number in range(3):
        net.submit("a", Service.CAUSAL, f"m{number}")
    assert seat.texts(Service.CAUSAL) == ["m0", "m1"]
    assert len(seat.notes("renewed")) == 1


def test_packets_go_to_the_view_and_nobody_else() -> None:
    net = Fixed("ab")
    net.submit("a", Service.AGREED, "m")
    net.run(50_000)
    assert {(send.to, send.port) for _, send in net.sent} == {(Audience.RING, Port.DATA), (Audience.RING, Port.CONTROL)}


def test_a_member_whose_data_makes_no_sense_is_told_and_raises_nothing() -> None:
    net = Fixed("abc")
    net.drops.append(lambda source, target, packet: source == "a" and isinstance(packet, Burst))
    net.submit("a", Service.AGREED, "m")
    (send,) = [send for _, send in net.sent if send.port is Port.DATA]
    spoiled = bytearray(send.datagrams[0])
    spoiled[DATA_HEADER_SIZE] = 1
    (burst,), _ = read_bursts([bytes(spoiled)])
    net["b"].take(net.now, burst)
    net.run(100_000)
    assert [dict(note.detail)["node"] for note in net["b"].notes("broken data")] == ["a/1"]
    net.submit("c", Service.CAUSAL, "nobody else is hurt")
    net.run(1_000)
    assert net["b"].texts(Service.CAUSAL) == ["nobody else is hurt"]
