"""Frames between a session and its node: what a Link is, and the one over sockets.

1. `send` never waits: the credit for Sends bounds what may be on its way, and all other frames are small and rare.
2. `on_frames` and `on_lost` run in the session's event loop. `on_lost` comes once, and nothing comes after it.
3. The frame reader checks what a node sends. Anything malformed ends the link, with a sentence that says why.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from transis.process.fork import descriptors_of, stays_here
from transis.sessions.frames import NODE_FRAMES, ClientFrame, FrameReader, NodeFrame, encode_frame
from transis.sessions.sealed import RANDOM_SIZE, SealedStream
from transis.types.errors import ConnectError, Rejection, UsageError
from transis.types.paths import find_socket, socket_candidates

CONNECT_SECONDS: Final = 10.0
"""How long a node may take to answer before it counts as absent."""
PORT_MAX: Final = 65_535

OnFrames = Callable[[list[NodeFrame]], None]
OnLost = Callable[[str], None]


class Link(Protocol):
    """`peer` describes the other end for people."""

    @property
    def peer(self) -> str: ...

    def start(self, on_frames: OnFrames, on_lost: OnLost) -> None: ...

    def send(self, frames: Sequence[ClientFrame]) -> None: ...

    def wall_us(self) -> int:
        """The wall clock where the session runs, in microseconds since 1970; virtual where time is virtual."""
        ...

    async def close(self) -> None:
        """Flush what was sent, then wait for the connection to close, but not for long."""
        ...


def wall_clock_us() -> int:
    return time.time_ns() // 1_000


class SocketLink(asyncio.Protocol):
    """A link over a Unix socket, or over TCP and then sealed."""

    def __init__(self, peer: str, seal: SealedStream | None = None) -> None:
        self._peer = peer
        self._seal = seal
        self._reader = FrameReader(NODE_FRAMES)
        self._transport: asyncio.Transport | None = None
        self._on_frames: OnFrames | None = None
        self._on_lost: OnLost | None = None
        self._early: list[bytes] = []
        self._unsealed: list[bytes] = []
        self._lost = ""
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stays_here(self)

    @property
    def peer(self) -> str:
        return self._peer

    # --- the session's side -----------------------------------------------------------------------------------------

    def start(self, on_frames: OnFrames, on_lost: OnLost) -> None:
        self._on_frames, self._on_lost = on_frames, on_lost
        early, self._early = self._early, []
        for data in early:
            self.data_received(data)
        if self._lost:
            on_lost(self._lost)

    def send(self, frames: Sequence[ClientFrame]) -> None:
        self._write(b"".join(map(encode_frame, frames)))

    wall_us = staticmethod(wall_clock_us)

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            await asyncio.wait({self._gone}, timeout=1.0)
            self._transport.abort()

    # --- the socket's side ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it.
        if self._seal is not None:
            self._transport.write(self._seal.greeting)

    def data_received(self, data: bytes) -> None:
        if self._on_frames is None:
            self._early.append(data)
            return
        if self._seal is not None:
            opened = self._unseal(self._seal, data)
            if isinstance(opened, Rejection):
                self._end(opened.why)
                return
            data = opened
        frames = self._reader.feed(data)
        if isinstance(frames, Rejection):
            self._end(f"it sent something that cannot be read: {frames.why}")
        elif frames and not self._lost:
            self._on_frames(frames)

    def _unseal(self, seal: SealedStream, data: bytes) -> bytes | Rejection:
        was_open = seal.is_open
        opened = seal.feed(data)
        if seal.is_open and not was_open and self._transport is not None:
            waiting, self._unsealed = self._unsealed, []
            self._transport.write(seal.seal(b"") + b"".join(map(seal.seal, waiting)))
        return opened

    def _write(self, data: bytes) -> None:
        if self._transport is None or self._lost:
            return
        if self._seal is None:
            self._transport.write(data)
        elif self._seal.is_open:
            self._transport.write(self._seal.seal(data))
        else:
            self._unsealed.append(data)

    def descriptors(self) -> list[int]:
        return [] if self._gone.done() else descriptors_of(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._gone.done():
            self._gone.set_result(None)
        self._end(f"the connection broke ({error})" if error is not None else "it closed the connection")

    def _end(self, why: str) -> None:
        if self._lost:
            return
        is_stranger = self._seal is not None and not self._seal.is_confirmed
        self._lost = f"{why} (is the key the same on both sides?)" if is_stranger else why
        if self._transport is not None:
            self._transport.close()
        if self._on_lost is not None:
            self._on_lost(self._lost)


async def link_to_unix(path: str | None) -> SocketLink:
    """Connect to the node that listens at `path`, or at the usual places (types/paths.py)."""
    tried = (path,) if path is not None else socket_candidates(os.environ)
    found = path if path is not None else find_socket(os.environ, os.path.exists)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, link = await loop.create_unix_connection(lambda: SocketLink(f"the node at {found}"), found or tried[0])
    except PermissionError as error:
        raise ConnectError(f"this user may not connect to {found}: ask for membership of the group that owns it") from error
    except (OSError, TimeoutError) as error:
        if found is None:
            raise ConnectError(f"no node listens here: looked for {' and '.join(tried)}; {_START}") from error
        raise ConnectError(f"no node listens at {found} ({_reason(error)}); {_START}") from error
    return link


async def link_to_host(host: str, key: bytes | None) -> SocketLink:
    """`host` is "name:port". A session over the network is always sealed."""
    name, separator, port = host.rpartition(":")
    if not separator or not name or not (port.isascii() and port.isdigit()):
        raise UsageError(f"host = {host!r}: give it as name:port")
    if not 1 <= int(port) <= PORT_MAX:
        raise UsageError(f"host = {host!r}: the port must be 1 to {PORT_MAX}")
    if key is None:
        raise UsageError("a session over TCP needs the cluster's key: connect(host=..., key=...)")
    seal = SealedStream(key, os.urandom(RANDOM_SIZE), is_client=True)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, link = await loop.create_connection(lambda: SocketLink(f"the node at {host}", seal), name.strip("[]"), int(port))
    except UnicodeError:
        raise UsageError(f"host = {host!r}: this is not a host name") from None
    except (OSError, TimeoutError) as error:
        why = _reason(error)
        raise ConnectError(f"no node listens at {host} ({why}); a daemon listens for TCP where its sessions.tcp says") from error
    return link


def _reason(error: OSError) -> str:
    """The system's own words, without error numbers and tuples."""
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if error.errno is not None and error.errno > 0:  # A name that cannot be resolved has a number below 0.
        return os.strerror(error.errno)
    return error.strerror or str(error)


_START: Final = "start one with `transis up` or `transis daemon`"
