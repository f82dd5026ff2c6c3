"""Clients that say a lot at once: the node hears its sockets and its other clients in between, and nobody honest is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.net.party import PATIENCE_S
from tests.net.test_session_server import one_turn
from tests.net.visitors import House, Visitor
from transis.embed.thread import SAID_MAX, ThreadLink
from transis.net.listeners import ACCEPTED_AT_ONCE
from transis.net.session_server import SLICE
from transis.net.transport import StatisticsDict
from transis.sessions.frames import SESSION_VERSION, Answer, Ask, Goodbye, Hello, NodeFrame
from transis.sessions.host import SessionPolicy

BURST = 5_000


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(in_time())


class Counted:
    """How often somebody asked the node for its figures; each answer costs some work."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> StatisticsDict:
        self.asked += 1
        return {f"figure_{number}": sum(range(number)) for number in range(100)}


def questions(count: int) -> list[Ask]:
    return [Ask(number, "statistics") for number in range(1, count + 1)]


async def answered(visitor: Visitor, count: int) -> None:
    await visitor.until(lambda: sum(isinstance(frame, Answer) for frame in visitor.frames) >= count)


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_flood_of_questions_waits_for_the_nodes_turns_and_for_other_clients(tmp_path: Path, kind: str) -> None:
    """One write of 90 kB, which the node reads in one go. All are answered, in between others are, and the node has its turns."""

    async def story() -> None:
        counted = Counted()
        async with House(tmp_path, statistics=counted) as house:
            if kind == "unix":
                flooder = await house.visit()
            else:
                flooder = await house.sealed(await house.listen_tcp())
                await flooder.greet()
            other = await house.visit()
            turns = int(house.driver.statistics()["turns"])
            flooder.say(*questions(BURST))
            await one_turn()
            other.say(Ask(1, "about"))
            await answered(other, 1)
            assert counted.asked < BURST
            await answered(flooder, BURST)
            assert [frame.number for frame in flooder.frames if isinstance(frame, Answer)] == list(range(1, BURST + 1))
            assert int(house.driver.statistics()["turns"]) - turns > 20
            assert not any(isinstance(frame, Goodbye) for frame in flooder.frames + other.frames)
            flooder.close()
            other.close()

    run(story)


def test_what_is_not_worked_off_is_not_read(tmp_path: Path) -> None:
    """The rest stays in the client's own socket: the node holds a slice of it, whatever was written."""

    async def story() -> None:
        async with House(tmp_path, SessionPolicy(answers_max=1 << 30, total_max=1 << 31)) as house:
            flooder, other = await house.visit(), await house.visit()
            flooder.say(*questions(20 * BURST))
            for number in range(1, 20):
                other.say(Ask(number, "about"))
                await answered(other, number)
                assert house.server.unread <= 2 * SLICE
            flooder.reset()
            other.close()

    run(story)


def test_who_floods_and_does_not_read_is_ended_with_a_sentence(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path, SessionPolicy(answers_max=64 << 10)) as house:
            flooder, other = await house.visit(), await house.visit()
            flooder.say(*questions(20 * BURST))
            while house.host.sessions() != [one for one in house.host.sessions() if one.process == other.process]:
                await one_turn()
            (why,) = await flooder.until_closed()
            assert why.endswith("bytes of answers wait for a client that asks and does not read")
            other.say(Ask(1, "about"))
            await answered(other, 1)
            other.close()

    run(story)


def test_clients_that_come_all_at_once_are_let_in_a_few_at_a_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            first = await house.visit()
            turns = int(house.driver.statistics()["turns"])
            visitors = await asyncio.gather(*(house.visit() for _ in range(200)))
            assert len(house.host.sessions()) == 201
            assert int(house.driver.statistics()["turns"]) - turns >= 200 // ACCEPTED_AT_ONCE
            for visitor in (first, *visitors):
                visitor.close()

    run(story)


# --- threads ------------------------------------------------------------------------------------------------------------------


class Guest:
    """A client in the same loop: the link of an embedded node, without bytes."""

    def __init__(self, house: House) -> None:
        self.frames: list[NodeFrame] = []
        self.lost: list[str] = []
        self.link = ThreadLink("the node", asyncio.get_running_loop(), house.server)
        self.link.start(self.frames.extend, self.lost.append)

    async def greet(self) -> None:
        self.link.send([Hello(SESSION_VERSION, "guest", 1 << 20)])
        await self.until(lambda: bool(self.frames))

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await one_turn()


def test_a_thread_that_floods_waits_like_any_client(tmp_path: Path) -> None:
    async def story() -> None:
        counted = Counted()
        async with House(tmp_path, statistics=counted) as house:
            flooder, other = Guest(house), Guest(house)
            await flooder.greet()
            await other.greet()
            flooder.link.send([Ask(number, "statistics") for number in range(BURST)])
            other.link.send([Ask(1, "about")])
            await other.until(lambda: len(other.frames) == 2)
            assert counted.asked < BURST
            await flooder.until(lambda: len(flooder.frames) == 1 + BURST)
            await flooder.link.close()
            await other.link.close()
            assert house.host.sessions() == []

    run(story)


def test_a_thread_that_ignores_all_limits_is_ended_with_a_sentence(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            flooder = Guest(house)
            await flooder.greet()
            flooder.link.send([Ask(1, "about")] * (SAID_MAX + 1))
            await flooder.until(lambda: bool(flooder.lost))
            (why,) = [frame.why for frame in flooder.frames if isinstance(frame, Goodbye)]
            assert why == f"{SAID_MAX} frames of this client wait to be handled: wait for answers before asking more"

    run(story)
