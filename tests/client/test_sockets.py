"""Sessions over real sockets with a real node: where it is looked for, sealed or not, lost or not; and the blocking twin."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.client.loops import run
from tests.client.test_streams import messages
from tests.net.visitors import KEY, House
from transis import blocking, connect
from transis.blocking.thread import LoopThread
from transis.client import Batch, Configuration, Json, Message, View
from transis.sessions.frames import BATCH_BYTES
from transis.types.errors import ConnectError, InDoubt, SessionLost, TransferInterrupted, UsageError
from transis.types.ids import Service

WAIT_S = 20.0


@contextmanager
def environment(**wanted: str) -> Iterator[None]:
    """These variables, and no others that matter here; as they were afterwards."""
    names = ("TRANSIS_SOCKET", "XDG_RUNTIME_DIR")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


def test_the_six_lines(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            with environment(TRANSIS_SOCKET=str(house.path)):
                async with connect() as session, session.join("orders") as group:
                    receipt = await group.send(b"new order", Service.SAFE)
                    seen = []
                    async for event in group:
                        match event:
                            case Message(sender=s, data=d):
                                assert (s, d) == (session.process, b"new order")
                                break
                            case View(members=m):
                                seen.append(m)
                    await receipt
                    assert seen == [(session.process,)]

    run(story)


def test_no_node_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    async def story() -> None:
        # Not by XDG_RUNTIME_DIR: a daemon of this machine, at the last place of the rule, would be found.
        with environment(TRANSIS_SOCKET=str(tmp_path / "none")), pytest.raises(ConnectError) as caught:
            await connect().open()
        assert str(tmp_path) in str(caught.value)
        assert "transis up" in str(caught.value)
        stale = tmp_path / "stale"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(stale))
        with pytest.raises(ConnectError, match="transis daemon"):
            await connect(str(stale)).open()
        with pytest.raises(ConnectError, match=r"no node listens at 127.0.0.1:1 \(Connection refused\); a daemon listens"):
            await connect(host="127.0.0.1:1", key=KEY).open()
        with pytest.raises(ConnectError, match="no node listens at"):
            await connect(str(tmp_path / "nothing")).open()

    run(story)


def test_large_messages_and_many_of_them(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house, connect(str(house.path), window=1 << 20) as ann, ann.join("g") as group:
            sizes = [0, 1, BATCH_BYTES - 1, BATCH_BYTES, BATCH_BYTES + 1, 5 << 20, *range(2000)]
            sending = asyncio.ensure_future(group.send_many([bytes(size) for size in sizes]))
            assert [len(data) for data in await messages(group, len(sizes))] == sizes
            await (await sending)

    run(story)


def test_a_session_over_tcp_is_sealed(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            host = f"127.0.0.1:{await house.listen_tcp()}"
            async with connect(host=host, key=KEY) as ann, ann.join("g") as group:
                await group.send(b"over the wire")
                assert await messages(group, 1) == [b"over the wire"]
            with pytest.raises(ConnectError, match="is the key the same"):
                await connect(host=host, key=bytes(32)).open()
        with pytest.raises(ConnectError, match="no node listens"):
            await connect(host=host, key=KEY).open()

    run(story)


@pytest.mark.parametrize(
    ("host", "key", "path"),
    [
        ("nowhere", KEY, None),
        ("a:1", None, None),
        (":7", KEY, None),
        ("a:1", KEY, "p"),
        ("127.0.0.1:99999", KEY, None),
        ("127.0.0.1:0", KEY, None),
        ("a..b:5", KEY, None),
        ("a:²", KEY, None),
    ],
)
def test_addresses_that_are_none(host: str, key: bytes | None, path: str | None) -> None:
    async def story() -> None:
        with pytest.raises(UsageError):
            await connect(path, host=host, key=key).open()

    run(story)


def test_a_node_that_goes_down_says_so_and_the_stream_ends_behind_what_came(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            ann = await connect(str(house.path)).open()
            group = await ann.join("g").open()
            await (await group.send(b"x"))
            await house.server.close("the machine restarts")
            assert await messages(group, 1) == [b"x"]
            with pytest.raises(SessionLost, match="the machine restarts"):
                await anext(group)
            assert str(house.path) in str(await asyncio.gather(ann.send("g", b"y"), return_exceptions=True))
            await ann.close()

    run(story)


def test_garbage_instead_of_frames_ends_the_session(tmp_path: Path) -> None:
    async def story() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"\xff" * 100)
            await reader.read()
            writer.close()

        server = await asyncio.start_unix_server(serve, str(tmp_path / "s"))
        with pytest.raises(ConnectError, match="cannot be read"):
            await connect(str(tmp_path / "s")).open()
        server.close()
        await server.wait_closed()

    run(story)


# --- the blocking twin --------------------------------------------------------------------------------------------------------


class Elsewhere:
    """A node in a thread of its own, as if it were a daemon."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "s")
        self._directory = directory
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        async with House(self._directory) as self.house:
            self._ready.set()
            await self._over.wait()

    def __enter__(self) -> Elsewhere:
        self._thread.start()
        assert self._ready.wait(WAIT_S)
        return self

    def do(self, work: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(work)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(WAIT_S)


def test_the_same_in_a_script(tmp_path: Path) -> None:
    with Elsewhere(tmp_path) as node, blocking.connect(node.path, timeout=WAIT_S) as session:
        with session.join("orders", timeout=WAIT_S) as group:
            receipt = group.send(b"new order", Service.SAFE, timeout=WAIT_S)
            receipt.wait(timeout=WAIT_S)
            receipt.wait()
            assert (receipt.outcome, receipt.count, receipt.id.counter) == ("delivered", 1, 1)
            group.send_many([b"%d" % number for number in range(1000)])
            seen = []
            for event in group:
                seen += [event.data] if isinstance(event, Message) else []
                if len(seen) == 1001:
                    break
            assert seen == [b"new order", *(b"%d" % number for number in range(1000))]
            assert group.members == (session.process,)
            with pytest.raises(TimeoutError):
                group.next(timeout=0.01)
            session.send(session.process, b"private")
            assert session.private.next(timeout=WAIT_S).data == b"private"  # type: ignore[union-attr]
            assert session.statistics()["client"]["sent"] == 1002
            group.leave()
            assert list(group) == []
        assert not session.closed
    assert session.closed
    with pytest.raises(UsageError):
        session.send("g", b"x")
    session.close()


def test_batches_and_several_threads(tmp_path: Path) -> None:
    with Elsewhere(tmp_path) as node, blocking.connect(node.path, codec=Json(int)) as session, session.join("g") as group:
        threads = [threading.Thread(target=group.send_many, args=([number] * 500,)) for number in range(4)]
        for thread in threads:
            thread.start()
        got: list[int] = []
        for batch in group.batches():
            got += [message.data for message in batch] if isinstance(batch, Batch) else []
            if len(got) == 2000:
                break
        for thread in threads:
            thread.join()
        assert sorted(got) == sorted(number for number in range(4) for _ in range(500))


def test_positions_and_checkpoints_are_those_of_the_reader_not_of_what_was_read_ahead(tmp_path: Path) -> None:
    with Elsewhere(tmp_path) as node, blocking.connect(node.path) as session:
        assert session.about(timeout=WAIT_S)["engine"] == "totem"
        with session.join("g", configurations=True, timeout=WAIT_S) as group:
            for _ in range(5):
                group.send_many([b"x"] * 10, timeout=WAIT_S).wait(timeout=WAIT_S)
            with pytest.raises(UsageError, match="before the first view"):
                _ = group.position
            first = group.next(timeout=WAIT_S)
            assert isinstance(first, View)
            assert (group.position.view, group.position.count) == (first.id, 0)
            for count in range(1, 13):
                message = group.next(timeout=WAIT_S)
                assert isinstance(message, Message)
                assert (group.position.count, group.position.counter, group.position.place) == (count, count, message.place)
                assert group.is_due(4) is (count % 4 == 0)
            group.checkpoint(b"state")
            rest = group.next_batch(timeout=WAIT_S)
            assert (len(rest), group.position.count) == (8, 20)
        with session.join("h", configurations=True, timeout=WAIT_S) as group:
            configuration, view = group.next_of_all(WAIT_S), group.next_of_all(WAIT_S)
            assert isinstance(configuration, Configuration)
            assert isinstance(view, View)


def test_control_c_ends_a_wait_and_loses_nothing(tmp_path: Path) -> None:
    with Elsewhere(tmp_path) as node, blocking.connect(node.path) as session, session.join("g") as group:
        assert isinstance(group.next(timeout=WAIT_S), View)
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            with pytest.raises(KeyboardInterrupt):
                group.next()
        finally:
            signal.signal(signal.SIGALRM, before)
        group.send(b"still there")
        event = group.next(timeout=WAIT_S)
        assert isinstance(event, Message)
        assert event.data == b"still there"


def test_a_lost_node_is_an_error_here_too(tmp_path: Path) -> None:
    with Elsewhere(tmp_path) as node:
        session = blocking.connect(node.path).open()
        group = session.join("g").open()
        assert isinstance(group.next(timeout=WAIT_S), View)
        node.do(lambda: node.house.driver.close("pulled out"))
        with pytest.raises(SessionLost):
            group.next(timeout=WAIT_S)
        with pytest.raises(SessionLost):
            session.send("g", b"x", timeout=WAIT_S)
        session.close()


def test_a_receipt_that_is_in_doubt_raises(tmp_path: Path) -> None:
    with Elsewhere(tmp_path) as node:
        session = blocking.connect(node.path).open()
        receipt = session.send("g", bytes(1 << 20))
        session.close()
        if receipt.outcome == "in doubt":
            with pytest.raises(InDoubt):
                receipt.wait()
        else:
            receipt.wait()


def test_state_transfer_in_threads(tmp_path: Path) -> None:
    state = [b"%d" % number for number in range(100)]
    loaded: list[bytes] = []

    def load(chunks: Iterator[bytes]) -> None:
        loaded.extend(chunks)

    with Elsewhere(tmp_path) as node, blocking.connect(node.path) as ann, blocking.connect(node.path) as bob:
        old = ann.join("g", state=blocking.Transfer(lambda: iter(state), load), timeout=WAIT_S).open()
        reader = threading.Thread(target=lambda: list(old))
        reader.start()
        with bob.join("g", state=blocking.Transfer(lambda: iter(loaded), load), timeout=WAIT_S) as new:
            assert loaded == state
            ann.send("g", b"after")
            got = [event for event in (new.next(WAIT_S), new.next(WAIT_S)) if isinstance(event, Message)]
            assert [event.data for event in got] == [b"after"]
        old.leave()
        reader.join(WAIT_S)
        assert not reader.is_alive()


def test_a_join_that_gave_up_in_the_middle_of_its_load_does_not_keep_a_session_from_closing(tmp_path: Path) -> None:
    """The load runs in a thread that waits for chunks: it is told that none will come."""
    loads: list[str] = []

    async def endless() -> AsyncIterator[bytes]:
        yield bytes(BATCH_BYTES)
        await asyncio.Event().wait()

    def load(chunks: Iterator[bytes]) -> None:
        try:
            for _ in chunks:
                loads.append("a chunk")
        except TransferInterrupted:
            loads.append("the end")

    with Elsewhere(tmp_path) as node, blocking.connect(node.path) as ann:
        giving = blocking.Transfer(endless, load)  # type: ignore[arg-type]  # What it hands on may be asynchronous as well.
        old = ann.join("g", state=giving, timeout=WAIT_S).open()
        reader = threading.Thread(target=lambda: list(old))
        reader.start()
        with blocking.connect(node.path) as bob, pytest.raises(TimeoutError):
            bob.join("g", state=blocking.Transfer(lambda: iter(()), load), timeout=0.5).open()
        assert loads[-1:] in ([], ["the end"])
        old.leave()
        reader.join(WAIT_S)
        assert not reader.is_alive()


# --- the thread beneath it ----------------------------------------------------------------------------------------------------


def test_who_waits_in_a_loop_that_is_stopped_is_told() -> None:
    thread = LoopThread()
    waits = threading.Event()
    told: list[str] = []

    async def for_ever() -> None:
        waits.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            thread.call(for_ever())
        except UsageError as error:
            told.append(str(error))

    caller = threading.Thread(target=call)
    caller.start()
    assert waits.wait(WAIT_S)
    thread.stop()
    caller.join(WAIT_S)
    assert told == ["the session is closed"]
    with pytest.raises(UsageError):
        thread.call(for_ever())


def test_a_call_from_the_loop_s_own_thread_is_refused() -> None:
    thread = LoopThread()

    async def nothing() -> None:
        """It is never begun."""

    async def inside() -> None:
        thread.call(nothing())

    with pytest.raises(UsageError, match="wait for itself"):
        thread.call(inside(), WAIT_S)
    thread.stop()
