"""The nodes that a mesh node knows: without multicast, addresses must be learned.

1. Seeds are known forever. The sender of a control packet that opens under our key is known from then on by the address it
   gives; members of the view are known. Nothing is learned from outsiders.
2. Nodes introduce to each other those they know at first hand, so that two newcomers who share one seed find each other. Hearsay
   is never passed on and is forgotten unless the introduced node speaks: an address that died dies out.
3. Everything is bounded; among strangers, the one silent longest is forgotten first.
4. Introductions are sealed under a name that no life of a node has (incarnation 0, a boot id of their own), so that their send
   counter shares no nonce with the node's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from transis.net.interfaces import Endpoint, read_endpoint
from transis.types.config import Config
from transis.types.errors import Rejection
from transis.types.ids import NodeId
from transis.types.limits import DATAGRAM_MIN, MEMBERS_MAX
from transis.wire.control import PartAssembler, Role, asks, decode_control, introduces, role_of
from transis.wire.envelope import ENVELOPE_SIZE, SEAL_SIZE, Opener, Sealer

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
