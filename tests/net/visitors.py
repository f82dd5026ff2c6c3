"""A node with a session server on real sockets, and clients that speak frames and nothing more."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from tests.net.party import PATIENCE_S, loopback
from transis.net.driver import Driver
from transis.net.interfaces import configured_endpoint
from transis.net.session_server import Patience, SessionServer
from transis.net.state import StateDirectory
from transis.net.transport import MeshTransport, StatisticsDict
from transis.sessions.frames import (
    NODE_FRAMES,
    SESSION_VERSION,
    Changed,
    ClientFrame,
    FrameReader,
    Goodbye,
    Hello,
    Join,
    NodeFrame,
    Send,
    Stream,
    Welcome,
    encode_frame,
)
from transis.sessions.host import SessionHost, SessionPolicy
from transis.sessions.sealed import SealedStream
from transis.types.config import LOCAL, Config
from transis.types.errors import Rejection
from transis.types.ids import Service
from transis.types.outputs import News
from transis.types.views import Address, group_id
from transis.wire.items import encode_address

PLENTY = 1 << 30
KEY = bytes(range(32))


class House:
    """One node alone, started, with its server."""

    def __init__(
        self,
        directory: Path,
        policy: SessionPolicy | None = None,
        patience: Patience | None = None,
        statistics: Callable[[], StatisticsDict] | None = None,
    ) -> None:
        config = Config(name="ann", timing=LOCAL, plaintext=True)
        transport = MeshTransport(loopback(), config, None)
        state = StateDirectory(directory / "state", "ann")
        self.path = directory / "s"
        self.then: Callable[[Sequence[News]], object] = lambda events: None
        self.driver = Driver(config, transport, state, self._hear)
        self.host = SessionHost(self.driver.node, "tests", policy, statistics or self.driver.statistics)
        self.server = SessionServer(self.driver, self.host, patience or Patience(linger_s=0.2))

    def _hear(self, events: Sequence[News]) -> None:
        self.server.hear(events)
        self.then(events)

    async def __aenter__(self) -> House:
        self.driver.start()
        await self.server.listen_unix(self.path)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.server.close()
        self.driver.close()

    async def listen_tcp(self) -> int:
        """On a port that the system chose, like any program that must not collide."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        _, listening = await self.server.listen_tcp(configured_endpoint("tcp", f"127.0.0.1:{port}"), KEY)
        return listening

    async def visit(self, credit: int = PLENTY) -> Visitor:
        visitor = await self.stranger()
        await visitor.greet(credit)
        return visitor

    async def stranger(self) -> Visitor:
        return Visitor(*await asyncio.open_unix_connection(str(self.path), limit=1 << 20))

    async def sealed(self, port: int, key: bytes = KEY) -> Visitor:
        visitor = Visitor(*await asyncio.open_connection("127.0.0.1", port))
        await visitor.exchange_greetings(SealedStream(key, os.urandom(32), is_client=True))
        return visitor


class Visitor:
    """`frames` is everything the node said. It reads only while it waits for something."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.frames: list[NodeFrame] = []
        self.rejection: Rejection | None = None
        self.closed = False
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader(NODE_FRAMES)
        self._seal: SealedStream | None = None

    async def greet(self, credit: int = PLENTY) -> None:
        self.say(Hello(SESSION_VERSION, "visitor", credit))
        await self.until(lambda: bool(self.frames) or self.closed)

    async def exchange_greetings(self, seal: SealedStream) -> None:
        self._seal = seal
        self._writer.write(seal.greeting)
        await self.until(lambda: seal.is_open or self.closed)
        self.write(seal.seal(b""))

    @property
    def process(self) -> int:
        welcome = self.frames[0]
        assert isinstance(welcome, Welcome)
        return welcome.process.number

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def say(self, *frames: ClientFrame) -> None:
        data = b"".join(map(encode_frame, frames))
        self.write(data if self._seal is None else self._seal.seal(data))

    def send(self, group: str, *payloads: bytes) -> None:
        self.say(Send(encode_address(Address((group_id(group),))), Service.AGREED, list(payloads), 0))

    async def join(self, *names: str) -> None:
        self.say(*map(Join, names))
        await self.until(lambda: {frame.view.name for frame in self.frames if isinstance(frame, Changed)} >= set(names))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                assert not self.closed, f"closed before that; the last was {self.frames[-1:]}"
                await self._read()

    async def _read(self) -> None:
        try:
            data = await self._reader.read(1 << 18)
        except ConnectionError:
            data = b""
        if not data:
            self.closed = True
            return
        opened = data if self._seal is None else self._seal.feed(data)
        if isinstance(opened, Rejection):
            self.rejection = opened
            return
        read = self._frames.feed(opened)
        assert not isinstance(read, Rejection), "a node speaks well"
        self.frames += read

    async def until_closed(self) -> list[str]:
        """Read to the end; the reasons that were given for it."""
        await self.until(lambda: self.closed)
        self.close()
        return [frame.why for frame in self.frames if isinstance(frame, Goodbye)]

    def payloads(self) -> list[bytes]:
        return [data for frame in self.frames if isinstance(frame, Stream) for data in frame.payloads]

    def views(self, name: str) -> list[list[int]]:
        """The process numbers of each view of a group."""
        found = [frame.view for frame in self.frames if isinstance(frame, Changed) and frame.view.name == name]
        return [[member.number for member in view.members] for view in found]

    def shut(self) -> None:
        """Say nothing more; what comes is still read."""
        self._writer.write_eof()

    def reset(self) -> None:
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()
