"""Processes that are no replicas, in the group of the replicas: they hold up nobody, and what they say is dropped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.embed.party import until
from tests.replica.site import Site, tell, until_primary
from transis.replication.attachment import SUFFIX
from transis.replication.newcomers import WAITS, Newcomer, decode, encode
from transis.replication.transfer import SNAPSHOT
from transis.types.errors import Rejection

GROUP = f"accounts{SUFFIX}"
NONSENSE = (b"", b"\x00", WAITS, WAITS + b"\x92\x01\x02", SNAPSHOT, SNAPSHOT + b"\x93\x02\xff\x00", b"\x93\x08\x00", b"\xc1" * 50)


def test_who_tells_nothing_is_left_out(tmp_path: Path) -> None:
    """A process joins and is silent: an exchange waits for what it has, for two seconds, and goes on without it."""

    async def story(site: Site) -> None:
        logs = await site.start()
        await (await logs[0].post(b"one")).ordered()
        async with site.connect("bob") as session, session.join(GROUP):
            receipt = await logs[1].post(b"two")
            assert await receipt.ordered() == 1
            await until_primary(*logs)

    tell(tmp_path, story)


def test_nonsense_is_dropped(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        logs = await site.start()
        await (await logs[0].post(b"one")).ordered()
        async with site.connect("bob") as session:
            replicas = await session.members(GROUP)
            for payload in NONSENSE:
                await session.send(GROUP, payload)
                for process in replicas:
                    await session.send(process, payload)
            await (await session.send(GROUP, b"the last"))
        receipts = await asyncio.gather(*(log.post(b"go on") for log in logs))
        assert sorted([await receipt.ordered() for receipt in receipts]) == [1, 2, 3]
        assert [log.status().trouble for log in logs] == ["", "", ""]

    tell(tmp_path, story)


@pytest.mark.parametrize("payload", [WAITS, WAITS + b"\x92\xa0\xc4\x00", WAITS + b"\x91\xa1a", WAITS + b"\xff"])
def test_a_newcomer_that_makes_no_sense_is_rejected(payload: bytes) -> None:
    assert isinstance(decode(payload), Rejection)


def test_a_newcomer_is_understood() -> None:
    newcomer = Newcomer("dan", bytes(16))
    assert decode(encode(newcomer)) == newcomer


def test_who_was_there_first_is_told_of_the_last(tmp_path: Path) -> None:
    """A replica whose state does not come is shown as what is waited for."""

    async def story(site: Site) -> None:
        log, *_ = await site.start()
        await until_primary(log)
        async with site.connect("cyd") as session, session.join(GROUP):
            await until(lambda: not log.status().is_primary)
            assert log.status().why == "waiting for what the others tell"
            await until_primary(log)

    tell(tmp_path, story)
