"""One name, one node: a second one is refused loudly, also when it has a copy of the first one's memory."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.real.daemons import DaemonProcess
from tests.real.site import LAN, LOOPBACK, Site, Way, on, tell

NAMES = ("ann", "bob", "cid")


async def refused(site: Site, daemon: DaemonProcess) -> None:
    """It ended by itself, with the code for never having run, and said to its operator what to do."""
    await site.until(lambda: not daemon.is_alive, lambda: f"the end of {daemon.label}")
    assert await daemon.gone() == 2
    assert not daemon.is_ready
    assert daemon.said("choose another name|name of its own|new name"), daemon.tail()


@on(LOOPBACK, LAN)
def test_a_second_node_of_one_name_is_refused(tmp_path: Path, engine: str, way: Way) -> None:
    async def story(site: Site) -> None:
        await site.gather(*NAMES)
        residents = await site.residents()
        await site.meet(*residents)
        second = await site.start("twin", name="bob")
        await refused(site, second)
        for one in residents:
            await one.chat(1)
        await site.finish()

    tell(tmp_path, story, engine, way, (*NAMES, "twin"))


@on(LOOPBACK, LAN)
def test_a_copied_state_directory_is_refused(tmp_path: Path, engine: str, way: Way) -> None:
    """With the name in use, and again when its owner is gone and came back: the copy is behind it for ever."""

    async def story(site: Site) -> None:
        await site.gather(*NAMES)
        residents = await site.residents()
        await site.meet(*residents)
        shutil.copytree(site.home / "bob", site.home / "twin")
        await refused(site, await site.start("twin", name="bob"))
        await site.kill("bob")
        await site.together("ann", "cid")
        await site.gather("bob")
        assert site.daemons["bob"].node == "bob/2"
        await refused(site, await site.start("twin", name="bob"))
        await site.finish()

    tell(tmp_path, story, engine, way, (*NAMES, "twin"))


def test_two_nodes_of_one_name_that_a_partition_hid_are_told_apart(tmp_path: Path, engine: str) -> None:
    """Each ran on its side; when the sides meet, one of them stops with a word, and the other stays."""

    async def story(site: Site) -> None:
        assert site.lan is not None
        site.lan.part("twin", "cid")
        await site.boot("ann", "bob")
        await site.together("ann", "bob")
        await site.boot("cid")
        twin = await site.start("twin", name="bob")
        await site.until(lambda: twin.members == ("bob", "cid"), lambda: f"the twin's view, it has {twin.members}")
        bob = site.daemons["bob"]
        site.evidence.copied.add("bob/1")
        site.lan.mend("twin", "cid")
        await site.until(lambda: not (twin.is_alive and bob.is_alive), lambda: "one of the two to stop")
        stopped, stayed = (twin, bob) if not twin.is_alive else (bob, twin)
        assert await stopped.gone() == 1
        assert stopped.said("name of its own|choose another name"), stopped.tail()
        labels = ("ann", "cid", stayed.label)
        everybody = ("ann", "bob", "cid")
        await site.until(
            lambda: all(site.daemons[label].members == everybody for label in labels),
            lambda: f"{everybody}; there are {[(label, site.daemons[label].members) for label in labels]}",
        )
        del site.daemons[stopped.label]
        await site.finish()

    tell(tmp_path, story, engine, LAN, (*NAMES, "twin"))
