"""Where the nodes of a benchmark are: on loopback or in namespaces, by multicast or as a mesh, sealed or not.

Ports, multicast groups and cluster names are of this run alone, so that nothing else on the machine is disturbed or measured.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

from transis.console.bench_lan import BenchLan
from transis.console.bench_processes import BenchError, Worker, Workers
from transis.net.host import REAL_WINDOW
from transis.net.state import key_text
from transis.wire.envelope import KEY_SIZE

LOOPBACK: Final = "127.0.0.1"
LAN_PORT: Final = 5405
FIRST_PORT: Final = 20_000
PORTS: Final = 10_000


class Site(AbstractContextManager["Site"]):
    def __init__(
        self,
        nodes: int,
        directory: Path,
        *,
        engine: str,
        lan: bool = False,
        sealed: bool = False,
        transport: str = "multicast",
        flight: bool = True,
    ) -> None:
        self.names = [f"n{number:02d}" for number in range(1, nodes + 1)]
        self.directory = directory
        self.engine = engine
        self.transport = transport
        self._flight = flight
        self.cluster = f"bench-{os.getpid()}"
        self.key = os.urandom(KEY_SIZE) if sealed else None
        self.group = f"239.193.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
        self.group_port = FIRST_PORT + 2 * (os.getpid() % PORTS)
        self._lan = BenchLan(self.names) if lan else None
        self._stack = ExitStack()
        self._seed = ""
        if transport == "mesh":
            self._seed = f"{BenchLan.address(1)}:{LAN_PORT}" if lan else f"{LOOPBACK}:{_three_free_ports()}"

    def __enter__(self) -> Site:
        if self._lan is not None:
            self._stack.enter_context(self._lan)
        if self.key is not None:
            with open(os.open(self._key_file, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
                file.write(key_text(self.key))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @property
    def _key_file(self) -> Path:
        return self.directory / "key"

    @property
    def seeds(self) -> list[str]:
        return [self._seed] if self._seed else []

    def prefix(self, name: str) -> Sequence[str]:
        return () if self._lan is None else self._lan.prefix(name)

    def interface(self, name: str) -> str:
        return LOOPBACK if self._lan is None else BenchLan.address(self.names.index(name) + 1)

    def port(self, name: str) -> int:
        """The seed of a mesh is at a port that the others know; everybody else takes what the system gives."""
        return int(self._seed.rpartition(":")[2]) if self._seed and name == self.names[0] else 0

    def socket(self, name: str) -> str:
        return str(self.directory / f"{name}.sock")

    def state(self, name: str) -> str:
        return str(self.directory / "state" / name)

    async def start_daemon(self, workers: Workers, name: str) -> Worker:
        """A daemon for one node, which is told ready by its first line."""
        file = self.directory / f"{name}.toml"
        file.write_text(self._settings(name), encoding="utf-8")
        arguments = ("daemon", "--config", str(file))
        prefix = self.prefix(name)
        return await workers.start(f"daemon {name}", "transis", *arguments, prefix=prefix, as_json=False)

    def _settings(self, name: str) -> str:
        window = REAL_WINDOW
        key = f'key_file = "{self._key_file}"' if self.key is not None else "anybody_may_read_and_write = true"
        return f"""
[node]
name = "{name}"
cluster = "{self.cluster}"
state = "{self.state(name)}"
engine = "{self.engine}"
[window]
window = {window.window}
visit_max = {window.visit_max}
accelerated = {window.accelerated}
outbox_bytes = {window.outbox_bytes}
[network]
transport = "{self.transport}"
interface = "{self.interface(name)}"
group = "{self.group}"
data_port = {self.group_port}
control_port = {self.group_port + 1}
port = {self.port(name)}
seeds = {self.seeds}
[security]
{key}
[sessions]
socket = "{self.socket(name)}"
[flight]
enabled = {str(self._flight).lower()}
[log]
level = "warning"
"""


def _three_free_ports() -> int:
    """A port of loopback that is free now with the two after it, as a mesh node needs them."""
    for base in range(FIRST_PORT + os.getpid() % PORTS, FIRST_PORT + 2 * PORTS, 7):
        try:
            with ExitStack() as opened:
                for port in range(base, base + 3):
                    opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)).bind((LOOPBACK, port))
        except OSError:
            continue
        return base
    raise BenchError("no three free UDP ports in a row on loopback")
