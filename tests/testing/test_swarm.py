"""Clients that come, talk and go on clusters that crash, pause and come apart: everything is judged, and everything settles.

Written as somebody else would write it: with the fixture, the public names and nothing else.
"""

from __future__ import annotations

import asyncio

import pytest

from transis import Message, Service, Session
from transis.testing import Cluster, Clusters
from transis.types.config import ENGINES
from transis.types.errors import ConnectError, SessionLost

GROUPS = ("g", "h", "k")
SERVICES = tuple(Service)


async def live(c: Cluster, name: str) -> None:
    """One process after the other, on a node that may be gone."""
    while True:
        try:
            async with c.connect(name) as session:
                await visit(c, session)
        except (SessionLost, ConnectError):
            await c.run_for(0.02)


async def visit(c: Cluster, session: Session[bytes]) -> None:
    """Join some groups for a while; answer a few of the messages, and every few views say something."""
    drawn = c.random
    try:
        async with asyncio.timeout(drawn.between(1, 400) / 1000), session.join(*drawn.some(GROUPS, drawn.between(1, 3))) as group:
            async for event in group:
                if isinstance(event, Message) and drawn.chance(50):
                    await group.send(bytes(drawn.between(0, 3000)), drawn.pick(SERVICES))
                elif not isinstance(event, Message) and drawn.chance(400):
                    await session.send(drawn.some(GROUPS, 2), b"to whom it may concern", drawn.pick(SERVICES))
    except TimeoutError:
        pass


def strike(c: Cluster) -> None:
    drawn = c.random
    name = drawn.pick(c.names)
    what = drawn.pick(("partition", "heal", "crash", "restart", "pause", "resume", "leave", "lossy"))
    if what == "partition":
        c.partition(drawn.some(c.names, drawn.between(1, len(c.names) - 1)))
    elif what == "heal":
        c.heal()
    elif what == "lossy":
        c.lossy(drawn.pick((0, 0.01, 0.1)))
    elif (name in c.alive) is (what != "restart"):
        getattr(c, what)(name)


def make_peace(c: Cluster) -> None:
    c.heal()
    c.lossy(0)
    for name in c.names:
        (c.resume if name in c.alive else c.restart)(name)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(8))
async def test_swarm(cluster: Clusters, seed: int, engine: str) -> None:
    c = cluster(4, seed=seed, quorum="abc", engine=engine)
    clients = [asyncio.create_task(live(c, name)) for name in 2 * c.names]
    for _ in range(8):
        await c.run_for(c.random.stretched(1_000, 200_000) / 1e6)
        strike(c)
    make_peace(c)
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)
    assert all(client.cancelled() for client in clients)
    await c.settle()
    verdicts = c.check().verdicts
    assert verdicts["group_order"].checked > 0
    assert [name for name, verdict in verdicts.items() if verdict.verdict == "pending"] == []
