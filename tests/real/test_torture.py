"""Minutes of kills, pauses, cuts and floods with real daemons: nothing is broken at the end, and every receipt has ended.

    TORTURE_S=300 .venv/bin/python -m pytest -m long -s tests/real/test_torture.py

With TORTURE_LIES=1 a stranger with the key lies, too. At the end Spark judges what was recorded, once more.

A seed draws what happens; when it happens is the machine's own. `-s` shows it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import monotonic

import pytest

from tests.net.lan import why_not
from tests.real.listeners import Listener
from tests.real.site import LAN, LOOPBACK, Site, tell
from tests.real.waiting import let_pass
from transis.sim.streams import RandomStream

NAMES = ("ann", "bob", "cid", "dan", "eve")
TORTURE_S = float(os.environ.get("TORTURE_S", "60"))
SETTLING_S = 240.0
"""For coming to rest, and for judging all that was recorded."""
STRIKES = ("kill", "pause", "cut", "flood", "burst") + ("lie",) * ("TORTURE_LIES" in os.environ)
PAUSE_S = (0.05, 0.2, 0.6, 1.5)
CUT_S = (0.3, 1.0, 3.0)
FLOOD = 5_000
LIE_S = 1.0


class Torturer:
    def __init__(self, site: Site, seed: str) -> None:
        self._site = site
        self._stream = RandomStream(seed)
        self._talking: set[asyncio.Task[None]] = set()
        self.residents: dict[str, Listener] = {}
        self.done: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        ends = monotonic() + seconds
        for name in NAMES:
            await self._settle(name)
        while monotonic() < ends:
            for _ in range(self._stream.between(1, 4)):
                await self._strike()
            await self._heal()

    async def rest(self) -> None:
        """Nobody talks any more, and all have heard all."""
        for task in self._talking:
            task.cancel()
        for result in await asyncio.gather(*self._talking, return_exceptions=True):
            assert not isinstance(result, Exception), result
        living = list(self.residents.values())
        await self._site.meet(*living)
        await self._site.mark(*living)

    async def _settle(self, name: str) -> None:
        """Its client talks until its daemon is killed."""
        resident = self.residents[name] = await self._site.resident(name)
        self._talking.add(asyncio.create_task(resident.talk()))

    async def _strike(self) -> None:
        kind = self._stream.pick(STRIKES)
        name = self._stream.pick(NAMES)
        self.done[kind] += 1
        sys.stdout.write(f"{kind} {name}\n")
        await getattr(self, f"_{kind}")(name)

    async def _heal(self) -> None:
        """All are together again, and each has heard a message of each other."""
        await self._site.mend()
        dead = [name for name in NAMES if not self._site.daemons[name].is_alive]
        await self._site.boot(*dead)
        await self._site.together(*NAMES)
        for name in dead:
            await self._settle(name)
        await self._site.meet(*self.residents.values())
        await self._site.mark(*self.residents.values())

    # --- what happens -------------------------------------------------------------------------------------------------

    async def _kill(self, name: str) -> None:
        if len(self._site.living) > 1 and self._site.daemons[name].is_alive:
            await self._site.kill(name)

    async def _pause(self, name: str) -> None:
        daemon = self._site.daemons[name]
        if daemon.is_alive:
            daemon.signal(signal.SIGSTOP)
            await let_pass(self._stream.pick(PAUSE_S))
            daemon.signal(signal.SIGCONT)

    async def _cut(self, _: str) -> None:
        living = [daemon.label for daemon in self._site.living]
        if self._site.way.lan and len(living) > 1:
            await self._site.mend()  # Who was parted before comes back.
            await self._site.part(*self._stream.some(living, self._stream.between(1, len(living) - 1)))
            await let_pass(self._stream.pick(CUT_S))

    async def _flood(self, name: str) -> None:
        """A client that asks and asks."""
        if self._site.daemons[name].is_alive:
            session = await self._site.session(name, "flooder")
            try:
                await asyncio.wait_for(asyncio.gather(*(session.about() for _ in range(FLOOD))), SETTLING_S)
            finally:
                await session.close()

    async def _burst(self, name: str) -> None:
        """More messages at once than fit anywhere."""
        resident = self.residents[name]
        if self._site.daemons[name].is_alive and resident.failure is None:
            resident.receipts.append(await resident.group.send_many([bytes([7]) * 15] * FLOOD))

    async def _lie(self, _: str) -> None:
        await self._site.lie(LIE_S)


@pytest.mark.long
@pytest.mark.parametrize("seed", ["1"])
def test_torture(tmp_path: Path, engine: str, seed: str) -> None:
    async def story(site: Site) -> None:
        await site.gather(*NAMES)
        torturer = Torturer(site, seed)
        await torturer.run(TORTURE_S)
        await torturer.rest()
        for one in site.listeners:
            assert [receipt for receipt in one.receipts if receipt.outcome == "pending"] == [], one.label
        await site.finish()
        outcomes = Counter(receipt.outcome for one in site.listeners for receipt in one.receipts)
        heard = sum(one.messages for one in site.listeners)
        sys.stdout.write(f"{engine}: {dict(torturer.done)}; {heard} messages heard; receipts {dict(outcomes)}; {site.thrown}\n")
        assert torturer.done["lie"] == 0 or site.thrown["lie"] > 0

    way = LOOPBACK if why_not() else LAN
    tell(tmp_path, story, engine, way, NAMES, story_s=TORTURE_S + SETTLING_S, rogue=True)
    audited = [sys.executable, "-m", "transis", "audit", str(tmp_path / "traces")]
    audit = subprocess.run(audited, capture_output=True, text=True, check=False)
    assert audit.returncode == 0, audit.stdout + audit.stderr
    sys.stdout.write(audit.stdout.splitlines()[-2] + "\n")
    assert "0 broken" in audit.stdout
