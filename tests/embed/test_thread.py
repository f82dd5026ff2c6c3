"""Frames between two event loops in two threads: all of them, once, in order, and an end that both sides see."""

from __future__ import annotations

import asyncio
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.embed.party import PATIENCE_S
from transis.embed.thread import ThreadChannel


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(), max_size=5), min_size=1, max_size=200))
def test_everything_passes_once_and_in_order(portions: list[list[int]]) -> None:
    async def story() -> list[int]:
        arrived: list[int] = []
        enough = asyncio.Event()
        expected = sum(map(len, portions))

        def take(items: list[int]) -> None:
            assert items
            arrived.extend(items)
            if len(arrived) >= expected:
                enough.set()

        channel = ThreadChannel(asyncio.get_running_loop(), take)
        putting = threading.Thread(target=lambda: [channel.put(portion) for portion in portions])
        putting.start()
        if expected:
            async with asyncio.timeout(PATIENCE_S):
                await enough.wait()
        putting.join()
        return arrived

    assert asyncio.run(story()) == [item for portion in portions for item in portion]


def test_one_wake_up_serves_everything_since_the_last_look() -> None:
    async def story() -> list[list[int]]:
        taken: list[list[int]] = []
        channel: ThreadChannel[int] = ThreadChannel(asyncio.get_running_loop(), taken.append)
        channel.put([1])
        channel.put([2, 3])
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0)
        channel.put([4])
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0)
        return taken

    assert asyncio.run(story()) == [[1, 2, 3], [4]]


def test_a_loop_that_is_gone_takes_nothing() -> None:
    loop = asyncio.new_event_loop()
    channel: ThreadChannel[int] = ThreadChannel(loop, lambda items: None)
    loop.close()
    assert channel.put([1]) is False
