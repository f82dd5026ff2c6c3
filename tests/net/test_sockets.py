"""Bursts: what goes out in few calls comes in as the same datagrams, with the kernel's help and without it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.net.party import loopback
from transis.net.sockets import (
    CALL_BYTES_MAX,
    SEGMENTS_MAX,
    BurstReceiver,
    DatagramSender,
    equal_segments,
    open_unicast,
    size_buffers,
)
from transis.wire.envelope import apart

NOBODY = ("192.0.2.1", 9)
SO_NO_CHECK = 11
"""Linux: send without checksums. The kernel refuses to cut bursts on such a socket, as it does for cards without offload."""


class Pair:
    """A sending and a receiving socket on loopback."""

    def __init__(self) -> None:
        self.out = open_unicast(loopback(), 0)
        self.into = open_unicast(loopback(), 0)
        size_buffers(self.into, 1 << 21, "test")
        self.to = self.into.getsockname()

    def close(self) -> None:
        self.out.close()
        self.into.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def numbered(count: int, size: int, last: int) -> list[bytes]:
    """Datagrams that all differ, each `size` long but the last."""
    sizes = [size] * (count - 1) + [last]
    return [number.to_bytes(2).ljust(length, b".") for number, length in enumerate(sizes)]


@given(st.lists(st.integers(0, 4).map(lambda step: bytes(step * 700)), max_size=200))
def test_groups_are_what_one_call_may_carry(datagrams: list[bytes]) -> None:
    groups = list(equal_segments(datagrams))
    assert [datagram for group in groups for datagram in group] == datagrams
    for group in groups:
        assert 1 <= len(group) <= SEGMENTS_MAX
        assert len(group) == 1 or sum(map(len, group)) <= CALL_BYTES_MAX
        assert len({len(datagram) for datagram in group[:-1]}) <= 1
        assert len(group) == 1 or 0 < len(group[-1]) <= len(group[0])


def test_full_bursts_are_not_cut_more_than_needed() -> None:
    assert [len(group) for group in equal_segments(numbered(100, 1400, 50))] == [46, 46, 8]
    assert [len(group) for group in equal_segments(numbered(130, 64, 64))] == [64, 64, 2]


@pytest.mark.parametrize("gso", [True, False])
@pytest.mark.parametrize("gro", [True, False])
@pytest.mark.parametrize(("count", "size", "last"), [(1, 1400, 1400), (46, 1400, 1400), (100, 1400, 17), (200, 64, 64)])
def test_round_trip(pair: Pair, gso: bool, gro: bool, count: int, size: int, last: int) -> None:
    sender, receiver = DatagramSender(pair.out, gso=gso), BurstReceiver(pair.into, NOBODY, gro=gro)
    datagrams = numbered(count, size, last)
    sender.send(datagrams, pair.to)
    assert receive_all(receiver, count) == datagrams
    assert sender.datagrams == receiver.datagrams == count
    assert not sender.lost
    if sender.gso != "on":
        assert sender.calls == count
    elif count > 1:
        assert sender.calls < count


def receive_all(receiver: BurstReceiver, count: int) -> Sequence[bytes]:
    """Loopback has delivered when the send returned; a drain is bounded, so large numbers need several."""
    arrived: list[bytes] = []
    while len(arrived) < count and (more := receiver.receive()):
        arrived += apart(more)
    return arrived


def test_a_refusal_by_the_kernel_is_survived_and_told(pair: Pair) -> None:
    sender, receiver = DatagramSender(pair.out), BurstReceiver(pair.into, NOBODY)
    if sender.gso != "on":
        pytest.skip("this system has no UDP GSO that could be refused")
    pair.out.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    for _ in range(2):
        datagrams = numbered(30, 1400, 9)
        sender.send(datagrams, pair.to)
        assert receive_all(receiver, 30) == datagrams
    assert sender.gso.startswith("refused: ")
    assert sender.calls == sender.datagrams == 60


def test_own_datagrams_are_dropped_by_their_source(pair: Pair) -> None:
    other = open_unicast(loopback(), 0)
    receiver = BurstReceiver(pair.into, pair.out.getsockname())
    DatagramSender(pair.out).send([b"mine"], pair.to)
    DatagramSender(other).send([b"theirs"], pair.to)
    other.close()
    assert receiver.receive() == [b"theirs"]


def test_what_cannot_be_sent_is_counted_and_nothing_is_raised(pair: Pair) -> None:
    sender = DatagramSender(pair.out)
    sender.send([bytes(70_000)], pair.to)
    assert sender.lost == {"EMSGSIZE": 1}
    pair.out.close()
    sender.send([b"1", b"2"], pair.to)
    assert sender.lost["EBADF"] == 2


def test_an_empty_socket_gives_nothing(pair: Pair) -> None:
    assert BurstReceiver(pair.into, NOBODY).receive() == []
    assert list(equal_segments([])) == []


def test_what_did_not_fit_the_buffer_is_counted(pair: Pair) -> None:
    receiver = BurstReceiver(pair.into, NOBODY)
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux counts what did not fit")
    pair.into.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    sender = DatagramSender(pair.out, gso=False)
    sender.send([bytes(1400)] * 50, pair.to)
    arrived = len(apart(receiver.receive()))
    sender.send([b"after"], pair.to)
    assert receiver.receive() == [b"after"]
    assert receiver.overflows == 50 - arrived > 0
