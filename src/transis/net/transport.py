"""Multicast or mesh, links that can be cut.

How datagrams travel: by multicast on a LAN, or by a mesh of unicasts where there is no multicast (clouds, containers).

1. All that a node sends leaves from its token socket, so the source of a datagram is the node's advertised address, and a node
   drops what it hears of itself by looking at the source alone.
2. Nothing that a peer says or does raises: an address that is none, a host that is gone, a full buffer are counted.
3. Multicast: data and control have a port each, shared by all nodes; the token socket has a port of its own per node.
4. Mesh: data and control sockets are at the token socket's port + 1 and + 2, so one address says all three.
5. Linux has all of it. macOS lacks GSO, GRO, the count of overflows and the choice of interfaces by name or network, and knows no
   link-local IPv6 here; the rest works. Windows is not supported, nor are addresses changed on their way (NAT).

A transport around another one, for whoever changes one thing about it and nothing else.

A transport with links that can be cut and healed, for tests of a running cluster. It is there only where faults are allowed.

1. A cut works by advertised address: what comes from it is dropped unread, and nothing is sent to it.
2. A multicast cannot leave out one receiver: the other side still hears it. To part two nodes, cut on both.
3. A cut replaces the one before it; healing is a cut of nobody.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple, Protocol

from transis.net.interfaces import PORT_MAX, Endpoint, Interface, SocketAddress, configured_endpoint, read_endpoint
from transis.net.peers import Acquaintances
from transis.net.runtime import boottime_us
from transis.net.sockets import (
    BUFFER_BYTES,
    SMALL_BUFFER_BYTES,
    BurstReceiver,
    BurstSender,
    aim_multicast,
    datagrams_that_fit,
    open_group,
    open_unicast,
    size_buffers,
)
from transis.net.state import new_boot_id
from transis.types.config import Config
from transis.types.errors import ConfigError
from transis.types.outputs import Audience, Port
from transis.wire.envelope import Arrival, apart

# --- transport --------------------------------------------------------------------------------------------------------

ADDRESSES_MAX: Final = 1024
"""Addresses whose reading is remembered: members and former ones, many times over."""
TRIES_FOR_PORTS: Final = 64
"""How often the system is asked for a free port whose two neighbours are free as well."""

MESH_OFFSET: Final = {Port.TOKEN: 0, Port.DATA: 1, Port.CONTROL: 2}
BUFFERS: Final = {Port.DATA: BUFFER_BYTES, Port.CONTROL: SMALL_BUFFER_BYTES, Port.TOKEN: SMALL_BUFFER_BYTES}

StatisticsDict = dict[str, int | str]


class Transport(Protocol):
    """What a driver needs of a network."""

    @property
    def address(self) -> str:
        """Where this node is reached; it travels in Joins."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """What an operator should read once, after opening."""
        ...

    def files(self) -> Mapping[Port, int]:
        """The descriptors to watch for reading."""
        ...

    def send(self, to: str | Audience, port: Port, datagrams: Sequence[bytes]) -> None: ...

    def receive(self, port: Port) -> Sequence[Arrival]:
        """What waits on a socket, without blocking, up to a bound that exceeds its buffer."""
        ...

    def install(self, addresses: Iterable[str]) -> None:
        """A regular view has these members: they are the ring now."""
        ...

    def statistics(self) -> StatisticsDict: ...
    def close(self) -> None: ...


class Offload(NamedTuple):
    """Which help of the kernel to use where it exists; switched off to measure, or to test the way without."""

    gso: bool = True
    gro: bool = True


ALL_HELP: Final = Offload()


class _Sockets:
    """The three sockets of a node with what is common to both transports."""

    def __init__(self, opened: Mapping[Port, socket.socket], interface: Interface, offload: Offload) -> None:
        self._opened = opened
        self._interface = interface
        self._scope = interface.index
        token = opened[Port.TOKEN]
        own: SocketAddress = token.getsockname()
        self._own = own[:2]
        self._severed: frozenset[Endpoint] = frozenset()
        self.own = Endpoint(interface.address, own[1])
        warnings = (size_buffers(opened[port], BUFFERS[port], port.name.lower()) for port in Port)
        self.warnings = [warning for warning in warnings if warning]
        self.sender = BurstSender(token, gso=offload.gso)
        self.receivers = {port: BurstReceiver(opened[port], own, gro=offload.gro) for port in Port}
        self.unaddressed = 0
        self._read: dict[str, Endpoint | None] = {}

    @property
    def address(self) -> str:
        return str(self.own)

    def files(self) -> dict[Port, int]:
        return {port: one.fileno() for port, one in self._opened.items()}

    def datagrams_that_fit(self, size: int) -> int:
        return datagrams_that_fit(self._opened[Port.DATA], size)

    def endpoint(self, address: str) -> Endpoint | None:
        """What a peer's address means; nonsense is counted."""
        if address not in self._read:
            if len(self._read) >= ADDRESSES_MAX:
                self._read.clear()
            self._read[address] = read_endpoint(address)
        endpoint = self._read[address]
        if endpoint is None:
            self.unaddressed += 1
        return endpoint

    def send(self, datagrams: Sequence[bytes], to: Endpoint) -> None:
        """An address of the other IP version, or without room for a mesh node's three ports, is nobody's."""
        if to in self._severed:
            return
        if to.port <= PORT_MAX and to.host.version == self.own.host.version:
            self.sender.send(datagrams, to.for_socket(self._scope))
        else:
            self.unaddressed += 1

    def sever(self, endpoints: Iterable[Endpoint]) -> None:
        """Neither hear these nor send to them, until told otherwise; each at its token port and a mesh node's two others."""
        chosen = list(endpoints)
        self._severed = frozenset(one.shifted(by) for one in chosen for by in MESH_OFFSET.values())
        sources = {(host, one.port) for one in chosen for host in self._spellings(one)}
        for receiver in self.receivers.values():
            receiver.ignored = frozenset({self._own, *sorted(sources)})

    def _spellings(self, endpoint: Endpoint) -> tuple[str, ...]:
        """How the system spells a source: a link-local one with the name of our interface."""
        host = str(endpoint.host).partition("%")[0]
        return (host, f"{host}%{self._interface.name}")

    def statistics(self) -> StatisticsDict:
        lost: Counter[str] = self.sender.lost
        figures: StatisticsDict = {"address": self.address, "gso": self.sender.gso, "gro": self.receivers[Port.DATA].gro}
        figures |= {"sent_datagrams": self.sender.datagrams, "sent_calls": self.sender.calls}
        figures |= {"received_datagrams": sum(one.datagrams for one in self.receivers.values())}
        figures |= {"received_calls": sum(one.calls for one in self.receivers.values())}
        figures |= {"cut_off": sum(one.cut_off for one in self.receivers.values()), "unaddressed": self.unaddressed}
        figures |= {"overflows": sum(one.overflows for one in self.receivers.values())}
        return figures | {f"lost_{word}": lost[word] for word in sorted(lost)}

    def close(self) -> None:
        for one in self._opened.values():
            one.close()


class Group(NamedTuple):
    """A multicast group and its two ports; the same on all nodes of a cluster. The defaults have the scope of one site."""

    address: str = "239.192.84.115"
    data_port: int = 5410
    control_port: int = 5411
    hops: int = 1


GROUP: Final = Group()
GROUP_IPV6: Final = Group("ff12::7472:6973")


class MulticastTransport:
    """RING and WORLD are one group: who is not addressed does not mind. Only tokens go to single nodes."""

    def __init__(self, interface: Interface, group: Group = GROUP, token_port: int = 0, offload: Offload = ALL_HELP) -> None:
        where = _group_address(group)
        opened: dict[Port, socket.socket] = {}
        try:
            opened[Port.TOKEN] = open_unicast(interface, token_port)
            opened[Port.DATA] = open_group(interface, where.host, group.data_port, "data_port")
            opened[Port.CONTROL] = open_group(interface, where.host, group.control_port, "control_port")
            aim_multicast(opened[Port.TOKEN], interface, group.hops)
            self._sockets = _Sockets(opened, interface, offload)
        except BaseException:
            _close_all(opened)
            raise
        self._group = {Port.DATA: where, Port.CONTROL: Endpoint(where.host, group.control_port)}

    @property
    def address(self) -> str:
        return self._sockets.address

    @property
    def warnings(self) -> Sequence[str]:
        return self._sockets.warnings

    def files(self) -> Mapping[Port, int]:
        return self._sockets.files()

    def send(self, to: str | Audience, port: Port, datagrams: Sequence[bytes]) -> None:
        if isinstance(to, Audience):
            assert port is not Port.TOKEN, "tokens have one addressee"
            self._sockets.send(datagrams, self._group[port])
            return
        endpoint = self._sockets.endpoint(to)
        if endpoint is not None:
            self._sockets.send(datagrams, endpoint)

    def receive(self, port: Port) -> Sequence[Arrival]:
        return self._sockets.receivers[port].receive()

    def install(self, addresses: Iterable[str]) -> None:
        """The group is the same whoever is in it."""

    def datagrams_that_fit(self, size: int) -> int:
        """How many datagrams of this size may wait unread before the system throws some away."""
        return self._sockets.datagrams_that_fit(size)

    def sever(self, endpoints: Iterable[Endpoint]) -> None:
        self._sockets.sever(endpoints)

    def statistics(self) -> StatisticsDict:
        return {"transport": "multicast"} | self._sockets.statistics()

    def close(self) -> None:
        self._sockets.close()


class MeshTransport:
    """RING goes to every member, WORLD to everybody known and to the seeds, among which this node itself may be."""

    def __init__(
        self,
        interface: Interface,
        config: Config,
        key: bytes | None,
        seeds: Sequence[str] = (),
        token_port: int = 0,
        offload: Offload = ALL_HELP,
        now_us: Callable[[], int] = boottime_us,
    ) -> None:
        known = [configured_endpoint("seeds", seed) for seed in seeds]
        opened = _open_three(interface, token_port)
        try:
            self._sockets = _Sockets(opened, interface, offload)
            self._known = Acquaintances(self._sockets.own, known, config, key, new_boot_id(), now_us)
        except BaseException:
            _close_all(opened)
            raise

    @property
    def address(self) -> str:
        return self._sockets.address

    @property
    def warnings(self) -> Sequence[str]:
        return self._sockets.warnings

    def files(self) -> Mapping[Port, int]:
        return self._sockets.files()

    def send(self, to: str | Audience, port: Port, datagrams: Sequence[bytes]) -> None:
        if to is Audience.RING:
            self._fan_out(self._known.ring(), port, datagrams)
        elif to is Audience.WORLD:
            self._fan_out(self._known.world(), port, datagrams)
            if introduction := self._known.introduction():
                self._fan_out(self._known.world(), Port.CONTROL, introduction)
        else:
            assert isinstance(to, str), "an audience is one of two"
            endpoint = self._sockets.endpoint(to)
            if endpoint is not None:
                self._fan_out([endpoint], port, datagrams)

    def _fan_out(self, endpoints: Iterable[Endpoint], port: Port, datagrams: Sequence[bytes]) -> None:
        for endpoint in endpoints:
            self._sockets.send(datagrams, endpoint.shifted(MESH_OFFSET[port]))

    def receive(self, port: Port) -> Sequence[Arrival]:
        arrived = self._sockets.receivers[port].receive()
        return self._known.read(apart(arrived)) if port is Port.CONTROL and arrived else arrived

    def install(self, addresses: Iterable[str]) -> None:
        self._known.install(addresses)

    def datagrams_that_fit(self, size: int) -> int:
        """How many datagrams of this size may wait unread before the system throws some away."""
        return self._sockets.datagrams_that_fit(size)

    def sever(self, endpoints: Iterable[Endpoint]) -> None:
        self._sockets.sever(endpoints)

    def statistics(self) -> StatisticsDict:
        figures: StatisticsDict = {"transport": "mesh", "known": len(self._known.world())}
        return figures | self._sockets.statistics()

    def close(self) -> None:
        self._sockets.close()


def _group_address(group: Group) -> Endpoint:
    try:
        return Endpoint(ip_address(group.address), group.data_port)
    except ValueError as error:
        raise ConfigError("group", group.address, "must be a numeric multicast address") from error


def _open_three(interface: Interface, token_port: int) -> dict[Port, socket.socket]:
    """The sockets of a mesh node. Without a port from the operator the system is asked until three neighbours are free."""
    for _ in range(1 if token_port else TRIES_FOR_PORTS):
        opened = {Port.TOKEN: open_unicast(interface, token_port)}
        base = opened[Port.TOKEN].getsockname()[1]
        try:
            for port in (Port.DATA, Port.CONTROL):
                opened[port] = open_unicast(interface, base + MESH_OFFSET[port])
        except ConfigError:
            _close_all(opened)
        else:
            return opened
    raise ConfigError("port", token_port, "a mesh node needs three free ports in a row from this one on")


def _close_all(opened: Mapping[Port, socket.socket]) -> None:
    for one in opened.values():
        one.close()


# --- passing ----------------------------------------------------------------------------------------------------------


class PassingTransport:
    """Passes everything on to the transport inside."""

    def __init__(self, inside: Transport) -> None:
        self._inside = inside

    @property
    def address(self) -> str:
        return self._inside.address

    @property
    def warnings(self) -> Sequence[str]:
        return self._inside.warnings

    def files(self) -> Mapping[Port, int]:
        return self._inside.files()

    def send(self, to: str | Audience, port: Port, datagrams: Sequence[bytes]) -> None:
        self._inside.send(to, port, datagrams)

    def receive(self, port: Port) -> Sequence[Arrival]:
        return self._inside.receive(port)

    def install(self, addresses: Iterable[str]) -> None:
        self._inside.install(addresses)

    def statistics(self) -> StatisticsDict:
        return self._inside.statistics()

    def close(self) -> None:
        self._inside.close()


# --- cut --------------------------------------------------------------------------------------------------------------


class Severable(Transport, Protocol):
    """A transport that can be told whom neither to hear nor to send to."""

    def sever(self, endpoints: Iterable[Endpoint]) -> None: ...


class CuttableTransport(PassingTransport):
    def __init__(self, inner: Severable) -> None:
        super().__init__(inner)
        self._inner = inner
        self.cut_off: tuple[str, ...] = ()

    def cut(self, addresses: Iterable[str]) -> None:
        endpoints = {address: configured_endpoint("peers", address) for address in sorted(set(addresses))}
        self._inner.sever(endpoints.values())
        self.cut_off = tuple(endpoints)

    def heal(self) -> None:
        self.cut(())

    def statistics(self) -> StatisticsDict:
        figures: StatisticsDict = {"cut_links": len(self.cut_off)}
        return super().statistics() | figures
