"""Replicas on embedded nodes on loopback: a node and a directory for each, which come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import transis
from tests.embed.party import Cluster, until
from transis import Connection, Node, ReplicaLog
from transis.types.errors import ConnectError

PATIENCE_S = 60.0
"""Longer than any story takes, even on a machine that does a lot besides."""
NAMES = ("ann", "bob", "cyd")


class Site:
    def __init__(self, directory: Path, names: Sequence[str] = NAMES, engine: str = "totem", **settings: Any) -> None:
        self.names = tuple(names)
        self.directory = directory
        self.cluster = Cluster(directory, engine)
        self.settings = settings
        self.nodes: dict[str, Node] = {}
        self.things: dict[str, object] = {}
        self.logs: dict[str, ReplicaLog[bytes]] = {}

    async def start_node(self, name: str) -> None:
        self.nodes[name] = await self.cluster.node(name, **self.settings).open()

    async def end_node(self, name: str) -> None:
        await self.nodes.pop(name).leave()

    def connect(self, name: str) -> Connection[bytes]:
        if name not in self.nodes:
            raise ConnectError(f"the node {name} is down")
        return self.nodes[name].connect()

    def log_directory(self, name: str) -> Path:
        return self.directory / f"log of {name}"

    async def open_log(self, name: str, **more: Any) -> ReplicaLog[bytes]:
        arguments = {"replicas": self.names, "directory": self.log_directory(name), **more}
        opening = transis.replica("accounts", me=name, connect=lambda: self.connect(name), **arguments)
        log: ReplicaLog[bytes] = await opening.open()
        self.logs[name] = log
        return log

    async def open_machine(self, name: str, thing: object, **more: Any) -> Any:
        self.things[name] = thing
        return await self.open_log(name, machine=thing, **more)

    async def start_machines(self, make: Callable[[], object]) -> list[Any]:
        for name in self.names:
            await self.start_node(name)
        return [await self.open_machine(name, make()) for name in self.names]

    async def close_log(self, name: str) -> None:
        await self.logs.pop(name).close()

    async def start(self) -> list[ReplicaLog[bytes]]:
        for name in self.names:
            await self.start_node(name)
        return [await self.open_log(name) for name in self.names]

    async def start_with(self, **directories: Path) -> list[ReplicaLog[bytes]]:
        """Some have their logs elsewhere."""
        for name in self.names:
            await self.start_node(name)
        return [await self.open_log(name, directory=directories.get(name, self.log_directory(name))) for name in self.names]

    async def end(self) -> None:
        for log in self.logs.values():
            await log.close()
        for node in self.nodes.values():
            await node.leave()


def tell(
    directory: Path,
    story: Callable[[Site], Awaitable[None]],
    names: Sequence[str] = NAMES,
    engine: str = "totem",
    **settings: Any,
) -> None:
    async def run() -> None:
        site = Site(directory, names, engine, **settings)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await story(site)
        finally:
            await site.end()

    asyncio.run(run())


async def read(log: ReplicaLog[bytes], count: int, after: int | None = None) -> list[tuple[int, str, bytes]]:
    """The next messages, waited for."""
    found: list[tuple[int, str, bytes]] = []
    async for entry in log.read(after):
        found.append((entry.offset, entry.creator, entry.data))
        if len(found) == count:
            break
    return found


async def until_primary(*logs: ReplicaLog[bytes]) -> None:
    await until(lambda: all(log.status().is_primary for log in logs))
