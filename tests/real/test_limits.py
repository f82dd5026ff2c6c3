"""The stated limits on real daemons: a thousand clients of one of them, ten thousand groups on three."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.real.listeners import Listener, payload
from tests.real.site import Site, tell
from transis.client import connect
from transis.types.errors import ConnectError
from transis.types.ids import Service
from transis.types.views import ADDRESSED_GROUPS_MAX

pytestmark = pytest.mark.slow

NAMES = ("ann", "bob", "cid")
CLIENTS = 1000
PER_GROUP = 10
GROUPS = 10_000
DESCRIPTORS = 4096
LONG_S = 120.0
"""Views of ten thousand groups take their time."""
AT_ONCE = 100
"""Clients that connect at a time."""


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Every session is a descriptor here and one in the daemon, which inherits the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        pytest.skip(f"needs {DESCRIPTORS} file descriptors, and the system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, DESCRIPTORS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def group_of(number: int) -> str:
    return f"table {number // PER_GROUP}"


async def crowd(site: Site, label: str) -> list[Listener]:
    clients: list[Listener] = []
    for start in range(0, CLIENTS, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, CLIENTS))
        clients += await asyncio.gather(*(site.listener(label, group_of(one), title=f"client {one}") for one in numbers))
    return clients


def test_a_thousand_clients_of_one_daemon(tmp_path: Path, engine: str, many_descriptors: None) -> None:
    """A hundred groups of ten; everybody speaks, and everybody hears its own group only. One more than allowed is turned away."""

    async def story(site: Site) -> None:
        await site.gather(*NAMES, settings={"sessions": {"clients_max": CLIENTS}})
        clients = await crowd(site, "ann")
        assert (await site.daemons["ann"].ask("status"))["sessions"] == CLIENTS
        with pytest.raises(ConnectError, match=f"{CLIENTS} sessions"):
            await connect(str(site.daemons["ann"].clients)).open()
        for one in clients:
            await one.say(payload(one.process.number, 100), Service.SAFE)
        await asyncio.gather(*(one.receipts[0] for one in clients))
        total = CLIENTS * PER_GROUP
        await site.until(
            lambda: sum(one.messages for one in clients) == total,
            lambda: f"{total} messages; there are {sum(one.messages for one in clients)}",
        )
        assert {one.messages for one in clients} == {PER_GROUP}
        await asyncio.gather(*(one.close() for one in clients[:10]))
        await site.until(lambda: site.daemons["ann"].said("client 9.*ended"), lambda: "room for a resident")
        await site.finish()

    tell(tmp_path, story, engine)


async def member_of_many(site: Site, label: str, names: Sequence[str]) -> list[Listener]:
    """One session; a stream has as many names as one address."""
    session = await site.session(label, f"member at {label}")
    pages = [names[start : start + ADDRESSED_GROUPS_MAX] for start in range(0, len(names), ADDRESSED_GROUPS_MAX)]
    return [
        await site.listener(label, *page, title=f"{label}, page {number}", session=session) for number, page in enumerate(pages)
    ]


async def all_have(site: Site, listeners: Sequence[Listener], names: Sequence[str], count: int) -> None:
    """Both who are in each of these groups have regular views of so many."""

    def stand() -> bool:
        views = [one.views.get(name) for one in listeners for name in one.group.names if name in wanted]
        return all(view is not None and view.id.configuration.is_regular and len(view.members) == count for view in views)

    wanted = frozenset(names)
    await site.until(stand, lambda: f"views of {count} in {len(names)} groups", LONG_S)


MANY_GROUPS = [("totem", GROUPS), ("lansis", GROUPS // 4), pytest.param("lansis", GROUPS, marks=pytest.mark.long)]
"""Groups are the same above both engines, so that all of them on one are enough for every day."""


@pytest.mark.parametrize(("engine", "groups"), MANY_GROUPS)
def test_ten_thousand_groups_on_three_daemons_with_a_cut_and_a_heal(tmp_path: Path, engine: str, groups: int) -> None:
    """Every group has members on two of the daemons, so that the cut tears two thirds of them apart."""

    async def story(site: Site) -> None:
        await site.gather(*NAMES)
        names = [f"group {number}" for number in range(groups)]
        listeners: list[Listener] = []
        for number, label in enumerate(NAMES):
            own = [name for place, name in enumerate(names) if place % 3 != number]
            listeners += await member_of_many(site, label, own)
        await all_have(site, listeners, names, 2)
        assert (await site.daemons["cid"].ask("status"))["groups"] == groups
        await site.part("cid")
        await site.together("ann", "bob")
        await site.together("cid")
        await all_have(site, listeners, [name for place, name in enumerate(names) if place % 3 != 2], 1)
        await site.mend()
        await site.together(*NAMES)
        await all_have(site, listeners, names, 2)
        await asyncio.gather(*(one.chat(1, (100,), (Service.AGREED,)) for one in listeners))
        await site.finish()

    tell(tmp_path, story, engine)
