"""The mode `transis` on real sockets: somebody sends all the time while a third node comes and goes; messages flow through, and
some are delivered before the change is over.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import transis
from tests.embed.party import PATIENCE_S, Cluster, together
from transis.audit.guarantees import check
from transis.trace.reader import read_history

BATCH = 20
END = b"end"


async def both_there(group: transis.Group[bytes]) -> None:
    async for event in group:
        if isinstance(event, transis.View) and len(event.members) == 2:
            return


async def come_and_go(cluster: Cluster, ann: transis.Node, bob: transis.Node, order: str) -> None:
    """A third node comes and goes, again until both delivered in a change: on loopback one may be over before anybody sends."""
    while not all([(await node.statistics())["delivered_in_changes"] for node in (ann, bob)]):
        async with cluster.node("cid", mode="transis", order=order) as cid:
            await together(ann, bob, cid)
        await together(ann, bob)


async def send_through(group: transis.Group[bytes], guest: asyncio.Task[None]) -> list[bytes]:
    """A batch is always on its way, until nobody comes or goes any more."""
    sent: list[bytes] = []
    while not guest.done():
        batch = [str(len(sent) + number).encode() for number in range(BATCH)]
        await (await group.send_many(batch))
        sent += batch
    await guest
    await (await group.send(END))
    return sent


async def received(group: transis.Group[bytes]) -> list[bytes]:
    found: list[bytes] = []
    async for event in group:
        if isinstance(event, transis.Message):
            if event.data == END:
                break
            found.append(event.data)
    return found


@pytest.mark.parametrize(("order", "promises"), [("all-ack", "transis"), ("toto", "toto")])
def test_messages_flow_while_a_third_node_comes_and_goes(tmp_path: Path, order: str, promises: str) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path, "lansis")
        traced = {"mode": "transis", "order": order, "trace": tmp_path / "traces"}
        async with cluster.node("ann", **traced) as ann, cluster.node("bob", **traced) as bob, asyncio.timeout(PATIENCE_S):
            await together(ann, bob)
            async with ann.connect() as here, bob.connect() as there, here.join("flow") as out, there.join("flow") as back:
                await asyncio.gather(both_there(out), both_there(back))
                guest = asyncio.create_task(come_and_go(cluster, ann, bob, order))
                sent, *heard = await asyncio.gather(send_through(out, guest), received(out), received(back))
                assert heard == [sent, sent]

    asyncio.run(story())
    history = read_history(tmp_path / "traces")
    assert history.promises == promises
    assert check(history).violations == ()
