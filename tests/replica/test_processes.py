"""Replicas as processes on real daemons: killed, with their daemons, one by one and all; and on a disk that runs full."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.daemon.test_refusals_of_the_system import fill, small_disk
from tests.embed.party import until
from tests.house.sources import ROOT
from tests.real import site as real
from tests.replica.poster import LAST, REPLICAS
from tests.replica.site import Site, tell
from transis import ReplicaLog
from transis.replication.reader import actions, end
from transis.types.errors import NotYet, PostRefused


class Poster:
    """One life of a replica."""

    def __init__(self, name: str, site: real.Site, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.accepted: list[bytes] = []
        self.is_done = False
        self.code: int | None = None
        self._site = site

    async def start(self) -> Poster:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.replica.poster", self.name),
            *(str(self._site.daemons[self.name].clients), str(self.directory)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        )
        self._following = asyncio.ensure_future(self._follow())
        return self

    async def _follow(self) -> None:
        assert self._process.stdout is not None
        while line := (await self._process.stdout.readline()).decode():
            if found := re.fullmatch(r"accepted (\d+) (\d+)\n", line):
                self.accepted.append(b"%s.%d.%d" % (self.name.encode(), int(found[1]), int(found[2])))
            self.is_done = self.is_done or line == "done\n"
            self._site.changes.tell()
        self.code = await self._process.wait()
        self._site.changes.tell()

    async def kill(self) -> None:
        self._process.kill()
        await self._following

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"end\n")


class Posters:
    def __init__(self, site: real.Site, directory: Path) -> None:
        self.site = site
        self.directory = directory
        self.lives: list[Poster] = []
        self.now: dict[str, Poster] = {}

    async def start(self, *names: str) -> None:
        for name in names:
            self.now[name] = await Poster(name, self.site, self.directory / f"log of {name}").start()
            self.lives.append(self.now[name])

    async def kill(self, *names: str) -> None:
        for name in names:
            await self.now.pop(name).kill()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        await self.site.until(condition, lambda: f"{what}; accepted: {[(one.name, len(one.accepted)) for one in self.lives]}")

    async def until_more(self, count: int = 60) -> None:
        """Each of those who live gets so many more accepted."""
        wanted = {name: len(one.accepted) + count for name, one in self.now.items()}
        await self.until(lambda: all(len(self.now[name].accepted) >= wanted[name] for name in wanted), f"{wanted} to be accepted")

    async def end(self) -> None:
        """Everybody ends in peace, with the same order, in which everything that was ever accepted is once."""
        for one in self.now.values():
            one.end()
        await self.until(lambda: all(one.code is not None for one in self.now.values()), "the replicas to end")
        assert [one.code for one in self.now.values()] == [0, 0, 0]
        orders = [messages(one.directory) for one in self.now.values()]
        shortest = min(map(len, orders))
        assert orders[0][:shortest] == orders[1][:shortest] == orders[2][:shortest]
        order = max(orders, key=len)
        assert len(set(order)) == len(order)
        assert {message for one in self.lives for message in one.accepted} <= set(order)
        assert {LAST + name.encode() for name in REPLICAS} <= set(order)


def messages(directory: Path) -> list[bytes]:
    found: list[bytes] = []
    last = end(directory)
    while len(found) < last:
        for _, action in actions(directory, len(found), last):
            found += action.messages()
    return found


def story(directory: Path, act: Callable[[real.Site, Posters], object], story_s: float = real.STORY_S) -> None:
    async def told(site: real.Site) -> None:
        await site.gather(*REPLICAS)
        posters = Posters(site, directory)
        try:
            await posters.start(*REPLICAS)
            await posters.until_more()
            await act(site, posters)  # type: ignore[misc]
            await posters.end()
        finally:
            await posters.kill(*(name for name, one in posters.now.items() if one.code is None))

    real.tell(directory, told, "totem", junk_per_s=0, story_s=story_s)


def test_a_replica_is_killed(tmp_path: Path) -> None:
    async def act(site: real.Site, posters: Posters) -> None:
        for name in ("ann", "cid"):
            await posters.kill(name)
            await posters.until_more()
            await posters.start(name)
            await posters.until_more()

    story(tmp_path, act)


def test_a_daemon_is_killed(tmp_path: Path) -> None:
    """Its replica posts on meanwhile, and connects again."""

    async def act(site: real.Site, posters: Posters) -> None:
        await site.kill("bob")
        await posters.until_more()
        await site.gather("bob")
        await posters.until_more()

    story(tmp_path, act)


def test_a_minority_posts_on(tmp_path: Path) -> None:
    """What it posted while it was apart is ordered when the network is whole again."""

    async def act(site: real.Site, posters: Posters) -> None:
        await site.part("cid")
        await site.together("ann", "bob")
        await posters.until_more()
        await posters.kill("cid")
        await posters.start("cid")
        await posters.until_more()
        await site.mend()
        await site.together(*REPLICAS)
        await posters.until_more()

    story(tmp_path, act)


def test_all_are_killed(tmp_path: Path) -> None:
    async def act(site: real.Site, posters: Posters) -> None:
        await posters.kill(*REPLICAS)
        await asyncio.gather(*(site.kill(name) for name in REPLICAS))
        await site.gather(*REPLICAS)
        await posters.start("bob", "cid")
        await posters.until_more()
        await posters.kill("bob")
        await posters.start("ann", "bob")
        await posters.until_more()

    story(tmp_path, act)


ACTS = 40
"""About a minute."""


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_storm(tmp_path: Path, seed: int) -> None:
    """Replicas and daemons are killed and started in any order, while the network parts and mends."""

    async def act(site: real.Site, posters: Posters) -> None:
        random = Random(seed)
        for _ in range(ACTS):
            name = random.choice(REPLICAS)
            what = random.choice(["replica", "replica", "daemon", "part", "mend"])
            if what == "replica" and name in posters.now:
                await posters.kill(name)
            elif what == "replica":
                await posters.start(name)
            elif what == "daemon" and site.daemons[name].is_alive:
                await site.kill(name)
            elif what == "daemon":
                await site.boot(name)
            elif what == "part" and all(daemon.is_alive for daemon in site.daemons.values()):
                await site.part(name)
            elif what == "mend":
                await site.mend()
            await posters.until_more(20)
        await site.mend()
        await site.boot(*(name for name in REPLICAS if not site.daemons[name].is_alive))
        await site.together(*REPLICAS)
        await posters.start(*(name for name in REPLICAS if name not in posters.now))

    story(tmp_path, act, story_s=900.0)


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk is mounted by root")
def test_a_full_disk_holds_up_nobody_else(tmp_path: Path) -> None:
    """Posts are refused and say why, the others go on, and when there is room again it catches up."""

    async def act(site: Site) -> None:
        logs = await site.start_with(cyd=disk)
        await (await logs[0].post(b"one")).stable()
        fill(disk)
        with pytest.raises((NotYet, PostRefused), match=re.escape(str(disk))):
            await post_until_refused(logs[2])
        for number in range(20):
            await (await logs[number % 2].post(b"%d" % number)).ordered()
        assert str(disk) in logs[2].status().trouble
        (disk / "filling").unlink()
        receipt = await logs[1].post(b"and on")
        await receipt.stable()
        await (await logs[2].post(b"me too")).ordered()

    with small_disk(tmp_path / "small", "2m") as disk:
        tell(tmp_path, act)


async def post_until_refused(log: ReplicaLog[bytes]) -> None:
    """What is posted first may wait for the disk; what is posted then is refused."""
    waiting = asyncio.ensure_future(log.post(bytes(1 << 20)))
    try:
        await until(lambda: bool(log.status().trouble))
        await log.post(b"x")
    finally:
        waiting.cancel()
