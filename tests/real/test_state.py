"""State transfer under traffic: who joins has a member's state at one place of the stream and exactly what follows it, also when
the member that gave it dies midway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from tests.real.listeners import Traffic, ordered
from tests.real.notes import Heard
from tests.real.site import LAN, LOOPBACK, Site, Way, on, tell
from tests.real.test_faults import progress
from transis.client import Group, Message, Session, Transfer
from transis.types.errors import TransferInterrupted, TransisError

NAMES = ("ann", "bob", "cid")
GROUP = "ledger"
PADDING = 20_000
"""Bytes of a chunk beside its entry, so that a state is more than fits into any window."""


class Replica:
    """Its state is the list of all messages it saw; each entry is a chunk of its own."""

    def __init__(self, site: Site, session: Session[bytes]) -> None:
        self.entries: list[str] = []
        self.interrupted = 0
        self.chunks_given = 0
        self.halfway: asyncio.Event | None = None
        """Set, and then waited on for ever, when half of the state was given."""
        self._site = site
        self.session = session
        self.group: Group[bytes]
        self._following: asyncio.Task[None]

    async def join(self) -> None:
        self.group = await self.session.join(GROUP, state=Transfer(self._save, self._load, background=True)).open()
        self._following = asyncio.create_task(self._follow())

    def _save(self) -> AsyncIterator[bytes]:
        """At the cut: what is given later does not grow any more."""
        return self._give(tuple(self.entries))

    async def _give(self, snapshot: tuple[str, ...]) -> AsyncIterator[bytes]:
        for number, entry in enumerate(snapshot):
            if self.halfway is not None and number == len(snapshot) // 2:
                self.halfway.set()
                await asyncio.Event().wait()
            self.chunks_given += 1
            yield entry.encode().ljust(PADDING)

    async def _load(self, chunks: AsyncIterator[bytes]) -> None:
        entries = []
        try:
            async for chunk in chunks:
                entries.append(chunk.decode().rstrip())
        except TransferInterrupted:
            self.interrupted += 1
            raise
        self.entries = entries

    async def _follow(self) -> None:
        try:
            async for event in self.group:
                if isinstance(event, Message):
                    self.entries.append(str(event.id))
                    self._site.changes.tell()
        except TransisError:
            return

    async def close(self) -> None:
        await self.session.close()
        await self._following


async def replica(site: Site, label: str) -> Replica:
    return Replica(site, await site.session(label, f"replica at {label}"))


@on(LOOPBACK, LAN)
def test_a_joiner_gets_the_state_though_its_provider_dies_midway(tmp_path: Path, engine: str, way: Way) -> None:
    async def story(site: Site) -> None:
        await site.gather(*NAMES)
        writers = [await site.listener(label, GROUP, title=f"writer at {label}") for label in ("bob", "cid")]
        first, second, joiner = [await replica(site, label) for label in NAMES]
        await first.join()
        await second.join()
        async with Traffic(writers, (100,), ordered(engine)):
            await progress(site, writers, 100)
            first.halfway = asyncio.Event()
            joining = asyncio.create_task(joiner.join())
            await first.halfway.wait()
            assert not joining.done()
            await progress(site, writers, 20)
            await site.kill("ann")
            await site.together("bob", "cid")
            await joining
            await progress(site, writers, 20)
        await site.mark(*writers)
        heard = {str(entry.id) for entry in writers[0].heard if isinstance(entry, Heard)}
        await site.until(
            lambda: heard <= {*joiner.entries} and len(second.entries) == len(joiner.entries),
            lambda: f"{len(heard)} messages; {len(second.entries)} and {len(joiner.entries)} entries",
        )
        assert joiner.entries == second.entries
        assert (joiner.interrupted, second.chunks_given > 100) == (1, True)
        for one in (first, second, joiner):
            await one.close()
        await site.finish()

    tell(tmp_path, story, engine, way)
