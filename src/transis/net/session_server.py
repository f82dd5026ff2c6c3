"""The sessions of a node on sockets: Unix, sealed TCP, and pairs that were made elsewhere.

1. All connections are served in the driver's loop. The node's news go to the host at once, and to the sockets once per turn of
   the loop, in one write for each client.
2. A failure in one connection ends at most that one. A failure in the host is the node's.
3. When the node ends, for whatever reason, every client is told.
4. What waits for a client waits in the host, where it is counted: the transport is given a slice at a time, and nothing while it
   has enough. One frame of any size may be under way.
5. A client's mistake ends its connection with a Goodbye that says what was wrong, if it can still be delivered. After a Goodbye
   our side of the stream is shut, and the connection closed when the client closes it or `linger_s` are over: closing at once
   might make the Goodbye undeliverable.
6. A connection without a Hello within `hello_s` is not a client's.
7. Clients have a stated time in each turn of the loop (Config.client_turn_us): they take turns, a frame each, and what is left
   waits for the next turn of the loop. Nothing more is read from a client before that is handled: the rest waits in its socket.
   Writing to clients has as much time, and a few new clients are accepted. Between turns the node reads its sockets.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final, NamedTuple, Protocol, cast

from transis.net.driver import Driver
from transis.net.interfaces import Endpoint
from transis.net.listeners import Listeners, Rarely, notice_dead_peers
from transis.process.fork import descriptors_of, stays_here
from transis.sessions.frames import CLIENT_FRAMES, ClientFrame, FrameReader, Goodbye, Hello, encode_frame
from transis.sessions.host import SessionHost, WaitingInHost
from transis.sessions.queues import Speaker, Turns
from transis.sessions.sealed import RANDOM_SIZE, SealedStream
from transis.types.errors import Rejection, UsageError, plainly
from transis.types.outputs import NEVER, News, Stopped

# --- one connection -----------------------------------------------------------------------------------------------------

SLICE: Final = 256 * 1024
"""Bytes that a transport is given at a time; with more than this waiting, it is given none."""
STRANGER_BYTES: Final = 4096
"""Bytes that are kept before a Hello: a Hello is far smaller."""

log: Final = logging.getLogger("transis.sessions")


class Patience(NamedTuple):
    """In seconds: how long to wait for a stranger's Hello, and for a client to read its Goodbye."""

    hello_s: float = 10.0
    linger_s: float = 5.0


NO_HELLO: Final = "a session begins with Hello"


class SessionLink(asyncio.BufferedProtocol):
    """`process` is the session's number once there is one. When it `is_ending`, the last frame was written."""

    def __init__(self, server: SessionServer, seal: SealedStream | None = None) -> None:
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
        self._is_heard = True
        self.is_ending = False
        self._is_lost = False

    # --- the life of the connection ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        stays_here(self)
        if not self._server.made(self):
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=SLICE)
        self._after(self._server.patience.hello_s, self._late)
        if self._seal is not None:
            notice_dead_peers(self._transport.get_extra_info("socket"))
            self._transport.write(self._seal.greeting)

    def descriptors(self) -> list[int]:
        return [] if self._is_lost else descriptors_of(self._transport)

    def connection_lost(self, failure: Exception | None) -> None:
        self._is_lost = True
        self._set_timer(None)
        self._server.keeps(-self._kept)
        self._server.lost(self)

    def eof_received(self) -> bool:
        """A client that closes its side is gone, since there is no half session, but what waits for it is written first."""
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
        """The bytes wait for this client's turn, which may be now. Nothing more is read before they are handled."""
        if self.is_ending:
            return
        data = self._server.buffer[:nbytes]
        rejection = self._add(data)
        if rejection is not None:
            self._reject(rejection)
        elif self._keep() and self._server.said(self):
            self._hear(False)

    def _add(self, data: memoryview) -> Rejection | None:
        if self._seal is None:
            self._reader.add(data)
            return None
        was_open, rejection = self._seal.is_open, self._seal.add(data)
        if self._seal.is_open and not was_open and self._transport is not None:
            self._transport.write(self._seal.seal(b""))
        return rejection

    def _hear(self, is_heard: bool) -> None:
        if is_heard is self._is_heard or self._transport is None or self._transport.is_closing():
            return
        self._is_heard = is_heard
        if is_heard:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def work_off(self) -> bool:
        """A frame, or a record that may have some."""
        try:
            if not self.is_ending and self._work_off():
                return True
        except Exception:
            log.exception("session %s failed and is ended; this is a bug", self)
            self.abort()
        self._hear(True)
        return False

    def _work_off(self) -> bool:
        frame = self._reader.next()
        if frame is None:
            return self._unseal() or self._is_all()
        if isinstance(frame, Rejection):
            self._reject(frame)
            return False
        self._server.take_in(self, frame)
        return True

    def _unseal(self) -> bool:
        record = None if self._seal is None else self._seal.next()
        if isinstance(record, Rejection):
            self._reject(record)
        elif record is not None:
            self._reader.add(record)
            return True
        return False

    def _is_all(self) -> bool:
        """Nothing is whole. A stranger has no more to say than Hello."""
        if self._keep() and self.process is None and self._kept > STRANGER_BYTES:
            self.refuse(NO_HELLO)
        return False

    def _reject(self, rejection: Rejection) -> None:
        self._server.rejected(self, rejection)
        self.refuse(f"what this client sent cannot be read: {rejection.why}")

    def accept(self, process: int, label: str) -> None:
        """The client said Hello in time: the connection is a session from now on."""
        self._set_timer(None)
        self.process, self.label = process, label

    def _keep(self) -> bool:
        """Bound the bytes that wait here, whole frames and unfinished ones: for all connections together."""
        waiting = self._reader.waiting + (0 if self._seal is None else self._seal.waiting)
        more, self._kept = waiting - self._kept, waiting
        if self._server.keeps(more):
            return True
        self.refuse("too many clients are in the middle of large frames: connect again later")
        return False

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
            while not self._paused and not self.is_ending and (self._rest or self._take_frames()):
                self._write_slice()
        except Exception:
            log.exception("session %s failed and is ended; this is a bug", self)
            self.abort()

    def _take_frames(self) -> bool:
        if self.process is None:
            return False
        leaving = self._server.host.take(self.process, SLICE)
        if not leaving:
            return False
        data = leaving[0].data if len(leaving) == 1 else b"".join(out.data for out in leaving)
        self._rest = memoryview(data)
        last = leaving[-1].frame
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
        """The session is over. If its last frames cannot be written soon, they are dropped."""
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
        if self.process is None:
            self._server.turned_away(self, why)
        else:
            log.info("session %s ended: %s", self, why)
        self.is_ending = True
        self._after(self._server.patience.linger_s, self.abort)
        while self._rest:
            self._write_slice()
        if self._transport is not None and not self._transport.is_closing() and self._transport.can_write_eof():
            self._transport.write_eof()

    @property
    def origin(self) -> str:
        found = None if self._transport is None else self._transport.get_extra_info("peername")
        return f"a client at {found[0]}" if isinstance(found, tuple) else "a client of this machine"

    def __str__(self) -> str:
        number = "of a stranger" if self.process is None else f"#{self.process}"
        return f"{number} ({self.label})" if self.label else number


# --- all connections ----------------------------------------------------------------------------------------------------

STRANGERS_MAX: Final = 256
"""Connections beyond those that may have sessions, for clients that are on their way in or out. Others are turned away."""
UNFINISHED_MAX: Final = 256 << 20
"""Bytes of unfinished frames of all connections. A client that needs more when they are used up is turned away."""


class ClientConnection(Speaker, Protocol):
    """A connection of any kind: a SessionLink, or a ThreadConnection in the same process."""

    process: int | None
    is_ending: bool

    def accept(self, process: int, label: str) -> None: ...
    def pump(self) -> None: ...
    def linger(self) -> None: ...
    def refuse(self, why: str) -> None: ...
    def abort(self) -> None: ...


class SessionServer:
    """Give `hear` to the driver as its `on_events`, or call it from there. Everything else is for one running loop."""

    def __init__(self, driver: Driver, host: SessionHost, patience: Patience | None = None) -> None:
        self.host = host
        self.patience = patience or Patience()
        self.rejections: Counter[str] = Counter()
        self.buffer = memoryview(bytearray(SLICE))
        """Shared by all connections: bytes stay in it only while one of them reads."""
        self._driver = driver
        self._now = 0
        self._links: dict[ClientConnection, None] = {}
        self._sessions: dict[int, ClientConnection] = {}
        self._listeners = Listeners()
        self._watch: asyncio.Task[None] | None = None
        self.unread = 0
        """Bytes from clients that wait to be handled, or are not a whole frame yet."""
        self._turns: Turns[Speaker] = Turns()
        self._rest = WaitingInHost(host, self.now)
        self._strangers = Rarely()
        self._turn_ns = driver.config.client_turn_us * 1000
        self._turn_ends = 0
        self._turn_arranged = False
        self._flush_arranged = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_for = NEVER
        self._empty = asyncio.Event()
        self._closed = False
        stays_here(self)

    # --- ways in ----------------------------------------------------------------------------------------------------

    async def listen_unix(self, path: str | Path, mode: int = 0o600) -> None:
        """Listen for clients of this machine; `mode` says which users may connect."""
        self.begin()
        self._listeners.open_unix(str(path), mode, lambda: SessionLink(self))

    async def listen_tcp(self, endpoint: Endpoint, key: bytes) -> tuple[str, int]:
        """Clients of other machines, with the key. Returns where it listens, since the port may be the system's choice."""
        self.begin()
        SealedStream(key, bytes(RANDOM_SIZE), is_client=False)
        return self._listeners.open_tcp(endpoint, lambda: self._sealed(key))

    def _sealed(self, key: bytes) -> SessionLink:
        return SessionLink(self, SealedStream(key, os.urandom(RANDOM_SIZE), is_client=False))

    async def adopt(self, connection: socket.socket) -> None:
        """A stream socket that somebody else connected, such as one of a pair."""
        self.begin()
        await asyncio.get_running_loop().connect_accepted_socket(lambda: SessionLink(self), connection)

    def descriptors(self) -> list[int]:
        return self._listeners.descriptors()

    def begin(self) -> None:
        """Get ready for clients. Connections that are not sockets call this themselves."""
        if self._closed:
            raise UsageError("the session server is closed")
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._watch_the_node())

    async def _watch_the_node(self) -> None:
        """Tell the host when the node ends: a node that fails cannot."""
        try:
            why = await self._driver.ended()
        except Exception as failure:
            why = f"it failed: {plainly(failure)}"
        self.host.hear(self.now(), [Stopped(why)])
        self.worked()

    # --- the node ---------------------------------------------------------------------------------------------------

    def hear(self, news: Sequence[News]) -> None:
        self.host.hear(self.now(), news)
        self.worked()

    def now(self) -> int:
        """The node's time; when it has ended, the last one."""
        with suppress(UsageError):
            self._now = self._driver.now()
        return self._now

    def worked(self) -> None:
        """The host was called: the node may have outputs, clients may have frames, timers may have changed."""
        self._driver.attend()
        self._flush_soon()
        if self.host.is_busy:
            self._turns.add(self._rest)
            self._turn_soon()

    def _flush_soon(self) -> None:
        if not self._flush_arranged:
            self._flush_arranged = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Serve the sessions that have something to do. The host may have sessions that are not served here."""
        self._flush_arranged = False
        for process in self.host.over():
            if process in self._sessions:
                self._sessions[process].linger()
        ends = monotonic_ns() + self._turn_ns
        for process in self.host.ready():
            if process in self._sessions:
                self._sessions[process].pump()
                if monotonic_ns() >= ends:
                    self._flush_soon()
                    break
        self._arrange()

    def _arrange(self) -> None:
        """A timer that is set too early stays: when it fires, it is set anew."""
        deadline = self.host.deadline()
        if deadline >= self._timer_for or self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_for = deadline
        wait_us = max(0, deadline - self.now())
        self._timer = asyncio.get_running_loop().call_later(wait_us / 1e6, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer, self._timer_for = None, NEVER
        try:
            self.host.wake(self.now())
        finally:
            self.worked()

    # --- what connections say ---------------------------------------------------------------------------------------

    def said(self, link: ClientConnection) -> bool:
        """A connection has something to handle. Returns whether some of it is left when this turn's time is over."""
        self._turns.add(link)
        self._work()
        return link in self._turns

    def _work(self) -> None:
        if not self._turn_ends:
            self._turn_ends = monotonic_ns() + self._turn_ns
            self._turn_soon()
        elif not self._has_time():
            return
        self._turns.work(self._has_time)
        self.worked()

    def _has_time(self) -> bool:
        return monotonic_ns() < self._turn_ends and not self.host.is_ahead

    def _turn_soon(self) -> None:
        if not self._turn_arranged:
            self._turn_arranged = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """The node has read its sockets."""
        self._turn_arranged = False
        self._turn_ends = 0
        if self._turns:
            self._work()

    def made(self, link: ClientConnection) -> bool:
        if self._closed or len(self._links) >= self.host.policy.sessions_max + STRANGERS_MAX:
            return False
        self._links[link] = None
        return True

    def take_in(self, link: ClientConnection, frame: ClientFrame) -> None:
        """The first frame introduces a client, the others are for the host. What comes after the end is dropped."""
        if link.is_ending:
            return
        if link.process is not None:
            self.host.receive(self.now(), link.process, frame)
        elif isinstance(frame, Hello):
            self._introduce(link, frame)
        else:
            link.refuse(NO_HELLO)

    def _introduce(self, link: ClientConnection, hello: Hello) -> None:
        try:
            process = self.host.connect(self.now(), hello)
        except UsageError as error:
            link.refuse(str(error))
            return
        link.accept(process, hello.label)
        self._sessions[process] = link
        log.info("session %s connected", link)

    def lost(self, link: ClientConnection) -> None:
        self._links.pop(link, None)
        self._turns.drop(link)
        process = link.process
        if process is not None and self._sessions.pop(process, None) is not None:
            if not link.is_ending:
                log.info("session %s ended: %s", link, self._untold(process) or "its connection was closed")
            self.host.forget(self.now(), process)
            self.worked()
        if not self._links:
            self._empty.set()

    def _untold(self, process: int) -> str:
        """The reason in a Goodbye that the client of an ended session did not take."""
        left = self.host.take(process) if process in self.host.over() else []
        return next((out.frame.why for out in left if isinstance(out.frame, Goodbye)), "")

    def keeps(self, more: int) -> bool:
        self.unread += more
        return more <= 0 or self.unread <= UNFINISHED_MAX

    def rejected(self, link: ClientConnection, rejection: Rejection) -> None:
        """Counted by what was wrong; the first of each kind is logged for the operator, unless a stranger sent it."""
        self.rejections[rejection.field] += 1
        if self.rejections[rejection.field] == 1 and link.process is not None:
            log.warning("session %s sent what cannot be read (%s): %s", link, rejection.field, rejection.why)

    def turned_away(self, link: SessionLink, why: str) -> None:
        """A stranger. Any number may come: one line a minute says how many did, and what was wrong with the last."""
        if times := self._strangers.due():
            log.warning("%s turned away (%d since this was last logged): %s", link.origin, times, why)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def close(self, why: str = "the node is going down") -> None:
        """Say Goodbye to every client and wait, but not for long, until they have read it."""
        if self._closed:
            return
        self._closed = True
        self._listeners.close()
        for link in list(self._links):
            link.refuse(why)
        self._flush()
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        await self._wait_for_links()

    async def _wait_for_links(self) -> None:
        self._empty.clear()
        try:
            async with asyncio.timeout(self.patience.linger_s):
                while self._links:
                    await self._empty.wait()
                    self._empty.clear()
        except TimeoutError:
            for link in list(self._links):
                link.abort()
