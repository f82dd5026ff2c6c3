"""One node as a process of its own, for the tests on a LAN: told what to do by lines on stdin, tells what happens on stdout.

    python -m tests.net.lan_node NAME DIRECTORY NETWORK ENGINE multicast|SEED...

Lines in: `send N`, `leave`. Lines out: `view ann bob`, `told N`, `ended WHY`. Its trace goes to DIRECTORY/traces.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from transis.net.driver import Driver
from transis.net.interfaces import choose_interface
from transis.net.state import StateDirectory
from transis.net.transport import GROUP, GROUP_IPV6, MeshTransport, MulticastTransport, Transport
from transis.trace.recorder import Recorder
from transis.trace.segment import Header, SegmentWriter
from transis.types.config import LOCAL, LOCAL_PULSE, Config
from transis.types.ids import Service
from transis.types.outputs import Configure, Delivered, News

KEY = bytes(range(32))
MESH_PORT = 5405


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def open_transport(config: Config, network: str, how: Sequence[str]) -> Transport:
    interface = choose_interface(network)
    if how[0] == "multicast":
        return MulticastTransport(interface, GROUP if interface.address.version == 4 else GROUP_IPV6)
    return MeshTransport(interface, config, KEY, how, MESH_PORT)


class Child:
    def __init__(self, name: str, directory: Path, network: str, engine: str, how: Sequence[str]) -> None:
        config = Config(name=name, timing=LOCAL, engine=engine, pulse=LOCAL_PULSE)
        transport = open_transport(config, network, how)
        state = StateDirectory(directory / name, name)
        self._told = 0
        self.driver = Driver(config, transport, state, self._hear, key=KEY)
        node = self.driver.node.id
        self.segments = SegmentWriter(directory / "traces", Header("transis", "lan", node, engine=engine))
        self.driver.observers.append(Recorder(node, self.segments))

    def _hear(self, news: Sequence[News]) -> None:
        for event in news:
            if isinstance(event, Configure) and event.view.id.is_regular:
                say("view", *(node.name for node in event.view.nodes))
        count = sum(len(event.payloads) for event in news if isinstance(event, Delivered))
        if count:
            self._told += count
            say("told", self._told)

    async def obey(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        self.driver.start()
        while line := (await reader.readline()).split():
            if line[0] == b"send":
                messages = [bytes(100)] * int(line[1])
                await self.driver.send(Service.AGREED, messages[::2])
                await self.driver.send(Service.SAFE, messages[1::2])
            else:
                await self.driver.leave()
                say("ended", await self.driver.ended())
                self.segments.close()
                return


if __name__ == "__main__":
    asyncio.run(Child(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:]).obey())
