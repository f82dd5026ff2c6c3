"""The event loop in virtual time: what passes, in which order, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transis.node.node import Node
from transis.sim.world import Conditions, World
from transis.testing.loop import REFUSED, SPIN_TURNS, Stuck, Timeline, VirtualLoop
from transis.types.errors import UsageError

T = TypeVar("T")


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop(Timeline())
    yield made
    made.finish()
    made.close()


def world() -> World:
    """Nothing happens in it but what somebody arranges."""
    return World(0, Conditions(), Node)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    loop = VirtualLoop(Timeline())
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


async def pause(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    passed = loop.create_future()
    loop.call_later(seconds, passed.set_result, None)
    await passed


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=8))
def test_timers_fire_in_order_and_at_their_time(waits_us: list[int]) -> None:
    fired: list[tuple[float, int]] = []

    async def wait(us: int) -> None:
        await pause(us / 1e6)
        fired.append((asyncio.get_running_loop().time(), us))

    async def all_of_them() -> None:
        await asyncio.gather(*map(wait, waits_us))

    run(all_of_them())
    assert [us for _, us in fired] == sorted(waits_us)
    assert all(time == pytest.approx(us / 1e6, abs=1e-6) for time, us in fired)


def test_a_world_wakes_the_loop_at_its_instant(loop: VirtualLoop) -> None:
    there = world()
    loop.timeline.attach(there, lambda: None)
    woken = loop.create_future()
    there.at(1_500, lambda _: woken.set_result(there.now), None)
    there.at(9_000, lambda _: None, None)
    assert loop.run_until_complete(woken) == 1_500
    assert (loop.timeline.now_us, there.now) == (1_500, 1_500)


def test_a_timer_set_while_time_passes_is_not_overslept(loop: VirtualLoop) -> None:
    there = world()
    loop.timeline.attach(there, lambda: None)
    rung: list[float] = []

    def set_timer(_: None) -> None:
        loop.call_later(0.002, lambda: rung.append(loop.time()))

    there.at(1_000, set_timer, None)
    loop.run_until_complete(pause(1))
    assert rung == [pytest.approx(0.003)]


def test_worlds_of_different_age_share_the_time(loop: VirtualLoop) -> None:
    old, young = world(), world()
    loop.timeline.attach(old, lambda: None)
    loop.run_until_complete(pause(2))
    young.run(500)
    loop.timeline.attach(young, lambda: None)
    met: list[tuple[str, int]] = []
    old.at(2_000_300, lambda _: met.append(("old", young.now)), None)
    young.at(700, lambda _: met.append(("young", old.now)), None)
    loop.run_until_complete(pause(1))
    assert [name for name, _ in met] == ["young", "old"]
    assert (old.now, young.now) == (3_000_000, 1_000_500)


def test_who_spins_is_given_time(loop: VirtualLoop) -> None:
    async def spin() -> int:
        turns = 0
        rung = asyncio.create_task(pause(0.01))
        while not rung.done():
            await pause(0)
            turns += 1
        return turns

    assert SPIN_TURNS < loop.run_until_complete(spin()) <= 20_000
    assert loop.time() == pytest.approx(0.01, abs=0.001)


def test_waiting_for_nothing_is_told_with_the_place(loop: VirtualLoop) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match=r"(?s)nothing the test waits for came within 60 s.*test_loop.py:\d+"):
        loop.run_until_complete(forever())


def test_an_hour_is_enough_for_everybody(loop: VirtualLoop) -> None:
    there = world()
    loop.timeline.attach(there, lambda: None)

    def again(_: None) -> None:
        there.at(there.now + 10_000_000, again, None)

    again(None)
    with pytest.raises(Stuck, match="more than 3600 s"):
        loop.run_until_complete(pause(7_200))


@pytest.mark.parametrize("name", REFUSED)
def test_what_reaches_outside_is_refused(loop: VirtualLoop, name: str) -> None:
    with pytest.raises(UsageError, match=f"loop.{name} is refused"):
        getattr(loop, name)()


def test_threads_and_sockets_are_refused_as_people_ask_for_them() -> None:
    async def thread() -> None:
        await asyncio.to_thread(print)

    async def connect() -> None:
        await asyncio.open_connection("localhost", 1)

    for coroutine, what in ((thread, "threads"), (connect, "sockets")):
        with pytest.raises(UsageError, match=f"has no {what}"):
            run(coroutine())


def test_other_threads_are_refused(loop: VirtualLoop) -> None:
    refused: list[str] = []

    def call() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except UsageError as error:
            refused.append(str(error))

    other = threading.Thread(target=call)
    other.start()
    other.join()
    assert len(refused) == 1
    reached: list[int] = []
    loop.call_soon_threadsafe(reached.append, 1)
    loop.run_until_complete(pause(0))
    assert reached == [1]


def test_tasks_of_a_group_are_cancelled_in_the_order_they_began() -> None:
    """asyncio keeps them in a set, and the order of a set of ordinary tasks is that of their addresses."""
    ended: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(50):
                tasks.create_task(wait(number))
            await pause(1)
            raise LookupError

    with pytest.raises(ExceptionGroup):
        run(group())
    assert ended == sorted(ended)
    assert len(ended) == 50
