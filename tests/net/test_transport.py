"""Transports alone: who gets what, and that nothing a peer says about its address raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from select import select

import pytest

from tests.net.party import PATIENCE_S, loopback, mesh_around, multicast_lan
from transis.net.interfaces import configured_endpoint
from transis.net.transport import Group, MeshTransport, MulticastTransport, Transport
from transis.types.config import Config
from transis.types.errors import ConfigError
from transis.types.outputs import Audience, Port
from transis.wire.envelope import apart

CONFIG = Config(name="ann", plaintext=True)


@pytest.fixture
def keep() -> Iterator[Callable[[Transport], Transport]]:
    """Closes what a test opened."""
    opened: list[Transport] = []

    def kept(transport: Transport) -> Transport:
        opened.append(transport)
        return transport

    yield kept
    for transport in opened:
        transport.close()


def heard(transport: Transport, port: Port) -> list[bytes]:
    """What arrives on a port, if anything does."""
    ready, _, _ = select([transport.files()[port]], [], [], PATIENCE_S)
    assert ready, "nothing arrived"
    return apart(transport.receive(port))


@pytest.mark.parametrize("version", [4, 6])
def test_unicast_goes_to_one_socket_of_one_node(keep: Callable[[Transport], Transport], version: int) -> None:
    opening = mesh_around([], version=version)
    one, two, three = (keep(opening(CONFIG)) for _ in range(3))
    for port in Port:
        one.send(two.address, port, [port.name.encode(), b""])
    for port in Port:
        assert heard(two, port) == [port.name.encode(), b""]
        assert three.receive(port) == []


def test_multicast_reaches_all_but_the_sender(keep: Callable[[Transport], Transport]) -> None:
    opening = multicast_lan()
    one, two, three = (keep(opening(CONFIG)) for _ in range(3))
    datagrams = [bytes([number]) * 1400 for number in range(60)] + [b"last"]
    for audience, port in ((Audience.RING, Port.DATA), (Audience.WORLD, Port.CONTROL)):
        one.send(audience, port, datagrams)
        assert heard(two, port) == heard(three, port) == datagrams
        assert one.receive(port) == []


def test_a_mesh_sends_to_members_or_to_all_it_knows(keep: Callable[[Transport], Transport]) -> None:
    seeds: list[str] = []
    opening = mesh_around(seeds)
    seed, one, member, stranger = (keep(opening(CONFIG)) for _ in range(4))
    one.install([one.address, member.address])
    one.send(Audience.RING, Port.DATA, [b"for the ring"])
    one.send(Audience.WORLD, Port.CONTROL, [b"for the world"])
    assert heard(member, Port.DATA) == [b"for the ring"]
    assert heard(member, Port.CONTROL)[0] == b"for the world"
    assert heard(seed, Port.CONTROL)[0] == b"for the world"
    assert seed.receive(Port.DATA) == []
    assert [stranger.receive(port) for port in Port] == [[], [], []]
    assert one.statistics()["known"] == 2


@pytest.mark.parametrize("address", ["", "nowhere", "[::1]:5405", "192.0.2.1:99999", "a" * 10_000, "\udcff:1"])
def test_an_address_that_is_none_is_counted(keep: Callable[[Transport], Transport], address: str) -> None:
    for transport in (keep(multicast_lan()(CONFIG)), keep(mesh_around([])(CONFIG))):
        transport.send(address, Port.TOKEN, [b"lost"])
        transport.install([address])
        transport.send(Audience.RING, Port.DATA, [b"lost"])
        assert transport.statistics()["unaddressed"] == 1
        assert transport.statistics()["sent_datagrams"] == (transport.statistics()["transport"] == "multicast")


def test_the_last_port_leaves_no_room_for_a_mesh_node(keep: Callable[[Transport], Transport]) -> None:
    transport = keep(mesh_around([])(CONFIG))
    transport.send("127.0.0.1:65535", Port.DATA, [b"there is no port behind it"])
    assert (transport.statistics()["sent_datagrams"], transport.statistics()["unaddressed"]) == (0, 1)
    with pytest.raises(ConfigError, match="three free ports in a row"):
        MeshTransport(loopback(), CONFIG, None, (), 65_534)


def test_settings_that_cannot_work_are_named(keep: Callable[[Transport], Transport]) -> None:
    with pytest.raises(ConfigError, match=r"group = 'here': must be a numeric multicast address"):
        MulticastTransport(loopback(), Group("here"))
    with pytest.raises(ConfigError, match="seeds = 'here'"):
        MeshTransport(loopback(), CONFIG, None, ["here"])
    taken = keep(mesh_around([])(CONFIG))
    port = configured_endpoint("test", taken.address).port
    with pytest.raises(ConfigError, match=r"port = .*(cannot be opened|three free ports)"):
        MeshTransport(loopback(), CONFIG, None, (), port)
