"""Who and where: names of processes, lists of groups and members, and changes as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.client.hosted import Hosted
from tests.client.loops import run, turns
from tests.sessions.hosting import Alone
from transis.client import GroupChange, Listing, Members, NameChange, Transfer, View
from transis.client.directory import Watch
from transis.groups.table import CHANGES_MAX, MISSED
from transis.sessions.directory import PAGE, WAITING_MAX
from transis.sessions.frames import SESSION_VERSION, Answer, Inquire, NamedHello
from transis.types.errors import ConnectError, UnknownName, UsageError
from transis.types.ids import NodeId, ProcessId
from transis.types.views import GROUP_NAME_MAX

NOBODY = ProcessId(NodeId("zoe", 1, 1), 1)

# --- names ------------------------------------------------------------------------------------------------------------


def test_a_name_finds_its_process_and_messages_reach_it() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect(name="billing") as billing, hosted.connect() as ann:
            assert (billing.name, ann.name) == ("billing", "")
            assert await ann.resolve("billing@ann") == billing.process
            await ann.send("billing@ann", b"one")
            await ann.send_many(["billing@ann", "nobody joined this"], [b"two", b"three"])
            private = billing.private
            assert [(await anext(private)).data for _ in range(3)] == [b"one", b"two", b"three"]

    run(story)


def test_a_view_shows_names() -> None:
    async def story() -> None:
        hosted = Hosted()
        ann, billing = await hosted.connect().open(), await hosted.connect(name="billing").open()
        async with ann.join("orders") as group, billing.join("orders"):
            views = [event async for event in _views(group, 2)]
            assert views[0].names == ()
            assert views[1].names == ("", "billing")
            assert [views[1].label(one) for one in views[1].members] == [str(ann.process), "billing@ann"]
            assert views[1].label(NOBODY) == str(NOBODY)

    run(story)


async def _views(group: AsyncIterator[object], count: int) -> AsyncIterator[View]:
    async for event in group:
        if isinstance(event, View):
            yield event
            count -= 1
            if not count:
                return


def test_a_name_belongs_to_one_process_of_a_node_and_is_free_when_it_ends() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect(name="billing") as first, hosted.connect() as ann:
            with pytest.raises(ConnectError, match=rf"process {first.process.number} of this node is called 'billing' already"):
                await hosted.connect(name="billing").open()
            await first.close()
            async with hosted.connect(name="billing") as second:
                assert await ann.resolve("billing@ann") == second.process

    run(story)


def test_a_lost_process_leaves_its_name() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            await hosted.connect(name="billing").open()
            hosted.all_links[-1].cut()
            async with hosted.connect(name="billing") as second:
                assert await ann.resolve("billing@ann") == second.process

    run(story)


def test_an_unknown_name_is_an_error_of_its_own() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            for asked in (ann.resolve("billing@ann"), ann.resolve("billing"), ann.send("billing@bob", b"x")):
                with pytest.raises(UnknownName, match="is called 'billing"):
                    await asked
            with pytest.raises(UnknownName, match="zoe/1 is not in the configuration"):
                await ann.where(NOBODY)

    run(story)


@pytest.mark.parametrize("name", ["", "a@b", "x" * (GROUP_NAME_MAX + 1), "\n"])
def test_what_cannot_be_a_name(name: str) -> None:
    hosted = Hosted()
    with pytest.raises(UsageError, match="cannot name a process"):
        hosted.connect(name=name)
    with pytest.raises(UsageError, match="cannot name a process"):
        hosted.alone.host.connect(0, NamedHello(SESSION_VERSION, "", 1 << 20, name))


def test_a_group_has_no_name_of_a_process() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            with pytest.raises(UsageError, match="with an @ it is the name of a process"):
                ann.join("billing@ann")

    run(story)


# --- lists ------------------------------------------------------------------------------------------------------------


def test_groups_members_and_whereabouts() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect(name="billing") as billing, hosted.connect() as ann:
            async with billing.join("orders"), ann.join("orders"), ann.join("audit"):
                assert await ann.groups() == {"audit": 1, "orders": 2}
                assert await ann.members("orders") == {billing.process: "billing@ann", ann.process: ""}
                assert await ann.members("nobody joined this") == {}
                assert await ann.names() == {"billing@ann": billing.process}
                found = await ann.where("billing@ann")
                assert found == (billing.process, "billing@ann", "ann:1")
                assert await ann.where(billing.process) == found
                assert await ann.where(ann.process) == (ann.process, "", "ann:1")
            assert await ann.groups() == {}

    run(story)


def test_lists_of_any_length_come_in_pages() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            names = [f"g{number:04}" for number in range(2 * PAGE + 1)]
            for first in range(0, len(names), 32):
                await asyncio.gather(*(ann.join(name).open() for name in names[first : first + 32]))
            assert await ann.groups() == dict.fromkeys(names, 1)
            asked = [frame for frame in hosted.all_links[0].sent if isinstance(frame, Inquire)]
            assert [frame.name for frame in asked] == ["", names[PAGE - 1], names[2 * PAGE - 1]]

    run(story)


def test_a_question_that_no_node_knows_is_answered() -> None:
    alone = Alone()
    process = alone.connect()
    alone.say(process, Inquire(7, "why"))
    alone.settle()
    answer = next(frame for frame in alone.seen[process] if isinstance(frame, Answer))
    assert (answer.number, answer.value, answer.why[:30]) == (7, b"", "'why' is not a question about ")


# --- watching ---------------------------------------------------------------------------------------------------------


async def some(watch: Watch, count: int) -> list[object]:
    return [await anext(watch) for _ in range(count)]


def test_a_watch_begins_with_a_list_and_goes_on_with_changes() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, hosted.connect() as bob, bob.join("orders"):
            watch = ann.watch()
            assert await anext(watch) == Listing({"orders": 1}, {})
            async with hosted.connect(name="billing") as billing:
                async with billing.join("orders"):
                    assert await some(watch, 2) == [
                        NameChange("billing@ann", billing.process),
                        GroupChange("orders", 2, (billing.process,), ()),
                    ]
                assert await anext(watch) == GroupChange("orders", 1, (), (billing.process,))
            assert await anext(watch) == NameChange("billing@ann", None)

    run(story)


def test_a_watch_of_one_group_tells_of_that_group_only() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, hosted.connect() as bob:
            watch = ann.watch("orders")
            assert await anext(watch) == Members("orders", {})
            async with bob.join("audit"):
                async with bob.join("orders"):
                    assert await anext(watch) == GroupChange("orders", 1, (bob.process,), ())
                assert await anext(watch) == GroupChange("orders", 0, (), (bob.process,))

    run(story)


def test_a_watcher_that_is_behind_is_told_and_gets_a_list() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, hosted.connect() as bob:
            watch = ann.watch()
            await anext(watch)
            for _ in range(CHANGES_MAX // 2 + 1):
                async with bob.join("orders"):
                    pass
            async with bob.join("audit"):
                assert await anext(watch) == Listing({"audit": 1}, {}, MISSED)

    run(story)


def test_a_cancelled_wait_misses_nothing_and_leaves_nothing_behind() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, hosted.connect() as bob:
            watch = ann.watch()
            await anext(watch)
            for _ in range(2 * WAITING_MAX):
                waiting = asyncio.ensure_future(anext(watch))
                await turns()
                assert not waiting.done()
                waiting.cancel()
                await turns()
            async with bob.join("orders"):
                assert await anext(watch) == GroupChange("orders", 1, (bob.process,), ())

    run(story)


def test_one_watch_too_many_is_refused() -> None:
    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann:
            watches = [ann.watch() for _ in range(WAITING_MAX + 1)]
            for watch in watches:
                await anext(watch)
            waiting = [asyncio.ensure_future(anext(watch)) for watch in watches]
            await turns()
            refused = [one for one in waiting if one.done()]
            assert len(refused) == 1
            assert "end a watch first" in str(refused[0].exception())
            for one in waiting:
                one.cancel()

    run(story)


def test_a_watch_ends_with_its_session() -> None:
    async def story() -> None:
        hosted = Hosted()
        ann = await hosted.connect().open()
        watch = ann.watch()
        await anext(watch)
        waiting = asyncio.ensure_future(anext(watch))
        await turns()
        await ann.close()
        with pytest.raises(StopAsyncIteration):
            await waiting

    run(story)


def test_groups_of_state_transfer_are_no_applications() -> None:
    async def load(chunks: AsyncIterator[bytes]) -> None:
        raise AssertionError("there is nobody to load from")

    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as ann, hosted.connect() as bob:
            watch = ann.watch()
            await anext(watch)
            async with bob.join("orders", state=Transfer(lambda: iter(()), load)):
                assert await ann.groups() == {"orders": 1}
                assert len(hosted.alone.node.table.groups) == 2
            assert await some(watch, 2) == [
                GroupChange("orders", 1, (bob.process,), ()),
                GroupChange("orders", 0, (), (bob.process,)),
            ]

    run(story)
