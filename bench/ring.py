"""How fast the ring is on real sockets here: messages that each node delivers per second, all nodes sending.

    python -m bench.ring [--nodes 4] [--seconds 3] [--sizes 64,1000] [--window 300] [--visit-max 120] [--accelerated 0] [--json]

Every node is a process of its own; they talk by multicast on the loopback interface, in plaintext, agreed, untraced. Speed
depends on the machine, so the figure to compare across machines is the ratio to bare UDP: one process that sends bursts of
datagrams to itself and reads them again, with the same help of the kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from transis.bench.machines import DATAGRAM, bare_datagrams_per_s
from transis.net.driver import Driver
from transis.net.interfaces import choose_interface
from transis.net.state import StateDirectory
from transis.net.transport import Group, MulticastTransport
from transis.types.config import LOCAL, Config, Window
from transis.types.ids import Service
from transis.types.outputs import Delivered, News

WINDOW = Window()
BATCH = 1024
WARM_UP_S = 0.5
PATIENCE_S = 30.0


class Speaker:
    """One node that keeps its outbox full and counts what it delivers."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        port = arguments.port
        group = Group(f"239.193.{port >> 8 & 255}.{port & 255}", port, port + 1)
        window = Window(arguments.window, arguments.visit_max, accelerated=arguments.accelerated)
        config = Config(name=f"n{arguments.child}", timing=LOCAL, window=window, plaintext=True)
        state = StateDirectory(Path(arguments.directory) / config.name, config.name)
        transport = MulticastTransport(choose_interface("127.0.0.1"), group)
        self.driver = Driver(config, transport, state, self._hear)
        self.delivered = 0
        self._nodes = arguments.nodes
        self._together = asyncio.Event()
        self._batch = [bytes(arguments.size)] * BATCH

    def _hear(self, news: Sequence[News]) -> None:
        self.delivered += sum(len(event.payloads) for event in news if isinstance(event, Delivered))
        view = self.driver.view
        if view is not None and len(view.members) == self._nodes:
            self._together.set()

    async def speak(self, seconds: float) -> dict[str, float | int | str]:
        self.driver.start()
        async with asyncio.timeout(PATIENCE_S):
            await self._together.wait()
        speaking = asyncio.create_task(self._keep_sending())
        await asyncio.sleep(WARM_UP_S)
        before, started = self.delivered, perf_counter()
        await asyncio.sleep(seconds)
        rate = (self.delivered - before) / (perf_counter() - started)
        speaking.cancel()
        figures = {"msgs_per_s": rate, **self.driver.statistics()}
        await asyncio.sleep(WARM_UP_S)
        self.driver.close()
        return figures

    async def _keep_sending(self) -> None:
        while True:
            await self.driver.send(Service.AGREED, self._batch)
            await asyncio.sleep(0)


def ring_msgs_per_s(arguments: argparse.Namespace, size: int, port: int) -> tuple[float, dict[str, object]]:
    """The median node's rate, and one node's statistics."""
    shared = [(name, getattr(arguments, name)) for name in ("nodes", "seconds", "window", "visit_max", "accelerated")]
    with TemporaryDirectory() as directory:
        told = [*shared, ("size", size), ("port", port), ("directory", directory)]
        command = [sys.executable, "-m", "bench.ring", *(f"--{name.replace('_', '-')}={value}" for name, value in told)]
        children = [
            subprocess.Popen([*command, f"--child={number}"], stdout=subprocess.PIPE, text=True)
            for number in range(1, arguments.nodes + 1)
        ]
        answers = [json.loads(child.communicate()[0]) for child in children]
    return statistics.median(answer["msgs_per_s"] for answer in answers), answers[0]


def measure(arguments: argparse.Namespace) -> dict[str, object]:
    bare = bare_datagrams_per_s()
    figures: dict[str, object] = {"nodes": arguments.nodes, "seconds": arguments.seconds, "bare_datagrams_per_s": round(bare)}
    for offset, size in enumerate(int(text) for text in arguments.sizes.split(",")):
        port = 40_000 + (os.getpid() + 2 * offset) % 10_000
        rate, example = ring_msgs_per_s(arguments, size, port)
        figures[f"msgs_per_s_{size}"] = round(rate)
        figures[f"mb_per_s_{size}"] = round(rate * size / 1e6, 1)
        figures[f"part_of_bare_{size}"] = round(rate / (bare * DATAGRAM / size), 4)
        figures |= {"gso": example["gso"], "gro": example["gro"]}
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--sizes", default="64,1000")
    parser.add_argument("--window", type=int, default=WINDOW.window, help="datagrams per rotation, all nodes together")
    parser.add_argument("--visit-max", type=int, default=WINDOW.visit_max, help="datagrams per visit of the token")
    parser.add_argument("--accelerated", type=int, default=WINDOW.accelerated, help="datagrams of a visit sent after the token")
    parser.add_argument("--json", action="store_true")
    for hidden, kind, default in (("--child", int, 0), ("--size", int, 64), ("--port", int, 0), ("--directory", str, "")):
        parser.add_argument(hidden, type=kind, default=default, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(asyncio.run(Speaker(arguments).speak(arguments.seconds))))
        return 0
    figures = measure(arguments)
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value!s:>12}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
