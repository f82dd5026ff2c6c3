"""Daemons that start and talk: every transport, every service, every size up to the largest, eight daemons, fifty clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.real.listeners import SERVICES
from tests.real.site import LAN, LAN_IPV6, LAN_MESH, LOOPBACK, MESH, MESH_IPV6, PLAIN, Site, Way, on, tell
from transis.types.errors import MessageTooLarge
from transis.types.ids import Service
from transis.types.limits import MESSAGE_MAX

NAMES = ("ann", "bob", "cid")
EIGHT = ("ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal")
WAYS = {
    "loopback": LOOPBACK,
    "loopback-plain": PLAIN,
    "loopback-mesh": MESH,
    "loopback-mesh-ipv6": MESH_IPV6,
    "lan": LAN,
    "lan-ipv6": LAN_IPV6,
    "lan-mesh": LAN_MESH,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_three_start_and_talk_in_all_services(tmp_path: Path, engine: str, way: Way) -> None:
    async def story(site: Site) -> None:
        await site.gather(*NAMES)
        residents = await site.residents()
        await site.meet(*residents)
        await asyncio.gather(*(one.chat(5) for one in residents))
        await site.finish()

    tell(tmp_path, story, engine, way)


@on(LOOPBACK, LAN)
def test_messages_up_to_the_largest_arrive_whole_in_all_services(tmp_path: Path, engine: str, way: Way) -> None:
    async def story(site: Site) -> None:
        await site.gather(*NAMES)
        residents = await site.residents()
        await site.meet(*residents)
        ann, bob, _ = residents
        await ann.chat(1, (0, 1, 1_400, 65_536, 1 << 20))
        for service in SERVICES:
            await bob.chat(1, (MESSAGE_MAX,), (service,))
            await site.mark(*residents)
        with pytest.raises(MessageTooLarge, match="at most"):
            await bob.say(bytes(MESSAGE_MAX + 1))
        assert all(one.bytes > len(SERVICES[1:]) * MESSAGE_MAX for one in residents)
        await site.finish()

    tell(tmp_path, story, engine, way)


@on(LOOPBACK, LAN)
def test_eight_daemons_with_fifty_clients_in_overlapping_groups(tmp_path: Path, engine: str, way: Way) -> None:
    """Each client is in two of five groups, so that all groups overlap; one daemon dies in the middle."""

    async def story(site: Site) -> None:
        await site.gather(*EIGHT)
        clients = [
            await site.listener(EIGHT[number % 8], f"group {number % 5}", f"group {(number + 1) % 5}", title=f"client {number}")
            for number in range(50)
        ]
        await asyncio.gather(*(one.chat(1, (10, 2000), (Service.AGREED, Service.SAFE)) for one in clients))
        await site.kill("dan")
        others = [label for label in EIGHT if label != "dan"]
        await site.together(*others)
        orphans = [one for one in clients if one.process.node.name == "dan"]
        await site.until(lambda: all(one.has_ended for one in orphans), lambda: "clients of the dead daemon to be told")
        left = [one for one in clients if one not in orphans]
        await asyncio.gather(*(one.chat(1, (10,), (Service.SAFE,)) for one in left))
        for number in range(5):
            await site.mark(*(one for one in left if f"group {number}" in one.group.names))
        await site.finish()

    tell(tmp_path, story, engine, way, EIGHT)
