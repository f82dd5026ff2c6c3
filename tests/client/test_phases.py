"""In which configuration a message was delivered, and so who is known to have it: the members of the view that it was sent in
(regular), or only those that go on together (transitional). The same for receipts, messages and batches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from transis import Batch, Confirmation, Group, Message, Service, Session, View
from transis.testing import Cluster, Clusters
from transis.trace.events import NodeTrace, Sent
from transis.types.config import ENGINES
from transis.types.ids import ProcessId


async def first_message(group: Group[bytes]) -> Message[bytes]:
    async for event in group:
        if isinstance(event, Message):
            return event
    raise AssertionError("the stream has ended")


async def first_batch(group: Group[bytes]) -> Batch[bytes]:
    async for event in group.batches():
        if isinstance(event, Batch):
            return event
    raise AssertionError("the stream has ended")


async def until_placed(c: Cluster, process: ProcessId) -> None:
    """Wait until a message of this process has its place, and has hardly left its node."""
    while process not in {ProcessId(trace.node, one.process) for trace in c.history().nodes for one in placed(trace)}:
        await c.run_for(0.00001)


def placed(trace: NodeTrace) -> Iterator[Sent]:
    return (event for event in trace.events if isinstance(event, Sent))


async def all_members(group: Group[bytes], count: int) -> None:
    async for event in group:
        if isinstance(event, View) and len(event.members) == count:
            return


@pytest.mark.parametrize("engine", ENGINES)
async def test_in_a_regular_configuration_every_member_has_it(cluster: Clusters, engine: str) -> None:
    c = cluster(3, seed=3, engine=engine)
    async with c.connect("a") as ann, c.connect("b") as bob, ann.join("g") as sent, bob.join("g") as read:
        receipt = await sent.send(b"safe", Service.SAFE)
        confirmation = await receipt
        assert isinstance(confirmation, Confirmation)
        assert (confirmation.phase, confirmation.view.is_regular, len(confirmation.views)) == ("regular", True, 1)
        here, there = await first_message(sent), await first_batch(read)
        assert (here.phase, there.phase) == ("regular", "regular")
        assert here.view == there.view == there[0].view == confirmation.view
        assert receipt.confirmation() == await receipt, "asked again, it says the same"


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_partition_between_send_and_delivery_gives_a_transitional_confirmation(cluster: Clusters, engine: str) -> None:
    """The network parts when the message has its place and before anybody acknowledges it. The sender learns that only those that
    stayed with it have it; those that are gone have it or not, and nobody here can say."""
    c = cluster(3, seed=3, engine=engine)
    async with c.connect("a") as ann, c.connect("b") as bob, ann.join("g") as sent, bob.join("g") as read:
        await asyncio.gather(all_members(sent, 2), all_members(read, 2))
        before = sent.view
        receipt = await sent.send(b"safe", Service.SAFE)
        await until_placed(c, ann.process)
        c.partition("a", "bc")
        confirmation = await receipt
        assert before is not None
        assert (confirmation.phase, confirmation.view.is_regular, receipt.outcome) == ("transitional", False, "delivered")
        changed = await anext(sent)
        assert isinstance(changed, View)
        assert (changed.id.configuration, changed.members) == (confirmation.view, (ann.process,)), "these members have it"
        message = await first_message(sent)
        assert (message.phase, message.view) == ("transitional", confirmation.view)
        await apart(ann, sent)


async def apart(session: Session[bytes], group: Group[bytes]) -> None:
    """In the next regular configuration messages are confirmed again by all of it."""
    after = await (await group.send(b"alone", Service.SAFE))
    assert (after.phase, session.closed) == ("regular", False)
