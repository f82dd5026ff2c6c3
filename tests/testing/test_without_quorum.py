"""Clients of a cluster whose applications go on only with a quorum: without one sends wait or raise, and nothing comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from transis.client import Group, Message, Receipt, Session, Transfer
from transis.testing.cluster import Cluster, Clusters
from transis.types.config import ENGINES
from transis.types.errors import NoQuorum, SendRefused, UsageError
from transis.types.ids import Service

LACKS = "no quorum: 3 of 5 nodes are needed, a e here, b c d missing"


@pytest.fixture(params=ENGINES)
def clusters(request: pytest.FixtureRequest) -> Iterator[Clusters]:
    made = Clusters(engine=request.param)
    yield made
    made.close()


async def until_view(group: Group[bytes], primary: bool, members: int) -> list[bytes]:
    """Read up to a regular view like this; the messages before it."""
    found: list[bytes] = []
    async for event in group:
        if isinstance(event, Message):
            found.append(event.data)
        elif event.id.configuration.is_regular and (event.primary, len(event.members)) == (primary, members):
            return found
    raise AssertionError("the stream ended")


async def messages(group: Group[bytes], count: int) -> list[bytes]:
    found: list[bytes] = []
    async for event in group:
        found += [event.data] if isinstance(event, Message) else []
        if len(found) == count:
            return found
    raise AssertionError("the stream ended")


async def talk_until_held(c: Cluster, session: Session[bytes], group: str) -> list[Receipt]:
    """Messages from the moment of a cut until it is known here that there is no quorum."""
    sent: list[Receipt] = []
    while not session.held:
        sent.append(await session.send(group, b"%d" % len(sent)))
        await c.run_for(0.002)
    return sent


async def is_open(c: Cluster, receipt: Receipt) -> bool:
    await c.run_for(1)
    return receipt.outcome == "pending"


def test_sends_wait_for_a_quorum_and_nothing_comes_before_it(clusters: Clusters) -> None:
    async def story(c: Cluster) -> None:
        async with (
            c.connect("a") as few,
            c.connect("e") as other,
            c.connect("c") as many,
            few.join("red") as mine,
            other.join("red") as beside,
            many.join("red") as theirs,
        ):
            await until_view(mine, True, 3)
            assert few.held == ""
            c.partition("ae", "bcd")
            await until_view(mine, False, 2)
            assert (few.held, many.held) == (LACKS, "")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await mine.send(b"given up")
            waiting = [asyncio.ensure_future(mine.send(b"%d" % number, service)) for number, service in enumerate(Service)]
            private = asyncio.ensure_future(few.send(other.process, b"private"))
            await (await theirs.send(b"of the majority"))
            assert not any(one.done() for one in (*waiting, private))
            c.heal()
            for one in (*waiting, private):
                await (await one)
            assert await until_view(mine, True, 3) == []
            found = await messages(theirs, 4)
            assert found[:1] == [b"of the majority"]
            assert sorted(await messages(beside, 4)) == [b"0", b"1", b"2", b"3"]
            assert (await anext(other.private)).data == b"private"  # type: ignore[union-attr]
            assert few.held == ""

    c = clusters(5, seed=3, quorum="abcde", without_quorum="wait")
    c.run(story(c))


def test_sends_raise_and_say_who_is_missing(clusters: Clusters) -> None:
    async def story(c: Cluster) -> None:
        async with c.connect("a") as few, c.connect("c") as many, few.join("red") as mine, many.join("red") as theirs:
            await until_view(mine, True, 2)
            c.partition("ae", "bcd")
            await until_view(mine, False, 1)
            for send in (mine.send(b"x"), mine.send_many([b"x", b"y"]), few.send(many.process, b"x")):
                with pytest.raises(NoQuorum, match=LACKS):
                    await send
            await (await theirs.send(b"of the majority"))
            async with c.connect("e") as newcomer:
                with pytest.raises(NoQuorum, match=LACKS):
                    await newcomer.send("red", b"x")
            c.heal()
            await until_view(mine, True, 2)
            await (await mine.send(b"again"))
            assert await messages(mine, 1) == [b"again"]

    c = clusters(5, seed=4, quorum="abcde", without_quorum="raise")
    c.run(story(c))


@pytest.mark.parametrize("way", ["wait", "raise"])
def test_what_was_accepted_before_the_cut_waits_in_order_and_its_receipt_ends(clusters: Clusters, way: str) -> None:
    """Nobody knows of the cut when it is sent: the receipt ends with the quorum, and later messages come after it."""

    async def story(c: Cluster) -> None:
        async with c.connect("a") as few, c.connect("c") as many, few.join("red") as mine, many.join("red"):
            await until_view(mine, True, 2)
            c.partition("a", "bcde")
            sent = await talk_until_held(c, few, "red")
            await c.settle()
            late = await until_view(mine, False, 1)
            held = sent[len(late) :]
            assert held
            assert all([await is_open(c, receipt) for receipt in held])
            c.heal()
            assert await until_view(mine, True, 2) == []
            for receipt in held:
                assert (await receipt).phase == "regular"
            sent.append(await mine.send(b"%d" % len(sent)))
            await sent[-1]
            numbers = [int(data) for data in await messages(mine, 1 + len(held))]
            assert [*map(int, late), *numbers] == list(range(len(sent)))
            assert {receipt.outcome for receipt in sent} == {"delivered"}

    c = clusters(5, seed=5, quorum="abcde", without_quorum=way)  # type: ignore[arg-type]
    c.run(story(c))


def test_receipts_end_when_a_node_leaves_without_a_quorum(clusters: Clusters) -> None:
    async def story(c: Cluster) -> None:
        async with c.connect("a") as few:
            await (await few.send("red", b"with a quorum"))
            c.partition("a", "bcde")
            sent = await talk_until_held(c, few, "red")
            c.leave("a")
            outcomes = []
            for receipt in sent:
                with contextlib.suppress(SendRefused):
                    await receipt
                outcomes.append(receipt.outcome)
            assert set(outcomes) <= {"delivered", "refused"}
            assert outcomes[-1] == "refused"

    c = clusters(5, seed=6, quorum="abcde", without_quorum="wait")
    c.run(story(c))


def test_a_run_may_end_while_messages_wait_for_a_quorum(clusters: Clusters) -> None:
    """Then nobody can say yet what becomes of them: no guarantee is broken."""

    async def story(c: Cluster) -> None:
        few = await c.connect("a").open()
        await (await few.send("red", b"with a quorum"))
        c.partition("a", "bcde")
        sent = await talk_until_held(c, few, "red")
        await c.settle()
        assert sent[-1].outcome == "pending"

    c = clusters(5, seed=6, quorum="abcde", without_quorum="wait")
    c.run(story(c))
    assert "every_submit_accounted" in c.check().pending


@pytest.mark.parametrize("way", ["wait", "raise"])
def test_a_state_transfer_goes_on_when_there_is_a_quorum(clusters: Clusters, way: str) -> None:
    async def holder(c: Cluster, joined: asyncio.Event) -> None:
        async with c.connect("e") as session, session.join("red", state=Transfer(lambda: [b"state"], drop)) as group:
            joined.set()
            async for _ in group:
                pass

    async def drop(chunks: AsyncIterator[bytes]) -> None:
        async for _ in chunks:
            pass

    async def story(c: Cluster) -> None:
        joined, got = asyncio.Event(), []

        async def load(chunks: AsyncIterator[bytes]) -> None:
            got.extend([chunk async for chunk in chunks])

        holding = asyncio.ensure_future(holder(c, joined))
        await joined.wait()
        c.partition("ae", "bcd")
        async with c.connect("a") as session:
            joining = asyncio.ensure_future(session.join("red", state=Transfer(lambda: [b"state"], load)).open())
            await c.run_for(2)
            assert not joining.done()
            c.heal()
            group = await joining
            assert got == [b"state"]
            await group.close()
        holding.cancel()

    c = clusters(5, seed=7, quorum="abcde", without_quorum=way)  # type: ignore[arg-type]
    c.run(story(c))


# --- a group that needs a quorum where the cluster goes on ----------------------------------------------------------------


def test_sends_to_a_group_wait_for_a_quorum_while_those_to_others_go_on(clusters: Clusters) -> None:
    async def story(c: Cluster) -> None:
        async with (
            c.connect("a") as few,
            c.connect("c") as many,
            few.join("money", without_quorum="wait") as money,
            few.join("chat") as chat,
            many.join("money", without_quorum="wait") as theirs,
        ):
            await until_view(money, True, 2)
            c.partition("ae", "bcd")
            await until_view(money, False, 1)
            assert (money.held, chat.held, few.held, theirs.held) == (LACKS, "", "", "")
            waiting = [asyncio.ensure_future(send) for send in (money.send(b"1"), few.send(["chat", "money"], b"2"))]
            assert (await (await chat.send(b"here"))).phase == "regular"
            await (await theirs.send(b"of the majority"))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await money.send(b"given up")
            assert not any(one.done() for one in waiting)
            c.heal()
            for one in waiting:
                await (await one)
            assert await until_view(money, True, 2) == []
            assert await messages(money, 2) == [b"1", b"2"]
            assert money.held == ""

    c = clusters(5, seed=8, quorum="abcde")
    c.run(story(c))


def test_sends_to_a_group_raise_without_a_quorum_and_outlive_views_with_one(clusters: Clusters) -> None:
    async def story(c: Cluster) -> None:
        async with c.connect("a") as few, few.join("money", without_quorum="raise") as money, few.join("chat") as chat:
            await until_view(money, True, 1)
            c.partition("abc", "de")
            receipts = [await money.send(b"%d" % number) for number in range(100)]
            for receipt in receipts:
                await receipt
            c.partition("ae", "bcd")
            await c.settle()
            for send in (money.send(b"x"), money.send_many([b"x", b"y"]), few.send(["chat", "money"], b"x")):
                with pytest.raises(NoQuorum, match=LACKS):
                    await send
            await (await chat.send(b"here"))
            await money.close()
            assert (await (await few.send("money", b"by one who is not in it"))).phase == "regular"

    c = clusters(5, seed=9, quorum="abcde")
    c.run(story(c))


@pytest.mark.parametrize("seed", range(4))
def test_what_was_accepted_for_a_group_before_the_cut_is_sent_with_a_quorum_or_refused(clusters: Clusters, seed: int) -> None:
    """Nothing is delivered in the view without a quorum, and what was not sent has a receipt that says why."""

    async def story(c: Cluster) -> None:
        async with (
            c.connect("a") as few,
            c.connect("e") as other,
            few.join("money", without_quorum="raise") as money,
            other.join("money"),
        ):
            await until_view(money, True, 2)
            c.partition("a", "bcde")
            sent = []
            while not money.held:
                sent.append(await money.send(b"%d" % len(sent)))
                await c.run_for(0.002)
            await c.settle()
            delivered = await until_view(money, False, 1)
            for receipt in sent[: len(delivered)]:
                await receipt
            refused = sent[len(delivered) :]
            assert refused
            for receipt in refused:
                with pytest.raises(SendRefused, match="3 of 5 nodes are needed, a here, b c d e missing"):
                    await receipt
            c.heal()
            assert await until_view(money, True, 2) == []
            await (await money.send(b"again"))
            assert await messages(money, 1) == [b"again"]

    c = clusters(5, seed=seed, quorum="abcde")
    c.run(story(c))


@pytest.mark.parametrize(("way", "group"), [("wait", "raise"), ("raise", "wait")])
def test_a_group_says_what_its_sends_do_where_the_cluster_does_not_go_on(clusters: Clusters, way: str, group: str) -> None:
    async def story(c: Cluster) -> None:
        async with c.connect("a") as few, few.join("money", without_quorum=group) as money:  # type: ignore[arg-type]
            await until_view(money, True, 1)
            c.partition("ae", "bcd")
            await c.settle()
            assert money.held == few.held == LACKS
            with pytest.raises(NoQuorum if group == "raise" else TimeoutError):
                async with asyncio.timeout(5):
                    await money.send(b"x")
            with pytest.raises(NoQuorum if way == "raise" else TimeoutError):
                async with asyncio.timeout(5):
                    await few.send("chat", b"x")
            c.heal()
            await c.settle()
            await (await money.send(b"again"))

    c = clusters(5, seed=10, quorum="abcde", without_quorum=way)  # type: ignore[arg-type]
    c.run(story(c))


def test_a_group_cannot_need_a_quorum_that_nobody_has_or_anything_else(clusters: Clusters) -> None:
    async def story(c: Cluster) -> None:
        async with c.connect("a") as session:
            with pytest.raises(UsageError, match="without_quorum needs a quorum, and 'a' has none"):
                await session.join("money", without_quorum="wait").open()
            with pytest.raises(UsageError, match="without_quorum = 'continue': write 'wait' or 'raise', or leave it out"):
                session.join("money", without_quorum="continue")  # type: ignore[arg-type]
            async with session.join("money") as money:
                await (await money.send(b"x"))

    c = clusters(3, seed=11)
    c.run(story(c))
