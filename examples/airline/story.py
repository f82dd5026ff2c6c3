"""The run: four daemons, an office at each, two archivers, a partition and its end. Every step is awaited, none is timed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from examples.airline.office import GROUP, Office, open_office
from examples.airline.script import AGAIN, ALONE, APART, OFFICES, OTHERS, TOGETHER, Request
from transis import connect
from transis.cli.admin import AdminConnection
from transis.cli.local_cluster import LocalCluster
from transis.types.errors import ConnectError, TransisError

PATIENCE_S: Final = 120.0
"""Limit for each step, which takes a few seconds on an idle machine."""
RETRY_S: Final = 0.1
ARCHIVERS: Final = (ALONE[0], OTHERS[0])
"""The offices with archivers: one on each side."""

SETTINGS: Final[dict[str, dict[str, object]]] = {
    "admin": {"allow_faults": True},
    # Slow to suspect: even on a busy machine only the script may part the offices.
    "node": {"profile": "wan", "quorum": list(OFFICES)},
}


class StoryError(TransisError):
    """The story did not reach its end."""


def tell_story(directory: Path, say: Callable[[str], None]) -> dict[str, set[str]]:
    """Run the story and leave the archive in the directory; returns the requests with a seat, as each office knows them."""
    directory.mkdir(parents=True, exist_ok=True)
    archivers: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="airline-nodes-") as place:
        cluster = LocalCluster(Path(place), OFFICES, SETTINGS)
        try:
            cluster.start()
            return asyncio.run(_Story(cluster, directory, archivers, say).run())
        finally:
            for process in archivers:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            cluster.stop()


class _Story:
    def __init__(
        self, cluster: LocalCluster, directory: Path, archivers: list[subprocess.Popen[bytes]], say: Callable[[str], None]
    ) -> None:
        self._cluster, self._directory, self._archivers, self._say = cluster, directory, archivers, say
        self._offices: dict[str, Office] = {}
        self._news = asyncio.Event()

    async def run(self) -> dict[str, set[str]]:
        try:
            await self._open()
            self._say(f"{len(OFFICES)} offices sell together.")
            await self._sell(TOGETHER, OFFICES)
            await self._part()
            for side, requests in APART.items():
                self._say(f"{' '.join(side)} sell{'s' if len(side) == 1 else ''} apart.")
                await self._sell(requests, side)
            await self._heal()
            self._say("They meet again and go on together.")
            await self._sell(AGAIN, OFFICES)
            await asyncio.to_thread(self._close_archive)
            return {name: set(office.sold) for name, office in self._offices.items()}
        finally:
            await asyncio.gather(*(office.close() for office in self._offices.values()), return_exceptions=True)

    async def _open(self) -> None:
        for name in OFFICES:
            self._offices[name] = await self._office(name)
        self._archivers += [self._archiver(name) for name in ARCHIVERS]
        everybody = len(OFFICES) + len(ARCHIVERS)
        await self._until(
            lambda: all(one.members == everybody for one in self._offices.values()), "all offices and archivers meet"
        )

    async def _office(self, name: str) -> Office:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                daemon = self._cluster[name]
                try:
                    session = await connect(str(daemon.clients), label=f"office {name}").open()
                    return await open_office(name, session, self._news.set)
                except ConnectError:
                    if daemon.crashed:
                        raise StoryError(f"the daemon of {name} did not come up: {daemon.tail()}") from None
                await asyncio.sleep(RETRY_S)

    def _archiver(self, name: str) -> subprocess.Popen[bytes]:
        where = ["--socket", str(self._cluster[name].clients), "--to", str(self._directory / "archive"), "--name", name]
        command = [sys.executable, "-m", "transis.cli.main", str(os.getpid()), "archive", GROUP, *where, "--free-mb", "0"]
        with (self._directory / f"archiver-{name}.log").open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)

    async def _sell(self, requests: Iterable[Request], side: tuple[str, ...]) -> None:
        """Each request waits until all offices of the side have decided the last one, so that the order is that of the script."""
        for request in requests:
            number = await self._offices[request.office].ask(request)
            await self._until(partial(self._is_heard, number, side), f"{number} is heard by all")

    def _is_heard(self, number: str, side: tuple[str, ...]) -> bool:
        return all(number in self._offices[name].heard for name in side)

    async def _part(self) -> None:
        for side, others in ((ALONE, OTHERS), (OTHERS, ALONE)):
            for name in side:
                self._ask(name, "cut", peers=list(others))
        await self._until(
            lambda: all(self._offices[name].company == side for side in (ALONE, OTHERS) for name in side), "the sides are apart"
        )

    async def _heal(self) -> None:
        for name in OFFICES:
            self._ask(name, "heal")
        await self._until(lambda: all(one.company == OFFICES for one in self._offices.values()), "all offices meet again")

    def _ask(self, name: str, what: str, **more: object) -> None:
        with AdminConnection(self._cluster[name].admin, None) as connection:
            connection.ask(what, **more)

    async def _until(self, reached: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not reached():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise StoryError(f"this did not happen within {PATIENCE_S:.0f} s: {what}") from None

    def _close_archive(self) -> None:
        """Make the archivers publish what came, and leave."""
        for process in self._archivers:
            process.send_signal(signal.SIGTERM)
        for process, name in zip(self._archivers, ARCHIVERS, strict=True):
            if process.wait(PATIENCE_S) != 0:
                raise StoryError(f"the archiver of {name} failed: see archiver-{name}.log in {self._directory}")
