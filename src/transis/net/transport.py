"""How datagrams travel: by multicast on a LAN, or by a mesh of unicasts where there is no multicast (clouds, containers).

1. All that a node sends leaves from its token socket, so the source of a datagram is the node's advertised address, and a node
   recognizes its own datagrams by their source alone.
2. Nothing that a peer says or does raises: an unreadable address, a host that is gone, a full buffer are counted.
3. Multicast: data and control have a port each, shared by all nodes; the token socket has a port of its own per node.
4. Mesh: data and control sockets are at the token socket's port + 1 and + 2, so one address stands for all three.
5. Links can be severed, for tests of a running cluster. What comes from a severed address is dropped unread, and nothing is sent
   to it; but a multicast cannot leave out one receiver, so parting two nodes needs a cut on both sides.
6. Linux has all of it. macOS lacks GSO, GRO, the count of overflows and the choice of interfaces by name or network, and has no
   link-local IPv6 here; the rest works. Windows is not supported, nor are addresses changed on their way (NAT).

The peers of a mesh must be learned:

7. Seeds are known forever. The sender of a control packet that opens under our key is known from then on by the address it
   gives; members of the view are known. Nothing is learned from outsiders.
8. Nodes introduce to each other those they know at first hand, so that two newcomers who share one seed find each other. Hearsay
   is never passed on and is forgotten unless the introduced node speaks: an address that died dies out.
9. Everything is bounded; among strangers, the one silent longest is forgotten first.
10. Introductions are sealed under a name that no life of a node has (incarnation 0, a boot id of their own), so that their send
   counter shares no nonce with the node's.

Hot path: `send` and `receive` run once for each burst. They cost one call of `_endpoints` and one of the socket's sender or
receiver.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import ClassVar, Final, NamedTuple

import msgspec

from transis.net.interfaces import PORT_MAX, Endpoint, Interface, SocketAddress, configured_endpoint, read_endpoint
from transis.net.runtime import boottime_us
from transis.net.sockets import (
    BUFFER_BYTES,
    SMALL_BUFFER_BYTES,
    BurstReceiver,
    DatagramSender,
    aim_multicast,
    datagrams_that_fit,
    open_group,
    open_unicast,
    size_buffers,
)
from transis.net.state import new_boot_id
from transis.process.fork import stays_here
from transis.types.config import Config
from transis.types.errors import ConfigError, Rejection
from transis.types.ids import NodeId
from transis.types.limits import DATAGRAM_MIN, MEMBERS_MAX
from transis.types.outputs import Audience, Port
from transis.wire.control import PartAssembler, Role, asks, decode_control, introduces, role_of
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE, Arrival, Opener, Sealer, apart

# --- peers of a mesh --------------------------------------------------------------------------------------------------

KIND_INTRODUCTION: Final = b"\xf0"
"""The first byte of an introduction's body; the wire room's packets count from below."""
HEARD_MAX: Final = 2 * MEMBERS_MAX
HEARSAY_MAX: Final = 2 * MEMBERS_MAX
INTRODUCED_MAX: Final = 16
"""Addresses in one introduction: numeric ones fit the smallest datagram; the others come in later introductions."""
FRESH_US: Final = 30_000_000
"""A node heard within this time is introduced to others; hearsay counts for as long."""
INTRODUCE_US: Final = 1_000_000
"""Introductions are repeated at this interval, or at once when a new node is heard."""
_ROOM: Final = DATAGRAM_MIN - ENVELOPE_SIZE - SEAL_SIZE - 8


class Peers:
    """`ring` is where datagrams for the ring go: the view's members, and nodes that asked to join since it was installed."""

    def __init__(
        self, own: Endpoint, seeds: Sequence[Endpoint], config: Config, key: bytes | None, boot: int, now_us: Callable[[], int]
    ) -> None:
        self._own = own
        self._seeds = tuple(seed for seed in dict.fromkeys(seeds) if seed != own)
        self._opener = Opener(config.cluster, key)
        self._sealer = Sealer(config.cluster, NodeId(config.name, 0, boot), key)
        self._parts = PartAssembler()
        self._now_us = now_us
        self._ring: dict[Endpoint, None] = {}
        self._heard: OrderedDict[Endpoint, int] = OrderedDict()
        self._hearsay: OrderedDict[Endpoint, int] = OrderedDict()
        self._introduce_at = 0
        self._turn = 0

    def ring(self) -> list[Endpoint]:
        return list(self._ring)

    def world(self) -> list[Endpoint]:
        oldest = self._now_us() - FRESH_US
        hearsay = (endpoint for endpoint, at in self._hearsay.items() if at > oldest)
        return list(dict.fromkeys((*self._seeds, *self._ring, *self._heard, *hearsay)))

    def install(self, addresses: Iterable[str]) -> None:
        """A regular view: its members are the ring. A node that left stays known, for it may come back."""
        endpoints = [self._other_at(address) for address in addresses]
        self._ring = {endpoint: None for endpoint in endpoints if endpoint is not None}
        for endpoint in self._ring:
            self._hear(endpoint)

    def read(self, datagrams: Sequence[bytes]) -> list[bytes]:
        """Learn from control datagrams; return those that are for the node."""
        return [datagram for datagram in datagrams if not self._is_introduction(datagram)]

    def introduction(self) -> list[bytes]:
        """The introduction to send along with a packet to WORLD, if one is due."""
        now = self._now_us()
        fresh = [endpoint for endpoint, at in self._heard.items() if endpoint in self._ring or at > now - FRESH_US]
        if now < self._introduce_at or not fresh:
            return []
        self._introduce_at = now + INTRODUCE_US
        first = self._turn % len(fresh)
        self._turn += INTRODUCED_MAX
        chosen = [str(endpoint) for endpoint in (fresh[first:] + fresh[:first])[:INTRODUCED_MAX]]
        while sum(map(len, chosen)) + 2 * len(chosen) > _ROOM:
            chosen.pop()
        return [self._sealer.seal(KIND_INTRODUCTION + msgspec.msgpack.encode(chosen))]

    # --- what arrives -----------------------------------------------------------------------------------------------

    def _is_introduction(self, datagram: bytes) -> bool:
        opened = self._opener.open(datagram)
        if isinstance(opened, Rejection):
            return False
        transmitter, body = opened
        if body[:1] == KIND_INTRODUCTION:
            self._introduced(body[1:])
            return True
        whole = self._parts.feed(transmitter, body)
        if isinstance(whole, bytes):
            self._look_at(whole)
        return False

    def _look_at(self, whole: bytes) -> None:
        if role_of(whole) < Role.INTRODUCES:
            return
        packet = decode_control(whole)
        if isinstance(packet, Rejection) or not introduces(packet):
            return
        endpoint = self._other_at(packet.address)
        if endpoint is None:
            return
        self._hear(endpoint)
        if asks(packet) and len(self._ring) < HEARD_MAX:
            self._ring[endpoint] = None

    def _other_at(self, address: str) -> Endpoint | None:
        """Where another node can be reached from here, or None."""
        endpoint = read_endpoint(address)
        if endpoint is None or endpoint == self._own or endpoint.host.version != self._own.host.version:
            return None
        return endpoint

    def _hear(self, endpoint: Endpoint) -> None:
        if endpoint not in self._heard:
            self._introduce_at = 0
        self._hearsay.pop(endpoint, None)
        _remember(self._heard, endpoint, self._now_us(), HEARD_MAX)

    def _introduced(self, body: bytes) -> None:
        try:
            addresses = msgspec.msgpack.decode(body, type=list[str])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        for address in addresses[:INTRODUCED_MAX]:
            endpoint = self._other_at(address)
            if endpoint is not None and endpoint not in self._heard:
                _remember(self._hearsay, endpoint, self._now_us(), HEARSAY_MAX)


def _remember(known: OrderedDict[Endpoint, int], endpoint: Endpoint, now: int, most: int) -> None:
    known[endpoint] = now
    known.move_to_end(endpoint)
    if len(known) > most:
        known.popitem(last=False)


ADDRESSES_MAX: Final = 1024
"""Parsed addresses that are remembered: room for members and former members many times over."""
TRIES_FOR_PORTS: Final = 64
"""How often the system is asked for a free port whose two neighbours are free as well."""

MESH_OFFSET: Final = {Port.TOKEN: 0, Port.DATA: 1, Port.CONTROL: 2}
BUFFERS: Final = {Port.DATA: BUFFER_BYTES, Port.CONTROL: SMALL_BUFFER_BYTES, Port.TOKEN: SMALL_BUFFER_BYTES}

StatisticsDict = dict[str, int | str]


class Offload(NamedTuple):
    """Which kernel offloads to use where they exist; switched off to measure, or to test the path without them."""

    gso: bool = True
    gro: bool = True


ALL_HELP: Final = Offload()


class Transport(ABC):
    """The three sockets of a node. Kinds of networks differ in where a datagram for an audience goes: `_endpoints`."""

    kind: ClassVar[str]

    def __init__(self, opened: Mapping[Port, socket.socket], interface: Interface, offload: Offload) -> None:
        self._opened = opened
        stays_here(self)
        self._interface = interface
        self._scope = interface.index
        token = opened[Port.TOKEN]
        self._source: SocketAddress = token.getsockname()
        self._own = Endpoint(interface.address, self._source[1])
        warnings = (size_buffers(opened[port], BUFFERS[port], port.name.lower()) for port in Port)
        self.warnings: Sequence[str] = [warning for warning in warnings if warning]
        """What an operator should read once, after opening."""
        self._sender = DatagramSender(token, gso=offload.gso)
        self._receivers = {port: BurstReceiver(opened[port], self._source, gro=offload.gro) for port in Port}
        self._unaddressed = 0
        self._read: dict[str, Endpoint | None] = {}
        self._targets: dict[Endpoint, SocketAddress | None] = {}
        self._severed: frozenset[Endpoint] = frozenset()
        self.severed: tuple[str, ...] = ()
        """The addresses that `sever` named last."""

    @property
    def address(self) -> str:
        """Where this node is reached; it travels in Joins."""
        return str(self._own)

    def files(self) -> dict[Port, int]:
        """The descriptors to watch for reading."""
        return {port: one.fileno() for port, one in self._opened.items()}

    def descriptors(self) -> list[int]:
        return [one.fileno() for one in self._opened.values() if one.fileno() >= 0]

    def datagrams_that_fit(self, size: int) -> int:
        """How many datagrams of this size may wait unread before the system throws some away."""
        return datagrams_that_fit(self._opened[Port.DATA], size)

    # --- sending and receiving --------------------------------------------------------------------------------------

    @abstractmethod
    def _endpoints(self, to: str | Audience, port: Port) -> Iterable[Endpoint]:
        """The sockets that a datagram for an audience, or for the node at an address, must reach."""

    def send(self, to: str | Audience, port: Port, datagrams: Sequence[bytes]) -> None:
        """Send datagrams. An address of the other IP version, or without room for a mesh node's three ports, is unreachable."""
        for endpoint in self._endpoints(to, port):
            if endpoint in self._severed:
                continue
            if endpoint not in self._targets:
                self._look_up(endpoint)
            target = self._targets[endpoint]
            if target is not None:
                self._sender.send(datagrams, target)
            else:
                self._unaddressed += 1

    def _look_up(self, endpoint: Endpoint) -> None:
        if len(self._targets) >= ADDRESSES_MAX:
            self._targets.clear()
        reachable = endpoint.port <= PORT_MAX and endpoint.host.version == self._own.host.version
        self._targets[endpoint] = endpoint.for_socket(self._scope) if reachable else None

    def receive(self, port: Port) -> Sequence[Arrival]:
        """What waits on a socket, without blocking, up to a bound that exceeds its buffer."""
        return self._receivers[port].receive()

    @abstractmethod
    def install(self, addresses: Iterable[str]) -> None:
        """A regular view has members with these addresses: they are the ring now."""

    def _endpoint(self, address: str) -> Endpoint | None:
        """The endpoint that a peer's address names; nonsense is counted."""
        if address not in self._read:
            if len(self._read) >= ADDRESSES_MAX:
                self._read.clear()
            self._read[address] = read_endpoint(address)
        endpoint = self._read[address]
        if endpoint is None:
            self._unaddressed += 1
        return endpoint

    # --- severed links ----------------------------------------------------------------------------------------------

    def sever(self, addresses: Iterable[str]) -> None:
        """Receive nothing from these addresses and send nothing to them. Replaces the last cut; an empty one heals all."""
        chosen = {address: configured_endpoint("peers", address) for address in sorted(set(addresses))}
        self._severed = frozenset(one.shifted(by) for one in chosen.values() for by in MESH_OFFSET.values())
        sources = {(host, one.port) for one in chosen.values() for host in self._spellings(one)}
        for receiver in self._receivers.values():
            receiver.ignored = frozenset({self._source[:2], *sorted(sources)})
        self.severed = tuple(chosen)

    def _spellings(self, endpoint: Endpoint) -> tuple[str, ...]:
        """How the system may spell a source: a link-local one has the name of our interface."""
        host = str(endpoint.host).partition("%")[0]
        return (host, f"{host}%{self._interface.name}")

    # --- looking in -------------------------------------------------------------------------------------------------

    def statistics(self) -> StatisticsDict:
        lost: Counter[str] = self._sender.lost
        receivers = self._receivers.values()
        figures: StatisticsDict = {"transport": self.kind, "address": self.address}
        figures |= {"gso": self._sender.gso, "gro": self._receivers[Port.DATA].gro}
        figures |= {"sent_datagrams": self._sender.datagrams, "sent_calls": self._sender.calls}
        figures |= {"received_datagrams": sum(one.datagrams for one in receivers)}
        figures |= {"received_calls": sum(one.calls for one in receivers)}
        figures |= {"cut_off": sum(one.cut_off for one in receivers), "unaddressed": self._unaddressed}
        figures |= {"overflows": sum(one.overflows for one in receivers), "cut_links": len(self.severed)}
        return figures | {f"lost_{word}": lost[word] for word in sorted(lost)}

    def close(self) -> None:
        _close_all(self._opened)


class Group(NamedTuple):
    """A multicast group and its two ports; the same on all nodes of a cluster. The defaults have the scope of one site."""

    address: str = "239.192.84.115"
    data_port: int = 5410
    control_port: int = 5411
    hops: int = 1


GROUP: Final = Group()
GROUP_IPV6: Final = Group("ff12::7472:6973")


class MulticastTransport(Transport):
    """RING and WORLD are one multicast group: other nodes ignore what is not for them. Only tokens go to single nodes."""

    kind = "multicast"

    def __init__(self, interface: Interface, group: Group = GROUP, token_port: int = 0, offload: Offload = ALL_HELP) -> None:
        where = _group_address(group)
        opened: dict[Port, socket.socket] = {}
        try:
            opened[Port.TOKEN] = open_unicast(interface, token_port)
            opened[Port.DATA] = open_group(interface, where.host, group.data_port, "data_port")
            opened[Port.CONTROL] = open_group(interface, where.host, group.control_port, "control_port")
            aim_multicast(opened[Port.TOKEN], interface, group.hops)
            super().__init__(opened, interface, offload)
        except BaseException:
            _close_all(opened)
            raise
        self._group = {Port.DATA: (where,), Port.CONTROL: (Endpoint(where.host, group.control_port),)}

    def _endpoints(self, to: str | Audience, port: Port) -> Iterable[Endpoint]:
        if isinstance(to, Audience):
            assert port is not Port.TOKEN, "tokens have one addressee"
            return self._group[port]
        endpoint = self._endpoint(to)
        return () if endpoint is None else (endpoint,)

    def install(self, addresses: Iterable[str]) -> None:
        """Nothing to do: the group is the same whoever is in it."""


class MeshTransport(Transport):
    """RING goes to every member, WORLD to every known node and to the seeds, among which this node itself may be."""

    kind = "mesh"

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
            super().__init__(opened, interface, offload)
            self._peers = Peers(self._own, known, config, key, new_boot_id(), now_us)
        except BaseException:
            _close_all(opened)
            raise

    def _endpoints(self, to: str | Audience, port: Port) -> Iterable[Endpoint]:
        offset = MESH_OFFSET[port]
        if to is Audience.RING:
            return [endpoint.shifted(offset) for endpoint in self._peers.ring()]
        if to is Audience.WORLD:
            return [endpoint.shifted(offset) for endpoint in self._peers.world()]
        assert isinstance(to, str), "an audience is one of two"
        endpoint = self._endpoint(to)
        return () if endpoint is None else (endpoint.shifted(offset),)

    def send(self, to: str | Audience, port: Port, datagrams: Sequence[bytes]) -> None:
        """Send datagrams; a packet to WORLD takes an introduction along, if one is due."""
        super().send(to, port, datagrams)
        if to is Audience.WORLD and (introduction := self._peers.introduction()):
            super().send(to, Port.CONTROL, introduction)

    def receive(self, port: Port) -> Sequence[Arrival]:
        arrived = self._receivers[port].receive()
        return self._peers.read(apart(arrived)) if port is Port.CONTROL and arrived else arrived

    def install(self, addresses: Iterable[str]) -> None:
        self._peers.install(addresses)

    def statistics(self) -> StatisticsDict:
        known: StatisticsDict = {"known": len(self._peers.world())}
        return super().statistics() | known


def _group_address(group: Group) -> Endpoint:
    try:
        return Endpoint(ip_address(group.address), group.data_port)
    except ValueError as error:
        raise ConfigError("group", group.address, "must be a numeric multicast address") from error


def _open_three(interface: Interface, token_port: int) -> dict[Port, socket.socket]:
    """The sockets of a mesh node. If no port is configured, the system is asked until three in a row are free."""
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
