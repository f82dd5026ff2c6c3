"""A node in a process beside the program: not even a program that holds the interpreter's lock for seconds stops it.

1. The child reads its settings from a pipe, and its sessions come over a Unix socket in a directory that only this user may
   enter. Socket and directory are removed when the node ends.
2. The child ends with the program (child.py, rule 1). The end of the child, expected or not, is seen as the end of its pipe.
3. Everything but sessions is lines of JSON on two pipes. Down: first BeginNode, then AskStatistics and LeaveNode. Up: NodeOpened
   once, then NodeViewed and NodeStatistics, and finally one NodeEnded. When the pipe down closes, the program is gone, and the
   node leaves.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import Process, SubprocessStreamProtocol
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from transis.client.link import Link, link_to_unix
from transis.net.transport import StatisticsDict
from transis.process.fork import descriptors_of, stays_here
from transis.settings.schema import Settings
from transis.types.errors import ConfigError, IdentityError, NodeLost, TransisError, plainly
from transis.types.ids import NodeId
from transis.types.views import View

# --- lines ------------------------------------------------------------------------------------------------------------

LINE_MAX: Final = 1 << 22
"""The most bytes in one line; a view of the largest ring takes a tenth of it."""


class _PipeLine(msgspec.Struct, frozen=True, tag=True):
    """One line."""


class BeginNode(_PipeLine, frozen=True):
    """`parent` is the process that wants the node, `socket` where it will find its sessions."""

    settings: Settings
    parent: int
    socket: str


class AskStatistics(_PipeLine, frozen=True):
    number: int


class LeaveNode(_PipeLine, frozen=True):
    pass


class NodeOpened(_PipeLine, frozen=True):
    node: NodeId


class NodeViewed(_PipeLine, frozen=True):
    view: View


class NodeStatistics(_PipeLine, frozen=True):
    number: int
    figures: dict[str, int | str]


class NodeEnded(_PipeLine, frozen=True):
    """`error` is the name of the error that ended it, or nothing if it left; `field` is that of a ConfigError."""

    why: str
    error: str = ""
    field: str = ""


Down = BeginNode | AskStatistics | LeaveNode
Up = NodeOpened | NodeViewed | NodeStatistics | NodeEnded

_encoder: Final = msgspec.json.Encoder()
_down: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(Down)
_up: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(Up)


def encode_line(line: Down | Up) -> bytes:
    return _encoder.encode(line) + b"\n"


def decode_down(line: bytes) -> Down:
    decoded: Down = _down.decode(line)
    return decoded


def decode_up(line: bytes) -> Up:
    decoded: Up = _up.decode(line)
    return decoded


def ended_by(error: Exception) -> NodeEnded:
    return NodeEnded(plainly(error), type(error).__name__, error.field if isinstance(error, ConfigError) else "")


def error_of(ended: NodeEnded) -> TransisError:
    """The child's error as the program sees it."""
    if ended.error == "IdentityError":
        return IdentityError(ended.why)
    if ended.error == "ConfigError":
        error = ConfigError(ended.field, None, "")
        error.args = (ended.why,)
        return error
    return NodeLost(f"the node's process failed: {ended.error}: {ended.why}")


# --- the program's side -----------------------------------------------------------------------------------------------

COMMAND: Final = (sys.executable, "-P", "-m", "transis.embed.child")
"""-P: a module in the current directory must not be imported in place of the real one."""
PACKAGES: Final = Path(__file__).resolve().parents[2]
"""Where this package was found, so that the child finds the same one."""
TEMPORARY_BYTES_MAX: Final = 70
"""The longest path of a directory, in bytes, below which the path of the socket stays within the kernel's limit of 107."""
LEAVE_SECONDS: Final = 15.0
"""A child that still runs this long after it was asked to leave is killed. A leave takes about a second."""


class ChildNode:
    def __init__(self, settings: Settings) -> None:
        self.view: View | None = None
        self._settings = settings
        self._name = settings.node.name
        self._directory = ""
        self._process: Process | None = None
        self._child: asyncio.SubprocessTransport
        self._listening: asyncio.Task[None] | None = None
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[StatisticsDict]] = {}

    async def start(self) -> NodeId:
        """Start the child and wait for its first view; raises what went wrong."""
        loop = asyncio.get_running_loop()
        self._id: asyncio.Future[NodeId] = loop.create_future()
        self._end: asyncio.Future[str] = loop.create_future()
        self._directory = tempfile.mkdtemp(prefix="transis-node-", dir=_place_for_a_socket())
        try:
            self._process = await self._begin(loop)
            self._listening = asyncio.create_task(self._listen(self._process))
            self._send(BeginNode(self._settings, os.getpid(), self._socket))
            return await asyncio.shield(self._id)
        except BaseException:
            await self._give_up()
            raise

    async def _begin(self, loop: asyncio.AbstractEventLoop) -> Process:
        """Like create_subprocess_exec, which keeps the transports to itself."""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(_paths())}
        self._child, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(LINE_MAX, loop), *COMMAND, stderr=None, env=environment
        )
        stays_here(self)
        return Process(self._child, protocol, loop)

    def descriptors(self) -> list[int]:
        """The pipes, of which the child must see the end when this process is gone."""
        return [one for pipe in (0, 1) for one in descriptors_of(self._child.get_pipe_transport(pipe))]

    async def link(self) -> Link:
        self._require_life()
        return await link_to_unix(self._socket)

    async def statistics(self) -> StatisticsDict:
        self._require_life()
        number = next(self._numbers)
        future: asyncio.Future[StatisticsDict] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            self._send(AskStatistics(number))
            return await future
        finally:
            del self._asked[number]

    async def leave(self) -> None:
        """Leave gracefully; the child has ended when this returns."""
        assert self._listening is not None, "only a node that has started leaves"
        self._send(LeaveNode())
        done, _ = await asyncio.wait({self._listening}, timeout=LEAVE_SECONDS)
        if not done:
            await self._give_up()

    async def ended(self) -> str:
        return await asyncio.shield(self._end)

    @property
    def failure(self) -> BaseException | None:
        return self._end.exception() if self._end.done() else None

    @property
    def pid(self) -> int:
        assert self._process is not None, "an embedded node is handed out when it has started"
        return self._process.pid

    # --- the child --------------------------------------------------------------------------------------------------

    @property
    def _socket(self) -> str:
        return os.path.join(self._directory, "sessions.sock")

    def _send(self, line: Down) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(encode_line(line))

    async def _listen(self, process: Process) -> None:
        assert process.stdout is not None
        ended: NodeEnded | None = None
        while line := await process.stdout.readline():
            heard = decode_up(line)
            if isinstance(heard, NodeEnded):
                ended = heard
            else:
                self._hear(heard)
        code = await process.wait()
        if ended is None:
            self._over(NodeLost(f"the node's process {_how_it_ended(code)}"))
        else:
            self._over(error_of(ended) if ended.error else None, ended.why)

    def _hear(self, heard: Up) -> None:
        match heard:
            case NodeOpened(node) if not self._id.done():
                self._id.set_result(node)
            case NodeViewed(view):
                self.view = view
            case NodeStatistics(number, figures) if number in self._asked and not self._asked[number].done():
                self._asked[number].set_result(figures)
            case _:
                pass

    def _over(self, failure: TransisError | None, why: str = "") -> None:
        """Complete every wait. A node that ends before its first view has failed to start."""
        reason = failure or NodeLost(f"the node {self._name} has ended: {why}")
        waiting: list[asyncio.Future[Any]] = [self._id, *self._asked.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(reason)
        if failure is not None:
            self._end.set_exception(failure)
        else:
            self._end.set_result(why)
        for kept in (self._id, self._end):
            kept.exception()  # Retrieve it: the program may never ask, and asyncio would warn.
        shutil.rmtree(self._directory, ignore_errors=True)

    async def _give_up(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        if self._listening is not None:
            await asyncio.wait({self._listening})
        shutil.rmtree(self._directory, ignore_errors=True)

    def _require_life(self) -> None:
        if self._end.done():
            raise NodeLost(f"the node {self._name} has ended: {self._end.exception() or self._end.result()}")


def _paths() -> list[str]:
    before = os.environ.get("PYTHONPATH", "")
    return [str(PACKAGES), *([before] if before else [])]


def _how_it_ended(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code} without giving a reason"


def _place_for_a_socket() -> str:
    """The usual directory for temporary files, or /tmp if a Unix socket below it would have too long a path."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= TEMPORARY_BYTES_MAX else "/tmp"
