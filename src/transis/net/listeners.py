"""Where clients come in: listening sockets, Unix and TCP, and the connections that are on their way in.

1. A socket file that nobody listens on is replaced; one with a living server behind it is not.
2. A few clients are accepted in each turn of the loop. If none can be accepted for want of descriptors, it is tried again soon.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from transis.net.interfaces import Endpoint
from transis.types.errors import ConfigError, plainly

log: Final = logging.getLogger("transis.sessions")

# --- all ways in ------------------------------------------------------------------------------------------------------

NewLink = Callable[[], asyncio.BaseProtocol]
"""Makes what serves one connection."""


class Listeners:
    """The listening sockets of a node. What is accepted becomes a connection of the running loop."""

    def __init__(self) -> None:
        self._doors: list[Doorkeeper] = []
        self._paths: dict[str, int] = {}
        self._entering: set[asyncio.Task[Any]] = set()
        self._full_up = Rarely()

    def open_unix(self, path: str, mode: int, link: NewLink) -> None:
        """`mode` says which users of this machine may connect."""
        listening = bind_unix(path, mode)
        self._paths[path] = os.stat(path).st_ino
        self._open(listening, link)

    def open_tcp(self, endpoint: Endpoint, link: NewLink) -> tuple[str, int]:
        """Returns where it listens, since the port may be the system's choice."""
        address, port = endpoint.for_socket()[:2]
        try:
            family = socket.AF_INET if endpoint.host.version == 4 else socket.AF_INET6
            listening = socket.create_server((address, port), family=family)
        except OSError as error:
            raise ConfigError("sessions.tcp", str(endpoint), f"nobody can listen there: {plainly(error)}") from None
        host, chosen = listening.getsockname()[:2]
        self._open(listening, link)
        return host, chosen

    def _open(self, listening: socket.socket, link: NewLink) -> None:
        self._doors.append(Doorkeeper(listening, lambda connection: self._let_in(connection, link), self._full))

    def _let_in(self, connection: socket.socket, link: NewLink) -> None:
        loop = asyncio.get_running_loop()
        entering = loop.create_task(loop.connect_accepted_socket(link, connection))
        self._entering.add(entering)
        entering.add_done_callback(self._entered)

    def _entered(self, entering: asyncio.Task[Any]) -> None:
        self._entering.discard(entering)
        if not entering.cancelled() and (failure := entering.exception()) is not None:
            log.debug("a client was gone before it was let in: %s", failure)

    def _full(self, error: OSError) -> None:
        if self._full_up.due():
            log.warning("no client can be accepted for a while: %s", plainly(error))

    def descriptors(self) -> list[int]:
        listening = (door.fileno() for door in self._doors)
        return [one for one in listening if one >= 0]

    def close(self) -> None:
        for door in self._doors:
            door.close()
        for path, inode in self._paths.items():
            unlink_own(path, inode)


# --- one listening socket ---------------------------------------------------------------------------------------------

BACKLOG: Final = 1024
"""Clients that the kernel lets wait until they are accepted."""
ACCEPTED_AT_ONCE: Final = 8
"""Of these so many are accepted in one turn of the loop: each costs a good deal of it."""
AGAIN_S: Final = 1.0
"""A machine or process that has no descriptor left is asked again after so long."""


class Doorkeeper:
    """Accepts at one listening socket, a few at a time. `full` is called with the reason when nobody can be accepted for a
    while."""

    def __init__(
        self, listening: socket.socket, accepted: Callable[[socket.socket], None], full: Callable[[OSError], None]
    ) -> None:
        self._listening = listening
        self._accepted = accepted
        self._full = full
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._wait()

    def _wait(self) -> None:
        self._again = None
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._loop.remove_reader(self._listening.fileno())
                self._again = self._loop.call_later(AGAIN_S, self._wait)
                self._full(error)
                return
            connection.setblocking(False)
            self._accepted(connection)

    def fileno(self) -> int:
        return self._listening.fileno()

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()


# --- Unix sockets -----------------------------------------------------------------------------------------------------

UNIX_PATH_MAX: Final = 107
"""Bytes of a socket's path: the kernel has room for 108 with the end mark."""


def bind_unix(path: str, mode: int) -> socket.socket:
    """A socket that listens at this path, with these permissions from its first moment."""
    size = len(os.fsencode(path))
    if size > UNIX_PATH_MAX:
        raise ConfigError("sessions.socket", path, f"the path of a socket has at most {UNIX_PATH_MAX} bytes, this has {size}")
    _make_way(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), mode)  # Linux makes the file with this mode, less the umask.
        listener.bind(path)
        os.chmod(path, mode)
    except OSError as error:
        listener.close()
        raise ConfigError("sessions.socket", path, f"nobody can listen there: {error.strerror or error}") from None
    return listener


def _make_way(path: str) -> None:
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError("sessions.socket", path, f"cannot be looked at: {error.strerror}") from None
    if not stat.S_ISSOCK(kind):
        raise ConfigError("sessions.socket", path, "there is a file that is no socket: remove it or choose another path")
    if _is_alive(path):
        raise ConfigError("sessions.socket", path, "another server listens there: stop it or choose another path")
    os.unlink(path)


def _is_alive(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError:
            return True  # It is busy, or we may not connect: if in doubt, it is alive.
    return True


def unlink_own(path: str, inode: int) -> None:
    """Remove our socket file, unless another process has replaced it."""
    with suppress(OSError):
        if os.stat(path).st_ino == inode:
            os.unlink(path)


# --- connections ------------------------------------------------------------------------------------------------------

KEEPALIVE: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 40_000}
"""Where the system has these options: a peer that answers nothing for 40 s counts as gone."""


def notice_dead_peers(connection: socket.socket) -> None:
    """Notice machines that lost power: otherwise their clients would stay in their groups forever."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


LOGGED_AGAIN_S: Final = 60.0


class Rarely:
    """For the log: what may happen often is told at most once a minute, with a count."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._times = 0
        self._again_at = -math.inf

    def due(self) -> int:
        """It happened once more; how often since this was last logged, or 0 if it is too early for another line."""
        self._times += 1
        now = self._clock_s()
        if now < self._again_at:
            return 0
        times, self._times, self._again_at = self._times, 0, now + LOGGED_AGAIN_S
        return times
