"""Where the nodes of a benchmark are and how their processes are run; what the machine itself reaches.

1. A process takes its orders as lines of JSON on its standard input and reports what happens as lines on its standard output.
2. Whatever ends the benchmark (a result, an error, Ctrl-C) ends all processes. A process that ends early ends the benchmark.
3. Each run has its own ports, multicast groups and cluster names, so that nothing else on the machine is disturbed or measured.
4. A LAN of network namespaces (a switch and some machines, none of them the one we run on) needs root and iproute2. Its
   addresses are from the block for benchmarks (198.18.0.0/15), its names contain the process's number, so that what a killed
   benchmark left behind can be recognised. `close` removes everything.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Final, NamedTuple

import msgspec

from transis.net.interfaces import choose_interface
from transis.net.runtime import fast_loop
from transis.net.sockets import BUFFER_BYTES, BurstReceiver, DatagramSender, open_unicast, size_buffers
from transis.net.state import key_text
from transis.net.transport import Group
from transis.settings.load import settings_of
from transis.settings.schema import REAL_WINDOW, Settings
from transis.types.config import EngineName, ProfileName, TransportName
from transis.types.errors import TransisError, UsageError
from transis.wire.envelope import KEY_SIZE

# --- namespaces -------------------------------------------------------------------------------------------------------

NETWORK: Final = "198.18.0.0/15"
MACHINES_MAX: Final = 250


def why_no_lan() -> str:
    """Why there can be no such LAN here; an empty string if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command ip (iproute2)"
    return ""


class BenchLan:
    """Use it as a context. `prefix(machine)` begins a command that runs on that machine."""

    def __init__(self, machines: Sequence[str]) -> None:
        if reason := why_no_lan():
            raise UsageError(f"--lan: {reason}")
        assert len(machines) <= MACHINES_MAX
        self._machines = machines
        self._name = f"transis-bench-{os.getpid()}-"
        self._spaces: list[str] = []

    def __enter__(self) -> BenchLan:
        try:
            self._add("switch")
            self._inside("switch", "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
            self._inside("switch", "link", "set", "bridge", "up")
            for number, machine in enumerate(self._machines, 1):
                self._plug_in(machine, number)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Deleting a namespace deletes its interfaces. An interrupt halfway must not leave the rest behind."""
        while self._spaces:
            with suppress(KeyboardInterrupt):
                subprocess.run(["ip", "netns", "delete", self._spaces[-1]], check=False, capture_output=True)
                self._spaces.pop()

    def prefix(self, machine: str) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self._name + machine)

    @staticmethod
    def address(number: int) -> str:
        """The address of the machine with this number, from 1 on."""
        return f"198.18.0.{number}"

    def _plug_in(self, machine: str, number: int) -> None:
        self._add(machine)
        wire = ("type", "veth", "peer", "name", "lan0", "netns", self._name + machine)
        self._inside("switch", "link", "add", machine, *wire)
        self._inside("switch", "link", "set", machine, "master", "bridge", "up")
        self._inside(machine, "address", "add", f"{self.address(number)}/15", "dev", "lan0")
        self._inside(machine, "link", "set", "lan0", "up")
        self._inside(machine, "link", "set", "lo", "up")

    def _add(self, machine: str) -> None:
        self._spaces.append(self._name + machine)
        self._run("ip", "netns", "add", self._name + machine)

    def _inside(self, machine: str, *words: str) -> None:
        self._run("ip", "-n", self._name + machine, *words)

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise UsageError(f"--lan: `{' '.join(command)}` failed: {done.stderr.strip()}")


# --- processes --------------------------------------------------------------------------------------------------------

LINE_MAX: Final = 1 << 22
PATIENCE_S: Final = 60.0
"""Longer than anything but the measured time takes in a benchmark, even on a busy machine."""
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
TICKS: Final = os.sysconf("SC_CLK_TCK")
PACKAGES: Final = Path(__file__).resolve().parents[2]

Line = dict[str, Any]


class BenchError(TransisError):
    """The benchmark could not be carried out."""


class Usage(NamedTuple):
    """The processor time that a process has used, and the memory that it has."""

    cpu_s: float
    rss_bytes: int


def usage_of(pid: int) -> Usage:
    """From /proc; zeros where there is none. A process's name may contain anything, so the fields are counted from behind it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return Usage(0.0, 0)
    return Usage((int(fields[11]) + int(fields[12])) / TICKS, int(fields[21]) * PAGE)


class Worker:
    """One process, and its lines that nobody has read yet."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, as_json: bool) -> None:
        self.name = name
        self.process = process
        self._as_json = as_json
        self._lines: deque[Line] = deque()
        self._news = asyncio.Event()
        self._is_over = False
        self._listening = asyncio.create_task(self._listen())

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, line: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(json.dumps(line).encode() + b"\n")

    async def hear(self, what: str, patience_s: float = PATIENCE_S) -> Line:
        """The next line about `what`; others are dropped. Raises BenchError if it does not come in time."""
        try:
            async with asyncio.timeout(patience_s):
                while True:
                    line = await self._next()
                    if what in line:
                        return line
        except TimeoutError:
            raise BenchError(f"{self.name} did not say {what!r} within {patience_s:g} s") from None

    async def _next(self) -> Line:
        while not self._lines:
            if self._is_over:
                code = await self.process.wait()
                raise BenchError(f"{self.name} ended too early, with exit code {code}")
            self._news.clear()
            await self._news.wait()
        return self._lines.popleft()

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self._lines.append(json.loads(line) if self._as_json else {line.decode().partition(":")[0]: line.decode()})
            self._news.set()
        self._is_over = True
        self._news.set()

    async def gone(self) -> None:
        """End the process, if it has not ended."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._listening


class Workers:
    """All processes of a benchmark; use it as a context."""

    def __init__(self) -> None:
        self._started: list[Worker] = []

    async def __aenter__(self) -> Workers:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.gather(*(worker.gone() for worker in self._started), return_exceptions=True)

    async def start(
        self, name: str, module: str, *arguments: str, prefix: Sequence[str] = (), as_json: bool = True, quiet: bool = False
    ) -> Worker:
        """Start `python -m module` with arguments, behind a prefix that says where. `quiet` drops what it writes to stderr."""
        paths = [str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = await asyncio.create_subprocess_exec(
            *prefix,
            sys.executable,
            "-P",
            "-m",
            module,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL if quiet else None,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            limit=LINE_MAX,
        )
        worker = Worker(name, process, as_json)
        self._started.append(worker)
        return worker


def run_process(process: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """For the processes: run until there are no more orders. Ctrl-C is for the benchmark, which ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(process())


def report(line: Mapping[str, Any]) -> None:
    """For the processes: send one line to the benchmark."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def open_orders() -> asyncio.StreamReader:
    """For the processes: the orders of the benchmark."""
    reader = asyncio.StreamReader(LINE_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def next_order(reader: asyncio.StreamReader) -> Line:
    """The next order; this process ends if the benchmark is gone."""
    line = await reader.readline()
    if not line:
        raise SystemExit(0)
    order: Line = json.loads(line)
    return order


# --- the site ---------------------------------------------------------------------------------------------------------

LOOPBACK: Final = "127.0.0.1"
LAN_PORT: Final = 5405
FIRST_PORT: Final = 20_000
PORTS: Final = 10_000


class NodePlace(msgspec.Struct, kw_only=True):
    """What each node of a benchmark is told: who it is, and where it meets the others."""

    name: str
    parent: int
    cluster: str
    group: str
    group_port: int
    state: str
    engine: EngineName
    profile: ProfileName = "auto"

    def settings(self, **more: Any) -> Settings:
        return settings_of(
            self.name,
            cluster=self.cluster,
            plaintext=True,
            group=Group(self.group, self.group_port, self.group_port + 1),
            state=self.state,
            profile=self.profile,
            engine=self.engine,
            **more,
        )


class Site(AbstractContextManager["Site"]):
    def __init__(
        self,
        nodes: int,
        directory: Path,
        *,
        engine: EngineName,
        lan: bool = False,
        sealed: bool = False,
        transport: TransportName = "multicast",
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
        """The seed of a mesh has a port that the others know; everybody else takes what the system gives."""
        return int(self._seed.rpartition(":")[2]) if self._seed and name == self.names[0] else 0

    def socket(self, name: str) -> str:
        return str(self.directory / f"{name}.sock")

    def state(self, name: str) -> str:
        return str(self.directory / "state" / name)

    def place(self, name: str) -> dict[str, Any]:
        """The fields of this node's NodePlace."""
        met = {"cluster": self.cluster, "group": self.group, "group_port": self.group_port, "engine": self.engine}
        return met | {"name": name, "parent": os.getpid(), "state": self.state(name)}

    async def start_daemon(self, workers: Workers, name: str) -> Worker:
        """Start a daemon for one node; its first line says that it is ready."""
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
    """A port of loopback that is free now, as are the next two; a mesh node needs three."""
    for base in range(FIRST_PORT + os.getpid() % PORTS, FIRST_PORT + 2 * PORTS, 7):
        try:
            with ExitStack() as opened:
                for port in range(base, base + 3):
                    opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)).bind((LOOPBACK, port))
        except OSError:
            continue
        return base
    raise BenchError("no three free UDP ports in a row on loopback")


# --- the machine itself -------------------------------------------------------------------------------------------------

DATAGRAM: Final = 1400
BURST: Final = 46
BARE_BURSTS: Final = 4000


def bare_datagrams_per_s() -> float:
    """Send bursts of datagrams over loopback within one process, with the same help from the kernel.

    Speed depends on the machine; the fraction of this figure that a ring reaches can be compared between machines.
    """
    with open_unicast(choose_interface("127.0.0.1"), 0) as out, open_unicast(choose_interface("127.0.0.1"), 0) as into:
        size_buffers(into, BUFFER_BYTES, "bare")
        sender, receiver = DatagramSender(out), BurstReceiver(into, ("192.0.2.1", 9))
        burst = [bytes(DATAGRAM)] * BURST
        started = perf_counter()
        for _ in range(BARE_BURSTS):
            sender.send(burst, into.getsockname())
            receiver.receive()
        return receiver.datagrams / (perf_counter() - started)


def machine() -> dict[str, Any]:
    """What figures depend on, without anything that identifies this machine."""
    loads = os.getloadavg() if hasattr(os, "getloadavg") else (0.0,)
    return {
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "load_after": round(loads[0], 1),
    }
