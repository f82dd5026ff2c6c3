"""Opening the sockets of a node: unicast for the token, multicast for data and control, IPv4 and IPv6.

1. Every socket is non-blocking and has a receive buffer that was asked for *and looked at*: a kernel that gives less is
   named in a warning together with the setting that allows more.
2. Multicast stays on the LAN (one hop) and loops back, so that several nodes of one machine hear each other.
3. A multicast socket is bound to the group's address: datagrams of other groups on the same port do not reach it.
"""

from __future__ import annotations

import socket
import struct
import sys
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Final

from transis.net.addresses import PORT_MAX, Endpoint, IPAddress
from transis.net.interfaces import Interface
from transis.types.errors import ConfigError

BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Asked for on the data socket: several windows, with the kernel's own overhead per datagram."""
SMALL_BUFFER_BYTES: Final = 1024 * 1024
"""Asked for on control and token sockets, and for sending."""

HEADERS: Final = 320
BOOKKEEPING: Final = 256
"""Bytes of one datagram in a receive buffer beside its content, on Linux; other systems need no more."""

SO_RCVBUFFORCE: Final = 33
"""Linux: beyond the system's limit, for whoever may administer the network."""
IP_MULTICAST_ALL: Final = 49
"""Linux: 0 keeps out groups that only other sockets of this machine joined."""

_ON_LINUX: Final = sys.platform.startswith("linux")


def open_unicast(interface: Interface, port: int) -> socket.socket:
    """A socket on one address of ours; port 0 lets the system choose."""
    _check_port(port)
    opened = _new(interface)
    try:
        opened.bind(Endpoint(interface.address, port).for_socket(interface.index))
    except OSError as error:
        opened.close()
        where = Endpoint(interface.address, port)
        raise ConfigError(
            "port", port, f"{where} cannot be opened ({error.strerror}): choose another, or stop who has it"
        ) from error
    return opened


def open_group(interface: Interface, group: IPAddress, port: int, name: str = "port") -> socket.socket:
    """A socket that hears a multicast group on an interface, together with other processes of this machine.

    `name` is what the settings call the port."""
    if not group.is_multicast or group.version != interface.address.version:
        raise ConfigError("group", str(group), f"must be a multicast address of IPv{interface.address.version}")
    _check_port(port)
    opened = _new(interface)
    try:
        _share(opened)
        opened.bind(Endpoint(group, port).for_socket(interface.index))
    except OSError as error:
        opened.close()
        raise ConfigError(
            name, port, f"cannot be opened ({error.strerror}): choose another on all nodes, or stop who has it"
        ) from error
    try:
        _join(opened, interface, group)
    except OSError as error:
        opened.close()
        raise ConfigError("group", str(group), f"cannot be joined on {interface} ({error.strerror})") from error
    return opened


def aim_multicast(sending: socket.socket, interface: Interface, hops: int = 1) -> None:
    """Multicast of this socket leaves by the interface, goes so many hops, and is heard on this machine too."""
    if isinstance(interface.address, IPv4Address):
        sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface.address.packed)
        sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, hops)
        sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    else:
        sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface.index)
        sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, hops)
        sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)


def size_buffers(opened: socket.socket, wanted: int, what: str) -> str:
    """Ask for buffers; the empty string, or a warning when the kernel gave less than was asked for."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER_BYTES)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted)
    given = receive_buffer(opened)
    if given < wanted and _ON_LINUX:
        _force(opened, wanted)
        given = receive_buffer(opened)
    if given >= wanted:
        return ""
    setting = "net.core.rmem_max" if _ON_LINUX else "kern.ipc.maxsockbuf"
    return (
        f"the {what} socket got a receive buffer of {given} bytes instead of {wanted}: bursts may be lost and sent again; "
        f"allow more with sysctl -w {setting}={wanted}"
    )


def receive_buffer(opened: socket.socket) -> int:
    """The buffer's size as it was asked for: Linux doubles it for its own books."""
    size = opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return size // 2 if _ON_LINUX else size


def datagrams_that_fit(opened: socket.socket, size: int) -> int:
    """How many datagrams of this size the receive buffer holds, as the system counts: memory comes in powers of two, and each
    datagram has its headers and its entry in the books.
    """
    room = opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return room // ((1 << (size + HEADERS - 1).bit_length()) + BOOKKEEPING)


def _force(opened: socket.socket, wanted: int) -> None:
    """Who may not do this gets the warning, which says what an administrator can do."""
    with suppress(PermissionError):
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, wanted)


def _check_port(port: int) -> None:
    if not 0 <= port <= PORT_MAX:
        raise ConfigError("port", port, f"must be from 0 to {PORT_MAX}")


def _new(interface: Interface) -> socket.socket:
    opened = socket.socket(interface.family, socket.SOCK_DGRAM)
    opened.setblocking(False)
    if interface.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return opened


def _share(opened: socket.socket) -> None:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if not _ON_LINUX and hasattr(socket, "SO_REUSEPORT"):
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def _join(opened: socket.socket, interface: Interface, group: IPAddress) -> None:
    if isinstance(interface.address, IPv4Address):
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group.packed + interface.address.packed)
        if _ON_LINUX:
            opened.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
    else:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group.packed + struct.pack("@I", interface.index))
