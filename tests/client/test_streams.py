"""One ordered stream: what comes in it, who may read it, what a cancellation costs (nothing), and how it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.hosted import Hosted
from tests.client.loops import run, turns
from transis.client import Batch, Group, Message, View
from transis.client.session import CREDIT_SECONDS
from transis.sessions.frames import Changed, Credit, Left, Send, Stream, cost
from transis.types.errors import JoinRefused, UsageError
from transis.types.ids import Service
from transis.types.views import group_id


async def take(group: Any, count: int) -> list[Any]:
    return [await anext(group) for _ in range(count)]


async def messages(group: Any, count: int) -> list[bytes]:
    """The data of so many messages, whatever views lie between them."""
    found: list[bytes] = []
    while len(found) < count:
        event = await anext(group)
        if isinstance(event, Message):
            found.append(event.data)
    return found


def test_views_and_messages_come_in_one_stream() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, hosted.connect() as bob:
            async with ann.join("orders") as group:
                await (await group.send(b"one", Service.SAFE))
                async with bob.join("orders") as other:
                    await other.send(b"two")
                    seen = await take(group, 4)
                last = await anext(group)
            match seen:
                case [
                    View(members=alone),
                    Message(sender=s, data=b"one", groups=("orders",)),
                    View(members=both),
                    Message() as two,
                ]:
                    assert (alone, s) == ((ann.process,), ann.process)
                    assert both == (ann.process, bob.process)
                    assert (two.data, two.id.process, two.id.counter, two.service) == (b"two", bob.process, 1, Service.AGREED)
                case _:
                    raise AssertionError(seen)
            assert last.left == (bob.process,)

    run(story)


def test_the_view_is_that_of_the_place_where_the_reader_stands() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, hosted.connect() as bob, ann.join("g") as group:
            await turns()
            assert group.members == (ann.process,), "the first view is known before it was taken"
            async with bob.join("g"):
                await take(group, 1)
                assert group.members == (ann.process,)
                await take(group, 1)
                assert group.members == (ann.process, bob.process)

    run(story)


def test_several_names_are_one_stream_with_each_message_once() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("a", "b") as group:
            await ann.send("a", b"1")
            await ann.send(["b", "a"], b"2")
            await ann.send("b", b"3")
            events = await take(group, 5)
            assert [(event.data, event.groups) for event in events[2:]] == [(b"1", ("a",)), (b"2", ("a", "b")), (b"3", ("b",))]
            assert sorted(group.views) == ["a", "b"]

    run(story)


def test_a_message_to_two_groups_of_one_session_is_in_both_streams() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("a") as first, ann.join("b") as second:
            await ann.send(["a", "b"], b"x")
            assert await messages(first, 1) == [b"x"]
            assert await messages(second, 1) == [b"x"]

    run(story)


def test_a_name_is_joined_once_in_a_session_and_again_after_it_was_left() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            async with ann.join("g"):
                with pytest.raises(UsageError, match="already"):
                    await ann.join("x", "g").open()
            async with ann.join("g", "x") as again:
                await ann.send("x", b"fine")
                assert await messages(again, 1) == [b"fine"]

    run(story)


@pytest.mark.parametrize("names", [(), ("a", "a"), ("",), ("orders ⟨state⟩",), ("x" * 200,), tuple(map(str, range(65)))])
def test_names_that_cannot_be_joined(names: tuple[str, ...]) -> None:
    async def story() -> None:
        async with Hosted().connect() as ann:
            with pytest.raises(UsageError):
                ann.join(*names)

    run(story)


def test_cancelling_the_next_loses_nothing() -> None:
    """Scenario 57: whether it waits, or was just woken."""

    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, hosted.connect() as bob, ann.join("g") as group:
            await take(group, 1)
            got: list[bytes] = []
            for number in range(40):
                waiting = asyncio.ensure_future(anext(group))
                await turns(1)
                await bob.send("g", b"%d" % number)
                await turns(number % 12)
                waiting.cancel()
                outcome = (await asyncio.gather(waiting, return_exceptions=True))[0]
                got += [outcome.data] if isinstance(outcome, Message) else []
            await bob.send("g", b"end")
            while got[-1:] != [b"end"]:
                got += await messages(group, 1)
            assert got == [*(b"%d" % number for number in range(40)), b"end"]

    run(story)


def test_a_timeout_around_the_next_loses_nothing() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g") as group:
            await take(group, 1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(group), 0.001)
            await ann.send("g", b"x")
            assert await messages(group, 1) == [b"x"]

    run(story)


def test_one_stream_has_one_reader() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g") as group:
            await take(group, 1)
            first = asyncio.ensure_future(anext(group))
            await turns()
            with pytest.raises(UsageError, match="one reader"):
                await anext(group.batches())
            await ann.send("g", b"for the first")
            assert (await first).data == b"for the first"

    run(story)


def test_batches_are_frames_and_messages_only_when_looked_at() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g") as group:
            await group.send_many([b"%d" % number for number in range(100)])
            batches = group.batches()
            assert isinstance(await anext(batches), View)
            seen: list[Message[bytes]] = []
            while len(seen) < 100:
                batch = await anext(batches)
                assert isinstance(batch, Batch)
                assert (batch.first, batch.sender, batch.service) == (len(seen) + 1, ann.process, Service.AGREED)
                assert [message.data for message in batch] == batch.payloads
                seen += batch
            assert [message.counter for message in seen] == list(range(1, 101))
            places = [message.place for message in seen]
            assert places == sorted(set(places))

    run(story)


def test_the_reader_may_change_to_batches_in_the_middle_of_a_frame() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g") as group:
            await (await group.send_many([b"0", b"1", b"2", b"3"]))
            assert await messages(group, 2) == [b"0", b"1"]
            rest = await anext(group.batches())
            assert isinstance(rest, Batch)
            assert (rest.payloads, rest.first, len(rest), rest[1].data, rest[1].counter) == ([b"2", b"3"], 3, 2, b"3", 4)
            await group.send(b"4")
            assert await messages(group, 1) == [b"4"]

    run(story)


def test_leaving_ends_the_stream_at_its_place() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g") as group:
            await (await group.send(b"before"))
            await group.leave()
            await group.leave()
            seen = [event async for event in group]
            assert [event.data for event in seen if isinstance(event, Message)] == [b"before"]
            with pytest.raises(StopAsyncIteration):
                await anext(group)

    run(story)


def test_who_is_put_out_is_told_at_its_place() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g") as group:
            await (await group.send(b"before"))
            hosted.links[1].deliver([Left("g", "another group has the same hash")])
            assert await messages(group, 1) == [b"before"]
            with pytest.raises(JoinRefused, match="same hash"):
                await anext(group)
            with pytest.raises(StopAsyncIteration):
                await anext(group)

    run(story)


def test_an_exception_in_the_body_surfaces_and_the_group_is_left() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, hosted.connect() as bob, bob.join("g") as watching:
            with pytest.raises(ZeroDivisionError):
                async with ann.join("g") as group:
                    async for _ in group:
                        raise ZeroDivisionError
            views = await take(watching, 3)
            assert [len(view.members) for view in views] == [1, 2, 1]

    run(story)


def test_a_cancelled_join_is_left_again() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, hosted.connect() as bob:
            hosted.paused = True
            joining = asyncio.ensure_future(ann.join("g").open())
            await turns()
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
            hosted.resume()
            async with bob.join("g") as watching:
                await turns(200)
                view = [event for event in [await anext(watching)] if isinstance(event, View)][-1]
                assert view.members == (bob.process,)
            async with ann.join("g") as group:
                assert isinstance(group, Group)

    run(story)


# --- credit -------------------------------------------------------------------------------------------------------------------


def test_credit_goes_back_as_messages_are_taken_and_never_too_much() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect(window=8192) as ann, hosted.connect() as bob, ann.join("g") as group:
            count = 300
            sending = asyncio.ensure_future(bob.send_many("g", [bytes(200)] * count))
            await messages(group, count)
            await sending
            await turns()
            link = hosted.links[1]
            came = sum(cost(frame) for frame in link.got)
            returned = [frame.amount for frame in link.sent if isinstance(frame, Credit)]
            assert came - 8192 // 4 < sum(returned) <= came
            assert all(amount >= 8192 // 4 for amount in returned)

    run(story)


class Skipping(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def test_who_takes_little_for_long_says_so_before_a_quarter_of_the_window() -> None:
    """Or the node would take a handler that needs long for each small message for one that hangs."""

    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, ann.join("g") as group:
            for _ in range(3):
                await (await group.send(b"small"))
            link = hosted.all_links[0]
            await messages(group, 1)
            await turns()
            assert not any(isinstance(frame, Credit) for frame in link.sent)
            loop = asyncio.get_running_loop()
            assert isinstance(loop, Skipping)
            loop.ahead = CREDIT_SECONDS
            await messages(group, 2)
            await turns()
            taken = [frame for frame in link.got if isinstance(frame, Stream | Changed)][:-1]
            assert [frame for frame in link.sent if isinstance(frame, Credit)] == [Credit(sum(map(cost, taken)))]

    with asyncio.Runner(loop_factory=Skipping) as runner:
        runner.run(story())


def test_a_reader_that_does_not_read_is_sent_no_more_than_the_window_and_a_frame() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect(window=8192) as ann, hosted.connect() as bob, ann.join("g") as group:
            await (await bob.send_many("g", [bytes(1000)] * 500))
            await turns(100)
            waiting = [frame for frame in hosted.links[1].got if isinstance(frame, Stream)]
            largest = max(cost(frame) for frame in waiting)
            assert sum(cost(frame) for frame in waiting) < 8192 + largest
            assert len(await messages(group, 500)) == 500

    run(story)


def test_what_nobody_reads_when_a_group_is_left_gives_its_credit_back() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect(window=8192) as ann, hosted.connect() as bob, ann.join("kept") as kept:
            async with ann.join("left"):
                await bob.send_many("left", [bytes(1000)] * 100)
                await turns()
            await bob.send_many("kept", [bytes(1000)] * 50)
            assert len(await messages(kept, 50)) == 50

    run(story)


# --- private ------------------------------------------------------------------------------------------------------------------


def test_private_messages_reach_one_process_only() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, hosted.connect() as bob, ann.join("g") as group:
            await bob.send(ann.process, b"secret")
            await bob.send("g", b"open")
            await bob.send([ann.process, "g"], b"both")
            assert await messages(group, 2) == [b"open", b"both"]
            assert await messages(ann.private, 2) == [b"secret", b"both"]

    run(story)


def test_strangers_cannot_stop_a_program_that_reads_no_private_messages() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect(window=8192) as ann, hosted.connect() as bob, ann.join("g") as group:
            await (await bob.send_many(ann.process, [bytes(1000)] * 100))
            await bob.send("g", b"still here")
            assert await messages(group, 1) == [b"still here"]
            figures = await ann.statistics()
            assert figures["client"]["private_dropped"] > 0
            assert figures["client"]["waiting_bytes"] < 8192

    run(story)


def test_addresses_of_sends_are_what_was_asked_for() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            await ann.send(["b", "a", "b"], b"x")
            with pytest.raises(UsageError, match="neither"):
                await ann.send([7], b"x")  # type: ignore[list-item]
            with pytest.raises(UsageError, match="nobody"):
                await ann.send([], b"x")
            with pytest.raises(UsageError, match="state transfer"):
                await ann.send("a ⟨state⟩", b"x")
            await turns()
            sent = [frame for frame in hosted.links[1].sent if isinstance(frame, Send)]
            assert [group_id("a").to_bytes(8) in sent[0].address, group_id("b").to_bytes(8) in sent[0].address] == [True, True]
            assert len(sent) == 1

    run(story)
