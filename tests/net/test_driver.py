"""The driver's own promises: evidence before effect, the order of reading, waiting for room, and ends that say why."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.net.party import PATIENCE_S, Party, loopback, multicast_lan
from transis.net.driver import Driver
from transis.net.state import StateDirectory
from transis.net.transport import MeshTransport, StatisticsDict, Transport
from transis.trace.events import Delivery, Sent
from transis.trace.events import Event as Recorded
from transis.trace.recorder import Recorder
from transis.types.config import LOCAL, Config
from transis.types.errors import UsageError
from transis.types.ids import Service
from transis.types.outputs import EFFECTS, Audience, Configure, Delivered, News, NodeOutput, Observer, Port, Reach

CONFIG = Config(name="ann", timing=LOCAL, plaintext=True)


class Log:
    """What happened around one driver, in order: reads, evidence, sends, calls of the application."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.delivered = asyncio.Event()

    def write(self, events: Sequence[Recorded]) -> bool:
        self.lines += [f"evidence {type(event).__name__}" for event in events if isinstance(event, Sent | Delivery)]
        return True

    def hear(self, events: Sequence[News]) -> None:
        if any(isinstance(event, Delivered) for event in events):
            self.lines.append("told")
            self.delivered.set()


class Watched:
    """A transport that writes down what is asked of it, and does it."""

    def __init__(self, inner: Transport, log: Log) -> None:
        self._inner = inner
        self._log = log
        self.address = inner.address
        self.warnings = inner.warnings

    def files(self) -> Mapping[Port, int]:
        return self._inner.files()

    def send(self, to: str | Audience, port: Port, datagrams: Sequence[bytes]) -> None:
        self._log.lines.append(f"send {port.name}")
        self._inner.send(to, port, datagrams)

    def receive(self, port: Port) -> list[bytes]:
        self._log.lines.append(f"read {port.name}")
        return self._inner.receive(port)

    def install(self, addresses: Iterable[str]) -> None:
        self._inner.install(addresses)

    def statistics(self) -> StatisticsDict:
        return self._inner.statistics()

    def close(self) -> None:
        self._inner.close()


def mesh_of_one() -> MeshTransport:
    return MeshTransport(loopback(), CONFIG, None)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(in_time())


def test_evidence_comes_before_effects_and_tokens_are_read_before_data(tmp_path: Path) -> None:
    log = Log()

    async def story() -> None:
        transport = Watched(mesh_of_one(), log)
        driver = Driver(CONFIG, transport, StateDirectory(tmp_path, "ann"), log.hear)
        driver.observers.append(Recorder(driver.node.id, log))
        driver.start()
        await driver.send(Service.AGREED, [b"x"])
        await log.delivered.wait()
        driver.close()

    run(story)
    effects = [line for line in log.lines if not line.startswith("read")]
    assert effects.index("evidence Sent") < effects.index("send DATA")
    assert effects.index("evidence Delivery") < effects.index("told")
    reads = [line for line in log.lines if line.startswith("read")]
    assert reads == ["read TOKEN", "read CONTROL", "read DATA"] * (len(reads) // 3)


class Views(Observer):
    """The steps that it was called for, and how the life ended."""

    kinds = frozenset({Configure})

    def __init__(self) -> None:
        self.steps: list[Sequence[NodeOutput]] = []
        self.ends: list[str] = []

    def observe(self, now_us: int, outputs: Sequence[NodeOutput]) -> None:
        self.steps.append(list(outputs))

    def close(self, now_us: int, how: str) -> None:
        self.ends.append(how)


def test_an_observer_sees_whole_steps_that_have_what_it_wants_and_is_closed_once(tmp_path: Path) -> None:
    for leaves in (True, False):
        views, news = Views(), []

        async def story(views: Views = views, news: list[News] = news, leaves: bool = leaves) -> None:
            driver = Driver(CONFIG, mesh_of_one(), StateDirectory(tmp_path, "ann"), news.extend)
            driver.observers.append(views)
            driver.start()
            await driver.send(Service.AGREED, [b"x"])
            if leaves:
                await driver.leave()
            driver.close()

        run(story)
        assert all(any(isinstance(output, Configure) for output in step) for step in views.steps)
        assert any(isinstance(output, Reach) for step in views.steps for output in step)
        assert not any(isinstance(one, EFFECTS) for one in news)
        assert views.ends == ["stopped" if leaves else "failed"]


def test_an_application_may_send_from_inside(tmp_path: Path) -> None:
    async def story() -> None:
        async with Party(multicast_lan(), tmp_path) as party:
            ann, bob = party.invite("ann", "bob")

            def answer(events: Sequence[News]) -> None:
                asked = [run for run in events if isinstance(run, Delivered) and run.process.node.name == "ann"]
                for asking in asked:
                    bob.driver.submit(Service.AGREED, [b"answer to " + payload for payload in asking.payloads])

            bob.then = answer
            await party.together("ann", "bob")
            await ann.driver.send(Service.AGREED, [b"1", b"2"])
            await party.everybody_got(4)
            assert ann.texts == bob.texts == ["1", "2", "answer to 1", "answer to 2"]

    run(story)


def test_a_cancelled_sender_keeps_what_was_taken(tmp_path: Path) -> None:
    async def story() -> None:
        async with Party(multicast_lan(), tmp_path) as party:
            (ann,) = party.invite("ann")
            await party.together("ann")
            batch = [f"{number:06d}".encode().ljust(4000, b".") for number in range(3000)]
            taken = ann.driver.submit(Service.AGREED, batch)
            waiting = asyncio.create_task(ann.driver.send(Service.AGREED, [b"never"] * 10))
            await asyncio.wait([waiting], timeout=0)
            waiting.cancel()
            await ann.driver.send(Service.AGREED, [b"last"])
            await party.until(lambda: "last" in ann.texts)
            assert [text[:6] for text in ann.texts[:taken]] == [payload[:6].decode() for payload in batch[:taken]]

    run(story)


def test_who_waits_for_room_when_the_node_ends_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        driver = Driver(CONFIG, mesh_of_one(), StateDirectory(tmp_path, "ann"), lambda events: None)
        driver.start()
        waiting = asyncio.create_task(driver.send(Service.SAFE, [b"too early"]))
        await asyncio.wait([waiting], timeout=0)
        driver.close("pulled the plug")
        with pytest.raises(UsageError, match="the node has ended: pulled the plug"):
            await waiting
        assert await driver.ended() == "pulled the plug"
        assert await driver.leave()

    run(story)


def test_a_disk_that_fails_ends_the_node_with_its_error(tmp_path: Path) -> None:
    async def story() -> None:
        state = StateDirectory(tmp_path / "ann", "ann")
        shutil.rmtree(tmp_path / "ann")
        driver = Driver(CONFIG, mesh_of_one(), state, lambda events: None)
        driver.start()
        with pytest.raises(FileNotFoundError):
            await driver.ended()
        assert not await driver.leave()

    run(story)


def test_a_driver_runs_once_and_lets_go_of_everything(tmp_path: Path) -> None:
    async def story() -> None:
        driver = Driver(CONFIG, mesh_of_one(), StateDirectory(tmp_path, "ann"), lambda events: None)
        driver.start()
        with pytest.raises(UsageError, match="make a new one"):
            driver.start()
        assert await driver.leave()
        assert await driver.ended() == "left"
        never = Driver(CONFIG, mesh_of_one(), StateDirectory(tmp_path, "ann"), lambda events: None)
        assert await never.leave()
        assert await never.ended() == "left before it was started"
        StateDirectory(tmp_path, "ann").close()

    run(story)


def test_a_second_node_of_a_live_name_is_stopped_with_the_remedy(tmp_path: Path) -> None:
    async def story() -> None:
        opening = multicast_lan()
        async with Party(opening, tmp_path / "one") as first, Party(opening, tmp_path / "two") as second:
            (holder,) = first.invite("ann")
            await first.together("ann")
            (intruder,) = second.invite("ann")
            assert "a name of its own" in await intruder.driver.ended()
            assert holder.members == ["ann"]

    run(story)
