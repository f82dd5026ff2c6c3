"""Nodes on real sockets of the loopback interface, for the tests of this room: started, watched and awaited in one loop."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from transis.net.driver import Driver
from transis.net.interfaces import Interface, choose_interface
from transis.net.state import StateDirectory
from transis.net.transport import Group, MeshTransport, MulticastTransport, Transport
from transis.trace.events import NodeTrace
from transis.trace.recorder import MemorySink, Recorder
from transis.types.config import LOCAL, LOCAL_PULSE, Config
from transis.types.ids import Service
from transis.types.outputs import Configure, Delivered, News, Refused, Stopped

PATIENCE_S = 30.0
"""Longer than anything takes here, even on a machine that does a lot besides."""

_ports = itertools.count(5410, 2)

Opening = Callable[[Config], Transport]


def loopback(version: int = 4) -> Interface:
    return choose_interface("127.0.0.1" if version == 4 else "::1")


def multicast_lan() -> Opening:
    """Ports that no other test of this process uses, and a group that no other process uses."""
    port, process = next(_ports), os.getpid()
    group = Group(f"239.192.{process >> 8 & 255}.{process & 255}", port, port + 1)
    return lambda config: MulticastTransport(loopback(), group)


def mesh_around(seeds: list[str], key: bytes | None = None, version: int = 4) -> Opening:
    """The first to open becomes a seed of all, itself included: its address is not known before."""

    def opening(config: Config) -> Transport:
        transport = MeshTransport(loopback(version), config, key, tuple(seeds))
        if not seeds:
            seeds.append(transport.address)
        return transport

    return opening


class Guest:
    """One driver with everything it told its application."""

    def __init__(
        self,
        name: str,
        opening: Opening,
        directory: Path,
        changed: asyncio.Event,
        key: bytes | None = None,
        engine: str = "totem",
    ) -> None:
        self.name = name
        self.events: list[News] = []
        self.then: Callable[[Sequence[News]], None] = lambda events: None
        self.sink = MemorySink()
        config = Config(name=name, timing=LOCAL, plaintext=key is None, engine=engine, pulse=LOCAL_PULSE)
        self.transport = opening(config)
        state = StateDirectory(directory, name)
        self._changed = changed
        self.driver = Driver(config, self.transport, state, self._hear, key=key)
        self.driver.observers.append(Recorder(self.driver.node.id, self.sink))

    def _hear(self, events: Sequence[News]) -> None:
        self.events.extend(events)
        self._changed.set()
        self.then(events)

    @property
    def members(self) -> list[str]:
        view = self.driver.view
        return [node.name for node in view.nodes] if view is not None and view.id.is_regular else []

    @property
    def payloads(self) -> list[bytes]:
        runs = [event for event in self.events if isinstance(event, Delivered)]
        return [bytes(payload) for run in runs for payload in run.payloads]

    @property
    def texts(self) -> list[str]:
        """The beginnings of what was delivered, in order."""
        return [payload[:40].decode() for payload in self.payloads]

    @property
    def refused(self) -> int:
        return sum(event.ids.count for event in self.events if isinstance(event, Refused))

    @property
    def stops(self) -> list[str]:
        return [event.why for event in self.events if isinstance(event, Stopped)]

    @property
    def views(self) -> int:
        return sum(isinstance(event, Configure) for event in self.events)

    @property
    def trace(self) -> NodeTrace:
        return NodeTrace(self.driver.node.id, list(self.sink.events))


class Party:
    """Guests on one LAN; `until` waits for a condition that their events may bring about."""

    def __init__(self, opening: Opening, directory: Path, key: bytes | None = None, engine: str = "totem") -> None:
        self._opening = opening
        self._directory = directory
        self._key = key
        self.engine = engine
        self._changed = asyncio.Event()
        self.guests: list[Guest] = []
        self.ever: list[Guest] = []

    async def __aenter__(self) -> Party:
        return self

    async def __aexit__(self, *_: object) -> None:
        for guest in self.ever:
            guest.driver.close()

    def invite(self, *names: str) -> list[Guest]:
        """Start nodes; one that was here before starts from its old directory."""
        started = [Guest(name, self._opening, self._directory / name, self._changed, self._key, self.engine) for name in names]
        for guest in started:
            guest.driver.start()
        self.guests += started
        self.ever += started
        return started

    def guest(self, name: str) -> Guest:
        """The newest life of a name."""
        return [guest for guest in self.ever if guest.name == name][-1]

    def lose(self, guest: Guest) -> None:
        """It dies without a word."""
        guest.driver.close("killed")
        self.guests.remove(guest)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self._changed.wait()
                self._changed.clear()

    async def together(self, *names: str) -> None:
        """All guests have one regular view with exactly these members."""
        wanted = sorted(names)
        await self.until(lambda: all(guest.members == wanted for guest in self.guests) and len(self._current_views()) == 1)

    def _current_views(self) -> set[object]:
        return {guest.driver.view.id for guest in self.guests if guest.driver.view is not None}

    async def everybody_got(self, count: int) -> None:
        await self.until(lambda: all(len(guest.texts) >= count for guest in self.guests))

    async def chatter(self, rounds: int, size: int = 0) -> int:
        """Everybody sends, agreed and safe in turn; how many messages that were."""
        for number in range(rounds):
            service = Service.SAFE if number % 2 else Service.AGREED
            for guest in self.guests:
                await guest.driver.send(service, [f"{guest.name} {number}".encode().ljust(size)])
        return rounds * len(self.guests)
