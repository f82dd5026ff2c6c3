"""The sockets of a node: unicast for the token, multicast for data and control, IPv4 and IPv6; many datagrams in one system call.

1. Every socket is non-blocking and has a receive buffer that was asked for *and looked at*: a kernel that gives less is
   named in a warning together with the setting that allows more.
2. Multicast stays on the LAN (one hop) and loops back, so that several nodes of one machine hear each other.
3. A multicast socket is bound to the group's address: datagrams of other groups on the same port do not reach it.
4. UDP GSO on the way out, GRO on the way in. One call carries datagrams to one destination, all of one
   length but the last, which may be shorter; at most 64 of them and less than 64 KB.
5. Where the kernel or the network card refuses (EIO, ENOPROTOOPT, EINVAL, EOPNOTSUPP), the same datagrams go one by one, GSO
   stays off for this socket, and the statistics say why. macOS has neither; there everything goes one by one.
6. Nothing here raises for what the network does: a datagram that cannot be sent is lost, as on the wire, and counted.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Final

from transis.net.interfaces import PORT_MAX, Endpoint, Interface, IPAddress, SocketAddress
from transis.types.errors import ConfigError
from transis.wire.envelope import Arrival, Segments

# --- opening ----------------------------------------------------------------------------------------------------------

BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Asked for on the data socket: several windows, with the kernel's own overhead per datagram."""
SMALL_BUFFER_BYTES: Final = 1024 * 1024
"""Asked for on control and token sockets, and for sending."""

HEADERS: Final = 320
BOOKKEEPING: Final = 256
"""Bytes of one datagram in a receive buffer beside its content, on Linux; other systems need no more."""

SO_RCVBUFFORCE: Final = 33
"""Linux: beyond the system's limit, with the privilege to administer the network."""
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
            "port", port, f"{where} cannot be opened ({error.strerror}): choose another, or stop the process that has it"
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
            name, port, f"cannot be opened ({error.strerror}): choose another on all nodes, or stop the process that has it"
        ) from error
    try:
        _join(opened, interface, group)
    except OSError as error:
        opened.close()
        raise ConfigError("group", str(group), f"cannot be joined on {interface} ({error.strerror})") from error
    return opened


def aim_multicast(sending: socket.socket, interface: Interface, hops: int = 1) -> None:
    """Send this socket's multicast by the interface, over at most `hops` hops, and to this machine too."""
    if isinstance(interface.address, IPv4Address):
        sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface.address.packed)
        sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, hops)
        sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    else:
        sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface.index)
        sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, hops)
        sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)


def size_buffers(opened: socket.socket, wanted: int, what: str) -> str:
    """Ask for buffers; return a warning if the kernel gave less than was asked for, else the empty string."""
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
    """The size of the buffer in the terms of the request: Linux doubles it for its own bookkeeping."""
    size = opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return size // 2 if _ON_LINUX else size


def datagrams_that_fit(opened: socket.socket, size: int) -> int:
    """How many datagrams of this size the receive buffer holds, as the system counts: memory comes in powers of two, and each
    datagram has its headers and its entry in the books.
    """
    room = opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return room // ((1 << (size + HEADERS - 1).bit_length()) + BOOKKEEPING)


def _force(opened: socket.socket, wanted: int) -> None:
    """Go beyond the system's limit if privileged. If not, the warning says what an administrator can do."""
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


# --- bursts -----------------------------------------------------------------------------------------------------------

SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104

SO_RXQ_OVFL: Final = 40
"""Linux: report with a datagram how many were lost so far because the socket's buffer was full."""

SEGMENTS_MAX: Final = 64
"""Datagrams in one call: the kernel's UDP_MAX_SEGMENTS since GSO exists."""
CALL_BYTES_MAX: Final = 65_000
"""Bytes in one call: 64 KB less headers, rounded down."""
CALLS_MAX: Final = 64
"""Calls in one drain of a socket: more than its buffer holds, so that a drain empties it unless it is being flooded."""
RECEIVE_BYTES: Final = 65_536

REFUSALS: Final = frozenset({errno.EIO, errno.ENOPROTOOPT, errno.EINVAL, errno.EOPNOTSUPP})

_SEGMENT_SIZE: Final = struct.Struct("=H")
_GRO_SIZE: Final = struct.Struct("=i")
_OVERFLOWS: Final = struct.Struct("=I")
_ANCILLARY: Final = socket.CMSG_SPACE(_GRO_SIZE.size) + socket.CMSG_SPACE(_OVERFLOWS.size)


def equal_segments(datagrams: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Cut datagrams, in order, into groups that one call may carry (rule 4)."""
    start = 0
    while start < len(datagrams):
        length = len(datagrams[start])
        fitting = min(SEGMENTS_MAX, CALL_BYTES_MAX // length) if length else 1
        most = min(len(datagrams), start + max(1, fitting))
        end = start + 1
        while end < most and len(datagrams[end]) == length:
            end += 1
        if end < most and 0 < len(datagrams[end]) < length:
            end += 1
        yield datagrams[start:end]
        start = end


class DatagramSender:
    """Sends from one socket to anybody."""

    def __init__(self, sending: socket.socket, *, gso: bool = True) -> None:
        self._socket = sending
        self.gso = "on" if gso and _ON_LINUX else "off"
        self.datagrams = 0
        self.calls = 0
        self.lost: Counter[str] = Counter()

    def send(self, datagrams: Sequence[bytes], to: SocketAddress) -> None:
        if self.gso != "on":
            self._one_by_one(datagrams, to)
            return
        for group in equal_segments(datagrams):
            if len(group) == 1 or not self._together(group, to):
                self._one_by_one(group, to)

    def _together(self, group: Sequence[bytes], to: SocketAddress) -> bool:
        """False if the kernel will not cut the group into datagrams for us: then it must go one by one."""
        segment = [(SOL_UDP, UDP_SEGMENT, _SEGMENT_SIZE.pack(len(group[0])))]
        try:
            self._socket.sendmsg(group, segment, 0, to)
        except OSError as error:
            if error.errno in REFUSALS:
                self.gso = f"refused: {_word(error)}"
                return False
            self.lost[_word(error)] += len(group)
        self.calls += 1
        self.datagrams += len(group)
        return True

    def _one_by_one(self, datagrams: Sequence[bytes], to: SocketAddress) -> None:
        for datagram in datagrams:
            try:
                self._socket.sendto(datagram, to)
            except OSError as error:
                self.lost[_word(error)] += 1
            self.calls += 1
        self.datagrams += len(datagrams)


class BurstReceiver:
    """Reads one socket until it is empty.

    Datagrams from `ignored` are dropped unread: this node itself, and in tests those that it is cut off from.
    """

    def __init__(self, receiving: socket.socket, own: SocketAddress, *, gro: bool = True) -> None:
        self._socket = receiving
        self.ignored: frozenset[tuple[str, int]] = frozenset({own[:2]})
        self.gro = "off"
        self.datagrams = 0
        self.calls = 0
        self.cut_off = 0
        self.overflows = 0
        if _ON_LINUX:
            receiving.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        if gro and _ON_LINUX:
            self._ask_for_gro()

    def _ask_for_gro(self) -> None:
        try:
            self._socket.setsockopt(SOL_UDP, UDP_GRO, 1)
            self.gro = "on"
        except OSError as error:
            self.gro = f"refused: {_word(error)}"

    def receive(self) -> list[Arrival]:
        """All datagrams that wait, in order of arrival; those that came in one piece stay in one piece."""
        arrived: list[Arrival] = []
        for _ in range(CALLS_MAX):
            try:
                content, ancillary, flags, source = self._socket.recvmsg(RECEIVE_BYTES, _ANCILLARY)
            except BlockingIOError:
                break
            except OSError:
                continue  # An error of an earlier datagram that the kernel reports only now: nothing arrived with it.
            self.calls += 1
            if source[:2] in self.ignored:
                continue
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                self.cut_off += 1
                continue
            size = self._read_notes(ancillary)
            if 0 < size < len(content):
                piece = Segments(content, size)
                self.datagrams += len(piece)
                arrived.append(piece)
            else:
                self.datagrams += 1
                arrived.append(content)
        return arrived

    def _read_notes(self, ancillary: Sequence[tuple[int, int, bytes]]) -> int:
        """Read what the kernel says about the content; return the size of the datagrams that it put together, or 0."""
        size = 0
        for level, kind, value in ancillary:
            if level == SOL_UDP and kind == UDP_GRO:
                size = _GRO_SIZE.unpack(value)[0]
            elif level == socket.SOL_SOCKET and kind == SO_RXQ_OVFL:
                self.overflows = _OVERFLOWS.unpack(value)[0]
        return size


def _word(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "unknown")
