"""Cutting links: nothing of the cut is heard, nothing is sent to them, and healing brings all back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from tests.net.party import loopback, mesh_around, multicast_lan
from transis.net.transport import Transport
from transis.types.config import Config
from transis.types.errors import ConfigError
from transis.types.outputs import Audience, Port

CONFIG = Config(name="x", plaintext=True)


@pytest.fixture(params=["multicast", "mesh"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Transport, Transport]]:
    opening = multicast_lan() if request.param == "multicast" else mesh_around([])
    ann, bob = opening(CONFIG), opening(CONFIG)
    for one in (ann, bob):
        one.install([ann.address, bob.address])
    yield ann, bob
    ann.close()
    bob.close()


def exchange(sender: Transport, receiver: Transport, to: str | Audience, port: Port) -> list[bytes]:
    """What arrives of a datagram, and of a mark sent around the cut so that silence is known without waiting."""

    async def run() -> list[bytes]:
        sender.send(to, port, [b"hello"])
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(receiver.files()[Port.TOKEN], readable.set)
        loop.add_reader(receiver.files()[port], readable.set)
        receiver_marks(receiver)
        try:
            async with asyncio.timeout(30):
                await readable.wait()
        finally:
            loop.remove_reader(receiver.files()[Port.TOKEN])
            loop.remove_reader(receiver.files()[port])
        return receiver.receive(port)

    return [datagram for datagram in asyncio.run(run()) if datagram != b"mark"]


def receiver_marks(receiver: Transport) -> None:
    """Loopback delivers in order and at once: when the mark is there, what was sent before it is too."""
    host, _, port = receiver.address.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as marking:
        marking.sendto(b"mark", (host, int(port)))


WAYS = [(Audience.RING, Port.DATA), (Audience.WORLD, Port.CONTROL), ("unicast", Port.TOKEN)]


@pytest.mark.parametrize(("to", "port"), WAYS, ids=["data", "control", "token"])
def test_who_cuts_hears_nothing_until_it_heals(pair: tuple[Transport, Transport], to: str | Audience, port: Port) -> None:
    ann, bob = pair
    target = bob.address if to == "unicast" else to
    assert exchange(ann, bob, target, port) == [b"hello"]
    bob.sever([ann.address])
    assert exchange(ann, bob, target, port) == []
    assert bob.statistics()["cut_links"] == 1
    bob.sever([])
    assert exchange(ann, bob, target, port) == [b"hello"]


def test_who_cuts_sends_nothing_to_a_single_address(pair: tuple[Transport, Transport]) -> None:
    ann, bob = pair
    ann.sever([bob.address])
    assert exchange(ann, bob, bob.address, Port.TOKEN) == []
    ann.sever([loopback_elsewhere()])
    assert exchange(ann, bob, bob.address, Port.TOKEN) == [b"hello"]


def loopback_elsewhere() -> str:
    return f"{loopback().address}:9"


def test_what_is_no_address_is_told(pair: tuple[Transport, Transport]) -> None:
    with pytest.raises(ConfigError, match="numeric address"):
        pair[0].sever(["bob"])
    assert pair[0].severed == ()
