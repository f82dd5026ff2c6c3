"""Real daemons as processes: `python -m transis daemon --config FILE`, followed by what they tell their operator."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.house.sources import ROOT
from tests.real.waiting import PATIENCE_S, Changes

Settings = Mapping[str, Mapping[str, Any]]

TAIL = 25
"""Lines of a daemon's log that a failure shows."""
LINE_MAX = 1 << 20


def merged(*tables: Settings) -> dict[str, dict[str, Any]]:
    """Sections of later tables win, field by field."""
    found: dict[str, dict[str, Any]] = {}
    for table in tables:
        for section, fields in table.items():
            found.setdefault(section, {}).update(fields)
    return found


def as_toml(settings: Settings) -> str:
    """Text, numbers, truth and lists of text are written alike in JSON and TOML."""
    return "\n".join(
        "\n".join([f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in fields.items()), ""])
        for section, fields in settings.items()
    )


class DaemonProcess:
    """One life of a daemon. `label` is what the site calls it; its node may have another name."""

    def __init__(self, label: str, home: Path, settings: Settings, inside: Sequence[str], changes: Changes) -> None:
        self.label = label
        self.name = str(settings["node"]["name"])
        self.clients = home / f"{label}.sock"
        self.admin = home / f"{label}-admin.sock"
        self.is_ready = False
        self.node = ""
        self.members: tuple[str, ...] = ()
        """Names in the last regular view."""
        self.views: list[dict[str, Any]] = []
        self.lines: list[dict[str, Any]] = []
        self.code: int | None = None
        self.was_killed = False
        self._inside = inside
        self._changes = changes
        self._config = home / f"{label}.toml"
        self._config.write_text(as_toml(settings))
        self._process: asyncio.subprocess.Process
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._inside,
            *(sys.executable, "-m", "transis", "daemon", "--config", str(self._config)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            limit=LINE_MAX,
        )
        self._tasks = [asyncio.create_task(one) for one in (self._follow_log(), self._follow_readiness(), self._follow_end())]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self.code is None

    # --- what it says -----------------------------------------------------------------------------------------------

    async def _follow_log(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            self._hear(line.decode(errors="replace").rstrip())
            self._changes.tell()

    async def _follow_readiness(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.is_ready = self.is_ready or line.startswith(b"ready: ")
            self._changes.tell()

    async def _follow_end(self) -> None:
        self.code = await self._process.wait()
        self._changes.tell()

    def _hear(self, text: str) -> None:
        try:
            line: dict[str, Any] = json.loads(text)
        except ValueError:
            line = {"event": "text", "text": text}
        self.lines.append(line)
        if line["event"] == "starting":
            self.node = line["node"]
        elif line["event"] == "view":
            self.views.append(line)
            self.members = tuple(name.rpartition("/")[0] for name in line["members"])

    def said(self, pattern: str) -> bool:
        return any(re.search(pattern, str(line.get("text", ""))) for line in self.lines)

    def tail(self) -> str:
        lines = [f"  {line.get('time', '')} {line.get('text', '')}" for line in self.lines[-TAIL:]]
        state = f"exit code {self.code}" if self.code is not None else "running"
        return "\n".join([f"{self.label} ({self.node or 'no node'}, {state}), the last of its log:", *lines])

    # --- what it is told --------------------------------------------------------------------------------------------

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def kill(self) -> None:
        """As a power cut would: its trace has no end."""
        self.was_killed = True
        self.signal(signal.SIGKILL)
        await self.gone()

    async def gone(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._tasks)
        assert self.code is not None
        return self.code

    async def ask(self, what: str, **more: object) -> dict[str, Any]:
        """One question to the admin socket."""
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(str(self.admin), limit=1 << 26)
            try:
                writer.write(json.dumps({"do": what, **more}).encode() + b"\n")
                answer: dict[str, Any] = json.loads(await reader.readline())
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        assert answer["ok"], answer
        return answer

    async def figure(self, name: str) -> Any:
        return (await self.ask("statistics"))["statistics"][name]

    def resident_bytes(self) -> int:
        """What the system has given it and it has touched."""
        match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert match is not None
        return int(match[1]) * 1024

    async def clean_up(self) -> None:
        """Whatever happened, nothing of it stays."""
        if self._tasks and self.code is None:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
            await asyncio.gather(*self._tasks, return_exceptions=True)
