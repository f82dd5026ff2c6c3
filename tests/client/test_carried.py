"""Keys, headers and times of messages from a sender to its receivers: over real sockets, and between simulated nodes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.client.loops import run
from tests.client.test_sockets import WAIT_S, Elsewhere
from tests.net.visitors import House
from transis import blocking, connect
from transis.client import Group, Message
from transis.client.attributes import with_attributes
from transis.sessions.frames import BATCH_BYTES, Send
from transis.testing.cluster import Clusters
from transis.types.config import ENGINES, EngineName
from transis.types.errors import UsageError
from transis.types.ids import Service
from transis.types.limits import EVENT_US_MAX
from transis.types.views import Address, group_id
from transis.wire.items import attributed_address, encode_address

GRAIN = timedelta(milliseconds=1)
LONG_AGO = datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


async def events(group: Group[bytes], count: int) -> list[Message[bytes]]:
    """So many messages, whatever views lie between them."""
    found: list[Message[bytes]] = []
    while len(found) < count:
        event = await anext(group)
        if isinstance(event, Message):
            found.append(event)
    return found


def test_a_message_has_its_key_its_headers_and_the_time_it_was_sent(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house, connect(str(house.path)) as ann, ann.join("g") as group:
            earliest = datetime.now(UTC) - GRAIN
            await group.send(b"plain")
            await group.send(b"1", key=b"seat-12", headers={"source": b"web", "empty": b""})
            await ann.send("g", bytes(BATCH_BYTES + 1), Service.SAFE, key=b"", time=LONG_AGO)
            await group.send_many([b"2", b"3"], keys=[b"k", None], headers={"h": b"v"}, times=[None, LONG_AGO])
            await ann.send_many("g", [b"4", b"5"], headers=[{"a": b"b"}, None])
            found = await events(group, 7)
            latest = datetime.now(UTC)
            assert [(one.key, dict(one.headers)) for one in found] == [
                (None, {}),
                (b"seat-12", {"source": b"web", "empty": b""}),
                (b"", {}),
                (b"k", {"h": b"v"}),
                (None, {"h": b"v"}),
                (None, {"a": b"b"}),
                (None, {}),
            ]
            assert [len(one.data) for one in found] == [5, 1, BATCH_BYTES + 1, 1, 1, 1, 1]
            assert [one.time for one in found if one.key == b"" or one.data == b"3"] == [LONG_AGO] * 2
            sent = [one.time for one in found if one.time != LONG_AGO]
            assert len(sent) == 5
            assert earliest <= min(sent) and max(sent) <= latest
            assert all(time.microsecond % 1000 == 0 for time in sent)

    run(story)


def test_a_mistake_is_the_senders_alone_and_nothing_is_sent(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house, connect(str(house.path)) as ann, ann.join("g") as group:
            with pytest.raises(UsageError, match="key has 1025 bytes"):
                await group.send(b"x", key=bytes(1025))
            with pytest.raises(UsageError, match="keys has 1 entries for 2 messages"):
                await group.send_many([b"x", b"y"], keys=[b"k"])
            with pytest.raises(UsageError, match="must be a datetime with a time zone"):
                await ann.send("g", b"x", time=datetime(2026, 3, 1))
            await group.send(b"good")
            assert [one.data for one in await events(group, 1)] == [b"good"]

    run(story)


def test_a_client_may_say_nonsense_and_the_reader_goes_on(tmp_path: Path) -> None:
    """It speaks the session protocol itself: what should begin with attributes and does not is data."""

    async def story() -> None:
        async with House(tmp_path) as house, connect(str(house.path)) as ann, ann.join("g") as group:
            visitor = await house.visit()
            address = attributed_address(encode_address(Address((group_id("g"),))))
            visitor.say(Send(address, Service.AGREED, [b"\xff\xff", b"", b"\0\1\xc1x"], 0))
            visitor.say(Send(address, Service.AGREED, [with_attributes(b"good", b"k", None, None)], EVENT_US_MAX))
            found = await events(group, 4)
            assert [(one.data, one.key) for one in found] == [
                (b"\xff\xff", None),
                (b"", None),
                (b"\0\1\xc1x", None),
                (b"good", b"k"),
            ]
            assert [one.time.year for one in found] == [1970, 1970, 1970, 9999]
            visitor.close()

    run(story)


def test_a_script_has_them_too(tmp_path: Path) -> None:
    with Elsewhere(tmp_path) as node, blocking.connect(node.path, timeout=WAIT_S) as session, session.join("g") as group:
        group.send(b"1", key=b"a", headers={"h": b"v"}, time=LONG_AGO)
        session.send("g", b"2", Service.SAFE, WAIT_S, key=b"b")
        group.send_many([b"3", b"4"], keys=[b"c", None])
        session.send_many("g", [b"5"], headers={"h": b"w"}, times=[LONG_AGO])
        found: list[tuple[bytes | None, dict[str, bytes], bool]] = []
        for event in group:
            found += [(event.key, dict(event.headers), event.time == LONG_AGO)] if isinstance(event, Message) else []
            if len(found) == 5:
                break
        assert found == [
            (b"a", {"h": b"v"}, True),
            (b"b", {}, False),
            (b"c", {}, False),
            (None, {}, False),
            (None, {"h": b"w"}, True),
        ]


@pytest.mark.parametrize("engine", ENGINES)
def test_between_simulated_nodes_time_is_virtual_and_the_same_for_all_receivers(engine: EngineName) -> None:
    """Large messages travel in fragments; a burst of small ones has one time, and what is sent later has a later one."""
    clusters = Clusters(engine=engine)
    c = clusters(3, seed=5)
    seen: dict[str, list[Message[bytes]]] = {}

    async def member(name: str) -> None:
        async with c.connect(name) as session, session.join("g") as group:
            seen[name] = await events(group, 12)

    async def talk() -> None:
        tasks = [asyncio.create_task(member(name)) for name in "bc"]
        await c.settle()
        async with c.connect("a") as session:
            for _ in range(5):
                await session.send("g", b"burst")
            await session.send("g", bytes(50_000))
            await session.send("g", bytes(50_000), key=b"k", headers={"h": b"v"})
            await c.run_for(1.5)
            await session.send_many("g", [b"later"] * 5)
            for task in tasks:
                await task

    c.run(talk())
    clusters.close()
    assert seen["b"] == seen["c"]
    times = [message.time for message in seen["b"]]
    assert times[0].year == 2000
    assert len(set(times[:5])) == len(set(times[7:])) == 1
    assert times[7] - times[0] == timedelta(seconds=1.5)
    assert [message.key for message in seen["b"]] == [None] * 6 + [b"k"] + [None] * 5
