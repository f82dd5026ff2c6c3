"""How many files a reader has to open: those of the package in which something runs, by what is done.

    python -m tests.house.walks message     # from `group.send` at one daemon's client to the stream of another's
    python -m tests.house.walks simulate    # one simulated run
    python -m tests.house.walks daemon      # a daemon from its command line until it is ready

Each prints the files, one a line. A process of its own measures, so that nothing else is profiled and nothing runs twice.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final

import transis
from tests.house.sources import PACKAGE
from transis.cli.main import app
from transis.daemon.daemon import Daemon
from transis.settings.load import load_settings
from transis.settings.resolve import resolve_daemon
from transis.sim.run import simulate

NAMES: Final = ("ann", "bob")
MESSAGES: Final = 5
"""The walk of a message is the smallest of so many: now and then a daemon does something else meanwhile."""
READY: Final = "ready: "
SEED: Final = 7


@contextmanager
def walked() -> Iterator[set[str]]:
    """The files in which a function is called meanwhile, in this thread; importing a file is no call."""
    files: set[str] = set()
    below = f"{PACKAGE}{os.sep}"

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(below):
            files.add(code.co_filename.removeprefix(below))

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


def settings_of(directory: Path, name: str) -> Path:
    """A daemon on loopback, in a group that no other process uses."""
    process = os.getpid()
    network = f'group = "239.194.{process >> 8 & 255}.{process & 255}"\ndata_port = 5710\ncontrol_port = 5711\n'
    file = directory / f"{name}.toml"
    file.write_text(
        f'[node]\nname = "{name}"\nstate = "{directory / name}"\n[network]\n{network}'
        f'[sessions]\nsocket = "{directory / name}.sock"\n[log]\nlevel = "error"\n'
    )
    return file


class UntilReady(io.StringIO):
    """Stands where stdout is, to hear a daemon say that it is ready."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self._then = then

    def write(self, text: str) -> int:
        if text.startswith(READY):
            self._then()
        return len(text)


# --- the walks ----------------------------------------------------------------------------------------------------------


def of_message() -> set[str]:
    with TemporaryDirectory(prefix="transis-") as directory:
        return asyncio.run(_message(Path(directory)))


async def _message(directory: Path) -> set[str]:
    ready = asyncio.Semaphore(0)
    with redirect_stdout(UntilReady(ready.release)):
        return await _between_daemons(directory, ready)


async def _between_daemons(directory: Path, ready: asyncio.Semaphore) -> set[str]:
    loaded = [load_settings(settings_of(directory, name)) for name in NAMES]
    daemons = [Daemon(settings, resolve_daemon(settings, os.environ)) for settings in loaded]
    running = [asyncio.ensure_future(daemon.run()) for daemon in daemons]
    try:
        async with asyncio.timeout(60):
            for _ in daemons:
                await ready.acquire()
            return await _between_clients(directory)
    finally:
        for daemon in daemons:
            daemon.leave()
        await asyncio.gather(*running)


async def _between_clients(directory: Path) -> set[str]:
    here, there = (directory / f"{name}.sock" for name in NAMES)
    async with transis.connect(here) as ann, transis.connect(there) as bob, ann.join("walk") as speaks, bob.join("walk") as hears:
        while len(hears.members) < len(NAMES):
            await anext(hears)
        return min([await _one_message(speaks, hears) for _ in range(MESSAGES)], key=len)


async def _one_message(speaks: transis.Group[bytes], hears: transis.Group[bytes]) -> set[str]:
    with walked() as files:
        await speaks.send(b"how far is it?")
        while not isinstance(await anext(hears), transis.Message):
            pass
    return files


def of_simulation() -> set[str]:
    with walked() as files:
        simulate(SEED)
    return files


def _end_the_walk() -> None:
    sys.setprofile(None)
    signal.raise_signal(signal.SIGTERM)


def of_daemon() -> set[str]:
    with TemporaryDirectory(prefix="transis-") as directory, redirect_stdout(UntilReady(_end_the_walk)), walked() as files:
        app(["daemon", "--config", str(settings_of(Path(directory), NAMES[0]))], standalone_mode=False)
    return files


WALKS: Final[dict[str, Callable[[], set[str]]]] = {"message": of_message, "simulate": of_simulation, "daemon": of_daemon}


if __name__ == "__main__":
    sys.stdout.writelines(f"{file}\n" for file in sorted(WALKS[sys.argv[1]]()))
