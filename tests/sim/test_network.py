"""What becomes of a burst on its way."""

from dataclasses import fields

import pytest

from transis.sim.faults import WEATHERS
from transis.sim.network import Fate, LinkQuality, Network
from transis.sim.streams import Streams
from transis.types.outputs import Port

BURST = [b"one", b"two", b"three"]
CALM = LinkQuality(delay_us=(300, 200, 100), jitter_us=0)


def network(climate: LinkQuality = CALM, seed: int = 1) -> Network:
    return Network(climate, Streams(seed)["network"])


def everything(net: Network, bursts: int = 200) -> list[bytes]:
    """What arrives of many bursts."""
    journeys = [journey for i in range(bursts) for journey in net.carry(i * 1000, "a", "b", Port.DATA, BURST)]
    return [datagram for journey in journeys for datagram in journey.datagrams]


def test_a_burst_travels_as_one_and_ports_race() -> None:
    net = network()
    (data,) = net.carry(0, "a", "b", Port.DATA, BURST)
    (token,) = net.carry(0, "a", "b", Port.TOKEN, [b"t"])
    assert (data.arrival_us, list(data.datagrams)) == (300, BURST)
    assert token.arrival_us == 100


def test_a_link_keeps_its_order_when_delays_shrink() -> None:
    net = network()
    net.extra_us[Port.DATA] = 5_000
    (slow,) = net.carry(0, "a", "b", Port.DATA, BURST)
    net.extra_us[Port.DATA] = 0
    (quick,) = net.carry(10, "a", "b", Port.DATA, BURST)
    assert quick.arrival_us >= slow.arrival_us


def test_partitions_cut_both_ways_and_leave_the_unnamed_together() -> None:
    net = network()
    net.partition([["a", "b"], ["c"]])
    assert net.reaches("a", "b", Port.DATA)
    assert not net.reaches("a", "c", Port.DATA)
    assert net.reaches("x", "y", Port.DATA)
    assert not net.reaches("x", "a", Port.DATA)
    net.heal()
    assert net.reaches("a", "c", Port.DATA)


def test_a_cut_is_one_way_and_for_one_port() -> None:
    net = network()
    net.cut("a", "b", Port.TOKEN)
    assert net.carry(0, "a", "b", Port.TOKEN, BURST) == []
    assert net.carry(0, "a", "b", Port.DATA, BURST)
    assert net.carry(0, "b", "a", Port.TOKEN, BURST)
    net.mend("a", "b", Port.TOKEN)
    assert net.carry(0, "a", "b", Port.TOKEN, BURST)


def test_loss_loses_about_what_it_says() -> None:
    net = network()
    net.rates["loss"] = 300
    assert 300 < len(everything(net)) < 540
    assert net.lost == 600 - (net.carried - net.lost)


def test_burst_loss_takes_several_bursts_in_a_row() -> None:
    net = network()
    net.rates["burst"] = 50
    arrived = [bool(net.carry(i * 1000, "a", "b", Port.DATA, BURST)) for i in range(300)]
    missing_runs = "".join("x" if ok else "." for ok in arrived).split("x")
    assert max(map(len, missing_runs)) > 2
    assert any(arrived)


def test_duplicates_come_later_and_nothing_is_lost() -> None:
    net = network()
    net.rates["duplicate"] = 400
    assert 700 < len(everything(net)) < 1000


def test_reordering_loses_nothing() -> None:
    net = network()
    net.rates["reorder"] = 300
    arrived = everything(net)
    assert sorted(arrived) == sorted(BURST * 200)
    assert arrived != BURST * 200


@pytest.mark.parametrize("rate", ["corrupt", "junk", "replay"])
def test_hostile_packets_come_in_addition(rate: str) -> None:
    net = network()
    net.rates[rate] = 500
    arrived = everything(net)
    assert len(arrived) > 650
    assert all(arrived.count(datagram) >= 200 for datagram in BURST)


def test_an_interceptor_decides_for_each_datagram() -> None:
    net = network()
    fates = {b"one": Fate.DROP, b"two": Fate.TWICE}
    net.interceptors.append(lambda source, target, port, datagram: fates.get(datagram, Fate.PASS))
    (journey,) = net.carry(0, "a", "b", Port.DATA, BURST)
    assert journey.datagrams == [b"two", b"two", b"three"]


def test_every_weather_is_a_rate_of_the_climate() -> None:
    assert set(WEATHERS) <= {field.name for field in fields(LinkQuality)}
    assert set(network().rates) == set(WEATHERS)
