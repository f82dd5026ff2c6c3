"""Mistakes of a first day: each is answered by a sentence that says what to write instead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import transis
from tests.client.hosted import Hosted
from tests.client.loops import run, turns
from transis.testing import Clusters
from transis.types.errors import ConfigError, UsageError

Session = transis.Session[Any]

# --- a session ----------------------------------------------------------------------------------------------------------


async def text_without_a_codec(session: Session) -> None:
    await session.send("g", "text")


async def a_dict_without_a_codec(session: Session) -> None:
    await session.send("g", {"price": 7})


async def a_number_without_a_codec(session: Session) -> None:
    await session.send("g", 7)


async def one_text_for_many(session: Session) -> None:
    await session.send_many("g", "text")


async def one_message_for_many(session: Session) -> None:
    await session.send_many("g", b"bytes")


async def a_service_by_name(session: Session) -> None:
    await session.send("g", b"x", "safe")  # type: ignore[arg-type]


async def a_service_that_is_none(session: Session) -> None:
    async with session.join("g") as group:
        await group.send(b"g", b"text")  # type: ignore[arg-type]


async def nobody(session: Session) -> None:
    await session.send([], b"x")


async def a_group_without_a_name(session: Session) -> None:
    session.join("")


async def no_group(session: Session) -> None:
    session.join()


async def groups_in_a_list(session: Session) -> None:
    session.join(["a", "b"])  # type: ignore[arg-type]


async def a_group_in_bytes(session: Session) -> None:
    session.join(b"orders")  # type: ignore[arg-type]


async def awaited_join(session: Session) -> None:
    await session.join("g")  # type: ignore[misc]


async def joined_with_with(session: Session) -> None:
    with session.join("g"):  # type: ignore[attr-defined]
        pass


async def iterated_before_entered(session: Session) -> None:
    async for _ in session.join("g"):  # type: ignore[attr-defined]
        pass


async def iterated_as_if_it_were_blocking(session: Session) -> None:
    for _ in session.join("g"):  # type: ignore[attr-defined]
        pass


async def joined_twice(session: Session) -> None:
    async with session.join("g"), session.join("g"):
        pass


async def used_when_closed(session: Session) -> None:
    await session.close()
    await session.send("g", b"x")


@pytest.mark.parametrize(
    ("mistake", "remedy"),
    [
        (text_without_a_codec, r"'text' is of type str, and this session sends bytes: write text\.encode\(\), or give a codec"),
        (a_dict_without_a_codec, r"\{'price': 7\} is of type dict, .* connect\(codec=transis\.Json\(\)\)"),
        (a_number_without_a_codec, "7 is of type int, and this session sends bytes"),
        (one_text_for_many, "send_many takes several messages, as in send_many"),
        (one_message_for_many, "send_many takes several messages, as in send_many"),
        (a_service_by_name, r"service = 'safe': write transis\.Service\.SAFE"),
        (a_service_that_is_none, r"service = b'text': write one of .*SAFE.*session\.send\(to, data\)"),
        (nobody, "this goes to nobody: give the name of a group"),
        (a_group_without_a_name, "'' is not a group name: use 1 to 128 bytes"),
        (no_group, "join at least one name"),
        (groups_in_a_list, r"\['a', 'b'\] is not a group name: .*join\('a', 'b'\)"),
        (a_group_in_bytes, "b'orders' is not a group name: names are text"),
        (awaited_join, r"write `async with session\.join\(\.\.\.\) as group:`"),
        (joined_with_with, r"write `async with session\.join\(\.\.\.\) as group:`"),
        (iterated_before_entered, r"write `async with session\.join\(\.\.\.\) as group:`"),
        (iterated_as_if_it_were_blocking, r"write `async with session\.join\(\.\.\.\) as group:`"),
        (joined_twice, "this session has already joined 'g': use that group"),
        (used_when_closed, "the session is closed"),
    ],
)
def test_a_session_says_what_to_write(mistake: Callable[[Session], Awaitable[None]], remedy: str) -> None:
    async def story() -> None:
        async with Hosted().connect() as session:
            with pytest.raises(UsageError, match=remedy):
                await mistake(session)

    run(story)


def test_bytes_in_other_shapes_are_sent() -> None:
    async def story() -> None:
        async with Hosted().connect() as session, session.join("g") as group:
            await group.send_many([bytearray(b"one"), memoryview(b"two")])
            found = [event.data async for event in _first(group, 2)]
            assert found == [b"one", b"two"]

    async def _first(group: Any, count: int) -> Any:
        async for event in group:
            if isinstance(event, transis.Message):
                yield event
                if not (count := count - 1):
                    return

    run(story)


def test_a_name_that_a_context_lacks_is_an_attribute_error_with_the_remedy() -> None:
    async def story() -> None:
        connection = Hosted().connect()
        with pytest.raises(AttributeError, match=r"'Connection' has no attribute 'join': .*`async with transis\.connect\(\)"):
            connection.join("g")  # type: ignore[attr-defined]
        async with connection as session:
            with pytest.raises(AttributeError, match=r"'Joining' has no attribute 'send': .*`async with session\.join"):
                await session.join("g").send(b"x")  # type: ignore[attr-defined]
            assert not hasattr(session.join("g"), "members")

    run(story)


def test_a_group_that_was_left_ends_quietly() -> None:
    async def story() -> None:
        async with Hosted().connect() as session:
            async with session.join("g") as group:
                pass
            assert [event async for event in group] == []

    run(story)


def test_receipts_that_nobody_awaits_are_fine(recwarn: pytest.WarningsRecorder) -> None:
    async def story() -> None:
        async with Hosted().connect() as session:
            await session.send("g", b"x")
            await turns()

    run(story)
    assert not recwarn.list


# --- another loop -------------------------------------------------------------------------------------------------------

ELSEWHERE = r"lives in another event loop.*transis\.blocking"


async def send(session: Session, receipt: transis.Receipt, group: transis.Group[Any]) -> None:
    await session.send("g", b"x")


async def receive(session: Session, receipt: transis.Receipt, group: transis.Group[Any]) -> None:
    async for _ in group:
        pass


async def wait_for_a_receipt(session: Session, receipt: transis.Receipt, group: transis.Group[Any]) -> None:
    await receipt


async def close(session: Session, receipt: transis.Receipt, group: transis.Group[Any]) -> None:
    await session.close()


async def join(session: Session, receipt: transis.Receipt, group: transis.Group[Any]) -> None:
    await session.join("h").open()


async def ask(session: Session, receipt: transis.Receipt, group: transis.Group[Any]) -> None:
    await session.about()


@pytest.mark.parametrize("use", [send, receive, wait_for_a_receipt, close, join, ask])
def test_a_session_is_of_no_use_in_another_loop(use: Callable[..., Any]) -> None:
    """In a thread of its own, or by a second asyncio.run: what would hang or break says so."""

    async def story() -> None:
        hosted = Hosted()
        async with hosted.connect() as session, session.join("g") as group:
            await anext(group)
            await turns()
            hosted.paused = True
            receipt = await session.send("g", b"x")
            await turns()

            def in_a_thread() -> None:
                asyncio.run(use(session, receipt, group))

            with pytest.raises(UsageError, match=ELSEWHERE):
                await asyncio.to_thread(in_a_thread)
            hosted.resume()
            await receipt

    run(story)


def test_a_checkpoint_without_a_loop_says_so() -> None:
    async def story() -> transis.Group[bytes]:
        hosted = Hosted()
        session = await hosted.connect().open()
        group = await session.join("g").open()
        await anext(group)
        await turns()
        return group

    group = run(story)
    with pytest.raises(UsageError, match=ELSEWHERE):
        group.checkpoint(b"digest")


# --- connections ----------------------------------------------------------------------------------------------------------


def test_awaiting_connect_says_to_enter_it() -> None:
    async def story() -> None:
        with pytest.raises(UsageError, match=r"write `async with transis\.connect\(\) as session:`"):
            await transis.connect()  # type: ignore[misc]
        with pytest.raises(UsageError, match=r"write `async with transis\.connect\(\) as session:`"), transis.connect():  # type: ignore[attr-defined]
            pass

    run(story)


def test_a_codec_is_an_object() -> None:
    with pytest.raises(UsageError, match=r"codec = Json: this is a class, write Json\(\)"):
        transis.connect(codec=transis.Json)  # type: ignore[call-overload]


def test_connect_in_a_simulated_test_names_the_way_in() -> None:
    async def story() -> None:
        with pytest.raises(UsageError, match=r"Write `cluster\.connect\(name\)` for `transis\.connect\(\)`"):
            await transis.connect().open()

    clusters = Clusters()
    try:
        clusters(2).run(story())
    finally:
        clusters.close()


def test_waiting_calls_in_a_loop_are_refused() -> None:
    async def story() -> None:
        with pytest.raises(UsageError, match=r"event loop of this thread would stand still: write `async with transis\.connect"):
            transis.blocking.connect().open()

    run(story)


def test_a_blocking_context_says_with() -> None:
    connection = transis.blocking.connect()
    with pytest.raises(AttributeError, match=r"write `with transis\.blocking\.connect\(\) as session:`"):
        connection.send("g", b"x")  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"write `with transis\.blocking\.connect\(\) as session:`"):
        list(connection)  # type: ignore[call-overload]

    async def story() -> None:
        with pytest.raises(UsageError, match=r"write `with transis\.blocking\.connect\(\) as session:`"):
            async with connection:  # type: ignore[attr-defined]
                pass

    run(story)


# --- nodes ----------------------------------------------------------------------------------------------------------------


def test_a_node_says_what_to_write(tmp_path: Path) -> None:
    node = transis.Node("ann", state=str(tmp_path))
    with pytest.raises(AttributeError, match=r"'Node' has no attribute 'join': write `async with transis\.Node"):
        node.join("g")  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"write `async with transis\.Node.*transis\.blocking\.Node"), node:  # type: ignore[attr-defined]
        pass

    async def story() -> None:
        with pytest.raises(UsageError, match=r"the node is not running: write `async with transis\.Node"):
            await node.connect().open()

    run(story)


def test_a_node_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"node\.name|name = ''"):
        transis.Node("")
