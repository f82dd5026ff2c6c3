"""Embedded nodes for the tests of this room: on loopback, in a group of this process alone, waited for without sleeping."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transis import Batch, Node, Session, View
from transis.net.transport import Group

PATIENCE_S = 30.0
"""Longer than anything takes here, even on a machine that does a lot besides."""

_ports = itertools.count(5510, 2)


def own_group() -> Group:
    """Ports that no other test of this process uses, and a multicast group that no other process uses."""
    port, process = next(_ports), os.getpid()
    return Group(f"239.194.{process >> 8 & 255}.{process & 255}", port, port + 1)


class Cluster:
    """Makes nodes that find each other; each has its state under one directory."""

    def __init__(self, directory: Path, engine: str = "totem") -> None:
        self.directory = directory
        self.engine = engine
        self.group = own_group()

    def node(self, name: str, **more: Any) -> Node:
        return Node(
            name, **{"cluster": "tests", "state": self.directory / name, "group": self.group, "engine": self.engine, **more}
        )


async def until(condition: Callable[[], bool]) -> None:
    """Look again and again: views come in another thread, which tells nobody."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await _a_moment()


async def _a_moment() -> None:
    """Not a wait for something, only a breath between two looks."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.002)


async def together(*nodes: Node) -> None:
    names = sorted(node.name for node in nodes)
    await until(lambda: all(names_of(node) == names for node in nodes))


def names_of(node: Node) -> list[str]:
    view = node.view
    return [] if view is None or not view.id.is_regular else [one.name for one in view.nodes]


async def echo(session: Session[bytes], count: int = 3) -> None:
    """Join a group, send, and see everything come back."""
    async with asyncio.timeout(PATIENCE_S), session.join("echo") as group:
        await (await group.send_many([bytes([number]) for number in range(count)]))
        seen: list[bytes] = []
        async for event in group.batches():
            if isinstance(event, View):
                continue
            assert isinstance(event, Batch)
            seen += event.payloads
            if len(seen) == count:
                break
        assert seen == [bytes([number]) for number in range(count)]
