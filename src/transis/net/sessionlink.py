"""One connection of one client: bytes in, frames to the host; frames from the host, bytes out.

1. What waits for a client waits in the host, where it is counted: the transport is given a slice at a time, and nothing while it
   has enough. One frame of any size may be under way.
2. Whatever a client sends ends at most its own connection, with a Goodbye that says what was wrong, if it can still be told.
3. After a Goodbye our side of the stream is shut, and the connection closed when the client closes it or `linger_s` are over:
   closing at once might make the Goodbye undeliverable.
4. A client that has not said Hello within `hello_s` is not a client.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, Final, NamedTuple, Protocol, cast

from transis.sessions.frames import CLIENT_FRAMES, ClientFrame, FrameReader, Goodbye, encode_frame
from transis.sessions.host import SessionHost
from transis.sessions.sealed import SealedStream
from transis.types.errors import Rejection

SLICE: Final = 256 * 1024
"""Bytes that a transport is given at a time, and above which it wants no more."""
STRANGER_BYTES: Final = 4096
"""Bytes that are kept of who has not said Hello: a Hello is far smaller."""

KEEPALIVE: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 40_000}
"""Where the system has these: a peer that answers nothing for 40 s is gone."""

log: Final = logging.getLogger("transis.sessions")


class Patience(NamedTuple):
    """In seconds: for how long a stranger may keep us waiting for its Hello, and a client for having read its Goodbye."""

    hello_s: float = 10.0
    linger_s: float = 5.0


NO_HELLO: Final = "a session begins with Hello"


class Surroundings(Protocol):
    """What a connection knows of the server it belongs to."""

    host: SessionHost
    patience: Patience
    buffer: memoryview
    """Shared by all connections: bytes stay in it only while one of them reads."""

    def now(self) -> int: ...
    def made(self, link: SessionLink) -> bool: ...
    def take_in(self, link: SessionLink, frame: ClientFrame) -> None: ...
    def lost(self, link: SessionLink) -> None: ...
    def worked(self) -> None: ...
    def keeps(self, more: int) -> bool: ...
    def rejected(self, link: SessionLink, rejection: Rejection) -> None: ...


def _notice_dead_peers(connection: socket.socket) -> None:
    """A machine that lost its power says nothing; without this its clients would stay in their groups for ever."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class SessionLink(asyncio.BufferedProtocol):
    """`process` is the session's number once there is one. When it `is_ending`, the last frame was written."""

    def __init__(self, server: Surroundings, seal: SealedStream | None = None) -> None:
        self.process: int | None = None
        self.label = ""
        self._server = server
        self._seal = seal
        self._reader = FrameReader(CLIENT_FRAMES)
        self._kept = 0
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rest = memoryview(b"")
        self._paused = False
        self.is_ending = False

    # --- the life of the connection ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._server.made(self):
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=SLICE)
        self._after(self._server.patience.hello_s, self._late)
        if self._seal is not None:
            _notice_dead_peers(self._transport.get_extra_info("socket"))
            self._transport.write(self._seal.greeting)

    def connection_lost(self, failure: Exception | None) -> None:
        self._set_timer(None)
        self._keep(0)
        self._server.lost(self)

    def eof_received(self) -> bool:
        """A client that will say nothing more is gone, as there is no half of a session; what it may have is written first."""
        self.pump()
        return False

    def _late(self) -> None:
        self.refuse(f"no Hello within {self._server.patience.hello_s:g} s")

    def _after(self, seconds: float, call: Any) -> None:
        self._set_timer(asyncio.get_running_loop().call_later(seconds, call))

    def _set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- reading ----------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_ending:
            return
        try:
            self._read(self._server.buffer[:nbytes])
        except Exception:
            log.exception("session %s failed and is ended; this is a bug", self)
            self.abort()
        self._server.worked()

    def _read(self, data: memoryview) -> None:
        opened = data if self._seal is None else self._open(self._seal, data)
        frames = opened if isinstance(opened, Rejection) else self._reader.feed(opened)
        if isinstance(frames, Rejection):
            self._server.rejected(self, frames)
            self.refuse(f"what this client sent cannot be read: {frames.why}")
            return
        for frame in frames:
            self._server.take_in(self, frame)
        self._keep(self._reader.unfinished)

    def _open(self, seal: SealedStream, data: memoryview) -> bytes | Rejection:
        was_open = seal.is_open
        opened = seal.feed(data)
        if seal.is_open and not was_open and self._transport is not None:
            self._transport.write(seal.seal(b""))
        return opened

    def seat(self, process: int, label: str) -> None:
        """It said Hello in time, and is a session from now on."""
        self._set_timer(None)
        self.process, self.label = process, label

    def _keep(self, unfinished: int) -> None:
        """Frames that are not whole yet are bounded for all connections together, and for strangers at once."""
        more, self._kept = unfinished - self._kept, unfinished
        if not self._server.keeps(more):
            self.refuse("too many clients are in the middle of large frames: connect again later")
        elif self.process is None and unfinished > STRANGER_BYTES:
            self.refuse(NO_HELLO)

    # --- writing ----------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()
        self._server.worked()

    def pump(self) -> None:
        """Write what the host has for this client, until the transport has enough."""
        try:
            while not self._paused and not self.is_ending and (self._rest or self._next_parcels()):
                self._write_slice()
        except Exception:
            log.exception("session %s failed and is ended; this is a bug", self)
            self.abort()

    def _next_parcels(self) -> bool:
        if self.process is None:
            return False
        parcels = self._server.host.take(self.process, SLICE)
        if not parcels:
            return False
        data = parcels[0].data if len(parcels) == 1 else b"".join(parcel.data for parcel in parcels)
        self._rest = memoryview(data)
        last = parcels[-1].frame
        if isinstance(last, Goodbye):
            self._finish(last.why)
            return False
        return True

    def _write_slice(self) -> None:
        piece, self._rest = self._rest[:SLICE], self._rest[SLICE:]
        self._write(piece)

    def _write(self, data: bytes | memoryview) -> None:
        assert self._transport is not None
        if self._seal is None:
            self._transport.write(data)
        elif self._seal.is_open:
            self._transport.write(self._seal.seal(data))

    # --- the end ----------------------------------------------------------------------------------------------------

    def linger(self) -> None:
        """The session is over. If its last frames cannot be written soon, they are not."""
        if self.process is not None and self._timer is None:
            self._after(self._server.patience.linger_s, self.abort)

    def refuse(self, why: str) -> None:
        """End the connection for a reason that the client is told."""
        if self.is_ending:
            return
        if self.process is not None:
            self._server.host.disconnect(self._server.now(), self.process, why)
            self._server.worked()
        else:
            self._rest = memoryview(encode_frame(Goodbye(why)))
            self._finish(why)

    def _finish(self, why: str) -> None:
        """Write the rest, which ends with a Goodbye, and nothing after it; then wait for the client to close."""
        log.info("session %s ended: %s", self, why)
        self.is_ending = True
        self._after(self._server.patience.linger_s, self.abort)
        while self._rest:
            self._write_slice()
        if self._transport is not None and not self._transport.is_closing() and self._transport.can_write_eof():
            self._transport.write_eof()

    def __str__(self) -> str:
        number = "of a stranger" if self.process is None else f"#{self.process}"
        return f"{number} ({self.label})" if self.label else number
