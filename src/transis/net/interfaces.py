"""Addresses as they travel, `192.0.2.1:5405` or `[2001:db8::1]:5405`, and the network interface by name, address or network.

1. An address is that of a node's token socket. Peers say it in their packets, so reading one never raises and never asks
   a name server: what is not an address is None.
2. A scope (`fe80::1%eth0`) means something on one machine only, so it is not advertised; a sender to a link-local address
   adds the scope of its own interface.
3. What interfaces there are is read from the kernel: IPv4 addresses by SIOCGIFCONF, IPv6 addresses from /proc/net/if_inet6. On
   systems that have neither (macOS), only an explicit address can be chosen; binding to it shows whether it is ours.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
import sys
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Final, NamedTuple

from transis.types.errors import ConfigError
from transis.types.limits import NETWORK_ADDRESS_MAX

# --- addresses --------------------------------------------------------------------------------------------------------

IPAddress = IPv4Address | IPv6Address
SocketAddress = tuple[str, int] | tuple[str, int, int, int]

PORT_MAX = 65_535


class Endpoint(NamedTuple):
    host: IPAddress
    port: int

    def __str__(self) -> str:
        if self.host.version == 6:
            return f"[{str(self.host).partition('%')[0]}]:{self.port}"
        return f"{self.host}:{self.port}"

    def shifted(self, by: int) -> Endpoint:
        return Endpoint(self.host, self.port + by)

    def for_socket(self, scope: int = 0) -> SocketAddress:
        """What the socket calls want; the scope is used where the address needs one."""
        if isinstance(self.host, IPv4Address):
            return (str(self.host), self.port)
        needed = self.host.is_link_local or self.host.is_multicast
        return (str(self.host).partition("%")[0], self.port, 0, scope if needed else 0)


def read_endpoint(text: str) -> Endpoint | None:
    """The endpoint that a peer's text names, or None: never an exception, never a lookup."""
    host, colon, port = text.rpartition(":")
    if not colon or len(text) > NETWORK_ADDRESS_MAX or not (port.isascii() and port.isdigit() and len(port) <= 5):
        return None
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return None
    if bracketed != (address.version == 6) or not 1 <= int(port) <= PORT_MAX:
        return None
    return Endpoint(address, int(port))


def configured_endpoint(field: str, text: str) -> Endpoint:
    """The endpoint that an operator's text names. Raises ConfigError if it names none."""
    endpoint = read_endpoint(text)
    if endpoint is None:
        raise ConfigError(field, text, "must be a numeric address and a port, like 192.0.2.1:5405 or [2001:db8::1]:5405")
    return endpoint


# --- interfaces -------------------------------------------------------------------------------------------------------

SIOCGIFCONF: Final = 0x8912
REQUEST_SIZE: Final = 40
"""struct ifreq on 64-bit Linux: 16 bytes of name, then a socket address, padded."""
REQUESTS_MAX: Final = 1024
IF_INET6: Final = Path("/proc/net/if_inet6")
UNUSABLE: Final = 0x40 | 0x08
"""IFA_F_TENTATIVE and IFA_F_DADFAILED: an address that cannot be bound yet, or ever."""


class Interface(NamedTuple):
    """One address of one interface; `index` 0 means that the system did not say."""

    name: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody wants of an interface
    address: IPAddress

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET if self.address.version == 4 else socket.AF_INET6

    def __str__(self) -> str:
        return f"{self.name} {self.address}"


def list_interfaces() -> list[Interface]:
    """Every address of this machine, IPv4 first, in the order in which the kernel counts interfaces."""
    if not sys.platform.startswith("linux"):
        return []
    indices = {name: index for index, name in socket.if_nameindex()}
    found = [Interface(name, indices[name], address) for name, address in _ipv4() if name in indices]
    found += [Interface(name, index, address) for name, index, address in _ipv6()]
    return sorted(found, key=lambda one: (one.address.version, one.index))


def _ipv4() -> list[tuple[str, IPv4Address]]:
    room = array.array("B", bytes(REQUEST_SIZE * REQUESTS_MAX))
    where, size = room.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        answer = fcntl.ioctl(asking.fileno(), SIOCGIFCONF, struct.pack("iL", size, where))
    used = struct.unpack("iL", answer)[0]
    table = room.tobytes()[:used]
    return [_ipv4_entry(table[start : start + REQUEST_SIZE]) for start in range(0, used, REQUEST_SIZE)]


def _ipv4_entry(request: bytes) -> tuple[str, IPv4Address]:
    """The name as it stands before a colon (an alias is an address of its interface), and the address."""
    name = request[:16].partition(b"\0")[0].decode(errors="replace").partition(":")[0]
    return name, IPv4Address(request[20:24])


def _ipv6() -> list[tuple[str, int, IPv6Address]]:
    if not IF_INET6.exists():
        return []
    return read_if_inet6(IF_INET6.read_text(encoding="ascii", errors="replace"))


def read_if_inet6(text: str) -> list[tuple[str, int, IPv6Address]]:
    """The rows of /proc/net/if_inet6: address, index, prefix, scope, flags (all hexadecimal), name."""
    rows = [line.split() for line in text.splitlines()]
    return [
        (row[5], int(row[1], 16), IPv6Address(bytes.fromhex(row[0])))
        for row in rows
        if len(row) == 6 and not int(row[4], 16) & UNUSABLE
    ]


def choose_interface(which: str, found: Sequence[Interface] | None = None, *, version: int = 0) -> Interface:
    """The interface that an operator means: a name, an address, a network, or nothing when there is only one.

    `version` 4 or 6 restricts the choice. Of several matching addresses IPv4 comes first, then those with a global scope.
    """
    exist = list_interfaces() if found is None else found
    usable = sorted((one for one in exist if version in (0, one.address.version)), key=_preference)
    matching = _only_one(usable) if not which else [one for one in usable if _matches(one, which)]
    if matching:
        return matching[0]
    if not exist and _is_address(which):
        return Interface("", 0, ip_address(which))
    raise ConfigError("interface", which, f"{_complaint(which)}; this machine has {_listing(usable)}")


def _preference(one: Interface) -> tuple[int, bool]:
    return one.address.version, one.address.is_link_local


def _only_one(usable: Sequence[Interface]) -> list[Interface]:
    """The default: the only interface that is not loopback, or loopback if there is no other; nothing if there are several."""
    outward = [one for one in usable if not one.address.is_loopback]
    names = {one.name for one in outward}
    if len(names) > 1:
        return []
    return outward or [one for one in usable if one.address.is_loopback]


def _matches(one: Interface, which: str) -> bool:
    if _is_address(which):
        return one.address == ip_address(which)
    if "/" in which:
        try:
            return one.address in ip_network(which, strict=False)
        except ValueError:
            return False
    return one.name == which


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _complaint(which: str) -> str:
    return "no interface has this name, address or network" if which else "several interfaces could be meant, choose one"


def _listing(usable: Sequence[Interface]) -> str:
    return ", ".join(map(str, usable)) or "no address that could be used"
