"""Nothing that fails in the background is left for the loop to complain about: no future's exception is never retrieved."""

from __future__ import annotations

import asyncio
import gc
import shutil
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.net.party import PATIENCE_S, loopback
from tests.net.test_session_server import one_turn
from tests.net.visitors import House
from transis.client.connection import connect
from transis.client.snapshot import SnapshotProviders
from transis.client.state import Transfer
from transis.client.transfer import PrivateMessage
from transis.net.driver import Driver
from transis.net.state import StateDirectory
from transis.net.transport import MeshTransport
from transis.types.config import LOCAL, Config
from transis.types.errors import TransisError, UsageError
from transis.types.ids import NodeId, ProcessId


@asynccontextmanager
async def complaints() -> AsyncIterator[list[str]]:
    """What the loop's exception handler hears, also of what nobody holds any more in the end."""
    heard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: heard.append(str(context["message"])))
    yield heard
    for _ in range(10):
        await one_turn()
    gc.collect()
    await one_turn()


def heard_in(story: Callable[[], Awaitable[Any]]) -> list[str]:
    async def within() -> list[str]:
        async with asyncio.timeout(PATIENCE_S), complaints() as heard:
            await story()
        return heard

    return asyncio.run(within())


def test_a_state_that_cannot_be_written_while_the_node_ends(tmp_path: Path) -> None:
    """The write fails in its thread, and the node is closed before it hears of that."""

    async def story() -> None:
        config = Config(name="ann", timing=LOCAL, plaintext=True)
        driver = Driver(config, MeshTransport(loopback(), config, None), StateDirectory(tmp_path / "state", "ann"))
        shutil.rmtree(tmp_path / "state")
        driver.start()
        await one_turn()
        driver.close("the test says so")
        assert await driver.ended() == "the test says so"

    assert heard_in(story) == []


def test_a_state_that_cannot_be_written_ends_the_node_with_a_sentence(tmp_path: Path) -> None:
    async def story() -> None:
        house = House(tmp_path)
        shutil.rmtree(tmp_path / "state")
        async with house:
            visitor = await house.visit()
            (why,) = await visitor.until_closed()
            assert f"{tmp_path / 'state' / 'incarnation'}: No such file or directory" in why
            assert "Errno" not in why

    assert heard_in(story) == []


def test_a_session_whose_node_goes_while_everything_is_asked(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            async with connect(str(house.path)) as session:
                receipt = await session.send("x", b"nobody waits for its receipt")
                joining = asyncio.create_task(session.join("x").__aenter__())
                asking = [asyncio.create_task(session.statistics()) for _ in range(3)]
                await one_turn()
                asking[0].cancel()
                house.driver.close("the test says so")
                await house.server.close()
                asking[1].cancel()
                for task in (joining, *asking):
                    with suppress(TransisError, asyncio.CancelledError):
                        await task
            assert receipt.outcome in ("delivered", "in doubt", "refused")

    assert heard_in(story) == []


def test_clients_that_are_gone_before_they_are_let_in(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            port = await house.listen_tcp()
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", port)) as gone:
                    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            visitor = await house.visit()
            visitor.close()

    assert heard_in(story) == []


def test_a_snapshot_that_fails_after_its_session_was_closed() -> None:
    """The program hears why there was no snapshot, and nothing else."""

    async def story() -> None:
        def save() -> list[bytes]:
            raise ValueError("no snapshot today")

        async def send(joiner: ProcessId, message: PrivateMessage) -> None:
            raise UsageError("the session is closed")

        async def load(chunks: Any) -> None:
            raise AssertionError("nobody loads anything here")

        providers = SnapshotProviders(7, Transfer(save, load), send, lambda: None)
        providers.provide(ProcessId(NodeId("bob", 1, 7), 3), 1, ())
        await one_turn()

    (said,) = heard_in(story)
    assert "no snapshot today" in said
