"""A network that falls apart and comes together again: both sides go on, and merge in one view, with traffic all the time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.real.listeners import Listener, Traffic, payload
from tests.real.notes import Heard
from tests.real.site import LAN, LOOPBACK, MESH, Site, Way, on, tell
from tests.real.test_faults import progress
from transis.client import View
from transis.types.errors import NoQuorum

FOUR = ("ann", "bob", "cid", "dan")
FIVE = (*FOUR, "eve")


async def resident_of_each(site: Site, *labels: str) -> list[Listener]:
    return [await site.resident(label) for label in labels]


def regular_views(one: Listener) -> list[View]:
    return [entry for entry in one.heard if not isinstance(entry, Heard) and entry.id.configuration.is_regular]


@on(LOOPBACK, MESH, LAN)
def test_two_halves_go_on_and_merge_under_traffic(tmp_path: Path, engine: str, way: Way) -> None:
    """The merged view says who comes from which side; nobody is told of the other side's messages."""

    async def story(site: Site) -> None:
        await site.gather(*FOUR)
        ann, bob, cid, dan = everybody = await resident_of_each(site, *FOUR)
        await site.meet(*everybody)
        async with Traffic(everybody):
            await progress(site, everybody)
            await site.part("cid", "dan")
            await site.together("ann", "bob")
            await site.together("cid", "dan")
            await site.meet(ann, bob)
            await site.meet(cid, dan)
            await progress(site, everybody)
            await site.mend()
            await site.together(*FOUR)
            await site.meet(*everybody)
            await progress(site, everybody)
        merged = regular_views(ann)[-1]
        assert sorted(origin.members for origin in merged.merged_from) == [(ann.process, bob.process), (cid.process, dan.process)]
        await site.finish()

    tell(tmp_path, story, engine, way, FOUR)


def test_a_lan_that_parts_again_and_again(tmp_path: Path, engine: str) -> None:
    """Ports move to the other bridge and back faster than rings settle; at last they are left in peace."""

    async def story(site: Site) -> None:
        await site.gather(*FOUR)
        everybody = await resident_of_each(site, *FOUR)
        await site.meet(*everybody)
        async with Traffic(everybody):
            for side in (("ann",), ("bob", "cid"), ("dan",), ("ann", "dan")):
                await progress(site, everybody[:2], 5)
                await site.part(*side)
                await site.together(*side)
                await site.mend()
        await site.together(*FOUR)
        await site.meet(*everybody)
        await site.finish()

    tell(tmp_path, story, engine, LAN, FOUR)


@on(LOOPBACK, LAN)
def test_without_a_quorum_nothing_is_sent_or_delivered(tmp_path: Path, engine: str, way: Way) -> None:
    """One side goes on, the other raises or waits by its node's settings; afterwards what waited goes to all."""

    async def story(site: Site) -> None:
        for label in FIVE:
            how = "raise" if label == "ann" else "wait"
            await site.start(label, settings={"node": {"quorum": list(FIVE), "without_quorum": how}})
        await site.together(*FIVE)
        everybody = await resident_of_each(site, *FIVE)
        await site.meet(*everybody)
        await site.part("ann", "eve")
        await site.together("ann", "eve")
        await site.together("bob", "cid", "dan")
        ann, eve, many = everybody[0], everybody[4], everybody[1:4]
        await site.meet(ann, eve)
        await site.meet(*many)
        assert [bool(one.session.held) for one in everybody] == [True, False, False, False, True]
        lacks = "no quorum: 3 of 5 nodes are needed, ann eve here, bob cid dan missing"
        status = (await site.daemons["eve"].ask("status"))["view"]
        assert (status["primary"], status["lacks"], status["held"]) == (False, lacks, True)
        with pytest.raises(NoQuorum, match=lacks):
            await ann.say(payload(1, 100))
        waiting = asyncio.ensure_future(eve.say(payload(2, 100)))
        for one in many:
            await one.chat(2)
        assert not waiting.done()
        await site.mend()
        await site.together(*FIVE)
        await site.meet(*everybody)
        assert (await (await waiting)).phase == "regular"
        for one in everybody:
            await one.chat(1)
        await site.finish("group_primary", "group_only_primary")

    tell(tmp_path, story, engine, way, FIVE)


@on(LOOPBACK, LAN)
def test_a_group_that_needs_a_quorum_stands_still_where_the_nodes_go_on(tmp_path: Path, engine: str, way: Way) -> None:
    async def story(site: Site) -> None:
        await site.gather(*FIVE, settings={"node": {"quorum": list(FIVE)}})
        everybody = await resident_of_each(site, *FIVE)
        await site.meet(*everybody)
        ann, eve = everybody[0], everybody[4]
        async with ann.session.join("money", without_quorum="raise") as money:
            await (await money.send(payload(1, 100)))
            await site.part("ann", "eve")
            await site.together("ann", "eve")
            await site.meet(ann, eve)
            lacks = "no quorum: 3 of 5 nodes are needed, ann eve here, bob cid dan missing"
            assert (money.held, ann.session.held) == (lacks, "")
            with pytest.raises(NoQuorum, match=lacks):
                await money.send(payload(2, 100))
            await ann.chat(1)
            await site.mend()
            await site.together(*FIVE)
            await site.meet(*everybody)
            assert (await (await money.send(payload(3, 100)))).phase == "regular"
        await site.finish("group_primary")

    tell(tmp_path, story, engine, way, FIVE)


@on(LOOPBACK, LAN)
def test_only_the_side_with_a_majority_of_the_quorum_is_primary(tmp_path: Path, engine: str, way: Way) -> None:
    async def story(site: Site) -> None:
        await site.gather(*FIVE, settings={"node": {"quorum": list(FIVE)}})
        everybody = await resident_of_each(site, *FIVE)
        await site.meet(*everybody)
        assert all(one.view is not None and one.view.primary is True for one in everybody)
        await site.part("ann", "eve")
        await site.together("ann", "eve")
        await site.together("bob", "cid", "dan")
        few, many = [everybody[0], everybody[4]], everybody[1:4]
        await site.meet(*few)
        await site.meet(*many)
        assert [one.view.primary for one in few if one.view is not None] == [False, False]
        assert [one.view.primary for one in many if one.view is not None] == [True, True, True]
        assert [(await site.daemons[label].ask("status"))["view"]["primary"] for label in ("ann", "bob")] == [False, True]
        for one in everybody:
            await one.chat(1)
        await site.mend()
        await site.together(*FIVE)
        await site.meet(*everybody)
        assert all(one.view is not None and one.view.primary is True for one in everybody)
        await site.finish("group_primary")

    tell(tmp_path, story, engine, way, FIVE)
