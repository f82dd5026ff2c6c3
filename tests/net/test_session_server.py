"""Sessions on real sockets: good clients are served, bad ones end alone, and everybody is told why."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.net.party import PATIENCE_S
from tests.net.visitors import KEY, House, Visitor
from transis.net.interfaces import configured_endpoint
from transis.net.listeners import Rarely
from transis.net.session_server import Patience
from transis.sessions.frames import FRAME_MAX, SESSION_VERSION, Ask, Bye, Done, Goodbye, Hello, Join, Welcome, encode_frame
from transis.sessions.host import TOO_SLOW, SessionPolicy
from transis.sessions.sealed import GREETING_SIZE
from transis.types.errors import ConfigError, UsageError

HELLO = encode_frame(Hello(SESSION_VERSION, "", 1 << 20))


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(in_time())


async def one_turn() -> None:
    """Let the loop do what it has to do."""
    loop = asyncio.get_running_loop()
    turn = loop.create_future()
    loop.call_soon(turn.set_result, None)
    await turn


async def together(visitor: Visitor, name: str, processes: list[int]) -> None:
    await visitor.until(lambda: visitor.views(name)[-1:] == [processes])


async def got(visitor: Visitor, *messages: bytes) -> None:
    await visitor.until(lambda: visitor.payloads()[-len(messages) :] == list(messages))


async def chat(one: Visitor, two: Visitor, *messages: bytes) -> None:
    """What one sends reaches both, after everything they had."""
    before = len(one.payloads())
    one.send("x", *messages)
    await got(one, *messages)
    await got(two, *messages)
    assert len(one.payloads()) == before + len(messages)


def done(visitor: Visitor) -> list[tuple[int, int]]:
    """Which of its messages a visitor knows to be delivered."""
    return [(frame.first, frame.count) for frame in visitor.frames if isinstance(frame, Done)]


# --- good clients -------------------------------------------------------------------------------------------------------------


def test_clients_join_talk_and_leave(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            one, two = await house.visit(), await house.visit()
            await one.join("x")
            await two.join("x")
            await chat(one, two, b"1", b"2", b"x" * 1_000_000)
            assert (1, 3) in done(one) or (1, 2) in done(one)
            two.say(Bye())
            assert await two.until_closed() == ["the client said Bye"]
            await together(one, "x", [one.process])
            one.close()

    run(story)


def test_a_client_that_is_gone_is_gone_from_its_groups(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            watcher = await house.visit()
            await watcher.join("x")
            for leave in (Visitor.close, Visitor.reset, Visitor.shut):
                goner = await house.visit()
                await goner.join("x")
                await together(watcher, "x", [watcher.process, goner.process])
                leave(goner)
                await together(watcher, "x", [watcher.process])
                goner.close()
            watcher.close()

    run(story)


def test_frames_may_come_byte_by_byte(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            visitor = await house.stranger()
            for byte in HELLO + encode_frame(Join("x")):
                visitor.write(bytes([byte]))
                await one_turn()
            await visitor.until(lambda: visitor.views("x") != [])
            visitor.close()

    run(story)


def test_a_pair_of_sockets_may_be_adopted(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            ours, theirs = socket.socketpair()
            await house.server.adopt(ours)
            visitor = Visitor(*await asyncio.open_connection(sock=theirs))
            await visitor.greet()
            await visitor.join("x")
            visitor.send("x", b"by hand")
            await visitor.until(lambda: visitor.payloads() == [b"by hand"])
            visitor.close()

    run(story)


def test_statistics_of_the_driver_are_there_for_the_asking(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            visitor = await house.visit()
            visitor.say(Ask(1, "statistics"))
            await visitor.until(lambda: len(visitor.frames) == 2)
            assert b"turns" in visitor.frames[1].value  # type: ignore[union-attr]
            visitor.close()

    run(story)


def test_a_thousand_clients(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            visitors = [await house.visit() for _ in range(1000)]
            assert len(house.host.sessions()) == 1000
            for number, visitor in enumerate(visitors):
                visitor.say(Join(f"g{number % 100}"))
            for number, visitor in enumerate(visitors):
                await together(visitor, f"g{number % 100}", [one.process for one in visitors[number % 100 :: 100]])
            for number in range(100):
                visitors[number].send(f"g{number}", b"to %d" % number)
            for number, visitor in enumerate(visitors):
                await got(visitor, b"to %d" % (number % 100))
                assert len(visitor.payloads()) == 1
            for visitor in visitors:
                visitor.close()

    run(story)


# --- bad clients --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("junk", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", f"at most {FRAME_MAX} are allowed"),
        (b"\x00\x00\x00\x01\xc1", "cannot be read"),
        (encode_frame(Join("x")), "a session begins with Hello"),
        ((1 << 20).to_bytes(4) + bytes(5000), "a session begins with Hello"),
        (encode_frame(Hello(99, "", 1)), "install the same release"),
        (HELLO + b"\x00\x00\x00\x03\x92\x22\xa0", "cannot be read"),
        (HELLO + HELLO, "said Hello twice"),
        (HELLO + (FRAME_MAX + 1).to_bytes(4), f"at most {FRAME_MAX} are allowed"),
    ],
    ids=["http", "no msgpack", "no hello", "large hello", "version", "a node's frame", "hello twice", "length"],
)
def test_garbage_is_answered_and_ends_its_connection_alone(tmp_path: Path, junk: bytes, why: str) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            good, bad = await house.visit(), await house.stranger()
            await good.join("x")
            bad.write(junk)
            (said,) = await bad.until_closed()
            assert why in said
            await chat(good, good, b"still here")
            assert [status.process for status in house.host.sessions()] == [good.process]
            good.close()

    run(story)


def test_junk_is_counted_and_the_first_of_a_kind_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            for _ in range(3):
                bad = await house.stranger()
                bad.write(b"\xff" * 8)
                await bad.until_closed()
            assert house.server.rejections == {"length": 3}

    with caplog.at_level(logging.WARNING, "transis.sessions"):
        run(story)
    assert len([record for record in caplog.records if "cannot be read" in record.getMessage()]) == 1


def test_strangers_over_tcp_are_one_line_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Garbage and wrong keys, from wherever: the line says how many, and what was wrong with the last."""

    async def story() -> None:
        async with House(tmp_path) as house:
            port = await house.listen_tcp()
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                assert len(await reader.read()) == GREETING_SIZE
                writer.close()
                wrong = await house.sealed(port, bytes(32))
                await wrong.until_closed()
            assert house.server.rejections == {"greeting": 5, "seal": 5}

    with caplog.at_level(logging.INFO, "transis.sessions"):
        run(story)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "a client at 127.0.0.1 turned away (1 since this was last logged): what this client sent cannot be read"
    )


def test_what_happens_often_is_told_once_a_minute_with_a_count() -> None:
    times = iter([0.0, 1.0, 59.9, 60.0, 61.0, 130.0])
    rarely = Rarely(lambda: next(times))
    assert [rarely.due() for _ in range(6)] == [1, 0, 0, 3, 0, 2]


def test_who_says_nothing_is_sent_away(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path, patience=Patience(hello_s=0.02)) as house:
            silent = await house.stranger()
            assert await silent.until_closed() == ["no Hello within 0.02 s"]

    run(story)


def test_one_too_many_is_told_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path, SessionPolicy(sessions_max=1)) as house:
            first, second = await house.visit(), await house.stranger()
            second.write(HELLO)
            (why,) = await second.until_closed()
            assert "1 sessions are open" in why
            first.close()

    run(story)


def test_a_client_that_never_reads_is_thrown_out_and_the_others_get_everything(tmp_path: Path) -> None:
    """Its credit is endless, so it is the socket that is full; what waits stays in the host, where it is counted."""

    async def story() -> None:
        policy = SessionPolicy(queue_max=1 << 20, total_max=8 << 20, send_window=256 * 1024)
        async with House(tmp_path, policy, Patience(linger_s=PATIENCE_S)) as house:
            deaf, one, two = await house.visit(1 << 32), await house.visit(), await house.visit()
            for visitor in (deaf, one, two):
                await visitor.join("x")
            sent = 0
            while house.host.statistics(deaf.process) and deaf.process not in house.host.over():
                await chat(one, two, *[b"%d" % (sent + at) + bytes(10_000) for at in range(20)])
                sent += 20
                assert sent < 5000, "it must end"
            await together(two, "x", [one.process, two.process])
            assert len(one.payloads()) == len(two.payloads()) == sent
            (why,) = await deaf.until_closed()
            assert why.startswith(TOO_SLOW)
            assert "sessions.queue_max" in why
            assert deaf.payloads() == one.payloads()[: len(deaf.payloads())]
            one.close()
            two.close()

    run(story)


def test_a_bug_in_one_session_ends_that_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with House(tmp_path, statistics=lambda: {"broken": 1 // 0}) as house:
            good, unlucky = await house.visit(), await house.visit()
            await good.join("x")
            unlucky.say(Ask(1, "statistics"))
            await unlucky.until_closed()
            await chat(good, good, b"still here")
            good.close()

    run(story)
    assert "this is a bug" in caplog.text


# --- sealed TCP ---------------------------------------------------------------------------------------------------------------


def test_sealed_sessions_over_tcp(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            remote, local = await house.sealed(await house.listen_tcp()), await house.visit()
            await remote.greet()
            await remote.join("x")
            await local.join("x")
            await chat(remote, local, b"secret", b"s" * 700_000)
            remote.say(Bye())
            assert await remote.until_closed() == ["the client said Bye"]
            local.close()

    run(story)


def test_a_wrong_key_is_closed_counted_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            port = await house.listen_tcp()
            for _ in range(2):
                intruder = await house.sealed(port, bytes(32))
                intruder.say(Hello(SESSION_VERSION, "", 1))
                assert await intruder.until_closed() == []
                assert intruder.rejection is not None
                assert intruder.rejection.field == "seal"
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HELLO)
            assert len(await reader.read()) == GREETING_SIZE
            writer.close()
            assert house.server.rejections == {"seal": 2, "greeting": 1}
            assert house.host.sessions() == []

    run(story)
    (line,) = [record.getMessage() for record in caplog.records if "turned away" in record.getMessage()]
    assert "the seal does not fit: another key" in line


def test_tcp_needs_a_key_and_a_free_port(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            port = await house.listen_tcp()
            with pytest.raises(ConfigError, match=r"sessions\.tcp.*nobody can listen there: Address already in use"):
                await house.server.listen_tcp(configured_endpoint("tcp", f"127.0.0.1:{port}"), KEY)
            with pytest.raises(ConfigError, match="exactly 32 bytes"):
                await house.server.listen_tcp(configured_endpoint("tcp", "127.0.0.1:1"), b"short")

    run(story)


# --- the socket file ----------------------------------------------------------------------------------------------------------


def test_the_socket_is_for_those_it_is_meant_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            assert stat.S_IMODE(os.stat(house.path).st_mode) == 0o600
            await house.server.listen_unix(tmp_path / "all", 0o666)
            assert stat.S_IMODE(os.stat(tmp_path / "all").st_mode) == 0o666
        assert not house.path.exists()

    run(story)


def test_a_living_server_is_not_replaced_and_a_dead_one_is(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            with pytest.raises(ConfigError, match="another server listens there"):
                await house.server.listen_unix(house.path)
            stale = tmp_path / "stale"
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(stale))
            await house.server.listen_unix(stale)
            visitor = Visitor(*await asyncio.open_unix_connection(str(stale)))
            await visitor.greet()
            assert isinstance(visitor.frames[0], Welcome)
            visitor.close()

    run(story)


def test_paths_that_cannot_be_are_refused_with_the_reason(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            (tmp_path / "file").write_text("precious")
            for path, why in (
                (tmp_path / "file", "no socket: remove it or choose another path"),
                (tmp_path / ("x" * 108), "at most 107 bytes"),
                (tmp_path / "nowhere" / "s", "nobody can listen there: No such file"),
            ):
                with pytest.raises(ConfigError, match=why):
                    await house.server.listen_unix(path)
            assert (tmp_path / "file").read_text() == "precious"

    run(story)


# --- ends ---------------------------------------------------------------------------------------------------------------------


def test_closing_says_goodbye_to_everybody(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path, patience=Patience(linger_s=PATIENCE_S)) as house:
            stranger = await house.stranger()
            visitors = [await house.visit() for _ in range(3)]
            closing = asyncio.create_task(house.server.close("maintenance"))
            for visitor in [*visitors, stranger]:
                assert await visitor.until_closed() == ["maintenance"]
            await closing
            with pytest.raises(UsageError, match="closed"):
                await house.server.listen_unix(tmp_path / "again")

    run(story)


def test_closing_does_not_wait_for_the_deaf(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path, patience=Patience(linger_s=0.05)) as house:
            deaf = await house.visit()
            await house.server.close("maintenance")
            assert await deaf.until_closed() == ["maintenance"]

    run(story)


@pytest.mark.parametrize("end", ["leaves", "is closed", "fails"])
def test_when_the_node_ends_the_clients_are_told(tmp_path: Path, end: str) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            visitor = await house.visit()
            await visitor.join("x")
            if end == "leaves":
                assert await house.driver.leave()
            elif end == "is closed":
                house.driver.close("pulled the plug")
            else:
                house.then = lambda events: 1 // 0
                visitor.send("x", b"the last straw")
            goodbyes = await visitor.until_closed()
            assert len(goodbyes) == 1
            assert goodbyes[0].startswith("the node has stopped: ")
            late = await house.stranger()
            late.write(HELLO)
            assert "the node has stopped" in (await late.until_closed())[0]

    run(story)


def test_goodbye_is_the_last_frame(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            visitor = await house.visit()
            await visitor.join("x")
            visitor.send("x", *[bytes(1000)] * 100)
            await visitor.until(lambda: (1, 100) in done(visitor) or len(visitor.payloads()) == 100)
            house.host.disconnect(house.server.now(), visitor.process, "enough")
            house.server.worked()
            await visitor.until_closed()
            assert visitor.frames[-1] == Goodbye("enough")

    run(story)
