"""The life of a session: how it begins, what its loss and its end do to everything in it, and what it answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.hosted import Hosted
from tests.client.loops import run, turns
from tests.client.test_streams import messages
from transis.client import Json, Message, MsgPack
from transis.sessions.frames import Done, NotJoined
from transis.sessions.host import SessionPolicy
from transis.types.errors import CodecError, ConnectError, JoinRefused, SessionLost, SlowConsumer, UsageError
from transis.types.ids import NodeId, ViewId, ViewKind
from transis.types.views import PrivateName

SOMEWHERE = ViewId(ViewKind.REGULAR, 4, NodeId("ann", 1, 7))


def test_a_session_knows_who_and_where_it_is() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect(label="tests") as ann:
            assert (ann.cluster, ann.process.node, ann.closed) == ("tests", hosted.alone.node.id, False)
            figures = await ann.statistics()
            assert figures["session"]["label"] == "tests"
            assert figures["client"]["sent"] == 0
            assert "node" in figures
        assert ann.closed
        with pytest.raises(UsageError, match="closed"):
            await ann.send("g", b"x")
        with pytest.raises(UsageError, match="closed"):
            ann.join("g")
        await ann.close()

    run(story)


def test_open_and_close_without_a_context() -> None:
    async def story() -> None:
        hosted = Hosted()
        ann = await hosted.connect().open()
        group = await ann.join("g").open()
        await group.send(b"x")
        assert await messages(group, 1) == [b"x"]
        await group.close()
        await ann.close()
        assert hosted.alone.host.sessions() == []

    run(story)


def test_what_was_sent_before_a_close_is_sent() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as bob, bob.join("g") as group:
            async with hosted.connect() as ann:
                receipt = await ann.send_many("g", [b"%d" % number for number in range(100)])
            assert await messages(group, 100) == [b"%d" % number for number in range(100)]
            assert receipt.outcome in ("delivered", "in doubt")

    run(story)


def test_a_node_that_takes_nobody_says_why() -> None:
    async def story() -> None:
        hosted = Hosted(SessionPolicy(sessions_max=1))
        async with hosted.connect():
            with pytest.raises(ConnectError, match="no more are allowed"):
                await hosted.connect().open()

    run(story)


@pytest.mark.parametrize(("window", "label"), [(100, ""), (1 << 40, ""), (1 << 20, "x" * 200)])
def test_settings_out_of_range(window: int, label: str) -> None:
    with pytest.raises(UsageError):
        Hosted().connect(window=window, label=label)


def test_a_lost_node_ends_everything_that_waits_after_what_had_come() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g") as group, ann.join("h") as other:
            await (await group.send(b"before"))
            await turns()
            hosted.paused = True
            waits: list[Any] = [
                asyncio.ensure_future(messages(other, 1)),
                asyncio.ensure_future(ann.join("x").open()),
                asyncio.ensure_future(ann.statistics()),
            ]
            await turns()
            hosted.links[1].cut("the connection broke")
            outcomes = await asyncio.gather(*waits, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [SessionLost, SessionLost, SessionLost]
            assert "the connection broke" in str(outcomes[0])
            assert "Connect again" in str(outcomes[0])
            assert await messages(group, 1) == [b"before"]
            for _ in range(2):
                with pytest.raises(SessionLost):
                    await anext(group)
            assert ann.closed

    run(story)


def test_a_send_that_waits_for_credit_ends_with_the_session() -> None:
    async def story() -> None:
        hosted = Hosted(SessionPolicy(send_window=4096))
        async with hosted.connect() as ann:
            hosted.paused = True
            await ann.send("g", bytes(5000))
            waiting = [asyncio.ensure_future(ann.send("g", b"x")) for _ in range(3)]
            await turns()
            hosted.links[1].cut()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [SessionLost] * 3

    run(story)


def test_closing_while_somebody_iterates_ends_the_iteration_cleanly() -> None:
    """Scenario 57."""

    async def story() -> None:
        hosted = Hosted()
        ann = await hosted.connect().open()
        group = await ann.join("g").open()
        seen: list[object] = []

        async def read() -> None:
            async for event in group:
                seen.append(event)

        reading = asyncio.ensure_future(read())
        await turns()
        await ann.close()
        await reading
        assert len(seen) == 1

    run(story)


def test_a_slow_client_is_told_that_it_was_slow() -> None:
    """Scenario 32: the others do not notice."""

    async def story() -> None:
        hosted = Hosted(SessionPolicy(queue_max=64 * 1024, total_max=1 << 20))
        async with hosted.connect(window=8192) as ann, hosted.connect() as bob, ann.join("g") as slow, bob.join("g") as quick:
            sending = asyncio.ensure_future(bob.send_many("g", [bytes(1000)] * 400))
            assert len(await messages(quick, 400)) == 400
            await sending
            await turns()
            with pytest.raises(SlowConsumer, match="too slow"):
                await messages(slow, 400)
            assert not bob.closed

    run(story)


def test_a_refused_join_says_why() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            hosted.paused = True
            joining = asyncio.ensure_future(ann.join("g").open())
            await turns()
            hosted.links[1].deliver([NotJoined("g", "there are too many groups")])
            with pytest.raises(JoinRefused, match="too many groups"):
                await joining
            hosted.resume()

    run(story)


def test_a_join_that_begins_after_the_loss_does_not_wait() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            joining = ann.join("g")
            hosted.links[1].cut()
            with pytest.raises(SessionLost):
                await joining.open()

    run(story)


def test_a_node_that_talks_nonsense_is_left() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            hosted.links[1].deliver([Done(7, 1, SOMEWHERE)])
            with pytest.raises(SessionLost, match="messages 7 to 7"):
                await ann.send("g", b"x")

    run(story)


def test_a_private_name_is_an_address_too() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            await ann.send(PrivateName(ann.process.node.boot, ann.process.number), b"to myself")
            assert await messages(ann.private, 1) == [b"to myself"]

    run(story)


# --- codecs -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Json(dict[str, int]), MsgPack(dict[str, int])])
def test_a_codec_is_applied_both_ways(codec: Any) -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect(codec=codec) as ann, ann.join("g") as group:
            await group.send({"order": 7})
            await group.send_many([{"order": 8}])
            assert await messages(group, 2) == [{"order": 7}, {"order": 8}]

    run(story)


def test_a_message_that_cannot_be_decoded_is_named_and_the_iteration_goes_on() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect(codec=Json(int)) as ann, hosted.connect() as bob, ann.join("g") as group:
            await bob.send_many("g", [b"1", b"no number", b"3"])
            assert await messages(group, 1) == [1]
            with pytest.raises(CodecError, match=f"message {bob.process}:2 cannot be decoded"):
                await anext(group)
            event = await anext(group)
            assert isinstance(event, Message)
            assert event.data == 3

    run(story)


def test_a_batch_goes_on_behind_what_cannot_be_decoded() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect(codec=Json(int)) as ann, hosted.connect() as bob, ann.join("g") as group:
            await (await bob.send_many("g", [b"1", b"x", b"3"]))
            await anext(group)
            batch = await group.next_batch()
            reading = iter(batch)  # type: ignore[arg-type]
            assert next(reading).data == 1
            with pytest.raises(CodecError):
                next(reading)
            assert next(reading).data == 3

    run(story)
