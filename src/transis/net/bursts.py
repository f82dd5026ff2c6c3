"""Many datagrams in one system call: UDP GSO on the way out, GRO on the way in (protocols 8.5).

1. One call carries datagrams to one destination, all of one length but the last, which may be shorter; at most 64 of them
   and less than 64 KB.
2. Where the kernel or the network card refuses (EIO, ENOPROTOOPT, EINVAL, EOPNOTSUPP), the same datagrams go one by one, GSO
   stays off for this socket, and the statistics say why. macOS has neither; there everything goes one by one.
3. Nothing here raises for what the network does: a datagram that cannot be sent is lost, as on the wire, and counted.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from transis.net.addresses import SocketAddress
from transis.wire.envelope import Arrival, Segments

SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104

SO_RXQ_OVFL: Final = 40
"""Linux: tell with a datagram how many were lost so far because the socket's buffer was full."""

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
_ON_LINUX: Final = sys.platform.startswith("linux")


def equal_segments(datagrams: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Cut datagrams, in order, into groups that one call may carry (rule 1)."""
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


class BurstSender:
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
    """Reads one socket until it is empty. What comes from `own` was sent by this node and is not for it.

    `ignored` are the sources whose datagrams are dropped unread: this node itself, and for tests those it is cut off from.
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
        """All datagrams that wait, in the order in which they arrived; those that came in one piece stay in it."""
        arrived: list[Arrival] = []
        for _ in range(CALLS_MAX):
            try:
                content, ancillary, flags, source = self._socket.recvmsg(RECEIVE_BYTES, _ANCILLARY)
            except BlockingIOError:
                break
            except OSError:
                continue  # An error of an earlier datagram that the kernel tells us now: nothing arrived with it.
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
        """What the kernel says beside the content: the size of the datagrams that it put together, or 0."""
        size = 0
        for level, kind, value in ancillary:
            if level == SOL_UDP and kind == UDP_GRO:
                size = _GRO_SIZE.unpack(value)[0]
            elif level == socket.SOL_SOCKET and kind == SO_RXQ_OVFL:
                self.overflows = _OVERFLOWS.unpack(value)[0]
        return size


def _word(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "unknown")
