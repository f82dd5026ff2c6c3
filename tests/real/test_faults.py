"""Processes that are killed, stopped, cut off and started again, under traffic: who is left agrees, who comes back is new."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.real.listeners import Listener, Traffic
from tests.real.site import LAN, LAN_IPV6, LAN_MESH, LOOPBACK, MESH, Site, Way, on, tell
from tests.real.waiting import let_pass
from transis.types.errors import SessionLost

NAMES = ("ann", "bob", "cid")
SHORT_S = 0.5
"""A pause that nobody may die of: far below the time after which anybody is missed there."""
SLOW = {
    "timing": {"token_loss_ms": 6000, "consensus_ms": 7200, "fail_to_receive_ms": 14000},
    "pulse": {"silence_ms": 6000, "ack_lag_ms": 14000, "agree_ms": 15000},
}
"""Nobody notices a death before the dead one is back."""


async def three(site: Site) -> list[Listener]:
    await site.gather(*NAMES)
    residents = await site.residents()
    await site.meet(*residents)
    return residents


async def progress(site: Site, listeners: Sequence[Listener], count: int = 20) -> None:
    """Traffic goes on: each of these hears so many more messages."""
    goals = {one: one.messages + count for one in listeners}
    await site.until(
        lambda: all(one.messages >= goal for one, goal in goals.items()),
        lambda: f"traffic: {[(one.label, one.messages, goal) for one, goal in goals.items()]}",
    )


@on(LOOPBACK, MESH, LAN, LAN_MESH)
def test_a_killed_daemon_is_missed_and_comes_back_as_a_new_life(tmp_path: Path, engine: str, way: Way) -> None:
    async def story(site: Site) -> None:
        ann, bob, cid = await three(site)
        async with Traffic([ann, bob, cid]):
            await progress(site, [ann, bob, cid])
            await site.kill("cid")
            await site.together("ann", "bob")
            await site.meet(ann, bob)
            await progress(site, [ann, bob])
            await site.until(lambda: cid.has_ended, lambda: "the client of the killed daemon to be told")
            await site.gather("cid")
            again = await site.resident("cid")
            await site.meet(ann, bob, again)
            await progress(site, [ann, bob, again])
        assert isinstance(cid.failure, SessionLost)
        assert site.daemons["cid"].node == "cid/2"
        await site.finish()

    tell(tmp_path, story, engine, way)


@on(LOOPBACK, LAN)
def test_a_short_stop_excludes_nobody(tmp_path: Path, engine: str, way: Way) -> None:
    """Who stands still too shortly to be missed is waited for, and does not suspect the others when it goes on."""

    async def story(site: Site) -> None:
        await site.gather(*NAMES, settings=SLOW)
        residents = await site.residents()
        await site.meet(*residents)
        views = [len(site.daemons[name].views) for name in NAMES]
        async with Traffic(residents):
            for label in ("bob", "ann", "cid"):
                await progress(site, residents)
                site.daemons[label].signal(signal.SIGSTOP)
                await let_pass(SHORT_S)
                site.daemons[label].signal(signal.SIGCONT)
            await progress(site, residents)
        assert [len(site.daemons[name].views) for name in NAMES] == views
        await site.finish()

    tell(tmp_path, story, engine, way)


@on(LOOPBACK, LAN)
def test_a_long_stop_excludes_and_the_stopped_one_is_taken_back(tmp_path: Path, engine: str, way: Way) -> None:
    """It learns that it was left out, and its clients see one merge; what they sent meanwhile is not lost."""

    async def story(site: Site) -> None:
        ann, bob, cid = await three(site)
        async with Traffic([ann, bob, cid]):
            await progress(site, [ann, bob, cid])
            site.daemons["bob"].signal(signal.SIGSTOP)
            await site.together("ann", "cid")
            await site.meet(ann, cid)
            await progress(site, [ann, cid])
            site.daemons["bob"].signal(signal.SIGCONT)
            await site.together(*NAMES)
            await site.meet(ann, bob, cid)
            await progress(site, [ann, bob, cid])
        assert site.daemons["bob"].node == "bob/1"
        assert bob.failure is None
        await site.finish()

    tell(tmp_path, story, engine, way)


@on(LAN, LAN_IPV6, LAN_MESH)
def test_a_link_that_goes_down_and_up_parts_and_merges(tmp_path: Path, engine: str, way: Way) -> None:
    async def story(site: Site) -> None:
        assert site.lan is not None
        ann, bob, cid = await three(site)
        async with Traffic([ann, bob, cid]):
            await progress(site, [ann, bob, cid])
            site.lan.unplug("ann")
            await site.together("bob", "cid")
            await site.together("ann")
            await site.meet(bob, cid)
            await site.meet(ann)
            await progress(site, [ann, bob, cid])
            site.lan.plug("ann")
            await site.together(*NAMES)
            await site.meet(ann, bob, cid)
            await progress(site, [ann, bob, cid])
        await site.finish()

    tell(tmp_path, story, engine, way)


@on(LOOPBACK, LAN)
@pytest.mark.parametrize("label", ["ann", "cid"], ids=["representative", "member"])
def test_a_restart_that_is_faster_than_suspicion_is_another_life(tmp_path: Path, engine: str, way: Way, label: str) -> None:
    """Nobody has noticed the death when the same name comes back: it must not pass for who it was (traps 3 and 4)."""

    async def story(site: Site) -> None:
        await site.gather(*NAMES, settings=SLOW)
        residents = await site.residents()
        await site.meet(*residents)
        others = [one for one in residents if one.process.node.name != label]
        for one in residents:
            await one.chat(1)
        views = {name: len(site.daemons[name].views) for name in NAMES}
        await site.kill(label)
        await site.boot(label, settings=SLOW)
        since = [view for name in NAMES if name != label for view in site.daemons[name].views[views[name] :]]
        assert [view["cause"] for view in since if "born again" not in view["cause"]] == [], "somebody noticed the death itself"
        await site.together(*NAMES)
        again = await site.resident(label)
        await site.meet(*others, again)
        lives = {node for daemon in site.living for node in daemon.views[-1]["members"]}
        assert lives == {f"{name}/{1 + (name == label)}" for name in NAMES}
        await site.finish()

    tell(tmp_path, story, engine, way)


@on(LOOPBACK, LAN)
def test_a_flood_of_junk_and_replays_keeps_nobody_from_forming_a_ring(tmp_path: Path, engine: str, way: Way) -> None:
    """Among it are Joins of rings and lives that are over: to whoever heard them they are old."""

    async def story(site: Site) -> None:
        ann, bob, cid = await three(site)
        async with Traffic([ann, bob, cid]):
            await progress(site, [ann, bob, cid])
            for life in (2, 3):
                await site.kill("cid")
                await site.together("ann", "bob")
                await site.gather("cid")
                assert site.daemons["cid"].node == f"cid/{life}"
            await site.meet(ann, bob, await site.resident("cid"))
            await progress(site, [ann, bob])
        assert await site.daemons["ann"].figure("rejected_replayed") > 0
        await site.finish()

    tell(tmp_path, story, engine, way, junk_per_s=2000)
