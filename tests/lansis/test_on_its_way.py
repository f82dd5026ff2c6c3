"""What is on its way: one window for all who send, found out anew in each view, and no more kept than it could hold."""

from __future__ import annotations

import pytest

from tests.lansis.fixed import HOP_US, Fixed
from transis.lansis.packets import encode_acks
from transis.lansis.states import Trap
from transis.lansis.view import REACH_GAPS, REACH_LEAST, ViewState
from transis.types.config import Window
from transis.types.ids import DatagramClass, Service
from transis.types.outputs import Port
from transis.wire.burst import Burst, DataHeader, encode_data


def use_the_whole_window(net: Fixed, senders: str) -> None:
    """Until they have found out that everybody keeps up with it."""
    for _ in range(100):
        if all(net[name].core.view.rate.window == net[name].core.config.window for name in senders):
            return
        for name in senders:
            net.submit(name, Service.AGREED, *("x" * 1000 for _ in range(300)))
        net.run(50_000)
    raise AssertionError("everybody keeps up, and the window stays small")


def test_the_window_bounds_what_is_on_its_way_and_the_quiet_member_still_sends() -> None:
    window = Window(window=40, visit_max=40)
    net = Fixed("abcd", window=window)
    net.run(50_000)
    use_the_whole_window(net, "abc")
    before = len(net["a"].heard)
    net.drops.append(lambda source, target, packet: target == "d")
    for name in "abc":
        net.submit(name, Service.CAUSAL, *(f"{name}{number}" + "x" * 1000 for number in range(200)))
        net.run(10_000)
    view = net["a"].core.view
    assert 40 <= sum(view.dag.named) - sum(view.stability.stable) <= 40 + 4 * 5
    assert Trap.WINDOW_FULL.value in net["a"].traps()
    net.submit("d", Service.CAUSAL, "small voice")
    net.run(5_000)
    assert "small voice" in net["a"].texts(Service.CAUSAL)
    net.drops.clear()
    net.run(3_000_000)
    assert all(len(seat.heard) == before + 601 for seat in net.seats.values())


@pytest.mark.parametrize("senders", ["ab", "abcd", "abcdefgh"])
def test_all_who_send_at_once_have_one_window_together(senders: str) -> None:
    """The slowest member's word empties the window for everybody at the same moment: whoever saw nobody else on the way then
    took all of it, each of them, so that n windows were on their way, round after round."""
    net = Fixed("abcdefgh", window=Window(window=64, visit_max=64))
    net.run(50_000)
    use_the_whole_window(net, senders)
    most = 0
    for _ in range(10):
        for name in senders:
            net.submit(name, Service.AGREED, *("x" * 1000 for _ in range(100)))
        for _ in range(40):
            net.run(HOP_US // 2)
            most = max(most, on_their_way(net))
    assert 32 <= most <= 64


def test_who_begin_at_the_same_moment_after_a_pause_have_one_window_together() -> None:
    net = Fixed("abcdefgh", window=Window(window=64, visit_max=64))
    net.run(50_000)
    use_the_whole_window(net, "abcdefgh")
    net.run(1_000_000)
    for name in "abcdefgh":
        net.submit(name, Service.AGREED, *("x" * 1000 for _ in range(100)))
    net.run(HOP_US // 2)
    assert on_their_way(net) == 64


def on_their_way(net: Fixed) -> int:
    """Datagrams that were sent and that somebody lacks."""
    seats = net.seats.values()
    return sum(seat.core.counter - min(other.core.view.dag.inserted[seat.core.view.rank] for other in seats) for seat in seats)


@pytest.mark.parametrize("service", [Service.BASIC, Service.CAUSAL])
def test_a_stream_that_nobody_orders_finds_its_pace_as_soon_as_one_that_is_ordered(service: Service) -> None:
    """Receivers answer when much of the window that a view begins with is used, not of the one that it will have."""

    def delivered(service: Service) -> int:
        net = Fixed("abcd")
        net.run(50_000)
        net.submit("a", service, *("x" * 1200 for _ in range(2000)))
        net.run(60_000)
        return len(net["b"].texts(service))

    assert delivered(service) > delivered(Service.AGREED) // 2


def test_what_is_far_ahead_of_what_is_here_is_not_kept() -> None:
    """Behind a hole that nobody fills a member could make others keep whatever it likes."""
    window = Window(window=40, visit_max=40, gap_max=200)
    net = Fixed("ab", window=window)
    net.run(50_000)
    reach = REACH_GAPS * 200 + REACH_LEAST
    view = net["b"].core.view
    for seq in (2, reach, reach + 1):
        net["b"].take(net.now, single(view, rank=0, seq=seq, timestamp=view.base + seq))
    assert view.dag.parked == 2


def single(view: ViewState, rank: int, seq: int, timestamp: int) -> Burst:
    """A burst of one datagram that acknowledges nothing."""
    header = DataHeader(DatagramClass.CAUSAL, view.tag, rank, seq, 0, timestamp, 0, 0, True, False)
    return Burst(header, [encode_data(header, encode_acks(0, (), ()))])


def test_a_burst_is_one_node_and_one_send() -> None:
    net = Fixed("ab")
    net.run(50_000)
    use_the_whole_window(net, "a")
    before, inserted = len(net.sent), net["b"].receiver.bursts_inserted
    net.submit("a", Service.AGREED, *("x" * 100 for _ in range(500)))
    net.run(HOP_US)
    bursts = [send for name, send in net.sent[before:] if send.port is Port.DATA]
    assert len(bursts) == 1
    assert net["b"].receiver.bursts_inserted == inserted + 1
    assert len(bursts[0].datagrams) > 30
