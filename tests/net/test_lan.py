"""Sealed nodes as processes on a LAN of namespaces: traffic, a pulled cable, kill -9, SIGSTOP, restart, a graceful end.

Each test ends with the checkers over the traces that the processes wrote.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.net.lan import NETWORK, NETWORK_IPV6, LanOfNamespaces, why_not
from tests.net.party import PATIENCE_S
from transis.audit.guarantees import check
from transis.trace.events import End, History, NodeTrace
from transis.trace.reader import read_history

NAMES = ("ann", "bob", "eve")
WAYS = {
    "multicast": (NETWORK, ("multicast",)),
    "multicast-ipv6": (NETWORK_IPV6, ("multicast",)),
    "mesh": (NETWORK, ("198.18.0.1:5405",)),
}


@pytest.fixture(scope="module")
def lan() -> Iterator[LanOfNamespaces]:
    if reason := why_not():
        pytest.skip(reason)
    built = LanOfNamespaces(NAMES)
    yield built
    built.close()


class Machine:
    """A process in its namespace and the newest of what it said."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.view: list[str] = []
        self.told = 0
        self.ended = ""
        self.process: asyncio.subprocess.Process | None = None

    async def boot(
        self, space: str, directory: Path, network: str, engine: str, how: tuple[str, ...], changed: asyncio.Event
    ) -> None:
        self.view, self.told = [], 0
        command = ("ip", "netns", "exec", space, sys.executable, "-m", "tests.net.lan_node", self.name, str(directory), network)
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(*command, engine, *how, stdin=pipe, stdout=pipe)
        self.listening = asyncio.create_task(self._listen(self.process, changed))

    async def _listen(self, process: asyncio.subprocess.Process, changed: asyncio.Event) -> None:
        assert process.stdout is not None
        while line := (await process.stdout.readline()).decode().split():
            match line:
                case ["view", *members]:
                    self.view = members
                case ["told", count]:
                    self.told = int(count)
                case ["ended", *why]:
                    self.ended = " ".join(why)
            changed.set()

    def order(self, line: str) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def gone(self) -> None:
        if self.process is not None:
            await self.process.wait()
            await self.listening


class Site:
    def __init__(self, lan: LanOfNamespaces, directory: Path, engine: str, network: str, how: tuple[str, ...]) -> None:
        self.lan = lan
        self.machines = {name: Machine(name) for name in NAMES}
        self._directory = directory
        self._engine = engine
        self._network = network
        self._how = how
        self._changed = asyncio.Event()

    async def boot(self, *names: str) -> None:
        for name in names:
            space = self.lan.space(name)
            await self.machines[name].boot(space, self._directory, self._network, self._engine, self._how, self._changed)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self._changed.wait()
                self._changed.clear()

    async def together(self, *names: str) -> None:
        await self.until(lambda: all(self.machines[name].view == list(names) for name in names))

    async def talk(self, count: int, *names: str) -> None:
        """Everybody named sends, and everybody named is told all of it."""
        before = {name: self.machines[name].told for name in names}
        for name in names:
            self.machines[name].order(f"send {count}")
        await self.until(lambda: all(self.machines[name].told >= before[name] + count * len(names) for name in names))

    async def end(self) -> None:
        for machine in self.machines.values():
            machine.order("leave")
        await self.until(lambda: all(machine.ended for machine in self.machines.values()))
        for machine in self.machines.values():
            await machine.gone()

    def give_up(self) -> None:
        for machine in self.machines.values():
            if machine.process is not None and machine.process.returncode is None:
                machine.process.kill()


def tell(
    lan: LanOfNamespaces, directory: Path, engine: str, way: str, story: Callable[[Site], Awaitable[None]], killed: str = ""
) -> None:
    async def run() -> None:
        site = Site(lan, directory, engine, *WAYS[way])
        try:
            await story(site)
            await site.end()
        finally:
            site.give_up()

    asyncio.run(run())
    history = read_history(directory / "traces")
    assert check(_with_end(history, killed)).broken == ()


def _with_end(history: History, killed: str) -> History:
    """Who saw the first life of a node being killed writes its end."""
    nodes = [
        NodeTrace(node, [*events, End(events[-1].lseq + 1, events[-1].time_us, "failed")])
        if node.name == killed and node.incarnation == 1
        else NodeTrace(node, events)
        for node, events in history.nodes
    ]
    return history._replace(nodes=nodes)


@pytest.mark.parametrize("way", WAYS)
def test_a_pulled_cable_parts_and_a_plugged_one_merges(lan: LanOfNamespaces, tmp_path: Path, engine: str, way: str) -> None:
    async def story(site: Site) -> None:
        await site.boot(*NAMES)
        await site.together(*NAMES)
        await site.talk(200, *NAMES)
        lan.unplug("bob")
        await site.together("ann", "eve")
        await site.together("bob")
        await site.talk(20, "ann", "eve")
        await site.talk(20, "bob")
        lan.plug("bob")
        await site.together(*NAMES)
        await site.talk(20, *NAMES)

    tell(lan, tmp_path, engine, way, story)


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_process_returns_and_a_stopped_one_is_taken_back(
    lan: LanOfNamespaces, tmp_path: Path, engine: str, way: str
) -> None:
    async def story(site: Site) -> None:
        await site.boot(*NAMES)
        await site.together(*NAMES)
        site.machines["eve"].signal(signal.SIGKILL)
        await site.machines["eve"].gone()
        await site.together("ann", "bob")
        await site.boot("eve")
        await site.together(*NAMES)
        site.machines["bob"].signal(signal.SIGSTOP)
        await site.together("ann", "eve")
        await site.talk(20, "ann", "eve")
        site.machines["bob"].signal(signal.SIGCONT)
        await site.together(*NAMES)
        await site.talk(20, *NAMES)

    tell(lan, tmp_path, engine, way, story, killed="eve")
