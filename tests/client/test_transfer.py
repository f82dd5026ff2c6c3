"""State transfer, case by case (scenarios 17 to 19): the real client above a real node; the states are lists of messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from tests.client.hosted import Hosted
from tests.client.loops import run, turns
from transis.client import Group, Message, Session, Transfer
from transis.client.snapshot import PACK_BYTES, WINDOW
from transis.client.stream import Spool
from transis.types.errors import SessionLost, TransferError, TransferInterrupted, UsageError

MIB = 1 << 20


class Member:
    """Applies messages to its list, in a task of its own."""

    def __init__(self, session: Session[bytes], background: bool = False) -> None:
        self.session = session
        self.state: list[bytes] = []
        self.loads = 0
        self.saves = 0
        self.transfer = Transfer(self.save, self.load, background=background)
        self.group: Group[bytes] | None = None
        self.reading: asyncio.Task[None] | None = None

    def save(self) -> Iterable[bytes] | Any:
        """A generator over the living state: the member's stream must wait while it is read."""
        self.saves += 1
        yield from self.state

    async def load(self, chunks: AsyncIterator[bytes]) -> None:
        self.loads += 1
        self.state = [chunk async for chunk in chunks]

    async def join(self, name: str = "g") -> Member:
        self.group = await self.session.join(name, state=self.transfer).open()
        self.reading = asyncio.ensure_future(self.read())
        return self

    async def read(self) -> None:
        assert self.group is not None
        async for event in self.group:
            if isinstance(event, Message):
                self.state.append(event.data)

    async def reaches(self, data: bytes) -> None:
        while data not in self.state:
            await turns(1)


async def start(hosted: Hosted, count: int, kind: Callable[[Session[bytes]], Member] = Member) -> list[Member]:
    return [await kind(await hosted.connect().open()).join() for _ in range(count)]


def test_a_joiner_gets_the_state_and_exactly_the_messages_after_it() -> None:
    """Scenario 17: under traffic that never stops."""

    async def story() -> None:
        hosted = Hosted()
        (ann,) = await start(hosted, 1)

        async def traffic() -> None:
            for number in range(3000):
                await ann.session.send("g", b"%d" % number)
                if number % 20 == 0:
                    await turns(1)

        sending = asyncio.ensure_future(traffic())
        members = [ann]
        for _ in range(4):
            await turns(15)
            members += await start(hosted, 1)
        await sending
        await ann.session.send("g", b"end")
        for member in members:
            await member.reaches(b"end")
        expected = [*(b"%d" % number for number in range(3000)), b"end"]
        assert [member.state == expected for member in members] == [True] * 5
        assert [member.loads for member in members] == [0, 1, 1, 1, 1]
        await close(members)

    run(story)


async def close(members: list[Member]) -> None:
    for member in members:
        await member.session.close()
        if member.reading is not None:
            await asyncio.gather(member.reading, return_exceptions=True)


def test_all_at_once_one_founds_and_the_others_load() -> None:
    async def story() -> None:
        hosted = Hosted()
        sessions = [await hosted.connect().open() for _ in range(6)]
        members = [Member(session) for session in sessions]
        await asyncio.gather(*(member.join() for member in members))
        await members[3].session.send("g", b"x")
        for member in members:
            await member.reaches(b"x")
        assert sorted(member.loads for member in members)[0] == 0
        assert [member.state for member in members] == [[b"x"]] * 6
        await close(members)

    run(story)


class Stuck(Member):
    """Once it is stuck it yields for ever, so that its death always comes midway."""

    is_stuck = True

    @classmethod
    def free(cls, session: Session[bytes]) -> Stuck:
        member = cls(session)
        member.is_stuck = False
        return member

    async def _for_ever(self) -> AsyncIterator[bytes]:
        while True:
            yield bytes(1000)

    def save(self) -> Any:
        self.saves += 1
        return self._for_ever() if self.is_stuck else list(self.state)


@pytest.mark.parametrize("others", [0, 1])
def test_the_provider_dies_midway_and_another_one_provides_from_the_beginning(others: int) -> None:
    """Scenario 18. If nobody else has the state, the joiner founds it anew."""

    async def story() -> None:
        hosted = Hosted()
        ann = Stuck(await hosted.connect().open())
        await ann.join()
        ann.is_stuck = False
        old = await start(hosted, others)
        ann.is_stuck = True
        await (await ann.session.send("g", b"x"))
        bob = Member(await hosted.connect().open())
        interrupted: list[str] = []

        async def load(chunks: AsyncIterator[bytes]) -> None:
            try:
                await Member.load(bob, chunks)
            except TransferInterrupted as error:
                interrupted.append(str(error))
                raise

        bob.transfer = Transfer(bob.save, load)
        joining = asyncio.ensure_future(bob.join())
        while not bob.loads:
            await turns(1)
        await turns(50)
        hosted.links[ann.session.process.number].cut("killed")
        await joining
        assert len(interrupted) == 1
        assert "is gone" in interrupted[0]
        assert bob.state == [b"x"] * others
        assert bob.loads == 1 + others
        await bob.session.send("g", b"y")
        await bob.reaches(b"y")
        await close([ann, bob, *old])

    run(story)


def test_save_raises_and_the_next_member_provides() -> None:
    async def story() -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))

        class Broken(Member):
            def save(self) -> Any:
                self.saves += 1
                raise OSError("no room for a snapshot")

        hosted = Hosted()
        (ann,) = await start(hosted, 1, Broken)
        ann.transfer = Transfer(ann.save, ann.load)
        with pytest.raises(TransferError, match="tried and failed"):
            await start(hosted, 1)
        assert ann.saves == 1
        assert [str(context["exception"]) for context in complaints] == ["no room for a snapshot"]
        await ann.session.send("g", b"on it goes")
        await ann.reaches(b"on it goes")
        await close([ann])

    run(story)


def test_load_raises_and_so_does_the_join() -> None:
    async def story() -> None:
        hosted = Hosted()
        (ann,) = await start(hosted, 1)
        await ann.session.send("g", b"x")
        await ann.reaches(b"x")
        bob = Member(await hosted.connect().open())

        async def load(chunks: AsyncIterator[bytes]) -> None:
            await anext(chunks)
            raise LookupError("this is not what I know")

        bob.transfer = Transfer(bob.save, load)
        with pytest.raises(LookupError, match="not what I know"):
            await bob.join()
        bob.transfer = Transfer(bob.save, bob.load)
        await bob.join()
        assert bob.state == [b"x"]
        await close([ann, bob])

    run(story)


def test_a_large_state_is_streamed_in_flat_memory_while_messages_go_on() -> None:
    """Scenario 19 at 64 MiB: what is kept on either side is bounded by the window, and what arrives meanwhile goes to disk."""

    async def story() -> None:
        hosted = Hosted()
        size, piece = 64 * MIB, bytes(PACK_BYTES)
        produced = [0]

        class Large(Member):
            def save(self) -> Any:
                for _ in range(size // len(piece)):
                    produced[0] += 1
                    yield piece

        (ann,) = await start(hosted, 1, Large)
        bob = Member(await hosted.connect(window=64 * 1024).open())
        taken = [0]
        ahead = [0]

        async def load(chunks: AsyncIterator[bytes]) -> None:
            async for chunk in chunks:
                assert len(chunk) == len(piece)
                taken[0] += 1
                ahead[0] = max(ahead[0], produced[0] - taken[0])
                if taken[0] % 8 == 0:
                    await ann.session.send("g", b"%d" % taken[0] + bytes(20_000))

        spool = 256 * 1024
        bob.transfer = Transfer(bob.save, load, memory_max=spool)
        await bob.join()
        assert bob.group is not None
        assert taken == [size // len(piece)]
        assert ahead[0] <= WINDOW + 3, "what is on its way, in one pack on either side, or being taken"
        in_memory = (await bob.session.statistics())["client"]["transfer_bytes_max"]
        assert 0 < in_memory <= (WINDOW + 1) * len(piece) + spool + 64 * 1024
        await ann.session.send("g", b"end")
        await bob.reaches(b"end")
        assert [int(data.rstrip(b"\0")) for data in bob.state[:-1]] == list(range(8, taken[0] + 1, 8))
        await ann.reaches(b"end")
        assert ann.state == bob.state
        await close([ann, bob])

    run(story)


def test_a_provider_that_is_far_behind_can_still_provide() -> None:
    """Its window is full of what it did not take; acknowledgements must come through all the same."""

    async def story() -> None:
        hosted = Hosted()
        ann = Member(await hosted.connect(window=64 * 1024).open())
        ann.group = await ann.session.join("g", state=ann.transfer).open()
        ann.state = [bytes(PACK_BYTES)] * 40
        bob = Member(await hosted.connect().open())
        joining = asyncio.ensure_future(bob.join())
        await turns(50)
        await bob.session.send_many("g", [b"%d" % number + bytes(1000) for number in range(500)])
        await turns(50)
        ann.reading = asyncio.ensure_future(ann.read())
        await joining
        await bob.session.send("g", b"end")
        for member in (ann, bob):
            await member.reaches(b"end")
        assert len(ann.state) == 541
        assert ann.state == bob.state
        await close([ann, bob])

    run(story)


def test_a_background_save_lets_the_member_go_on() -> None:
    async def story() -> None:
        hosted = Hosted()
        gate = asyncio.Event()

        class Background(Member):
            def save(self) -> Any:
                return self._frozen(list(self.state))

            async def _frozen(self, state: list[bytes]) -> AsyncIterator[bytes]:
                await gate.wait()
                for data in state:
                    yield data

        ann = Background(await hosted.connect().open(), background=True)
        await ann.join()
        await ann.session.send("g", b"1")
        await ann.reaches(b"1")
        bob = Member(await hosted.connect().open())
        joining = asyncio.ensure_future(bob.join())
        await turns(100)
        await ann.session.send("g", b"2")
        await ann.reaches(b"2")
        assert not joining.done()
        gate.set()
        await joining
        await bob.reaches(b"2")
        assert bob.state == [b"1", b"2"]
        await close([ann, bob])

    run(story)


def test_a_joiner_that_takes_nothing_is_given_up() -> None:
    async def story() -> None:
        complaints: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["message"]))
        hosted = Hosted()
        ann = Stuck(await hosted.connect().open())
        ann.transfer = Transfer(ann.save, ann.load, patience=0.01)
        await ann.join()
        bob = Member(await hosted.connect().open())
        never = asyncio.Event()

        async def load(chunks: AsyncIterator[bytes]) -> None:
            async for _ in chunks:
                while not complaints:
                    await turns(1)
            await never.wait()

        bob.transfer = Transfer(bob.save, load)
        with pytest.raises(TransferError, match="tried and failed"):
            await bob.join()
        assert "took nothing" in complaints[0]
        await ann.session.send("g", b"on it goes")
        await ann.reaches(b"on it goes")
        await close([ann, bob])

    run(story)


def test_a_member_without_state_neither_helps_nor_hinders() -> None:
    async def story() -> None:
        hosted = Hosted()
        watcher = await hosted.connect().open()
        watching = await watcher.join("g").open()
        (ann,) = await start(hosted, 1)
        await ann.session.send("g", b"x")
        await ann.reaches(b"x")
        (bob,) = await start(hosted, 1)
        assert bob.state == [b"x"]
        await ann.session.send("g", b"y")
        seen = []
        while b"y" not in seen:
            event = await anext(watching)
            seen += [event.data] if isinstance(event, Message) else []
        assert seen == [b"x", b"y"], "nothing of the transfer is to be seen"
        with pytest.raises(UsageError, match="without `state`"):
            await watching.reload()
        await watcher.close()
        await close([ann, bob])

    run(story)


def test_reload_replaces_a_state_by_another_members() -> None:
    async def story() -> None:
        hosted = Hosted()
        ann, bob = await start(hosted, 2)
        await ann.session.send("g", b"x")
        for member in (ann, bob):
            await member.reaches(b"x")
        bob.state = [b"spoilt"]
        assert bob.reading is not None
        assert bob.group is not None
        bob.reading.cancel()
        await turns()
        assert await bob.group.reload()
        assert bob.state == [b"x"]
        bob.reading = asyncio.ensure_future(bob.read())
        await ann.session.send("g", b"y")
        await bob.reaches(b"y")
        assert bob.state == [b"x", b"y"]
        await close([ann, bob])

    run(story)


def test_the_only_member_that_reloads_keeps_its_own() -> None:
    async def story() -> None:
        hosted = Hosted()
        (ann,) = await start(hosted, 1)
        await ann.session.send("g", b"x")
        await ann.reaches(b"x")
        assert ann.reading is not None
        assert ann.group is not None
        ann.reading.cancel()
        await turns()
        assert not await ann.group.reload()
        assert ann.state == [b"x"]
        bob = Member(await hosted.connect().open())
        ann.reading = asyncio.ensure_future(ann.read())
        await bob.join()
        assert bob.state == [b"x"]
        await close([ann, bob])

    run(story)


def test_cancelling_a_join_in_the_middle_of_its_load() -> None:
    async def story() -> None:
        hosted = Hosted()
        (ann,) = await start(hosted, 1, Stuck)
        bob = Member(await hosted.connect().open())
        joining = asyncio.ensure_future(bob.join())
        while not bob.loads:
            await turns(1)
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)
        await ann.session.send("g", b"on it goes")
        await ann.reaches(b"on it goes")
        await close([ann, bob])

    run(story)


def test_leaving_ends_a_reload() -> None:
    async def story() -> None:
        hosted = Hosted()
        ann, bob = await start(hosted, 2, Stuck.free)
        for member in (ann, bob):
            member.is_stuck = True
        assert bob.group is not None
        reloading = asyncio.ensure_future(bob.group.reload())
        while bob.loads < 2:
            await turns(1)
        await bob.group.leave()
        with pytest.raises(UsageError, match="was left"):
            await reloading
        assert bob.reading is not None
        await bob.reading
        await close([ann, bob])

    run(story)


def test_a_spool_that_cannot_be_written_ends_the_session_and_makes_no_gap() -> None:
    async def story() -> None:
        hosted = Hosted()
        (ann,) = await start(hosted, 1, Stuck)
        bob = Member(await hosted.connect().open())
        bob.transfer = Transfer(bob.save, bob.load, memory_max=1000, directory="/nowhere/at/all")
        joining = asyncio.ensure_future(bob.join())
        while not bob.loads:
            await turns(1)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # The link's; it is not what is looked at here.
        for number in range(10):
            await ann.session.send("g", b"%d" % number + bytes(500))
        with pytest.raises(SessionLost, match="could not be kept"):
            await joining
        assert bob.session.closed
        await bob.session.close()
        await close([ann])

    run(story)


def test_state_and_several_names_do_not_go_together() -> None:
    async def story() -> None:
        async with Hosted().connect() as ann:
            member = Member(ann)
            with pytest.raises(UsageError, match="one name"):
                ann.join("a", "b", state=member.transfer)

    run(story)


def test_a_spool_that_was_never_used_has_no_file() -> None:
    assert Spool("/nowhere/at/all").size == 0
