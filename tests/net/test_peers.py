"""Whom a mesh knows: learned from who can speak our language only, bounded, passed on at first hand only."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from transis.net.interfaces import Endpoint
from transis.net.transport import FRESH_US, HEARD_MAX, INTRODUCE_US, KIND_INTRODUCTION, Peers
from transis.types.config import Config
from transis.types.ids import NodeId
from transis.wire.control import Probe, encode_control
from transis.wire.envelope import Sealer

KEY = bytes(32)
CONFIG = Config(name="ann")
OWN = Endpoint(IPv4Address("192.0.2.1"), 5405)
SEED = Endpoint(IPv4Address("192.0.2.2"), 5405)


class Clock:
    def __init__(self) -> None:
        self.now = 10 * FRESH_US

    def __call__(self) -> int:
        return self.now


def acquaintances(clock: Clock | None = None, seeds: Sequence[Endpoint] = (SEED, OWN)) -> Peers:
    return Peers(OWN, seeds, CONFIG, KEY, 1, clock or Clock())


def other(number: int) -> Endpoint:
    return Endpoint(IPv4Address("198.18.0.0") + number, 5405)


def speech_of(endpoint: Endpoint, key: bytes = KEY) -> bytes:
    """A control datagram of a node that lives there."""
    node = NodeId(str(endpoint), 1, endpoint.port)
    return Sealer(CONFIG.cluster, node, key).seal(encode_control(Probe(node, str(endpoint))))


def test_seeds_are_known_and_the_node_itself_is_not() -> None:
    known = acquaintances()
    assert known.world() == [SEED]
    known.install([str(OWN), str(other(1))])
    assert known.ring() == [other(1)]
    assert known.world() == [SEED, other(1)]


def test_who_speaks_is_known_and_the_node_hears_it_too() -> None:
    known = acquaintances()
    datagram = speech_of(other(1))
    assert known.read([datagram]) == [datagram]
    assert other(1) in known.world()
    assert known.ring() == []


def test_who_has_another_key_teaches_nothing_but_is_passed_on_to_be_counted() -> None:
    known = acquaintances()
    datagrams = [speech_of(other(1), key=bytes([1]) * 32), b"junk", b""]
    assert known.read(datagrams) == datagrams
    assert known.world() == [SEED]


def test_former_members_stay_known() -> None:
    known = acquaintances()
    known.install([str(other(1)), str(other(2))])
    known.install([str(other(2))])
    assert known.ring() == [other(2)]
    assert other(1) in known.world()


def test_introductions_reach_others_and_hearsay_is_not_passed_on() -> None:
    clock = Clock()
    ann, bob = acquaintances(clock), acquaintances(clock, seeds=())
    assert ann.introduction() == []
    ann.read([speech_of(other(1))])
    introduction = ann.introduction()
    assert bob.read(introduction) == []
    assert bob.world() == [other(1)]
    assert bob.introduction() == []
    clock.now += FRESH_US
    assert bob.world() == []


def test_introductions_come_now_and_then_and_at_once_when_there_is_news() -> None:
    clock = Clock()
    ann = acquaintances(clock)
    ann.read([speech_of(other(1))])
    assert ann.introduction() != []
    assert ann.introduction() == []
    ann.read([speech_of(other(2))])
    assert ann.introduction() != []
    clock.now += INTRODUCE_US
    assert ann.introduction() != []


def test_everybody_is_introduced_in_time_and_each_introduction_fits_a_small_datagram() -> None:
    clock = Clock()
    ann, bob = acquaintances(clock), acquaintances(clock, seeds=())
    ann.install([str(other(number)) for number in range(100)])
    for _ in range(10):
        introduction = ann.introduction()
        assert all(len(datagram) <= 512 for datagram in introduction)
        bob.read(introduction)
        clock.now += INTRODUCE_US
    assert sorted(bob.world()) == sorted(other(number) for number in range(100))


def test_strangers_are_bounded_and_the_longest_silent_goes_first() -> None:
    known = acquaintances()
    known.read([speech_of(other(number)) for number in range(HEARD_MAX + 5)])
    world = known.world()
    assert len(world) == HEARD_MAX + 1
    assert other(4) not in world
    assert other(5) in world


@given(st.binary(max_size=600))
def test_no_introduction_raises(body: bytes) -> None:
    known = acquaintances()
    sealer = Sealer(CONFIG.cluster, NodeId("bob", 0, 2), KEY)
    assert known.read([sealer.seal(KIND_INTRODUCTION + body)]) == []
    assert len(known.world()) <= 17
