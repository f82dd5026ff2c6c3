"""The processes of a benchmark: started together, listened to line by line, measured from outside, and always ended.

1. A process is told what to do by lines of JSON on its standard input and tells what happens by lines on its standard output.
2. Whatever ends the benchmark (a result, an error, Ctrl-C) ends all of them. One that ends early ends the benchmark.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

from transis.types.errors import TransisError

LINE_MAX: Final = 1 << 22
PATIENCE_S: Final = 60.0
"""Longer than anything in a benchmark takes beside the measured time, even on a busy machine."""
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
TICKS: Final = os.sysconf("SC_CLK_TCK")
PACKAGES: Final = Path(__file__).resolve().parents[2]

Line = dict[str, Any]


class BenchError(TransisError):
    """The benchmark could not be carried out."""


class Usage(NamedTuple):
    """What a process has used of the processor, and has of memory."""

    cpu_s: float
    rss_bytes: int


def usage_of(pid: int) -> Usage:
    """From the kernel's own books; zeros where there are none. A process's name may hold anything, so they are read behind it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return Usage(0.0, 0)
    return Usage((int(fields[11]) + int(fields[12])) / TICKS, int(fields[21]) * PAGE)


class Worker:
    """One process and the lines it said that nobody looked at yet."""

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

    def tell(self, line: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(json.dumps(line).encode() + b"\n")

    async def hear(self, what: str, patience_s: float = PATIENCE_S) -> Line:
        """The next line about `what`; others are dropped. Raises BenchError when it will not come."""
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
        """End it, if it has not ended."""
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
        """`python -m module` with arguments, behind a prefix that says where. `quiet` drops what it writes to stderr."""
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


def tell(line: Mapping[str, Any]) -> None:
    """For the processes: one line to the benchmark."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def open_orders() -> asyncio.StreamReader:
    """For the processes: what the benchmark tells."""
    reader = asyncio.StreamReader(LINE_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def next_order(reader: asyncio.StreamReader) -> Line:
    """The next line; a benchmark that is gone ends this process."""
    line = await reader.readline()
    if not line:
        raise SystemExit(0)
    order: Line = json.loads(line)
    return order
