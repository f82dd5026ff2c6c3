"""ToTo in the data path: who has nothing to say votes by an ack burst, and messages leave when a majority has voted."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lansis.fixed import HOP_US, Fixed
from tests.lansis.test_data_path import ALL, ORDERED, assert_causes_first, assert_nothing_left, chatter
from transis.types.config import Pulse, Window
from transis.types.ids import Service
from transis.types.outputs import Phase, Port

PROMPT_US = Pulse().prompt_us


def assert_one_order(net: Fixed, said: dict[str, list[tuple[str, Service]]]) -> None:
    """Everything everywhere, once, in one order, causes first. Places are not in that order: ToTo does not promise it."""
    everything = sorted(text for mine in said.values() for text, _ in mine)
    orders = []
    for seat in net.seats.values():
        assert sorted(heard.text for heard in seat.heard) == everything
        orders.append(seat.texts(*ORDERED))
        for name, mine in said.items():
            theirs = [heard.text for heard in seat.heard if heard.sender == name and heard.service is not Service.BASIC]
            assert theirs == [text for text, service in mine if service is not Service.BASIC], "FIFO"
    assert all(order == orders[0] for order in orders)
    assert_causes_first(net)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 1 << 32),
    st.integers(1, 6),
    st.sampled_from((0, 20, 150, 300)),
    st.sampled_from((0, 150, 3000)),
    st.sampled_from((4, 16, 300)),
    st.sampled_from((512, 1400)),
)
def test_whatever_the_network_does_there_is_one_order(
    seed: int, members: int, lose: int, jitter_us: int, window: int, datagram: int
) -> None:
    limits = Window(window=window, visit_max=min(window, 64))
    names = "abcdef"[:members]
    net = Fixed(names, seed=seed, lose=lose, jitter_us=jitter_us, window=limits, datagram=datagram, order="toto")
    said = chatter(net, seed, 25, ALL)
    net.run(1_500_000)
    net.lose = 0
    net.run(1_500_000)
    assert_one_order(net, said)
    assert_nothing_left(net)


def test_a_majority_is_enough_for_agreed_and_not_for_safe() -> None:
    net = Fixed("abcde", order="toto")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: source in "de")
    net.submit("a", Service.AGREED, "agreed")
    net.submit("a", Service.SAFE, "safe")
    net.run(PROMPT_US + 4 * HOP_US)
    assert [net[name].texts(*ORDERED) for name in "abc"] == [["agreed"]] * 3
    figures = net["a"].delivery.statistics()
    assert figures["synchrony_agreed_min"] == 3
    net.drops.clear()
    net.run(100_000)
    assert all(seat.texts(*ORDERED) == ["agreed", "safe"] for seat in net.seats.values())
    assert net["a"].delivery.statistics()["synchrony_safe_min"] == 5


def test_less_than_a_majority_is_not_enough() -> None:
    net = Fixed("abcd", order="toto")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: source in "cd")
    net.submit("a", Service.AGREED, "m")
    net.run(60_000)
    assert all(seat.texts(*ORDERED) == [] for seat in net.seats.values() if seat.name in "ab")


def test_an_idle_member_votes_once_and_nobody_votes_on_votes() -> None:
    net = Fixed("abc", order="toto")
    net.run(50_000)
    net.submit("a", Service.AGREED, "m")
    net.run(200_000)
    assert all(seat.texts(*ORDERED) == ["m"] for seat in net.seats.values())
    assert [len([1 for name, send in net.sent if name == who and send.port is Port.DATA]) for who in "abc"] == [1, 1, 1]
    assert_nothing_left(net)


def test_who_has_something_to_send_votes_with_that() -> None:
    net = Fixed("abc", order="toto")
    net.run(50_000)
    net.submit("a", Service.AGREED, "m")
    net.run(HOP_US)
    net.submit("b", Service.AGREED, "n")
    net.run(200_000)
    assert [seat.texts(*ORDERED) for seat in net.seats.values()] == [["m", "n"]] * 3
    assert len([1 for name, send in net.sent if name == "b" and send.port is Port.DATA]) == 1


def test_causal_messages_make_nobody_vote() -> None:
    net = Fixed("abc", order="toto")
    net.run(50_000)
    net.submit("a", Service.CAUSAL, "m")
    net.run(200_000)
    assert {name for name, send in net.sent if send.port is Port.DATA} == {"a"}


def test_a_full_window_stops_no_vote() -> None:
    """L8: what would drain the window must not wait for it."""
    net = Fixed("ab", window=Window(window=4, visit_max=4), order="toto")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: source == "b")
    for number in range(9):
        net.submit("b", Service.CAUSAL, f"b{number}" + "x" * 1300)
        net.run(2_000)
    waiting, sent = net["b"].core.outbox.queued(), net["b"].sending.bursts_sent
    net.submit("a", Service.AGREED, "m")
    net.run(PROMPT_US + 2 * HOP_US)
    assert net["b"].texts(*ORDERED) == ["m"]
    assert net["b"].sending.bursts_sent == sent + 1
    assert net["b"].core.outbox.queued() == waiting > 0


def test_when_the_view_ends_all_that_was_agreed_on_leaves() -> None:
    """Nobody has voted for the last one; all finish it, first what one had delivered, the rest in the transitional view."""
    net = Fixed("abc", order="toto")
    net.run(50_000)
    net.submit("a", Service.AGREED, "delivered")
    net.run(50_000)
    net.drops.append(lambda source, target, packet: source != "a")
    net.submit("a", Service.SAFE, "safe")
    net.run(HOP_US)
    pre = [2, 1, 1]
    for seat in net.seats.values():
        seat.delivery.freeze()
        seat.delivery.finish(pre, 1, Phase.REGULAR)
        seat.core.frozen = None
        seat.delivery.finish(pre, None, Phase.TRANSITIONAL)
        net.carry(seat)
        left = [(heard.text, heard.phase) for heard in seat.heard]
        assert left == [("delivered", Phase.REGULAR), ("safe", Phase.TRANSITIONAL)]
