"""What others reach who replicate a log on this machine: NATS JetStream and PySyncObj, three of them, when they are installed.

1. Like replicas of ours, each of the three has a client of its own, and all post at once; counted is what was acknowledged.
2. JetStream has a stream with three copies in files. As it comes, it acknowledges before a sync; `synced` has
   `sync_interval: always`. The server is `nats-server` on the path; its protocol is text, so nobody's client is needed.
3. PySyncObj keeps all in memory; with a journal it also writes, and does not sync. Each of the three is a process (`main`).
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import statistics
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Condition
from time import perf_counter, sleep
from typing import Any, Final, NamedTuple

from transis.bench.machines import LOOPBACK, BenchError, Workers, next_order, open_orders, report, run_process

COPIES: Final = 3
WINDOW: Final = 16_384
"""Messages of one client that may wait for their acknowledgement."""
WARM_UP_S: Final = 1.0
START_S: Final = 20.0
ANSWER_S: Final = 2.0
STREAM: Final = "bench"


class Load(NamedTuple):
    """`rate` is messages a second of all clients together; 0 for as many as are acknowledged."""

    size: int
    seconds: float
    rate: float = 0.0
    window: int = WINDOW


def peers_here() -> list[str]:
    """The names of those that can be measured here, each with and without what makes it safer."""
    found = ["jetstream", "jetstream synced"] if shutil.which("nats-server") else []
    try:
        import pysyncobj  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        return found
    return [*found, "pysyncobj", "pysyncobj journal"]


def measure_peer(name: str, load: Load) -> dict[str, Any]:
    kind, _, variant = name.partition(" ")
    with TemporaryDirectory(prefix="transis-bench-") as directory:
        measure = _jetstream if kind == "jetstream" else _pysyncobj
        acks = asyncio.run(measure(Path(directory), load, bool(variant)))
    return summary(acks, load.seconds)


class PeerAcks(NamedTuple):
    """What one client saw while it was measured: how many messages were acknowledged, and the seconds that some of them took."""

    messages: int
    latencies: list[float]


def summary(clients: Sequence[PeerAcks], seconds: float) -> dict[str, Any]:
    latencies = sorted(1000 * one for client in clients for one in client.latencies)
    if not latencies:
        raise BenchError("nothing was acknowledged while it was measured")
    return {
        "msgs_per_s": round(sum(client.messages for client in clients) / seconds),
        "p50_ms": round(statistics.median(latencies), 2),
        "p99_ms": round(latencies[int(0.99 * len(latencies))], 2),
    }


def _free_ports(count: int) -> list[int]:
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in sockets]


class Meter:
    """Counts acknowledgements in the measured time."""

    def __init__(self, load: Load) -> None:
        self._begin = perf_counter() + WARM_UP_S
        self.end = self._begin + load.seconds
        self.messages = 0
        self.latencies: list[float] = []

    def acknowledged(self, sent: float, now: float, messages: int = 1) -> None:
        if self._begin <= now < self.end:
            self.messages += messages
            if sent >= self._begin:
                self.latencies.append(now - sent)

    @property
    def is_over(self) -> bool:
        return perf_counter() >= self.end


# --- JetStream ----------------------------------------------------------------------------------------------------------

ANSWER: Final = re.compile(rb"MSG _ack\.(\d+) 1 \d+\r\n(\{[^\r]*\})\r\n")


async def _jetstream(directory: Path, load: Load, synced: bool) -> list[PeerAcks]:
    ports, routes = _free_ports(COPIES), _free_ports(COPIES)
    servers = []
    try:
        for number in range(COPIES):
            file = directory / f"{number}.conf"
            file.write_text(_server_settings(directory, number, ports, routes, synced), encoding="ascii")
            servers.append(
                subprocess.Popen(["nats-server", "-c", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
        clients = [await _connected(port) for port in ports]
        await _make_stream(clients[0])
        return list(await asyncio.gather(*(client.publish(load) for client in clients)))
    finally:
        for server in servers:
            server.kill()
            server.wait()


def _server_settings(directory: Path, number: int, ports: Sequence[int], routes: Sequence[int], synced: bool) -> str:
    interval = ", sync_interval: always" if synced else ""
    others = ", ".join(f'"nats-route://{LOOPBACK}:{port}"' for port in routes)
    return f"""
server_name: s{number}
listen: "{LOOPBACK}:{ports[number]}"
jetstream {{ store_dir: "{directory}/store{number}"{interval} }}
cluster {{ name: bench, listen: "{LOOPBACK}:{routes[number]}", routes: [{others}] }}
"""


async def _connected(port: int) -> _NatsClient:
    loop, deadline = asyncio.get_running_loop(), perf_counter() + START_S
    while True:
        try:
            _, client = await loop.create_connection(_NatsClient, LOOPBACK, port)
            return client
        except OSError as error:
            if perf_counter() > deadline:
                raise BenchError(f"nats-server does not answer on port {port}: {error}") from error
            await asyncio.sleep(0.05)


async def _make_stream(client: _NatsClient) -> None:
    """The servers first choose a leader among them; before that they refuse."""
    asked = {"name": STREAM, "subjects": [STREAM], "num_replicas": COPIES, "storage": "file"}
    deadline = perf_counter() + START_S
    while True:
        answer = await client.ask(f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(asked).encode())
        if "error" not in answer:
            return
        if perf_counter() > deadline:
            raise BenchError(f"JetStream refused the stream: {answer['error']}")
        await asyncio.sleep(0.2)


class _NatsClient(asyncio.Protocol):
    def __init__(self) -> None:
        self._rest = b""
        self._sent: dict[int, float] = {}
        self._number = 0
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._meter: Meter | None = None
        self._news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB _ack.* 1\r\n')

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if b"PING\r\n" in data:
            self._transport.write(b"PONG\r\n")
        end, now = 0, perf_counter()
        for found in ANSWER.finditer(data):
            end = found.end()
            self._heard(int(found[1]), found[2], now)
        self._rest = data[max(end, data.rfind(b"MSG ")) :] if data.rfind(b"MSG ") >= end else b""
        self._news.set()

    def _heard(self, number: int, body: bytes, now: float) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(json.loads(body))
        elif (sent := self._sent.pop(number, None)) is not None and self._meter is not None:
            if b'"error"' in body:
                raise BenchError(f"JetStream refused a message: {body.decode()}")
            self._meter.acknowledged(sent, now)

    async def ask(self, subject: str, body: bytes) -> dict[str, Any]:
        self._answer = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ANSWER_S):
                self._transport.write(b"PUB %b _ack.0 %d\r\n%b\r\n" % (subject.encode(), len(body), body))
                return await self._answer
        except TimeoutError:
            return {"error": f"no answer within {ANSWER_S:g} s"}
        finally:
            self._answer = None

    async def publish(self, load: Load) -> PeerAcks:
        meter = self._meter = Meter(load)
        payload, started = bytes(load.size), perf_counter()
        while not meter.is_over:
            room = load.window - len(self._sent)
            if load.rate:
                due = int((perf_counter() - started) * load.rate / COPIES)
                room = min(room, due - self._number)
            if room > 0:
                self._publish(min(room, 64), payload)
                await asyncio.sleep(0)
            else:
                await self._pause(load)
        return PeerAcks(meter.messages, meter.latencies)

    async def _pause(self, load: Load) -> None:
        """Until something is acknowledged, or the next one is due."""
        self._news.clear()
        try:
            async with asyncio.timeout(0.001 if load.rate else 1.0):
                await self._news.wait()
        except TimeoutError:
            pass

    def _publish(self, count: int, payload: bytes) -> None:
        now = perf_counter()
        first, self._number = self._number + 1, self._number + count
        numbers = range(first, first + count)
        self._sent.update(dict.fromkeys(numbers, now))
        head, tail = f"PUB {STREAM} _ack.".encode(), b" %d\r\n%b\r\n" % (len(payload), payload)
        self._transport.write(b"".join(b"%b%d%b" % (head, number, tail) for number in numbers))


# --- PySyncObj ----------------------------------------------------------------------------------------------------------


async def _pysyncobj(directory: Path, load: Load, journal: bool) -> list[PeerAcks]:
    addresses = [f"{LOOPBACK}:{port}" for port in _free_ports(COPIES)]
    async with Workers() as workers:
        running = [await workers.start(f"pysyncobj {number}", __name__) for number in range(COPIES)]
        for number, worker in enumerate(running):
            others = [address for address in addresses if address != addresses[number]]
            file = str(directory / f"journal{number}") if journal else None
            worker.send({"me": addresses[number], "others": others, "journal": file} | load._asdict())
        for worker in running:
            await worker.hear("ready")
        for worker in running:
            worker.send({"go": True})
        lines = [await worker.hear("acks", WARM_UP_S + load.seconds + START_S) for worker in running]
    return [PeerAcks(*line["acks"]) for line in lines]


async def _member() -> None:
    import pysyncobj

    orders = await open_orders()
    order = await next_order(orders)
    load = Load(order["size"], order["seconds"], order["rate"])

    class Register(pysyncobj.SyncObj):  # type: ignore[misc]
        @pysyncobj.replicated  # type: ignore[untyped-decorator]
        def put(self, data: bytes) -> None:
            self.last = data

    settings = pysyncobj.SyncObjConf(journalFile=order["journal"], commandsQueueSize=10 * WINDOW)
    member = Register(order["me"], order["others"], conf=settings)
    member.waitReady()
    report({"ready": True})
    await next_order(orders)
    meter = await asyncio.to_thread(_post, member, load)
    report({"acks": [meter.messages, meter.latencies]})


def _post(member: Any, load: Load) -> Meter:
    """Acknowledgements come in the object's own thread."""
    meter, changed, waiting = Meter(load), Condition(), set[int]()
    payload, started, number = bytes(load.size), perf_counter(), 0

    def acknowledged(posted: int, sent: float, error: int) -> None:
        with changed:
            waiting.discard(posted)
            if not error:
                meter.acknowledged(sent, perf_counter())
            changed.notify()

    while not meter.is_over:
        with changed:
            is_due = not load.rate or number < (perf_counter() - started) * load.rate / COPIES
            if len(waiting) >= load.window:
                changed.wait(0.01)
                continue
            if is_due:
                waiting.add(number)
        if is_due:
            sent = perf_counter()
            member.put(payload, callback=lambda _, error, posted=number, sent=sent: acknowledged(posted, sent, error))
            number += 1
        else:
            sleep(0.0005)
    return meter


if __name__ == "__main__":
    run_process(_member)
